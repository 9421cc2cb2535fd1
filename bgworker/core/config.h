/*
 * config.h
 *		The configuration as a worker holds it: queues, endpoints, policies, destinations.
 *
 * A cache of rows, read from the one JSON value that llmq_internal.worker_config() makes, and
 * replaced as a whole when that changes.  It is read only: what a worker learns of an endpoint, a
 * queue or a destination is kept by those who use them.  Spans are microseconds.
 */
#ifndef LLMQ_CONFIG_H
#define LLMQ_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dialects/outcome.h"
#include "limits/ratelimit.h"

/* What holds for one delivery: the queue's policy under the job's. */
typedef struct LlmqPolicy
{
	int64_t call_timeout_us;
	int64_t deadline_us;
	int64_t min_attempt_us; /* never more than call_timeout_us, nor half of deadline_us */
	int64_t backoff_base_us;
	int64_t backoff_cap_us;
	int64_t redelivery_base_us;
	int64_t redelivery_cap_us;
	int max_attempts;
	bool accept_truncated;
	bool require_json;
	uint32_t fallback_on; /* 1 << class, for classes that go on to the next endpoint at once */
} LlmqPolicy;

typedef struct LlmqEndpoint
{
	int number; /* in this configuration, from 0 */
	const char *name;
	LlmqApi api;
	const char *url;
	const char *model;				/* or NULL */
	const char *credential;			/* name of the secret, or NULL */
	const char *headers;			/* JSON object, or NULL */
	const char *idempotency_header; /* or NULL */
	bool stream;
	int max_in_flight; /* 0: no limit */
	size_t max_response_bytes;
	int64_t connect_timeout_us;
	int64_t first_byte_timeout_us; /* 0: none */
	int64_t idle_timeout_us;	   /* 0: none */
	LlmqRates rates;
	int breaker_failures;
	int64_t breaker_cooldown_us;
	double input_price; /* per million tokens; -1: not known, likewise below */
	double cached_price;
	double output_price;
} LlmqEndpoint;

typedef struct LlmqQueue
{
	int number; /* in this configuration, from 0 */
	const char *name;
	bool paused;
	int max_in_flight;				/* 0: no limit */
	int max_ready;					/* 0: no limit, and nobody needs to know the depth */
	const LlmqEndpoint **endpoints; /* usable ones in order of preference */
	int endpoint_count;
	LlmqPolicy policy;
} LlmqQueue;

typedef enum LlmqDestinationKind
{
	LLMQ_DESTINATION_WEBHOOK,
	LLMQ_DESTINATION_EMAIL,
	LLMQ_DESTINATION_NOTIFY
} LlmqDestinationKind;

/* Where the outbox messages of a topic, or of the topics with a prefix, go. */
typedef struct LlmqDestination
{
	int number;		   /* in this configuration, from 0 */
	const char *topic; /* a prefix if it ends in * */
	LlmqDestinationKind kind;
	const char *url;		/* notify: the channel */
	const char *credential; /* name of the secret, or NULL */
	const char *headers;	/* JSON object, or NULL */
	const char *sender;		/* email: the address it comes from */
	int64_t timeout_us;
	int64_t backoff_base_us;
	int64_t backoff_cap_us;
	int max_attempts;
	int max_in_flight; /* of one topic */
	bool enabled;
} LlmqDestination;

typedef struct LlmqConfig LlmqConfig;

/* Reads the value; NULL (with a sentence in error) when it is not what it should be. */
extern LlmqConfig *llmq_config_parse(const char *json, char *error, size_t error_size);
extern void llmq_config_destroy(LlmqConfig *config);

/* By name; NULL if there is none, or config is NULL. */
extern const LlmqQueue *llmq_config_queue(const LlmqConfig *config, const char *name);
extern const LlmqEndpoint *llmq_config_endpoint(const LlmqConfig *config, const char *name);

/* How many there are; 0 if config is NULL. */
extern int llmq_config_endpoint_count(const LlmqConfig *config);
extern int llmq_config_queue_count(const LlmqConfig *config);
extern int llmq_config_destination_count(const LlmqConfig *config);

/* By number, from 0; NULL behind the last. */
extern const LlmqEndpoint *llmq_config_endpoint_at(const LlmqConfig *config, int number);
extern const LlmqQueue *llmq_config_queue_at(const LlmqConfig *config, int number);
extern const LlmqDestination *llmq_config_destination_at(const LlmqConfig *config, int number);

/*
 * Where the messages of a topic go: the destination of that very topic, else the one
 * with the longest prefix, be they enabled or not.  NULL: they wait to be pulled.
 */
extern const LlmqDestination *llmq_config_route(const LlmqConfig *config, const char *topic);

/*
 * Lays a job's policy (JSON object, or NULL) over its queue's.  False when it
 * cannot be read.
 */
extern bool llmq_policy_merge(LlmqPolicy *policy, const char *json);

#endif /* LLMQ_CONFIG_H */
