/*
 * delivery.c
 *		Decides what follows an attempt; retries are decided here and nowhere else.
 */
#include "jobs/delivery.h"

static int64_t
time_left(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us)
{
	return delivery->started_us + policy->deadline_us - now_us;
}

/*
 * Ends a delivery that counts, so that the job is delivered again; a retry hint is not
 * shortened.
 */
static LlmqStep
redeliver(const LlmqPolicy *policy, const LlmqDelivery *delivery, LlmqErrorClass error_class,
		  int64_t hint_us, LlmqRandom *random)
{
	int64_t delay = llmq_retry_backoff(random, policy->redelivery_base_us,
									   policy->redelivery_cap_us, delivery->counted_before);

	return (LlmqStep){.kind = LLMQ_STEP_REDELIVER,
					  .error_class = error_class,
					  .delay_us = delay > hint_us ? delay : hint_us,
					  .counted = true};
}

LlmqStep
llmq_delivery_next(const LlmqPolicy *policy, const LlmqDelivery *delivery,
				   const LlmqVerdict *verdict, int64_t now_us, LlmqRandom *random)
{
	int64_t left = time_left(policy, delivery, now_us);
	int64_t hint = verdict->retry_after_us;
	int64_t wait;

	if (verdict->outcome == LLMQ_OUTCOME_SUCCESS)
		return (LlmqStep){.kind = LLMQ_STEP_SUCCEED};
	if (verdict->outcome == LLMQ_OUTCOME_PERMANENT)
		return (LlmqStep){.kind = LLMQ_STEP_DIE, .error_class = verdict->error_class};

	if (hint > LLMQ_RETRY_HINT_WAIT_MAX_US)
		hint = LLMQ_RETRY_HINT_WAIT_MAX_US;

	/*
	 * A retry hint that is too long to wait for is nobody's failure, so the delivery does not
	 * count.
	 */
	if (hint > policy->backoff_cap_us || (hint >= 0 && hint + policy->min_attempt_us > left))
		return (LlmqStep){.kind = LLMQ_STEP_REDELIVER,
						  .error_class = verdict->error_class,
						  .delay_us = hint,
						  .counted = false};
	if (delivery->attempts_here >= policy->max_attempts)
		return redeliver(policy, delivery, verdict->error_class, hint, random);

	wait = hint >= 0 ? hint
					 : llmq_retry_backoff(random, policy->backoff_base_us, policy->backoff_cap_us,
										  delivery->attempts - 1);
	if (wait + policy->min_attempt_us > left)
		return redeliver(policy, delivery, LLMQ_ERROR_DEADLINE_EXCEEDED, hint, random);
	return (LlmqStep){.kind = LLMQ_STEP_RETRY, .retry_at_us = now_us + wait};
}

bool
llmq_delivery_may_fall_back(const LlmqPolicy *policy, const LlmqDelivery *delivery,
							const LlmqVerdict *verdict, const LlmqStep *step, int64_t now_us)
{
	if (step->kind == LLMQ_STEP_SUCCEED || llmq_delivery_is_over(policy, delivery, now_us))
		return false;
	return step->kind == LLMQ_STEP_REDELIVER ||
		   (policy->fallback_on >> verdict->error_class & 1) != 0;
}

int64_t
llmq_delivery_attempt_us(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us)
{
	int64_t left = time_left(policy, delivery, now_us);

	return left < policy->call_timeout_us ? left : policy->call_timeout_us;
}

bool
llmq_delivery_is_over(const LlmqPolicy *policy, const LlmqDelivery *delivery, int64_t now_us)
{
	int64_t left = time_left(policy, delivery, now_us);

	return left <= 0 || left < policy->min_attempt_us;
}

LlmqStep
llmq_delivery_expire(const LlmqPolicy *policy, const LlmqDelivery *delivery, LlmqRandom *random)
{
	return redeliver(policy, delivery, LLMQ_ERROR_DEADLINE_EXCEEDED, -1, random);
}
