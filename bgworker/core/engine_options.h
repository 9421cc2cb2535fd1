/*
 * engine_options.h
 *		What a host tells its engine, and the states that an engine is in.
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

#endif /* LLMQ_ENGINE_OPTIONS_H */
