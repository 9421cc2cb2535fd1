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
#include "base/clock.h"
#include "base/hmac.h"
#include "base/log_level.h"
#include "core/store.h"

typedef struct LlmqEngine LlmqEngine;

typedef struct LlmqEngineOptions
{
	const char *name;	 /* of the worker, in llmq.worker */
	const char *kind;	 /* server or program */
	const char *pid;	 /* as text, for llmq.worker_hello */
	int max_in_flight;	 /* network calls at once */
	int max_connections; /* what descriptors allow, never changes; max_in_flight may not pass it */
	int64_t poll_interval_us;
	const char *secrets_directory; /* or NULL */
	const char *user_agent;
	uint64_t seed;
	LlmqHmacSha256 hmac; /* signs webhooks */
	LlmqTime (*clock)(void);
	void (*log)(LlmqLogLevel level, const char *message);

	/*
	 * Whether, since it was last asked, somebody has said that configuration or a
	 * running job's fate is another: that is looked at before anything is claimed.
	 * NULL where nobody can say so.
	 */
	bool (*changed)(void);

	/* Names of the queues that are served, NULL behind the last; NULL: all. */
	const char *const *queues;

	/* A heartbeat also while nothing is in hand: the database cannot see this worker otherwise. */
	bool heartbeat_idle;
} LlmqEngineOptions;

/* What the host may want to show, or act upon. */
typedef enum LlmqEngineState
{
	LLMQ_ENGINE_STARTING, /* has not been able to say hello */
	LLMQ_ENGINE_RUNNING,
	LLMQ_ENGINE_QUARANTINED, /* the jobs were submitted elsewhere */
	LLMQ_ENGINE_OUTDATED,	 /* the SQL speaks another protocol */
	LLMQ_ENGINE_DRAINING,	 /* finishes what is in hand, claims nothing */
	LLMQ_ENGINE_STOPPING,
	LLMQ_ENGINE_STOPPED
} LlmqEngineState;

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
