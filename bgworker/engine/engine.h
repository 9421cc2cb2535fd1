/*
 * engine.h
 *		The worker's engine: claim, call, settle, over a store and a transfer pool.
 *
 * It has no loop and uses nothing of PostgreSQL.  A host waits for the engine's descriptor and
 * its own wake-ups, no longer than timeout, and then calls dispatch.  Nothing here blocks,
 * except what the store's driver does, and nothing exits.  Memory is only a cache: the process
 * can be killed at any instruction, and another engine goes on from the tables.
 */
#ifndef LLMQ_ENGINE_H
#define LLMQ_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "core/engine_options.h"
#include "core/store.h"

typedef struct LlmqEngine LlmqEngine;

/*
 * Creates an engine that uses a store.  The strings in options are copied, except queues, which
 * must outlive it.  Returns NULL, with a sentence in error, when the machine lacks resources.
 */
extern LlmqEngine *llmq_engine_create(const LlmqEngineOptions *options, LlmqStore *store,
									  char *error, size_t error_size);

/* Frees it and drops calls under way; llmq_engine_stop gives them back first. */
extern void llmq_engine_destroy(LlmqEngine *engine);

/* Applies changed settings: max_in_flight, poll_interval_us, secrets_directory, heartbeat_idle. */
extern bool llmq_engine_configure(LlmqEngine *engine, const LlmqEngineOptions *options);

/* Returns a descriptor that is readable when dispatch has something to do. */
extern int llmq_engine_fd(const LlmqEngine *engine);

/* Returns in how many microseconds dispatch must be called anyway; 0: at once. */
extern int64_t llmq_engine_timeout(LlmqEngine *engine);

/* Tells the engine that there may be work. */
extern void llmq_engine_wake(LlmqEngine *engine);

/* Does everything that can be done now. */
extern void llmq_engine_dispatch(LlmqEngine *engine);

/*
 * Lets calls under way end, gives back what waits for its next attempt, and settles the
 * answers.  That takes some dispatches, until the state is STOPPED.
 */
extern void llmq_engine_drain(LlmqEngine *engine);

/* Does the same, and ends calls under way. */
extern void llmq_engine_stop(LlmqEngine *engine);

/* Returns whether nothing is in hand, and nothing could be claimed now. */
extern bool llmq_engine_is_idle(LlmqEngine *engine);

extern LlmqEngineState llmq_engine_state(const LlmqEngine *engine);

/*
 * These return the number of network calls under way, and of deliveries and outbox messages in
 * hand.
 */
extern int llmq_engine_calls(const LlmqEngine *engine);
extern int llmq_engine_jobs(const LlmqEngine *engine);
extern int llmq_engine_messages(const LlmqEngine *engine);

/* Appends the engine's metrics in Prometheus' text format; false when out of memory. */
extern bool llmq_engine_write_metrics(LlmqEngine *engine, LlmqBuffer *text);

/* Returns whether the last store operation failed; the host may want to find out why. */
extern bool llmq_engine_store_failing(const LlmqEngine *engine);

#endif /* LLMQ_ENGINE_H */
