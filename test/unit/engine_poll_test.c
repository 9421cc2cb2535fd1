/*
 * engine_poll_test.c
 *		What a full poll says, and how soon the next one comes.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

static void
test_bad_config(void)
{
	LlmqEngine *engine = start(true, 0);

	run_for(engine, 1000000);
	store.refuses_config = true;
	run_for(engine, 10000000);
	ok(strstr(last_log, "the previous one stays in force") != NULL,
	   "a configuration that cannot be read changes nothing");
	show_jobs(1, 1);
	llmq_engine_wake(engine);
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded",
			  "jobs are called with the configuration before one that cannot be read");
	stop(engine);
}

static void
test_quarantine(void)
{
	LlmqEngine *engine = start(false, 1);

	store.hello = store.state = "quarantined";
	run_for(engine, 1000000);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_QUARANTINED,
		   "a worker before jobs of another database is in quarantine");
	is_int(store.operations[LLMQ_OP_CLAIM], 0, "a worker in quarantine claims nothing");
	store.state = "running";
	run_for(engine, 10000000);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_RUNNING,
		   "a worker in quarantine learns with a poll that it is over");
	is_int(store.operations[LLMQ_OP_HELLO], 1,
		   "a worker whose quarantine is over need not say hello again");
	store.state = "quarantined";
	run_for(engine, 6000000);
	ok(store.operations[LLMQ_OP_HELLO] > 1,
	   "a worker that is running says hello to learn why a quarantine begins");
	stop(engine);
}

/* Takes in a page of the sweep under way, as the database tells it. */
static void
take_page(LlmqEngine *engine, int64_t oldest_xid, bool more)
{
	char control[128];
	char *cells[7] = {NULL};
	LlmqRows rows = {.row_count = 1, .column_count = 7, .cells = cells};

	snprintf(control, sizeof(control), "{\"next_xid\":90,\"oldest_xid\":%" PRId64 ",\"more\":%s}",
			 oldest_xid, more ? "true" : "false");
	cells[4] = control;
	engine->jobs.polling_sweep = true;
	llmq_engine_complete_poll(engine, &rows);
}

/* A transaction that was open when the first page was read may have left a job there since. */
static void
test_long_sweep(void)
{
	LlmqEngine *engine = start(false, 0);
	LlmqPosition *position = &engine->jobs.position;

	run_for(engine, 1000000);
	*position = (LlmqPosition){.tip = 10, .candidate = 10, .candidate_xid = 50, .sweeping = true};
	take_page(engine, 40, true);
	take_page(engine, 60, false);
	is_int(position->base, 0, "a sweep proves nothing beyond what was over when it began");
	position->sweeping = true;
	position->sweep_xid = 0;
	take_page(engine, 50, true);
	take_page(engine, 60, false);
	is_int(position->base, 10, "one that began later lets the base move on");
	stop(engine);
}

static void
test_pruned(void)
{
	LlmqEngine *engine = start(false, 0);
	int polls;

	run_for(engine, 300000000); /* retention has begun */
	polls = store.operations[LLMQ_OP_POLL];
	store.facts = ",\"pruned\":10";
	run_for(engine, 30000000);
	ok(store.operations[LLMQ_OP_POLL] - polls >= 20,
	   "while retention deletes it goes on each second");
	ok(strstr(store.reported, "\"prune\":true") != NULL,
	   "while retention deletes each look asks it to go on");
	stop(engine);
}

static void
test_depth(void)
{
	LlmqEngine *engine = start(true, 1);

	store.of_queue = ",\"max_ready\":10,\"paused\":true";
	run_for(engine, 10000000);
	ok(strstr(store.reported, "\"depths\":{\"q\":1}") != NULL,
	   "the depth of a queue that has a limit is told");
	stop(engine);
}

static void
test_unresolved(void)
{
	LlmqEngine *engine = start(false, 0);
	int polls;

	run_for(engine, 10000000);
	store.facts = ",\"unresolved\":true";
	polls = store.operations[LLMQ_OP_POLL];
	run_for(engine, 20000000);
	ok(store.operations[LLMQ_OP_POLL] - polls >= 100,
	   "while a blocked job could not be looked at the next poll is a full one, and soon");
	stop(engine);
}

static void
test_silent_settle(void)
{
	LlmqEngine *engine = start(true, 2);

	store.silent = true;
	run_until_settled(engine, 2);
	is_int(llmq_engine_jobs(engine), 0,
		   "what was settled is over, though the answer does not name it");
	is_int(store.jobs[1].settles + store.jobs[2].settles, 2,
		   "what was settled is not settled again, though the answer does not name it");
	stop(engine);
}

int
main(void)
{
	test_bad_config();
	test_quarantine();
	test_long_sweep();
	test_pruned();
	test_depth();
	test_unresolved();
	test_silent_settle();
	return tap_done();
}
