/*
 * delivery_test.c
 *		What comes after an attempt: retry, redelivery, death, and when.
 */
#include "jobs/delivery.h"
#include "tap.h"

#define MS INT64_C(1000)
#define S  INT64_C(1000000)

static const LlmqPolicy standard = {.call_timeout_us = 20 * S,
									.deadline_us = 60 * S,
									.min_attempt_us = 1 * S,
									.backoff_base_us = 500 * MS,
									.backoff_cap_us = 8 * S,
									.redelivery_base_us = 5 * S,
									.redelivery_cap_us = 600 * S,
									.max_attempts = 4};

static LlmqRandom generator;

static LlmqVerdict
failure(LlmqErrorClass error_class, int64_t hint_us)
{
	return (LlmqVerdict){.outcome = llmq_error_outcome(error_class),
						 .error_class = error_class,
						 .retry_after_us = hint_us};
}

static LlmqStep
next(const LlmqPolicy *policy, int attempts, LlmqVerdict verdict, int64_t now_us)
{
	LlmqDelivery delivery = {.started_us = 0, .attempts = attempts, .attempts_here = attempts};

	return llmq_delivery_next(policy, &delivery, &verdict, now_us, &generator);
}

static void
test_plain_ends(void)
{
	LlmqStep step = next(&standard, 1, (LlmqVerdict){.outcome = LLMQ_OUTCOME_SUCCESS}, S);

	is_int(step.kind, LLMQ_STEP_SUCCEED, "a success is settled");
	step = next(&standard, 1, failure(LLMQ_ERROR_AUTH, -1), S);
	is_int(step.kind, LLMQ_STEP_DIE, "a permanent error ends the job after one attempt");
	is_int(step.error_class, LLMQ_ERROR_AUTH, "and the job's class is that of the attempt");
}

static void
test_expiry(void)
{
	LlmqDelivery delivery = {.started_us = 0, .attempts = 1, .attempts_here = 1};
	LlmqStep step = llmq_delivery_expire(&standard, &delivery, &generator);

	ok(step.kind == LLMQ_STEP_REDELIVER && step.error_class == LLMQ_ERROR_DEADLINE_EXCEEDED,
	   "a delivery whose time is over is followed by another, and says why");
	ok(step.delay_us >= 0 && step.delay_us <= 600 * S, "after a pause");
}

static void
test_backoff(void)
{
	int64_t longest = 0;
	bool within = true;
	LlmqStep step;

	for (int i = 0; i < 1000; i++)
	{
		step = next(&standard, 3, failure(LLMQ_ERROR_SERVER_ERROR, -1), 10 * S);
		within = within && step.kind == LLMQ_STEP_RETRY && step.retry_at_us >= 10 * S &&
				 step.retry_at_us <= 12 * S;
		longest = step.retry_at_us > longest ? step.retry_at_us : longest;
	}
	ok(within, "the wait after the third failure is at most four times the base");
	ok(longest > 11 * S, "and it is spread over that whole span");
	step = next(&standard, 4, failure(LLMQ_ERROR_SERVER_ERROR, -1), 10 * S);
	ok(step.kind == LLMQ_STEP_REDELIVER && step.counted,
	   "when the attempts are spent, the delivery is over and counts");
	is_int(step.error_class, LLMQ_ERROR_SERVER_ERROR, "with the class of its last attempt");
}

static void
test_deadline(void)
{
	LlmqPolicy policy = standard;
	LlmqStep step;

	policy.backoff_base_us = policy.backoff_cap_us = 0;
	step = next(&policy, 1, failure(LLMQ_ERROR_TIMEOUT, -1), 59 * S);
	is_int(step.kind, LLMQ_STEP_RETRY, "an attempt may start when exactly min_attempt is left");
	step = next(&policy, 1, failure(LLMQ_ERROR_TIMEOUT, -1), 59 * S + 1);
	is_int(step.kind, LLMQ_STEP_REDELIVER, "none starts with less left");
	ok(step.counted && step.error_class == LLMQ_ERROR_DEADLINE_EXCEEDED,
	   "such a delivery counts and is deadline_exceeded");
	is_int(llmq_delivery_attempt_us(&policy, &(LlmqDelivery){0}, 10 * S), 20 * S,
		   "an attempt gets call_timeout while there is more left");
	is_int(llmq_delivery_attempt_us(&policy, &(LlmqDelivery){0}, 55 * S), 5 * S,
		   "and what is left when there is less");
	ok(llmq_delivery_is_over(&policy, &(LlmqDelivery){0}, 60 * S),
	   "at its deadline a delivery is over");
}

static void
test_wishes(void)
{
	LlmqStep step = next(&standard, 1, failure(LLMQ_ERROR_RATE_LIMITED, 3 * S), 10 * S);
	int64_t longest = 0;

	ok(step.kind == LLMQ_STEP_RETRY && step.retry_at_us == 13 * S,
	   "a wish below the cap is waited for in place, exactly");
	step = next(&standard, 1, failure(LLMQ_ERROR_RATE_LIMITED, 0), 10 * S);
	ok(step.kind == LLMQ_STEP_RETRY && step.retry_at_us == 10 * S,
	   "a wish of zero is a wish, not a missing one");
	step = next(&standard, 1, failure(LLMQ_ERROR_RATE_LIMITED, 9 * S), 10 * S);
	ok(step.kind == LLMQ_STEP_REDELIVER && !step.counted && step.delay_us == 9 * S,
	   "a wish above the cap defers the job to that moment, uncounted");
	step = next(&standard, 1, failure(LLMQ_ERROR_OVERLOADED, 5 * S), 55 * S);
	ok(step.kind == LLMQ_STEP_REDELIVER && !step.counted && step.delay_us == 5 * S,
	   "so does one that the deadline cannot afford");
	step = next(&standard, 1, failure(LLMQ_ERROR_RATE_LIMITED, 7 * 86400 * S), 10 * S);
	is_int(step.delay_us, 86400 * S, "a day is the most that is waited for");
	step = next(&standard, 4, failure(LLMQ_ERROR_RATE_LIMITED, 8 * S), 10 * S);
	ok(step.kind == LLMQ_STEP_REDELIVER && step.counted && step.delay_us >= 8 * S,
	   "a redelivery never comes before the wish of the last attempt");
	for (int i = 0; i < 100; i++)
	{
		step = next(&standard, 4, failure(LLMQ_ERROR_RATE_LIMITED, S), 10 * S);
		longest = step.delay_us > longest ? step.delay_us : longest;
	}
	ok(longest > 2 * S, "and a small wish does not shorten the wait for it");
}

/* The example of the README: a model that always hangs. */
static void
test_hanging_model(void)
{
	const LlmqPolicy policy = {.call_timeout_us = 200 * MS,
							   .deadline_us = 500 * MS,
							   .min_attempt_us = 100 * MS,
							   .backoff_base_us = 50 * MS,
							   .backoff_cap_us = 8 * S,
							   .max_attempts = 4};
	bool ended_in_time = true;
	bool calls_right = true;

	for (int i = 0; i < 1000; i++)
	{
		LlmqDelivery delivery = {.started_us = 0};
		LlmqVerdict timeout = failure(LLMQ_ERROR_TIMEOUT, -1);
		LlmqStep step = {.kind = LLMQ_STEP_RETRY};
		int64_t now = 0;

		while (step.kind == LLMQ_STEP_RETRY)
		{
			now = step.retry_at_us;
			now += llmq_delivery_attempt_us(&policy, &delivery, now);
			delivery.attempts++;
			step = llmq_delivery_next(&policy, &delivery, &timeout, now, &generator);
		}
		ended_in_time = ended_in_time && now <= 500 * MS;
		calls_right = calls_right && delivery.attempts >= 2 && delivery.attempts <= 3;
	}
	ok(ended_in_time, "a delivery to a model that hangs ends by its deadline");
	ok(calls_right, "after two or three calls");
}

static bool
falls_back(int attempts_here, uint32_t fallback_on, LlmqErrorClass error_class, int64_t hint_us,
		   int64_t now_us)
{
	LlmqPolicy policy = standard;
	LlmqDelivery delivery = {.started_us = 0, .attempts = 7, .attempts_here = attempts_here};
	LlmqVerdict verdict = failure(error_class, hint_us);
	LlmqStep step;

	policy.fallback_on = fallback_on;
	step = llmq_delivery_next(&policy, &delivery, &verdict, now_us, &generator);
	return llmq_delivery_may_fall_back(&policy, &delivery, &verdict, &step, now_us);
}

static void
test_fallback(void)
{
	uint32_t on_context = UINT32_C(1) << LLMQ_ERROR_CONTEXT_LENGTH;

	ok(falls_back(4, 0, LLMQ_ERROR_SERVER_ERROR, -1, 10 * S),
	   "when the attempts on one endpoint are spent, the next one's turn comes");
	ok(!falls_back(3, 0, LLMQ_ERROR_SERVER_ERROR, -1, 10 * S),
	   "not before, however many were made on others");
	ok(falls_back(1, 0, LLMQ_ERROR_RATE_LIMITED, 30 * S, 10 * S),
	   "a wish that is too long to be waited for is a reason, too");
	ok(!falls_back(1, 0, LLMQ_ERROR_CONTEXT_LENGTH, -1, 10 * S), "a permanent error is none");
	ok(falls_back(1, on_context, LLMQ_ERROR_CONTEXT_LENGTH, -1, 10 * S),
	   "but for a class that the queue names");
	ok(!falls_back(1, on_context, LLMQ_ERROR_CONTENT_FILTER, -1, 10 * S), "and only for that");
	ok(!falls_back(4, 0, LLMQ_ERROR_SERVER_ERROR, -1, 60 * S), "nor when the deadline is over");
}

int
main(void)
{
	test_fallback();
	llmq_random_seed(&generator, 42);
	test_plain_ends();
	test_expiry();
	test_backoff();
	test_deadline();
	test_wishes();
	test_hanging_model();
	return tap_done();
}
