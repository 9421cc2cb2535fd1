/*
 * engine_call_test.c
 *		Calls that are made, that cannot be made, and what is counted of them.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include <sys/resource.h>

#include "engine_jobs.h"

#define OVERLOADED "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"

static void
test_bad_request(void)
{
	LlmqEngine *engine = start(true, 2);

	store.jobs[1].params = "{\"stream\":true}";
	run_until_settled(engine, 2);
	is_string(store.jobs[1].outcome, "dead", "a job of which no request can be made goes dead");
	is_string(store.jobs[1].error_class, "bad_request", "as a bad request");
	is_int(store.jobs[1].attempts, 0, "without an attempt");
	is_string(store.jobs[2].outcome, "succeeded", "and in nobody's way");
	is_int(atomic_load(&stub.requests), 1, "nothing was sent");
	stop(engine);
}

static void
test_deadline(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answered, OVERLOADED);
	store.of_queue = ",\"backoff_base\":60000000,\"backoff_cap\":60000000";
	while (engine->jobs.waiting.count == 0)
		turn(engine);
	moved_us += SECONDS(200); /* the machine slept */
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "retry",
			  "a job that waited past its deadline makes no further attempt");
	is_string(store.jobs[1].error_class, "deadline_exceeded", "its delivery ends for that reason");
	is_int(store.jobs[1].attempts, 1, "with the attempts that were made");
	stop(engine);
}

static void
test_long_retry_hint(void)
{
	LlmqEngine *engine = start(true, 1);
	const LlmqEndpointLimits *limits;

	atomic_store(&answered, "HTTP/1.1 429 No\r\nRetry-After: 2592000\r\nContent-Length: 0\r\n\r\n");
	run_until_settled(engine, 1);
	limits = llmq_jobs_limits_of(&engine->jobs, llmq_config_endpoint(engine->core.config, "e"));
	ok(limits->paused_until_us > 0 &&
		   limits->paused_until_us <= read_clock().mono_us + LLMQ_RETRY_HINT_WAIT_MAX_US,
	   "an endpoint that asks to be left alone for a month is left alone for a day");
	stop(engine);
}

static void
take_descriptors(struct rlimit *old)
{
	struct rlimit none;

	getrlimit(RLIMIT_NOFILE, old);
	none = *old;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
}

static void
test_no_descriptors(void)
{
	LlmqEngine *engine = start(true, 1);
	struct rlimit old;

	take_descriptors(&old);
	while (strstr(last_log, "no call was made") == NULL)
		turn(engine);
	is_int(engine->jobs.table.count, 1,
		   "a job stays in hand that the machine has no descriptor for");
	setrlimit(RLIMIT_NOFILE, &old);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded", "and is called when there is one");
	is_int(store.jobs[1].attempts, 1, "which is its first attempt");
	stop(engine);
}

/* Its trouble is told only after the worker has begun to leave. */
static void
test_no_descriptors_left(void)
{
	LlmqEngine *engine = start(true, 1);
	struct rlimit old;

	take_descriptors(&old);
	while (llmq_engine_calls(engine) == 0)
		llmq_engine_dispatch(engine);
	llmq_engine_drain(engine);
	run_until_settled(engine, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	is_string(store.jobs[1].outcome, "retry", "a worker that leaves waits for no descriptor");
	is_string(store.jobs[1].error_class, "interrupted", "it gives the job back");
	stop(engine);
}

static void
test_drained(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answers_held, 1);
	atomic_store(&answered, OVERLOADED);
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	llmq_engine_drain(engine);
	atomic_store(&answers_held, 0);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "retry",
			  "a call that fails while the worker leaves is its last");
	is_string(store.jobs[1].error_class, "overloaded", "another worker goes on, and knows why");
	is_int(store.jobs[1].attempts, 1, "from the attempts that there were");
	stop(engine);
}

/* ---- What is counted ----------------------------------------------------------------------- */

/* A call with usage, at prices of 2, 1 and 10 per million tokens; what it is said to have cost. */
static void
check_cost(const char *usage, const char *line, const char *sentence)
{
	LlmqEngine *engine = start(true, 1);
	static char sent[512];
	LlmqBuffer text;
	char body[256];

	store.of_endpoint = ",\"input_price\":2,\"cached_price\":1,\"output_price\":10";
	snprintf(body, sizeof(body),
			 "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}],"
			 "\"usage\":%s}",
			 usage);
	snprintf(sent, sizeof(sent),
			 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 strlen(body), body);
	atomic_store(&answered, sent);
	run_until_settled(engine, 1);
	llmq_buffer_init(&text, LLMQ_METRIC_MAX_BYTES);
	ok(llmq_engine_write_metrics(engine, &text) && strstr(llmq_buffer_string(&text), line) != NULL,
	   "%s", sentence);
	llmq_buffer_free(&text);
	stop(engine);
}

static void
test_cost(void)
{
	check_cost("{\"prompt_tokens\":1000000,\"completion_tokens\":100000}",
			   "llmq_cost_total{endpoint=\"e\"} 3\n", "a call costs what its tokens do");
	check_cost("{\"prompt_tokens\":1000000,\"completion_tokens\":0,"
			   "\"prompt_tokens_details\":{\"cached_tokens\":400000}}",
			   "llmq_cost_total{endpoint=\"e\"} 1.6\n", "cached ones have a price of their own");
	check_cost("{\"prompt_tokens\":1000000,\"completion_tokens\":0,"
			   "\"prompt_tokens_details\":{\"cached_tokens\":4000000}}",
			   "llmq_cost_total{endpoint=\"e\"} 1\n", "no more are cached than were sent");
	check_cost("{\"completion_tokens\":5}", "llmq_calls_total{endpoint=\"e\"",
			   "what nobody has counted costs nothing that is known");
}

static void
test_ages(void)
{
	LlmqEngine *engine = start(true, 1);
	LlmqBuffer text;

	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	moved_us += SECONDS(60);
	llmq_buffer_init(&text, LLMQ_METRIC_MAX_BYTES);
	llmq_engine_write_metrics(engine, &text);
	ok(strstr(llmq_buffer_string(&text), "llmq_oldest_lease_age_seconds 60") != NULL,
	   "who asks is told how long the oldest job has been in hand");
	llmq_buffer_free(&text);
	stop(engine);
}

int
main(void)
{
	test_bad_request();
	test_deadline();
	test_long_retry_hint();
	test_no_descriptors();
	test_no_descriptors_left();
	test_drained();
	test_cost();
	test_ages();
	return tap_done();
}
