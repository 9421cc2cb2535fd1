/*
 * endpoint_limits.h
 *		What a worker knows about an endpoint's limits: may it be called now, and if not, when?
 *
 * The client that makes the calls keeps one for each name of an endpoint, so it survives a
 * change of the configuration.
 */
#ifndef LLMQ_ENDPOINT_LIMITS_H
#define LLMQ_ENDPOINT_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "limits/breaker.h"
#include "limits/estimate.h"
#include "limits/ratelimit.h"

/* Why an endpoint cannot be called now. */
typedef enum LlmqObstacle
{
	LLMQ_OBSTACLE_NONE,
	LLMQ_OBSTACLE_SECRET,  /* it is missing */
	LLMQ_OBSTACLE_PAUSE,   /* the provider asked for a pause */
	LLMQ_OBSTACLE_BREAKER, /* it has failed too often */
	LLMQ_OBSTACLE_BUSY,	   /* it has as many calls in flight as it may have */
	LLMQ_OBSTACLE_LIMITER  /* its quota is used up for now */
} LlmqObstacle;

/* What llmq.endpoint_trouble says about an endpoint. */
typedef struct LlmqEndpointTrouble
{
	bool said; /* false: nothing was reported yet, not even that all is well */
	LlmqObstacle obstacle;
	int64_t until_us;
} LlmqEndpointTrouble;

typedef struct LlmqEndpointLimits
{
	int in_flight;			   /* calls of this worker */
	int64_t paused_until_us;   /* until when the provider asked for a pause; 0: never */
	int64_t secret_checked_us; /* 0: never */
	bool secret_found;
	LlmqEndpointTrouble reported; /* the one that llmq.endpoint_trouble shows */

	/* The quota. */
	LlmqQuota quota;
	LlmqEstimator estimator;
	bool limited;			  /* the quota prevented a call when it was last checked */
	bool wanted;			  /* jobs need more than is in hand, so a draw is due */
	int waiting;			  /* claimed jobs that wait for it; no others are claimed before them */
	int64_t rest_until_us;	  /* no claim before this, so that one claim serves several slots */
	int64_t backlog_until_us; /* jobs that are claimed now would have to wait until then */
	LlmqDraw draw;			  /* the one under way */
	bool drawing;

	/* The pace that the provider's rate limit headers make necessary. */
	int64_t pace_us; /* between two calls */
	int64_t pace_next_us;
	int64_t pace_until_us;

	/* The breaker. */
	LlmqBreaker breaker;
	LlmqBreakerState state; /* in the database, or after the report to it */
	int64_t turns;
	int64_t until_us;
	LlmqBreakerEvent event; /* to be reported */
	LlmqBreakerEvent reporting;
	int64_t ask_at_us; /* when a probe may be asked for again */
	bool may_probe;
	char error[200]; /* to be reported with LLMQ_BREAKER_FAILED */
} LlmqEndpointLimits;

#endif /* LLMQ_ENDPOINT_LIMITS_H */
