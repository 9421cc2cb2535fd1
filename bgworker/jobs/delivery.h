/*
 * delivery.h
 *		Decides what follows an attempt; retries are decided here and nowhere else.
 *
 * Pure: times and randomness are passed in.  A delivery is one claim of a job: a series of
 * attempts under one deadline.
 */
#ifndef LLMQ_DELIVERY_H
#define LLMQ_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"
#include "dialects/reply.h"
#include "base/retry.h"

typedef struct LlmqDelivery
{
	int64_t started_us; /* monotonic; the deadline counts from here */
	int attempts;		/* network calls that were made... */
	int attempts_here;	/* ...in a row to the endpoint that was called last */
	int counted_before; /* earlier deliveries that counted, for the redelivery delay */
} LlmqDelivery;

typedef enum LlmqStepKind
{
	LLMQ_STEP_SUCCEED,	/* settle the answer */
	LLMQ_STEP_DIE,		/* no attempt could help */
	LLMQ_STEP_RETRY,	/* another attempt in this delivery, at retry_at_us */
	LLMQ_STEP_REDELIVER /* this delivery is over; the job is delivered again after delay_us */
} LlmqStepKind;

typedef struct LlmqStep
{
	LlmqStepKind kind;
	LlmqErrorClass error_class; /* DIE, REDELIVER: of the job */
	int64_t retry_at_us;
	int64_t delay_us;
	bool counted; /* REDELIVER: towards max_deliveries */
} LlmqStep;

/* Decides what follows an attempt with this verdict; delivery->attempts includes it. */
extern LlmqStep llmq_delivery_next(const LlmqPolicy *policy, const LlmqDelivery *delivery,
								   const LlmqVerdict *verdict, int64_t now_us, LlmqRandom *random);

/*
 * Returns whether a job should go on to another endpoint, if there is one: when the attempts
 * on this one are used up, when its retry hint is too long to wait for, and for the error
 * classes that the queue names.
 */
extern bool
llmq_delivery_may_fall_back(const LlmqPolicy *policy, const LlmqDelivery *delivery,
							const LlmqVerdict *verdict, const LlmqStep *step, int64_t now_us);

/* Returns how long an attempt that starts now may take: min(call_timeout, what is left). */
extern int64_t
llmq_delivery_attempt_us(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us);

/* Returns whether too little time is left to start an attempt. */
extern bool
llmq_delivery_is_over(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us);

/* Returns the step for a delivery that ran out of time before an attempt could start. */
extern LlmqStep
llmq_delivery_expire(const LlmqPolicy *policy, const LlmqDelivery *delivery, LlmqRandom *random);

#endif /* LLMQ_DELIVERY_H */
