/*
 * engine_settle_test.c
 *		The engine from a claim to the settled answer.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

static void
test_passing_failure(void)
{
	LlmqEngine *engine = start(true, 1);

	fail_next(LLMQ_OP_SETTLE, 8, "55P03", LLMQ_STORE_FAILED);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded",
			  "an answer outlasts a store that fails for a while");
	is_int(store.jobs[1].settles, 9, "an answer is settled again until the store has taken it");
	is_int(store.jobs[1].raw, false,
		   "an answer that is not to blame for a failure is settled whole");
	is_int(atomic_load(&stub.requests), 1, "an answer that is settled again is asked for once");
	stop(engine);
}

static void
test_spoiled_batch(void)
{
	LlmqEngine *engine = start(true, 5);

	store.jobs[3].spoils = true;
	run_until_settled(engine, 5);
	for (int i = 1; i <= 5; i++)
		is_string(store.jobs[i].outcome, i == 3 ? "dead" : "succeeded",
				  i == 3 ? "a job that cannot be stored goes dead"
						 : "neighbours of a job that cannot be stored succeed");
	is_string(store.jobs[3].error_class, "internal",
			  "a job that cannot be stored ends with an internal error");
	ok(store.jobs[3].raw,
	   "an answer that cannot be stored is tried as a string before its job goes dead");
	is_int(atomic_load(&stub.requests), 5,
		   "answers of a batch that cannot be stored are asked for once");
	stop(engine);
}

/* When the clock is moved on, all that wait for another settle are due at once. */
static void
test_locked_batch(void)
{
	LlmqEngine *engine = start(true, 8);
	int batch = 8;

	store.jobs[3].waits = true;
	for (int look = 0; look < 4; look++)
	{
		int settles = store.jobs[3].settles;

		while (store.jobs[3].settles == settles)
			turn(engine);
		ok(store.jobs[3].batch <= batch, "a batch that waits for a lock has %d at most", batch);
		batch /= 2;
		moved_us += SECONDS(60);
	}
	run_until_settled(engine, 7);
	is_int(store.jobs[3].batch, 1, "a job that waits for a lock does so alone in the end");
	store.jobs[3].waits = false;
	run_until_settled(engine, 8);
	is_string(store.jobs[3].outcome, "succeeded",
			  "a job that waited for a lock is settled when that is free");
	stop(engine);
}

/* The text that a job ends with whose one call is answered so. */
static const char *
said_of(const char *finish_reason, const char *outcome)
{
	static char said[sizeof(store.jobs[1].said)];
	char sent[512];
	char body[256];
	LlmqEngine *engine = start(true, 1);

	snprintf(body, sizeof(body),
			 "{\"choices\":[{\"message\":{\"content\":\"As far as\"},\"finish_reason\":\"%s\"}]}",
			 finish_reason);
	snprintf(sent, sizeof(sent),
			 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 strlen(body), body);
	atomic_store(&answered, sent);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, outcome, "an answer has its outcome");
	snprintf(said, sizeof(said), "%s", store.jobs[1].said);
	stop(engine);
	return said;
}

static void
test_texts(void)
{
	is_string(said_of("stop", "succeeded"), "As far as", "an answer is settled with its text");
	is_string(said_of("length", "dead"), "As far as",
			  "so is one that was cut off, though its job is dead");
	is_string(said_of("content_filter", "dead"), "", "one that was filtered has none");
}

/* The database need not be asked when it is due. */
static void
test_redelivery(void)
{
	LlmqEngine *engine = start(true, 1);

	store.of_queue = ",\"max_attempts\":1";
	atomic_store(&answered, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "retry", "a job that failed goes back for another delivery");
	ok(engine->core.full_poll_at_us <= engine->core.now.mono_us + 1000,
	   "this worker looks as soon as it is due");
	stop(engine);
}

static void
test_recall(void)
{
	LlmqEngine *engine = start(true, 2);

	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 2)
		turn(engine);
	store.recall = 1;
	llmq_engine_wake(engine);
	moved_us += 200000;
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "retry", "a job that is recalled is given back");
	is_string(store.jobs[1].attempt_class, "interrupted",
			  "the call of a job that is recalled is recorded as interrupted");
	is_string(store.jobs[2].outcome, "", "a job beside one that is recalled goes on");
	is_int(llmq_engine_calls(engine), 1, "the call of a job beside one that is recalled is left");
	atomic_store(&answers_held, 0);
	stop(engine);
}

/* Notes where polls begin to read: sweeps at the base, looks at the tip. */
static void
watch_positions(LlmqEngine *engine)
{
	store.after_least = INT64_MAX;
	store.after_most = -1;
	for (int i = 0; i < 6; i++)
	{
		llmq_engine_wake(engine);
		run_for(engine, i % 2 == 0 ? 10000 : 20000000); /* a wake-up soon after a sweep looks */
	}
}

/* Transaction 5 took seq 5 and has not committed; those with 6..10 have. */
static void
test_late_commit(void)
{
	LlmqEngine *engine = start(false, 10);

	store.jobs[5].visible = false;
	store.next_xid = 20;
	store.oldest_xid = 5;
	run_for(engine, 60000000);
	watch_positions(engine);
	is_int(store.after_most, 10, "looks begin behind the last job that was seen");
	ok(store.after_least < 5, "sweeps begin in front of a transaction that may still commit");
	ok(store.jobs[4].claimed && store.jobs[10].claimed,
	   "jobs that have committed are claimed while another transaction is open");

	store.jobs[5].visible = true;
	store.oldest_xid = store.next_xid = 21;
	llmq_engine_wake(engine);
	run_for(engine, 1000000);
	ok(store.jobs[5].claimed, "a job whose transaction commits late is found");
	run_for(engine, 20000000);
	watch_positions(engine);
	is_int(store.after_least, 10, "sweeps begin behind transactions that have ended");

	store.jobs[11].visible = true;
	llmq_engine_wake(engine);
	run_for(engine, 1000000);
	ok(store.jobs[11].claimed, "a job is found that comes behind where sweeps begin");
	stop(engine);
}

int
main(void)
{
	test_passing_failure();
	test_spoiled_batch();
	test_locked_batch();
	test_texts();
	test_redelivery();
	test_recall();
	test_late_commit();
	return tap_done();
}
