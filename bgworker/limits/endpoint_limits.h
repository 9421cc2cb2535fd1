/*
 * endpoint_limits.h
 *		What a worker knows of an endpoint's limits: may it be called now, and if not, when?
 *
 * Kept by the client that makes the calls, by the endpoint's name: it outlives a change of the
 * configuration.
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
	LLMQ_OBSTACLE_PAUSE,   /* the provider wants to be left alone */
	LLMQ_OBSTACLE_BREAKER, /* it has failed too often */
	LLMQ_OBSTACLE_BUSY,	   /* it has as many calls as it may have */
	LLMQ_OBSTACLE_LIMITER  /* its quota is used up for now */
} LlmqObstacle;

/* What llmq.endpoint_trouble says of an endpoint. */
typedef struct LlmqEndpointTrouble
{
	bool said; /* false: nothing yet, not even that all is well */
	LlmqObstacle obstacle;
	int64_t until_us;
} LlmqEndpointTrouble;

typedef struct LlmqEndpointLimits
{
	int in_flight;			   /* calls of this worker */
	int64_t paused_until_us;   /* the provider wants to be left alone; 0: never */
	int64_t secret_checked_us; /* 0: never */
	bool secret_found;
	LlmqEndpointTrouble reported; /* that llmq.endpoint_trouble shows */

	/* The quota. */
	LlmqQuota quota;
	LlmqEstimator estimator;
	bool limited;			  /* it was in the way when it was last looked at */
	bool wanted;			  /* jobs want more than is in hand: a draw is due */
	int waiting;			  /* jobs in hand that wait for it; others are not claimed before */
	int64_t rest_until_us;	  /* no claim before: several slots are claimed at once */
	int64_t backlog_until_us; /* jobs will have to wait until then */
	LlmqDraw draw;			  /* the one under way */
	bool drawing;

	/* The pace that the provider's own words make necessary. */
	int64_t pace_us; /* between two calls */
	int64_t pace_next_us;
	int64_t pace_until_us;

	/* The breaker. */
	LlmqBreaker breaker;
	LlmqBreakerState state; /* as the database has it, or will have it when it is told */
	int64_t turns;
	int64_t until_us;
	LlmqBreakerEvent event; /* to be told */
	LlmqBreakerEvent reporting;
	int64_t ask_at_us; /* when a probe may be asked for again */
	bool may_probe;
	char error[200]; /* to be told with LLMQ_BREAKER_FAILED */
} LlmqEndpointLimits;

#endif /* LLMQ_ENDPOINT_LIMITS_H */
