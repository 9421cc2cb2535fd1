/*
 * engine_poll_test.c
 *		What a full poll says, and how soon the next one comes.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "engine_jobs.h"

static void
test_bad_config(void)
{
	LlmqEngine *engine = start(false, 0);

	run_for(engine, 1000000);
	store.refuses_config = true;
	run_for(engine, 10000000);
	ok(strstr(last_log, "the previous one stays in force") != NULL,
	   "a configuration that cannot be read changes nothing");
	ok(llmq_config_endpoint(engine->core.config, "e") != NULL, "the endpoint is there still");
	stop(engine);
}

static void
test_quarantine(void)
{
	LlmqEngine *engine = start(false, 1);

	run_for(engine, 1000000);
	engine->core.state = LLMQ_ENGINE_QUARANTINED;
	run_for(engine, 10000000);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_RUNNING,
		   "a worker in quarantine learns with a poll that it is over");
	store.state = "quarantined";
	run_for(engine, 6000000);
	ok(store.operations[LLMQ_OP_HELLO] > 1,
	   "one that is running says hello to learn why it begins");
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
	ok(strstr(store.reported, "\"prune\":true") != NULL, "with each look");
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
	is_int(engine->jobs.table.count, 0,
		   "what was settled is over, though the answer does not name it");
	is_int(store.settles > 2, false, "and is not settled again");
	stop(engine);
}

int
main(void)
{
	test_bad_config();
	test_quarantine();
	test_pruned();
	test_depth();
	test_unresolved();
	test_silent_settle();
	return tap_done();
}
