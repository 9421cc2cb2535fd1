/*
 * engine_test.c
 *		What the engine asks of its store, when, and what it does when the store fails.  No network,
 *		and a clock that a test moves.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "fake_engine.h"

/* What is claimed is gone at once, as if another worker had been faster. */
static LlmqEngine *
start(int jobs)
{
	LlmqEngine *engine;

	stopped_us = SECONDS(1000);
	moved_us = wall_moved_us = 0;
	engine = start_engine(answer);
	show_jobs(1, jobs);
	return engine;
}

static void
set_poison(int first, int last, bool poison)
{
	for (int i = first; i <= last; i++)
		store.jobs[i].poison = poison;
}

static void
test_poison(void)
{
	LlmqEngine *engine = start(250);

	set_poison(42, 42, true);
	run_for(engine, SECONDS(2));
	is_int(count_claimed(), 249, "a job that cannot be claimed keeps no other from it");
	is_int(store.jobs[42].claims, 2,
		   "a job that cannot be claimed is claimed in one batch, and then alone");
	is_int(warnings, 1, "a job that cannot be claimed is spoken of once");
	run_for(engine, SECONDS(50));
	is_int(store.jobs[42].claims, 2, "a job that cannot be claimed is left alone");
	run_for(engine, SECONDS(15));
	is_int(store.jobs[42].claims, 3, "a job that cannot be claimed is left alone for a minute");
	set_poison(42, 42, false);
	run_for(engine, SECONDS(70));
	is_int(count_claimed(), 250, "a job that could not be claimed is claimed when it can be");
	stop(engine);
}

static void
test_much_poison(void)
{
	LlmqEngine *engine = start(250);
	int last = 101 + LLMQ_HELD_MAX + 5;

	set_poison(101, last, true);
	run_for(engine, SECONDS(10));
	is_int(count_claimed(), 250 - (last - 100),
		   "more jobs that cannot be claimed than are left alone keep no other from it");
	ok(store.jobs[101].claims > 2,
	   "of more jobs that cannot be claimed than are left alone the first are looked at again");
	set_poison(101, last, false);
	run_for(engine, SECONDS(130));
	is_int(count_claimed(), 250,
		   "many jobs that could not be claimed are claimed when they can be");
	stop(engine);
}

static void
test_passing(void)
{
	LlmqEngine *engine = start(250);

	run_for(engine, 1);
	fail_next(ALL_OPERATIONS, INT_MAX, "55P03", LLMQ_STORE_FAILED);
	is_int(run_for(engine, SECONDS(60)) < 100, true,
		   "trouble that passes is waited for, not fought");
	store.failures = 0;
	run_for(engine, SECONDS(10));
	is_int(count_claimed(), 250, "after trouble that passes all jobs are claimed");
	stop(engine);
}

static void
test_idle(void)
{
	LlmqEngine *engine = start(0);

	run_for(engine, SECONDS(10)); /* its first heartbeat says what it counts */
	is_int(run_for(engine, SECONDS(60)), 12, "an idle worker looks once a poll_interval");
	stop(engine);
}

/* A sweep that took long is not followed by another one soon; waiting for it must cost nothing. */
static void
test_locked(void)
{
	LlmqEngine *engine = start(1);
	int operations;

	store.poll_cost_us = SECONDS(1) / 20;
	store.jobs[1].locked = true;
	run_for(engine, SECONDS(10));
	operations = run_for(engine, SECONDS(60));
	ok(operations < 400, "a job that somebody has locked is looked at now and then (%d operations)",
	   operations);
	store.jobs[1].locked = false;
	run_for(engine, SECONDS(20));
	is_int(count_claimed(), 1, "a job that somebody had locked is found when it is free");
	stop(engine);
}

static void
test_unreadable(void)
{
	LlmqEngine *engine = start(3);
	int operations;

	store.unreadable = true;
	operations = run_for(engine, SECONDS(60));
	ok(operations < 100,
	   "an answer that cannot be read makes nobody run in circles (%d operations)", operations);
	store.unreadable = false;
	run_for(engine, SECONDS(10));
	is_int(count_claimed(), 3, "what an answer hid that could not be read is found later");
	stop(engine);
}

static void
test_heartbeat(void)
{
	LlmqEngine *engine = start(1);
	int before;

	run_for(engine, SECONDS(1)); /* it claimed something: the session shows work */
	before = store.operations[LLMQ_OP_HEARTBEAT];
	fail_next(ALL_OPERATIONS, INT_MAX, "55P03", LLMQ_STORE_FAILED);
	run_for(engine, SECONDS(10));
	ok(store.operations[LLMQ_OP_HEARTBEAT] - before >= 3,
	   "a heartbeat that failed is tried again soon");
	store.failures = 0;
	before = store.operations[LLMQ_OP_HEARTBEAT];
	store.metrics = 0;
	run_for(engine, SECONDS(30));
	is_int(store.operations[LLMQ_OP_HEARTBEAT] - before, 2,
		   "heartbeats end when there is no work to show, and what was counted is told");
	is_int(store.metrics, 1, "the first heartbeat after a failure leaves out what was counted");
	stop(engine);
}

static void
test_clock_set(void)
{
	LlmqEngine *engine = start(0);

	run_for(engine, SECONDS(30));
	is_int(store.clock_set, 0, "a clock that runs as it should is nothing to speak of");
	for (int hours = -1; hours <= 1; hours += 2)
	{
		int before = store.clock_set;

		wall_moved_us += hours * SECONDS(3600);
		run_for(engine, SECONDS(14));
		ok(store.clock_set > before, "a worker says that the clock was set by %d h", hours);
		run_for(engine, SECONDS(2));
		before = store.clock_set;
		run_for(engine, SECONDS(30));
		is_int(store.clock_set, before,
			   "that the clock was set is said until every worker has written a new heartbeat");
	}
	stop(engine);
}

static void
test_new_session(void)
{
	LlmqEngine *engine = start(250);

	run_for(engine, SECONDS(30));
	memset(store.jobs, 0, sizeof(store.jobs)); /* new tables, where seqs begin anew */
	show_jobs(1, 3);
	store.state = NULL;
	run_for(engine, SECONDS(10));
	is_int(store.operations[LLMQ_OP_HELLO], 2, "a worker whose session is gone says hello again");
	is_int(count_claimed(), 3, "a worker that says hello again reads everything anew");
	stop(engine);
}

static void
test_outdated(void)
{
	LlmqEngine *engine = start(3);

	store.hello = "outdated";
	run_for(engine, SECONDS(29));
	is_int(store.operations[LLMQ_OP_HELLO], 6,
		   "an outdated worker says hello again with each interval");
	is_int(warnings, 1, "an outdated worker says once in the log what is wrong");
	is_int(store.operations[LLMQ_OP_POLL] + store.operations[LLMQ_OP_CLAIM], 0,
		   "an outdated worker looks for nothing and claims nothing");
	store.hello = "running";
	run_for(engine, SECONDS(5));
	is_int(count_claimed(), 3, "a worker that is no longer outdated goes to work");
	stop(engine);
}

int
main(void)
{
	test_idle();
	test_poison();
	test_much_poison();
	test_passing();
	test_locked();
	test_unreadable();
	test_heartbeat();
	test_clock_set();
	test_new_session();
	test_outdated();
	return tap_done();
}
