/*
 * engine_options.h
 *		What a host tells its engine, and the states that an engine can be in.
 */
#ifndef LLMQ_ENGINE_OPTIONS_H
#define LLMQ_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/log_level.h"

typedef struct LlmqEngineOptions
{
	const char *name;	 /* of the worker, in llmq.worker */
	const char *kind;	 /* server or program */
	const char *pid;	 /* as text, for llmq.worker_hello */
	int max_in_flight;	 /* network calls at once */
	int max_connections; /* allowed by descriptors; never changes; at least max_in_flight */
	int64_t poll_interval_us;
	const char *secrets_directory; /* or NULL */
	const char *user_agent;
	uint64_t seed;
	LlmqHmacSha256 hmac; /* signs webhooks */
	LlmqTime (*clock)(void);
	void (*log)(LlmqLogLevel level, const char *message);

	/*
	 * Returns whether, since the last call, somebody has announced a change of the
	 * configuration or of a running job; then the engine looks at that before it claims
	 * anything.  NULL where no such announcement is possible.
	 */
	bool (*changed)(void);

	/* Names of the queues that are served, with a NULL after the last; NULL: all. */
	const char *const *queues;

	/*
	 * Sends heartbeats even without jobs or messages in hand, because the database has no
	 * other sign of this worker.
	 */
	bool heartbeat_idle;
} LlmqEngineOptions;

/* The host may show these, or act on them. */
typedef enum LlmqEngineState
{
	LLMQ_ENGINE_STARTING, /* could not say hello yet */
	LLMQ_ENGINE_RUNNING,
	LLMQ_ENGINE_QUARANTINED, /* the jobs were submitted elsewhere */
	LLMQ_ENGINE_OUTDATED,	 /* the SQL speaks another protocol */
	LLMQ_ENGINE_DRAINING,	 /* finishes what is in hand, claims nothing */
	LLMQ_ENGINE_STOPPING,
	LLMQ_ENGINE_STOPPED
} LlmqEngineState;

#endif /* LLMQ_ENGINE_OPTIONS_H */
