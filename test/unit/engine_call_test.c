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
	is_string(store.jobs[1].error_class, "bad_request",
			  "a job of which no request can be made ends as a bad request");
	is_int(store.jobs[1].attempts, 0, "a job of which no request can be made has no attempt");
	is_string(store.jobs[2].outcome, "succeeded",
			  "a job of which no request can be made is in nobody's way");
	is_int(atomic_load(&stub.requests), 1,
		   "nothing is sent for a job of which no request can be made");
	stop(engine);
}

static void
test_deadline(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answered, OVERLOADED);
	store.of_queue = ",\"backoff_base\":60000000,\"backoff_cap\":60000000";
	while (atomic_load(&stub.requests) < 1 || llmq_engine_calls(engine) > 0)
		turn(engine);
	moved_us += SECONDS(200); /* the machine slept */
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "retry",
			  "a job that waited past its deadline makes no further attempt");
	is_string(store.jobs[1].error_class, "deadline_exceeded",
			  "a delivery past its deadline ends for that reason");
	is_int(store.jobs[1].attempts, 1,
		   "a delivery past its deadline keeps the attempts that were made");
	stop(engine);
}

static void
test_long_retry_hint(void)
{
	LlmqEngine *engine = start(true, 1);
	int64_t until;

	atomic_store(&answered, "HTTP/1.1 429 No\r\nRetry-After: 2592000\r\nContent-Length: 0\r\n\r\n");
	run_until_settled(engine, 1);
	until = gate_of(engine, "e")->paused_until_us;
	ok(until > 0 && until <= read_clock().mono_us + LLMQ_RETRY_HINT_WAIT_MAX_US,
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
	is_int(llmq_engine_jobs(engine), 1,
		   "a job stays in hand that the machine has no descriptor for");
	setrlimit(RLIMIT_NOFILE, &old);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded",
			  "a job is called as soon as the machine has a descriptor for it");
	is_int(store.jobs[1].attempts, 1, "a call that could not be made is no attempt");
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
	is_string(store.jobs[1].error_class, "interrupted",
			  "a worker that leaves gives back the job that has no descriptor");
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
	is_string(store.jobs[1].error_class, "overloaded",
			  "whoever goes on with a job that was given back knows why its last call failed");
	is_int(store.jobs[1].attempts, 1,
		   "whoever goes on with a job that was given back knows its attempts");
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
			   "llmq_cost_total{endpoint=\"e\"} 1.6\n", "cached tokens have a price of their own");
	check_cost("{\"prompt_tokens\":1000000,\"completion_tokens\":0,"
			   "\"prompt_tokens_details\":{\"cached_tokens\":4000000}}",
			   "llmq_cost_total{endpoint=\"e\"} 1\n",
			   "no more tokens count as cached than were sent");
	check_cost("{\"completion_tokens\":5}", "llmq_calls_total{endpoint=\"e\"",
			   "tokens that nobody has counted cost nothing");
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
