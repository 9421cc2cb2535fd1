/*
 * engine_leave_test.c
 *		How a worker leaves, and what a broken connection or a lost session leave behind.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

/* A job whose call is not answered. */
static LlmqEngine *
start_calling(void)
{
	LlmqEngine *engine = start(true, 1);

	atomic_store(&answers_held, 1);
	while (atomic_load(&stub.requests) < 1)
		turn(engine);
	return engine;
}

/* ---- Leaving ------------------------------------------------------------------------------- */

static void
test_before_hello(void)
{
	LlmqEngine *engine = start(true, 1);

	llmq_engine_drain(engine);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_STOPPED,
		   "a worker that never said hello leaves without a goodbye");
	stop(engine);
}

static void
test_stop(void)
{
	LlmqEngine *engine = start_calling();

	llmq_engine_stop(engine);
	run_until_stopped(engine);
	is_string(store.jobs[1].attempt_class, "interrupted", "a worker that stops ends its calls");
	is_int(store.operations[LLMQ_OP_GOODBYE], 1, "a worker that stops says goodbye");
	llmq_engine_drain(engine);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_STOPPED,
		   "a worker that has stopped does not begin to drain");
	stop(engine);
}

static void
test_late_claim(void)
{
	LlmqEngine *engine = start(true, 1);

	store.lasts[LLMQ_OP_CLAIM] = 1;
	run_until(engine, LLMQ_OP_CLAIM, 1);
	llmq_engine_drain(engine);
	run_until_stopped(engine);
	is_string(store.jobs[1].error_class, "interrupted",
			  "what is claimed while the worker begins to leave goes back");
	is_int(atomic_load(&stub.requests), 0,
		   "what is claimed while the worker begins to leave makes no call");
	stop(engine);
}

static void
test_failing_goodbye(void)
{
	LlmqEngine *engine = start(true, 0);

	run_for(engine, 1000000);
	fail_next(LLMQ_OP_GOODBYE, 1, "57P01", LLMQ_STORE_FAILED);
	llmq_engine_stop(engine);
	run_until_stopped(engine);
	is_int(store.operations[LLMQ_OP_GOODBYE], 1, "a goodbye that fails is not said again");
	stop(engine);
}

static void
test_failing_drain(void)
{
	LlmqEngine *engine = start_calling();

	fail_next(LLMQ_OP_DRAIN, 1, "57P01", LLMQ_STORE_FAILED);
	llmq_engine_drain(engine);
	run_until(engine, LLMQ_OP_DRAIN, 1);
	atomic_store(&answers_held, 0);
	run_until_stopped(engine);
	is_int(store.operations[LLMQ_OP_DRAIN], 1, "a worker tries once to say that it leaves");
	is_string(store.jobs[1].outcome, "succeeded",
			  "a worker leaves as well if nobody hears that it does");
	stop(engine);
}

static void
test_failing_settle(void)
{
	LlmqEngine *engine = start_calling();

	fail_next(LLMQ_OP_SETTLE, 1000, "57P01", LLMQ_STORE_FAILED);
	llmq_engine_stop(engine);
	run_until_stopped(engine);
	ok(store.operations[LLMQ_OP_SETTLE] > 1 && store.operations[LLMQ_OP_SETTLE] < 20,
	   "a store that settles nothing is asked some times, and keeps no worker from stopping");
	stop(engine);
}

static void
test_lost_while_leaving(void)
{
	LlmqEngine *engine = start_calling();

	llmq_engine_drain(engine);
	store.forgotten = true;
	moved_us += SECONDS(6);
	run_until(engine, LLMQ_OP_HEARTBEAT, 1);
	turn(engine);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_DRAINING,
		   "a worker that leaves says hello no more, though its session is gone");
	is_int(store.operations[LLMQ_OP_HELLO], 1, "a worker that leaves has said hello once");
	stop(engine);
}

/* ---- What is left behind -------------------------------------------------------------------- */

static void
test_lost_session(void)
{
	LlmqEngine *engine = start_calling();

	store.forgotten = true;
	moved_us += SECONDS(6);
	run_until(engine, LLMQ_OP_HELLO, 2);
	is_int(store.operations[LLMQ_OP_HELLO], 2,
		   "a worker whose heartbeat finds no session says hello again");
	is_int(llmq_engine_jobs(engine), 1,
		   "a worker that says hello again goes on with what it has in hand");
	stop(engine);
}

static void
test_hello_fails(void)
{
	LlmqEngine *engine = start(true, 1);

	fail_next(LLMQ_OP_HELLO, 3, "57P03", LLMQ_STORE_AWAY);
	run_until_settled(engine, 1);
	is_int(store.operations[LLMQ_OP_HELLO], 4, "a hello that fails is said again");
	is_string(store.jobs[1].outcome, "succeeded",
			  "a worker whose hello failed goes to work after the next one");
	stop(engine);
}

static void
test_ended_session(void)
{
	LlmqEngine *engine = start(true, 1);

	fail_next(LLMQ_OP_CLAIM, 1, "55000", LLMQ_STORE_FAILED);
	run_until_settled(engine, 1);
	is_int(store.operations[LLMQ_OP_HELLO], 2,
		   "a worker that was taken for lost, and learns it when it claims, says hello again");
	stop(engine);
}

/* The connection breaks while another job is claimed. */
static void
claim_with_unknown_end(LlmqEngine *engine)
{
	store.jobs[2].visible = true;
	fail_next(LLMQ_OP_CLAIM, 1, "", LLMQ_STORE_AWAY);
	llmq_engine_wake(engine);
	moved_us += SECONDS(1);
	while (store.failures > 0)
		turn(engine);
}

static void
test_doubt(void)
{
	LlmqEngine *engine = start_calling();

	claim_with_unknown_end(engine);
	run_until(engine, LLMQ_OP_RECONCILE, 1);
	is_string(store.said, "{00000000-0000-5000-8000-000000000001}",
			  "after a claim of unknown end all leases but those in hand are given back");
	moved_us += SECONDS(40);
	run_until(engine, LLMQ_OP_RECONCILE, 2);
	is_int(store.operations[LLMQ_OP_RECONCILE], 2,
		   "leases are given back once more when a claim of unknown end must have ended");
	stop(engine);
}

static void
test_failing_reconcile(void)
{
	LlmqEngine *engine = start_calling();

	claim_with_unknown_end(engine);
	fail_next(LLMQ_OP_RECONCILE, 2, "57P01", LLMQ_STORE_FAILED);
	run_until(engine, LLMQ_OP_RECONCILE, 3);
	is_int(store.operations[LLMQ_OP_RECONCILE], 3,
		   "leases that could not be given back are asked for until they are");
	stop(engine);
}

static void
test_unknown_queue(void)
{
	LlmqEngine *engine = start(true, 1);

	store.jobs[1].queue = "removed";
	run_until(engine, LLMQ_OP_RECONCILE, 1);
	ok(strstr(last_log, "cannot be held") != NULL, "a job of a queue that is gone cannot be held");
	is_string(store.said, "{}", "the lease of a job that cannot be held goes back");
	stop(engine);
}

int
main(void)
{
	test_before_hello();
	test_stop();
	test_late_claim();
	test_failing_goodbye();
	test_failing_drain();
	test_failing_settle();
	test_lost_while_leaving();
	test_lost_session();
	test_hello_fails();
	test_ended_session();
	test_doubt();
	test_failing_reconcile();
	test_unknown_queue();
	return tap_done();
}
