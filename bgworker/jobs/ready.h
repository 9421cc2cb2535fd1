/*
 * ready.h
 *		The ids of ready jobs in memory, and whose turn it is.
 *
 * A cache of llmq.ready, never a truth: an id taken from here may be gone, a
 * claim finds out.  It answers, in constant time however long the backlog is,
 * which jobs to claim next: queues take turns, within a queue higher priority
 * goes first, within a priority tenants take turns, within a tenant the order
 * is that of seq.
 */
#ifndef LLMQ_READY_H
#define LLMQ_READY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids kept in memory at most (some 40 bytes each); the rest waits in the table. */
#define LLMQ_READY_MAX 2000000

#define LLMQ_PRIORITIES 10

typedef struct LlmqReady LlmqReady;

/* Makes an empty cache; NULL when memory is out. */
extern LlmqReady *llmq_ready_create(void);
extern void llmq_ready_destroy(LlmqReady *ready);

/*
 * Adds a job.  An id that is there already is left alone.  False when memory
 * or LLMQ_READY_MAX is reached.  priority is 0..9, others are clamped.
 */
extern bool
llmq_ready_add(LlmqReady *ready, int64_t seq, const char *queue, const char *tenant, int priority);

/*
 * Keeps an id that is not there from being added, until it is released.  False when
 * memory is out.
 */
extern bool llmq_ready_hold(LlmqReady *ready, int64_t seq);
extern void llmq_ready_release(LlmqReady *ready, int64_t seq);

/* Ids in the cache. */
extern size_t llmq_ready_count(const LlmqReady *ready);

/* Ids of one queue. */
extern size_t llmq_ready_depth(const LlmqReady *ready, const char *queue);

/* How many jobs of a queue may be taken now; asked once a queue and take. */
typedef int (*LlmqReadyAllowance)(void *context, const char *queue);

/*
 * Takes up to max ids whose turn it is into seqs, at most allowance(queue) of
 * each queue.  Returns how many.
 */
extern int llmq_ready_take(LlmqReady *ready, int64_t *seqs, int max, LlmqReadyAllowance allowance,
						   void *context);

/* Whether any queue with jobs has an allowance. */
extern bool llmq_ready_any(LlmqReady *ready, LlmqReadyAllowance allowance, void *context);

#endif /* LLMQ_READY_H */
