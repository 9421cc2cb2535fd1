/*
 * metric.h
 *		What a worker counts, and its two forms: Prometheus' text, and JSON for llmq.metric.
 *
 * Pure: times are passed in.  Both forms are written from one list of families, so they agree.
 * The number of series is limited by the outcomes and classes, which are fixed, and by
 * LLMQ_METRIC_ENDPOINTS.  They are written by our own code, because the formats are simple
 * enough to need no library.
 */
#ifndef LLMQ_METRIC_H
#define LLMQ_METRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "dialects/outcome.h"
#include "dialects/reply.h"
#include "messages/send_verdict.h"

/*
 * How many endpoints are counted individually: the first ones that a worker called.  Further
 * ones are counted together, under the name LLMQ_METRIC_OTHERS.
 */
#define LLMQ_METRIC_ENDPOINTS 256
#define LLMQ_METRIC_OTHERS	  "(others)"

/* The longest name in llmq.endpoint: 128 characters of UTF-8. */
#define LLMQ_METRIC_NAME_BYTES 512

/* Bounds of llmq_call_duration_seconds in bgworker/core/metric.c; the last bucket has none. */
#define LLMQ_METRIC_BUCKETS 14

/* Enough for the largest form, with all endpoints; a larger one is not written at all. */
#define LLMQ_METRIC_MAX_BYTES ((size_t) 8 * 1024 * 1024)

typedef struct LlmqEndpointMetric
{
	char name[LLMQ_METRIC_NAME_BYTES + 1];
	int in_flight;
	int64_t calls[LLMQ_OUTCOMES][LLMQ_ERROR_CLASSES];
	int64_t durations[LLMQ_METRIC_BUCKETS]; /* calls in each bucket, not cumulated */
	int64_t duration_us;					/* of all calls */
	int64_t input_tokens;
	int64_t output_tokens;
	int64_t cached_tokens;
	double cost;
	int64_t waits; /* periods in which its quota kept jobs back... */
	int64_t waited_us;
	int64_t waits_from_us;	/* ...the last of which was last seen at this time... */
	int64_t waits_until_us; /* ...and ends at this time at the latest */
} LlmqEndpointMetric;

/* What became of a delivery, according to the database. */
typedef enum LlmqDeliveryEnd
{
	LLMQ_DELIVERY_SUCCEEDED,
	LLMQ_DELIVERY_RETRY,
	LLMQ_DELIVERY_DEAD,
	LLMQ_DELIVERY_LATE, /* another was first, or the job is gone */
	LLMQ_DELIVERY_ENDS
} LlmqDeliveryEnd;

typedef struct LlmqMetrics
{
	LlmqEndpointMetric *endpoints; /* the first is that of the others */
	int endpoint_count;
	int64_t deliveries[LLMQ_DELIVERY_ENDS][LLMQ_ERROR_CLASSES];
	int64_t messages[LLMQ_MESSAGE_OUTCOMES];
	int64_t store_errors;
	uint64_t changes; /* changes with each count */

	/* Current values, which are set before a form is written. */
	int jobs;
	int messages_in_hand;
	int64_t oldest_us; /* age of the oldest job in hand; 0 if there is none */
} LlmqMetrics;

/* Sets all to zero; false when out of memory. */
extern bool llmq_metrics_init(LlmqMetrics *metrics);
extern void llmq_metrics_free(LlmqMetrics *metrics);

/* These note that a call to an endpoint begins or ends, whether it is counted or not. */
extern void llmq_metric_begin_call(LlmqMetrics *metrics, const char *endpoint);
extern void llmq_metric_end_call(LlmqMetrics *metrics, const char *endpoint);

/* Counts a call; cost is by the endpoint's prices, 0 if they are not known. */
extern void llmq_metric_count_call(LlmqMetrics *metrics, const char *endpoint,
								   const LlmqVerdict *verdict, int64_t duration_us, double cost);

/*
 * Notes at now_us whether an endpoint's quota keeps jobs back, and if so, until when at most.
 * The time between two such notes counts if the first said that it does.
 */
extern void
llmq_metric_note_wait(LlmqMetrics *metrics, const char *endpoint, int64_t now_us, int64_t until_us);

extern void
llmq_metric_count_delivery(LlmqMetrics *metrics, LlmqDeliveryEnd end, LlmqErrorClass error_class);
extern void llmq_metric_count_message(LlmqMetrics *metrics, LlmqMessageOutcome outcome);
extern void llmq_metric_count_store_error(LlmqMetrics *metrics);

/*
 * These append the two forms; false when out of memory.  The text is in Prometheus' format
 * 0.0.4.  The JSON is an array of families: {"name", "type", "help", "samples": [[suffix,
 * labels, value], ...]}.
 */
extern bool llmq_metrics_write_text(const LlmqMetrics *metrics, LlmqBuffer *text);
extern bool llmq_metrics_write_json(const LlmqMetrics *metrics, LlmqBuffer *json);

#endif /* LLMQ_METRIC_H */
