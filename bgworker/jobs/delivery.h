/*
 * delivery.h
 *		What comes after an attempt: the one place where retries are decided.
 *
 * Pure: it is given times and randomness.  A delivery is one claim of a job: a
 * row of attempts under one deadline.
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
	int attempts_here;	/* ...to the endpoint that was called last, without a break */
	int counted_before; /* earlier deliveries that count, for the redelivery delay */
} LlmqDelivery;

typedef enum LlmqStepKind
{
	LLMQ_STEP_SUCCEED,	/* settle the answer */
	LLMQ_STEP_DIE,		/* no attempt could help */
	LLMQ_STEP_RETRY,	/* another attempt in this delivery, at retry_at_us */
	LLMQ_STEP_REDELIVER /* this delivery is over, the job is delivered again after delay_us */
} LlmqStepKind;

typedef struct LlmqStep
{
	LlmqStepKind kind;
	LlmqErrorClass error_class; /* DIE, REDELIVER: of the job */
	int64_t retry_at_us;
	int64_t delay_us;
	bool counted; /* REDELIVER: towards max_deliveries */
} LlmqStep;

/* Decides after an attempt whose verdict is in; delivery->attempts includes it. */
extern LlmqStep llmq_delivery_next(const LlmqPolicy *policy, const LlmqDelivery *delivery,
								   const LlmqVerdict *verdict, int64_t now_us, LlmqRandom *random);

/*
 * Whether a job goes on to another endpoint instead, if there is one: when this one's
 * attempts are spent, when its retry hint is longer than can be waited for, and for the
 * classes that the queue names.
 */
extern bool
llmq_delivery_may_fall_back(const LlmqPolicy *policy, const LlmqDelivery *delivery,
							const LlmqVerdict *verdict, const LlmqStep *step, int64_t now_us);

/* How long an attempt that starts now may take: min(call_timeout, what is left). */
extern int64_t
llmq_delivery_attempt_us(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us);

/* Whether so little is left that no attempt may start. */
extern bool
llmq_delivery_is_over(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us);

/* The step of a delivery that ran out of time before an attempt could start. */
extern LlmqStep
llmq_delivery_expire(const LlmqPolicy *policy, const LlmqDelivery *delivery, LlmqRandom *random);

#endif /* LLMQ_DELIVERY_H */
