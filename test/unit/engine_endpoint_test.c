/*
 * engine_endpoint_test.c
 *		Which endpoints can be called now, and how many calls one worker may have.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

static LlmqEndpointLimits *
limits_of(const LlmqEngine *engine)
{
	return llmq_jobs_limits_of(&engine->jobs, llmq_config_endpoint(engine->core.config, "e"));
}

/* ---- Pauses -------------------------------------------------------------------------------- */

/* An engine whose first call was answered so. */
static LlmqEngine *
start_answered(const char *text)
{
	LlmqEngine *engine = start(true, 1);

	store.of_queue = ",\"max_attempts\":1";
	atomic_store(&answered, text);
	run_until_settled(engine, 1);
	atomic_store(&answered, NULL);
	return engine;
}

/* A refusal with a retry hint of five seconds keeps all jobs from the endpoint for as long. */
static void
check_pause(const char *text, const char *sentence)
{
	int64_t began = read_clock().mono_us;
	LlmqEngine *engine = start_answered(text);
	int64_t until = limits_of(engine)->paused_until_us;

	ok(until >= began + SECONDS(5) && until <= read_clock().mono_us + SECONDS(5), "%s", sentence);
	store.jobs[2].visible = true;
	llmq_engine_wake(engine);
	while (store.jobs[2].outcome[0] == '\0' && read_clock().mono_us < began + SECONDS(60))
		turn(engine);
	is_string(store.jobs[2].outcome, "succeeded", "after the pause another job is called");
	ok(read_clock().mono_us >= until, "no job is called before the pause is over");
	stop(engine);
}

static void
test_pauses(void)
{
	LlmqEngine *engine;

	check_pause("HTTP/1.1 529 Overloaded\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n",
				"a provider that is overloaded is left alone for as long as it asks");
	check_pause("HTTP/1.1 429 Slow down\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n",
				"a provider that was asked too often is left alone, too");
	check_pause(
		"HTTP/1.1 503 Busy\r\nx-ratelimit-remaining-requests: 0\r\n"
		"x-ratelimit-reset-requests: 5s\r\nContent-Length: 0\r\n\r\n",
		"a provider that has nothing left of a limit is left alone until the limit is whole again");
	engine = start_answered("HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n");
	is_int(limits_of(engine)->paused_until_us, 0,
		   "a provider that fails is not left alone: only its job waits");
	stop(engine);
	engine = start_answered("HTTP/1.1 529 Overloaded\r\nx-ratelimit-remaining-requests: 3\r\n"
							"x-ratelimit-reset-requests: 60s\r\nContent-Length: 0\r\n\r\n");
	is_int(limits_of(engine)->pace_until_us, 0, "a refusal sets no pace by what it says is left");
	stop(engine);
}

/* ---- Calls at once -------------------------------------------------------------------------- */

/* Two of five jobs have calls, and neither queue nor endpoint may have more. */
static void
check_in_flight(const char *of_queue, const char *of_endpoint, const char *of_whom)
{
	LlmqEngine *engine = start(true, 5);
	int polls;

	store.of_queue = of_queue;
	store.of_endpoint = of_endpoint;
	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 2)
		turn(engine);
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 0, of_whom);
	polls = store.operations[LLMQ_OP_POLL];
	engine->core.full_poll_at_us = 0;
	while (store.operations[LLMQ_OP_POLL] == polls)
		turn(engine);
	turn(engine);
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 0,
		   "what is in flight is counted after the configuration was read again");
	is_int(engine->jobs.table.count, 2, "jobs beyond the limit are not claimed");
	atomic_store(&answers_held, 0);
	run_until_settled(engine, 5);
	is_int(atomic_load(&stub.requests), 5, "all jobs are called once those in flight are settled");
	is_int(
		llmq_jobs_state_of(&engine->jobs, llmq_config_queue(engine->core.config, "q"))->in_flight +
			limits_of(engine)->in_flight,
		0, "nothing is counted as in flight when all is settled");
	stop(engine);
}

static void
test_in_flight(void)
{
	check_in_flight(",\"max_in_flight\":2", "", "a queue has no more jobs in hand than it may");
	check_in_flight("", ",\"max_in_flight\":2", "an endpoint has no more calls than it may");
}

/* How many jobs each of three workers may claim, as three digits. */
static int
shares_of_three(const char *of_queue, const char *of_endpoint)
{
	static const char *const facts[] = {",\"workers\":3,\"rank\":0", ",\"workers\":3,\"rank\":1",
										",\"workers\":3,\"rank\":2"};
	int shares = 0;

	for (int rank = 0; rank < 3; rank++)
	{
		LlmqEngine *engine = start(true, 0);

		store.facts = facts[rank];
		store.of_queue = of_queue;
		store.of_endpoint = of_endpoint;
		while (engine->core.config == NULL)
			turn(engine);
		shares = shares * 10 + llmq_jobs_allowance(&engine->jobs, "q");
		stop(engine);
	}
	return shares;
}

static void
test_shares(void)
{
	is_int(shares_of_three("", ",\"max_in_flight\":6"), 222,
		   "three workers share an endpoint's calls");
	is_int(shares_of_three("", ",\"max_in_flight\":5"), 221,
		   "what cannot be shared evenly goes to those that came first");
	is_int(shares_of_three("", ",\"max_in_flight\":1"), 100, "so that the sum is the limit");
	is_int(shares_of_three(",\"max_in_flight\":4", ""), 211, "jobs of a queue are shared likewise");
	is_int(shares_of_three(",\"max_in_flight\":2", ",\"max_in_flight\":6"), 110,
		   "of two limits the narrower one counts");
}

int
main(void)
{
	test_pauses();
	test_in_flight();
	test_shares();
	return tap_done();
}
