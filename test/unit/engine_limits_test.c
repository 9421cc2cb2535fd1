/*
 * engine_limits_test.c
 *		Quotas, breakers and paces of endpoints, as one worker keeps them.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

#define OVERLOADED "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"

/* An engine whose endpoint is configured so, before its first turn. */
static LlmqEngine *
start_with(int jobs, const char *of_endpoint)
{
	LlmqEngine *engine = start(true, jobs);

	store.of_endpoint = of_endpoint;
	return engine;
}

static void
test_failing_draw(void)
{
	LlmqEngine *engine = start_with(1, ",\"tokens_per_minute\":100000");
	char first[sizeof(store.said)];

	store.tokens = "50000";
	fail_next(LLMQ_OP_DRAW, 1, "57P01", LLMQ_STORE_FAILED);
	while (store.operations[LLMQ_OP_DRAW] < 1)
		turn(engine);
	gate_of(engine, "e")->quota.charge = 70; /* what was used too much before */
	store.failures = 1;
	while (store.operations[LLMQ_OP_DRAW] < 2)
		turn(engine);
	snprintf(first, sizeof(first), "%s", store.said);
	run_until_settled(engine, 1);
	ok(strstr(first, "\"charge\":70") != NULL && strcmp(store.said, first) == 0,
	   "what a draw that failed was to give back is given back with the next");
	is_string(store.jobs[1].outcome, "succeeded",
			  "a draw after one that failed brings the tokens for the job");
	stop(engine);
}

static void
test_draw_under_way(void)
{
	LlmqEngine *engine = start_with(1, ",\"tokens_per_minute\":100000");
	LlmqEndpointLimits *gate;
	LlmqJob *job;
	int64_t later_us;
	int64_t soon_us;

	store.tokens = "50000";
	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	job = llmq_job_table_find(&engine->jobs.table, id_of(1), 1);
	gate = gate_of(engine, "e");
	gate->quota.tokens = 0;
	gate->quota.draw_at_us = engine->core.now.mono_us + SECONDS(1);
	later_us = llmq_jobs_choose(&engine->jobs, job).when_us;
	gate->drawing = true;
	soon_us = llmq_jobs_choose(&engine->jobs, job).when_us;
	gate->drawing = false;
	is_int(gate->rest_until_us - job->call.started_us, 20000,
		   "after a call has begun others are not claimed for a moment");
	ok(later_us >= engine->core.now.mono_us + SECONDS(1),
	   "a job without tokens waits for the next draw of its endpoint");
	ok(soon_us < later_us,
	   "a job without tokens waits for a draw that is under way, and not for the one after that");
	stop(engine);
}

static void
test_tokens_not_used(void)
{
	LlmqEngine *engine = start_with(1, ",\"tokens_per_minute\":100000");

	store.tokens = "50000";
	store.of_queue = ",\"max_attempts\":1";
	atomic_store(&answered, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n");
	run_until_settled(engine, 1);
	is_int(gate_of(engine, "e")->quota.tokens - gate_of(engine, "e")->quota.charge, 50000,
		   "a call that nobody is billed for takes no tokens");
	stop(engine);
}

static void
test_tokens_of_no_call(void)
{
	LlmqEngine *engine = start_with(1, ",\"tokens_per_minute\":100000");

	store.tokens = "50000";
	store.jobs[1].params = "{\"stream\":true}";
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "dead", "a job of which no request can be made ends");
	is_int(gate_of(engine, "e")->quota.tokens - gate_of(engine, "e")->quota.charge, 50000,
		   "and gives back the tokens that were taken for it");
	stop(engine);
}

static void
test_tokens_of_broken_call(void)
{
	LlmqEngine *engine = start_with(1, ",\"tokens_per_minute\":100000");

	store.tokens = "50000";
	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	store.recall = 1;
	llmq_engine_wake(engine);
	moved_us += 200000;
	run_until_settled(engine, 1);
	is_string(store.jobs[1].attempt_class, "interrupted", "a call can be broken off");
	ok(gate_of(engine, "e")->quota.tokens - gate_of(engine, "e")->quota.charge < 50000,
	   "its tokens stay taken: the provider may have counted it");
	stop(engine);
}

static void
test_told_together(void)
{
	LlmqEngine *engine = start(true, 0);

	store.more_endpoints =
		",{\"name\":\"f\",\"api\":\"openai_chat\",\"url\":\"http://127.0.0.1:1\"}";
	run_for(engine, 1000000);
	gate_of(engine, "e")->event = gate_of(engine, "f")->event = LLMQ_BREAKER_FAILED;
	while (store.operations[LLMQ_OP_DRAW] < 1)
		turn(engine);
	ok(strstr(store.said, "\"endpoint\":\"e\"") != NULL &&
		   strstr(store.said, "},{\"endpoint\":\"f\"") != NULL,
	   "what there is to tell of several endpoints is told at once");
	stop(engine);
}

/* Whether a call that is answered so opens a breaker that one failure opens. */
static bool
opens(const char *text)
{
	LlmqEngine *engine = start_with(1, ",\"breaker_failures\":1");
	LlmqBreakerState state;

	store.of_queue = ",\"max_attempts\":1";
	store.breaker = "1"; /* as the database has it, once it was told */
	atomic_store(&answered, text);
	run_until_settled(engine, 1);
	state = gate_of(engine, "e")->state;
	stop(engine);
	return state == LLMQ_BREAKER_OPEN;
}

static void
test_health(void)
{
	ok(opens(OVERLOADED), "an endpoint that is overloaded is ill");
	ok(opens("HTTP/1.1 401 Who?\r\nContent-Length: 0\r\n\r\n"), "so is one that takes no key");
	ok(!opens("HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"),
	   "one that is asked too often is not");
	ok(!opens("HTTP/1.1 409 Again\r\nContent-Length: 0\r\n\r\n"),
	   "nor one at which two requests meet");
	ok(!opens("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"),
	   "nor one that does not like the request");
}

/* Runs a job whose one call is answered so; NULL: with 200. */
static void
run_job(LlmqEngine *engine, int job, const char *text)
{
	atomic_store(&answered, text);
	store.jobs[job].visible = true;
	llmq_engine_wake(engine);
	while (store.jobs[job].outcome[0] == '\0')
		turn(engine);
}

static void
test_closed_again(void)
{
	LlmqEngine *engine = start_with(0, ",\"breaker_failures\":2,\"breaker_cooldown\":1000000");

	store.of_queue = ",\"max_attempts\":1";
	run_job(engine, 1, OVERLOADED);
	is_int(gate_of(engine, "e")->state, LLMQ_BREAKER_CLOSED, "one failure of two opens nothing");
	store.breaker = "1";
	run_job(engine, 2, OVERLOADED);
	is_int(gate_of(engine, "e")->state, LLMQ_BREAKER_OPEN, "the second does");
	store.breaker = "2";
	store.may_probe = true;
	atomic_store(&answered, NULL);
	atomic_store(&answers_held, 1);
	store.jobs[3].visible = true;
	while (atomic_load(&stub.requests) < 3)
		turn(engine);
	store.breaker = "0";
	store.may_probe = false;
	atomic_store(&answers_held, 0);
	run_job(engine, 3, NULL);
	is_int(gate_of(engine, "e")->state, LLMQ_BREAKER_CLOSED, "a probe that is answered closes it");
	store.breaker = "1";
	run_job(engine, 4, OVERLOADED);
	is_int(gate_of(engine, "e")->state, LLMQ_BREAKER_CLOSED,
		   "failures are counted anew from then on");
	stop(engine);
}

static void
test_probe_ended(void)
{
	LlmqEngine *engine = start_with(1, ",\"breaker_failures\":1,\"breaker_cooldown\":1000000");

	store.of_queue = ",\"max_attempts\":9,\"backoff_cap\":5000000";
	atomic_store(&answered, OVERLOADED);
	store.breaker = "1";
	run_until(engine, LLMQ_OP_POLL, 1);
	while (gate_of(engine, "e")->state != LLMQ_BREAKER_OPEN)
		turn(engine);
	store.breaker = "2";
	store.may_probe = true;
	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 2)
		turn(engine);
	ok(!gate_of(engine, "e")->may_probe, "one probe at a time goes out");
	store.recall = 1;
	llmq_engine_wake(engine);
	moved_us += 200000;
	run_until_settled(engine, 1);
	ok(gate_of(engine, "e")->may_probe,
	   "a probe that was broken off has found out nothing, and another may go out");
	is_string(store.jobs[1].attempt_class, "overloaded",
			  "calls that were made before a probe are recorded");
	stop(engine);
}

static void
test_nothing_left(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answered,
				 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
				 "x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 60s\r\n"
				 "Content-Length: 67\r\n\r\n"
				 "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}  ");
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded",
			  "the last call of a provider's limit is answered");
	ok(gate_of(engine, "e")->pace_next_us > read_clock().mono_us + SECONDS(30),
	   "the call after the last one of a provider's limit waits until the limit is whole again");
	stop(engine);
}

/* What is left is one worker's of four. */
static void
test_left_for_all(void)
{
	LlmqEngine *engine = start(true, 1);

	store.facts = ",\"workers\":4";
	atomic_store(&answered,
				 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
				 "x-ratelimit-remaining-requests: 40\r\nx-ratelimit-reset-requests: 60s\r\n"
				 "Content-Length: 67\r\n\r\n"
				 "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}  ");
	run_until_settled(engine, 1);
	is_int(gate_of(engine, "e")->pace_us, SECONDS(6),
		   "what a provider has left is shared by all workers");
	stop(engine);
}

/* Ready jobs of an endpoint that has had a call just now, or whose provider asks for a pace. */
static void
test_one_by_one(void)
{
	LlmqEngine *engine = start_with(0, ",\"requests_per_minute\":60000");
	LlmqEndpointLimits *gate;
	int64_t now;

	run_for(engine, 1000000);
	gate = gate_of(engine, "e");
	now = engine->core.now.mono_us;
	gate->quota.slices[0] =
		(LlmqQuotaSlice){.from_us = now - 100000, .interval_ns = 1000000, .count = 500};
	gate->quota.slice_count = 1;
	for (int seq = 1; seq <= 5; seq++)
		llmq_ready_add(engine->jobs.ready, seq, "q", "tenant", 0);
	ok(llmq_jobs_allowance(&engine->jobs, "q") > 1,
	   "the slots that are in hand can be used at once");
	gate->pace_until_us = now + SECONDS(60);
	gate->pace_next_us = now;
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 1, "at a provider's pace one goes at a time");
	gate->pace_until_us = 0;
	gate->state = LLMQ_BREAKER_HALF_OPEN;
	gate->may_probe = true;
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 1, "as does a probe");
	gate->state = LLMQ_BREAKER_CLOSED;
	gate->rest_until_us = now + 20000;
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 0,
		   "in the moment after a call none is claimed");
	stop(engine);
}

/* Sixty in a minute are one a second. */
static void
test_backlog(void)
{
	LlmqEngine *engine = start_with(0, ",\"requests_per_minute\":60");
	LlmqEndpointLimits *gate;

	run_for(engine, 1000000);
	gate = gate_of(engine, "e");
	gate->quota.slot_at_us = gate->quota.draw_at_us = engine->core.now.mono_us + 500000;
	for (int seq = 1; seq <= 31; seq++)
		llmq_ready_add(engine->jobs.ready, seq, "q", "tenant", 0);
	is_int(llmq_jobs_allowance(&engine->jobs, "q"), 0, "without a slot no job is claimed");
	is_int(gate->backlog_until_us - engine->core.now.mono_us, SECONDS(30),
		   "the last of them waits as long as those before it take");
	stop(engine);
}

static void
test_more_left(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answers_held, 1);
	atomic_store(&answered,
				 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
				 "x-ratelimit-remaining-requests: 61\r\nx-ratelimit-reset-requests: 60s\r\n"
				 "Content-Length: 67\r\n\r\n"
				 "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}  ");
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	gate_of(engine, "e")->pace_next_us = read_clock().mono_us + SECONDS(60);
	atomic_store(&answers_held, 0);
	run_until_settled(engine, 1);
	ok(gate_of(engine, "e")->pace_next_us < read_clock().mono_us + SECONDS(5),
	   "a provider that has more left again is called again at its new pace");
	stop(engine);
}

int
main(void)
{
	test_failing_draw();
	test_draw_under_way();
	test_tokens_not_used();
	test_tokens_of_no_call();
	test_tokens_of_broken_call();
	test_told_together();
	test_health();
	test_closed_again();
	test_probe_ended();
	test_nothing_left();
	test_left_for_all();
	test_one_by_one();
	test_backlog();
	test_more_left();
	return tap_done();
}
