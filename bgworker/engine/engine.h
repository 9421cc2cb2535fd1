/*
 * engine.h
 *		The worker's engine: claim, call, settle, over a store and a transfer pool.
 *
 * It has no loop and no PostgreSQL in it.  A host waits on the engine's
 * descriptor, on its own wake-ups, and for at most timeout, then calls dispatch.
 * Nothing here blocks except what the store's driver does, and nothing exits.
 * What is in memory is a cache: the store can be killed at any instruction and
 * another engine goes on from the tables.
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
 * Makes an engine on a store.  Options' strings are copied, but for queues, which must
 * outlive it.  NULL, with a sentence in error, when the machine refuses.
 */
extern LlmqEngine *llmq_engine_create(const LlmqEngineOptions *options, LlmqStore *store,
									  char *error, size_t error_size);

/* Frees it; calls under way are dropped (llmq_engine_stop gives them back first). */
extern void llmq_engine_destroy(LlmqEngine *engine);

/* Takes over changed settings: max_in_flight, poll_interval_us, secrets_directory, heartbeat_idle.
 */
extern bool llmq_engine_configure(LlmqEngine *engine, const LlmqEngineOptions *options);

/* Readable when dispatch has something to do. */
extern int llmq_engine_fd(const LlmqEngine *engine);

/* Microseconds until dispatch wants to be called even so; 0: at once. */
extern int64_t llmq_engine_timeout(LlmqEngine *engine);

/* Somebody says that there may be work. */
extern void llmq_engine_wake(LlmqEngine *engine);

/* Does what there is to do. */
extern void llmq_engine_dispatch(LlmqEngine *engine);

/*
 * Lets calls under way end, gives back what waits for its next attempt, settles the
 * answers: over some dispatches, until the state is STOPPED.
 */
extern void llmq_engine_drain(LlmqEngine *engine);

/* The same, and ends calls under way. */
extern void llmq_engine_stop(LlmqEngine *engine);

/* Whether there is nothing in hand, and nothing that could be claimed just now. */
extern bool llmq_engine_is_idle(LlmqEngine *engine);

extern LlmqEngineState llmq_engine_state(const LlmqEngine *engine);

/* Network calls under way, and deliveries and outbox messages in hand. */
extern int llmq_engine_calls(const LlmqEngine *engine);
extern int llmq_engine_jobs(const LlmqEngine *engine);
extern int llmq_engine_messages(const LlmqEngine *engine);

/* Appends what the engine has counted, in Prometheus' text format; false when memory is out. */
extern bool llmq_engine_write_metrics(LlmqEngine *engine, LlmqBuffer *text);

/* Whether the last store operation failed: the host may want to see why. */
extern bool llmq_engine_store_failing(const LlmqEngine *engine);

#endif /* LLMQ_ENGINE_H */
