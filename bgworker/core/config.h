/*
 * config.h
 *		The configuration as a worker holds it: queues, endpoints, policies, destinations.
 *
 * This is a cache of rows.  It is read from the one JSON value that llmq_internal.worker_config()
 * returns, and replaced as a whole when that changes.  It is read-only: what a worker learns
 * about an endpoint, a queue or a destination is kept by the code that uses them.  Durations
 * are in microseconds.
 */
#ifndef LLMQ_CONFIG_H
#define LLMQ_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dialects/outcome.h"
#include "limits/ratelimit.h"

/* The policy of one delivery: the job's values, or else those of its queue. */
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
	double input_price; /* per million tokens; -1: unknown, as below */
	double cached_price;
	double output_price;
} LlmqEndpoint;

typedef struct LlmqQueue
{
	int number; /* in this configuration, from 0 */
	const char *name;
	bool paused;
	int max_in_flight;				/* 0: no limit */
	int max_ready;					/* 0: no limit, and the depth need not be reported */
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

/* Reads the value; NULL, with a sentence in error, when it is not valid. */
extern LlmqConfig *llmq_config_parse(const char *json, char *error, size_t error_size);
extern void llmq_config_destroy(LlmqConfig *config);

/* These find by name; NULL if there is none, or config is NULL. */
extern const LlmqQueue *llmq_config_queue(const LlmqConfig *config, const char *name);
extern const LlmqEndpoint *llmq_config_endpoint(const LlmqConfig *config, const char *name);

/* These return how many there are; 0 if config is NULL. */
extern int llmq_config_endpoint_count(const LlmqConfig *config);
extern int llmq_config_queue_count(const LlmqConfig *config);
extern int llmq_config_destination_count(const LlmqConfig *config);

/* These find by number, from 0; NULL after the last. */
extern const LlmqEndpoint *llmq_config_endpoint_at(const LlmqConfig *config, int number);
extern const LlmqQueue *llmq_config_queue_at(const LlmqConfig *config, int number);
extern const LlmqDestination *llmq_config_destination_at(const LlmqConfig *config, int number);

/*
 * Returns the destination of a topic: the one of exactly that topic, or else the one with the
 * longest prefix, whether enabled or not.  NULL: the messages wait to be pulled.
 */
extern const LlmqDestination *llmq_config_route(const LlmqConfig *config, const char *topic);

/*
 * Overwrites a queue's policy with the values of a job's (a JSON object, or NULL).  Returns
 * false when that cannot be read.
 */
extern bool llmq_policy_merge(LlmqPolicy *policy, const char *json);

#endif /* LLMQ_CONFIG_H */
