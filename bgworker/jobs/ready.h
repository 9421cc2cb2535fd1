/*
 * ready.h
 *		The ids of ready jobs in memory, and whose turn it is.
 *
 * This is only a cache of llmq.ready: an id in it may be gone from there, which the claim then
 * finds out.  It chooses the jobs to claim next, in constant time however long the backlog is:
 * queues take turns; within a queue the highest priority comes first; within a priority
 * tenants take turns; within a tenant the order is that of seq.
 */
#ifndef LLMQ_READY_H
#define LLMQ_READY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most ids kept in memory (about 40 bytes each); the others wait in the table. */
#define LLMQ_READY_MAX 2000000

#define LLMQ_PRIORITIES 10

typedef struct LlmqReady LlmqReady;

/* Creates an empty cache; NULL when out of memory. */
extern LlmqReady *llmq_ready_create(void);
extern void llmq_ready_destroy(LlmqReady *ready);

/*
 * Adds a job.  An id that is already there stays as it is.  Returns false when out of memory, or
 * when LLMQ_READY_MAX is reached.  priority is clamped to 0..9.
 */
extern bool
llmq_ready_add(LlmqReady *ready, int64_t seq, const char *queue, const char *tenant, int priority);

/*
 * Keeps an id that is not in the cache from being added until it is released.  Returns false
 * when out of memory.
 */
extern bool llmq_ready_hold(LlmqReady *ready, int64_t seq);
extern void llmq_ready_release(LlmqReady *ready, int64_t seq);

/* Returns the number of ids in the cache. */
extern size_t llmq_ready_count(const LlmqReady *ready);

/* Returns the number of ids of one queue. */
extern size_t llmq_ready_depth(const LlmqReady *ready, const char *queue);

/* Returns how many jobs of a queue may be taken now; called once for each queue and take. */
typedef int (*LlmqReadyAllowance)(void *context, const char *queue);

/*
 * Takes up to max ids whose turn it is into seqs, at most allowance(queue) from each queue.
 * Returns how many it took.
 */
extern int llmq_ready_take(LlmqReady *ready, int64_t *seqs, int max, LlmqReadyAllowance allowance,
						   void *context);

/* Returns whether any queue with jobs has an allowance. */
extern bool llmq_ready_any(LlmqReady *ready, LlmqReadyAllowance allowance, void *context);

#endif /* LLMQ_READY_H */
