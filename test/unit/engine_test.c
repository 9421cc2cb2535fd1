/*
 * engine_test.c
 *		The engine over a store that is a table in memory: what it asks for, when, and
 *		what it does when the store fails.  No network, and a clock that a test moves.
 */
#include "engine/engine_state.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tap.h"

#define ROWS_MAX 300
#define COLUMNS	 12
#define SECOND	 INT64_C(1000000)

/* A store whose ready jobs are the seqs 1..ready_count that have not been claimed. */
typedef struct FakeStore
{
	LlmqStore port;
	LlmqOperation operation;
	int count[LLMQ_OPERATIONS]; /* of operations begun */
	const char *failing;		/* sqlstate of every operation but hello, or NULL */
	const char *full_control;	/* what full polls say, instead of the usual */
	const char *control;		/* of the poll under way */
	bool session_gone;			/* until the next hello */
	bool outdated;				/* what hello says: the SQL speaks another protocol */
	int ready_count;
	bool claimed[ROWS_MAX + 1];
	int64_t poison; /* a claim with this seq fails */
	int poisoned;	/* and so do those with so many behind it */
	int64_t locked; /* a claim says that this one was not to be had */
	int claims_of_poison;
	int64_t cost_us; /* of a poll */
	int clock_set;	 /* polls that said so */
	int64_t batch[ROWS_MAX];
	int batch_count;
	char *cells[ROWS_MAX * COLUMNS];
	char text[ROWS_MAX][LLMQ_NUMBER_LENGTH];
	int metrics; /* heartbeats that said what was counted */
} FakeStore;

static FakeStore store;
static LlmqTime now;
static int warnings;

static const char gone_control[] =
	"{\"next_xid\":20,\"oldest_xid\":20,\"more\":false,\"state\":null,\"config_hash\":\"h\"}";

static const char config_control[] =
	"{\"next_xid\":10,\"oldest_xid\":10,\"more\":false,\"state\":\"running\",\"config_hash\":\"h\","
	"\"config\":{\"endpoints\":[{\"name\":\"e\",\"api\":\"openai_chat\",\"url\":\"http://"
	"127.0.0.1:1\"}],"
	"\"queues\":[{\"name\":\"q\"}]}}";

static LlmqTime
read_clock(void)
{
	return now;
}

static void
pass(int64_t span_us)
{
	now.mono_us += span_us;
	now.wall_us += span_us;
}

static void
count_warning(LlmqLogLevel level, const char *message)
{
	warnings += level == LLMQ_LOG_WARNING;
}

static void
read_batch(const char *seqs)
{
	store.batch_count = 0;
	while (*seqs == '{' || *seqs == ',')
		store.batch[store.batch_count++] = strtoll(seqs + 1, (char **) &seqs, 10);
}

static void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	store.count[operation]++;
	if (operation == LLMQ_OP_POLL)
	{
		pass(store.cost_us);
		store.clock_set += params[4] != NULL && strstr(params[4], "\"clock_set\":true") != NULL;
		store.batch_count = 0;
		for (int64_t seq = strtoll(params[1], NULL, 10) + 1; seq <= store.ready_count; seq++)
			if (!store.claimed[seq])
				store.batch[store.batch_count++] = seq;
		store.control = params[3] == NULL	 ? "{\"next_xid\":10,\"oldest_xid\":10,\"more\":false}"
						: store.session_gone ? gone_control
						: store.full_control == NULL ? config_control
													 : store.full_control;
	}
	if (operation == LLMQ_OP_HEARTBEAT)
		store.metrics += params[2] != NULL;
	if (operation == LLMQ_OP_CLAIM)
		read_batch(params[1]);
}

static LlmqStoreStatus
fail(LlmqRows *rows, const char *sqlstate)
{
	snprintf(rows->sqlstate, sizeof(rows->sqlstate), "%s", sqlstate);
	snprintf(rows->error, sizeof(rows->error), "it was to be");
	return LLMQ_STORE_FAILED;
}

static void
answer_poll(LlmqRows *rows)
{
	for (int i = 0; i < store.batch_count; i++)
	{
		snprintf(store.text[i], sizeof(store.text[i]), "%" PRId64, store.batch[i]);
		store.cells[i * 7] = store.text[i];
		store.cells[i * 7 + 1] = "q";
		store.cells[i * 7 + 2] = "tenant";
		store.cells[i * 7 + 3] = "0";
	}
	rows->row_count = store.batch_count + 1;
	rows->column_count = 7;
	store.cells[store.batch_count * 7 + 4] = (char *) store.control;
}

/* What is claimed is gone at once, as if another worker had been faster. */
static LlmqStoreStatus
answer_claim(LlmqRows *rows)
{
	rows->column_count = 12;
	for (int i = 0; i < store.batch_count; i++)
		if (store.batch[i] >= store.poison && store.batch[i] <= store.poison + store.poisoned &&
			store.poison != 0)
		{
			store.claims_of_poison++;
			return fail(rows, "XX001");
		}
	for (int i = 0; i < store.batch_count; i++)
	{
		if (store.batch[i] != store.locked)
			store.claimed[store.batch[i]] = true;
		else
		{
			snprintf(store.text[0], sizeof(store.text[0]), "%" PRId64, store.locked);
			store.cells[0] = store.text[0];
			rows->row_count = 1;
		}
	}
	return LLMQ_STORE_OK;
}

static LlmqStoreStatus
fake_complete(LlmqStore *port, LlmqRows *rows)
{
	memset(rows, 0, sizeof(*rows));
	memset(store.cells, 0, sizeof(store.cells));
	rows->cells = store.cells;
	if (store.operation != LLMQ_OP_HELLO && store.failing != NULL)
		return fail(rows, store.failing);
	rows->row_count = 1;
	rows->column_count = 1;
	store.cells[0] = store.operation == LLMQ_OP_HELLO ? "7" : "t";
	if (store.operation == LLMQ_OP_HELLO)
	{
		store.session_gone = false;
		rows->column_count = 3;
		store.cells[1] = store.outdated ? "outdated" : "running";
		store.cells[2] = store.outdated ? "it speaks another protocol" : NULL;
	}
	if (store.operation == LLMQ_OP_CLAIM)
	{
		rows->row_count = 0;
		store.cells[0] = NULL;
		return answer_claim(rows);
	}
	if (store.operation == LLMQ_OP_POLL)
	{
		store.cells[0] = NULL;
		answer_poll(rows);
	}
	return LLMQ_STORE_OK;
}

static LlmqEngine *
start(int ready_count)
{
	static const LlmqEngineOptions options = {.name = "test",
											  .kind = "server",
											  .pid = "1",
											  .max_in_flight = 1000,
											  .max_connections = 1000,
											  .poll_interval_us = 5 * SECOND,
											  .user_agent = "test",
											  .seed = 1,
											  .clock = read_clock,
											  .log = count_warning};
	char error[256];

	memset(&store, 0, sizeof(store));
	store.port = (LlmqStore){fake_begin, fake_complete};
	store.ready_count = ready_count;
	now = (LlmqTime){1000 * SECOND, 1000 * SECOND};
	warnings = 0;
	return llmq_engine_create(&options, &store.port, error, sizeof(error));
}

/* Lets the engine have its turns for a time; returns how many operations it began. */
static int
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = now.mono_us + span_us;
	int before = 0;
	int after = 0;

	for (int i = 0; i < LLMQ_OPERATIONS; i++)
		before += store.count[i];
	while (now.mono_us < end)
	{
		int64_t timeout = llmq_engine_timeout(engine);

		pass(timeout < end - now.mono_us ? timeout : end - now.mono_us);
		llmq_engine_dispatch(engine);
		pass(10); /* nothing takes no time */
	}
	for (int i = 0; i < LLMQ_OPERATIONS; i++)
		after += store.count[i];
	return after - before;
}

static int
count_claimed(void)
{
	int count = 0;

	for (int i = 1; i <= store.ready_count; i++)
		count += store.claimed[i];
	return count;
}

static void
test_poison(void)
{
	LlmqEngine *engine = start(250);

	store.poison = 42;
	run_for(engine, 2 * SECOND);
	is_int(count_claimed(), 249, "a job that cannot be claimed keeps no other from it");
	is_int(store.claims_of_poison, 2, "it was in one batch, and then alone");
	is_int(warnings, 1, "which is said once");
	run_for(engine, 50 * SECOND);
	is_int(store.claims_of_poison, 2, "then it is left alone");
	run_for(engine, 15 * SECOND);
	is_int(store.claims_of_poison, 3, "for a minute");
	store.poison = 0;
	run_for(engine, 70 * SECOND);
	is_int(count_claimed(), 250, "when it can be claimed, it is");
	llmq_engine_destroy(engine);
}

static void
test_much_poison(void)
{
	LlmqEngine *engine = start(250);

	store.poison = 101;
	store.poisoned = LLMQ_HELD_MAX + 5;
	run_for(engine, 10 * SECOND);
	is_int(count_claimed(), 250 - store.poisoned - 1,
		   "more jobs that cannot be claimed than are left alone keep no other from it");
	is_int(engine->jobs.held_count <= LLMQ_HELD_MAX, true, "the first of them are looked at again");
	store.poison = 0;
	run_for(engine, 130 * SECOND);
	is_int(count_claimed(), 250, "and all are claimed when they can be");
	llmq_engine_destroy(engine);
}

static void
test_passing(void)
{
	LlmqEngine *engine = start(250);

	run_for(engine, 1);
	store.failing = "55P03";
	is_int(run_for(engine, 60 * SECOND) < 100, true,
		   "trouble that passes is waited for, not fought");
	store.failing = NULL;
	run_for(engine, 10 * SECOND);
	is_int(count_claimed(), 250, "and then all is claimed");
	llmq_engine_destroy(engine);
}

static void
test_idle(void)
{
	LlmqEngine *engine = start(0);

	run_for(engine, 10 * SECOND); /* its first heartbeat says what it counts */
	is_int(run_for(engine, 60 * SECOND), 12, "an idle worker looks once a poll_interval");
	llmq_engine_destroy(engine);
}

/* A sweep that took long is not followed by another one soon; waiting for it must cost nothing. */
static void
test_locked(void)
{
	LlmqEngine *engine = start(1);
	int operations;

	store.cost_us = SECOND / 20;
	store.locked = 1;
	run_for(engine, 10 * SECOND);
	operations = run_for(engine, 60 * SECOND);
	ok(operations < 400, "a job that somebody has locked is looked at now and then (%d operations)",
	   operations);
	store.locked = 0;
	run_for(engine, 20 * SECOND);
	is_int(count_claimed(), 1, "and found when it is free");
	llmq_engine_destroy(engine);
}

static void
test_unreadable(void)
{
	LlmqEngine *engine = start(3);
	int operations;

	store.full_control = "{\"state\":\"running\",\"config_hash\":\"h\",\"x\":1e999}";
	operations = run_for(engine, 60 * SECOND);
	ok(operations < 100,
	   "an answer that cannot be read makes nobody run in circles (%d operations)", operations);
	store.full_control = NULL;
	run_for(engine, 10 * SECOND);
	is_int(count_claimed(), 3, "what it hid is found later");
	llmq_engine_destroy(engine);
}

static void
test_heartbeat(void)
{
	LlmqEngine *engine = start(1);
	int before;

	run_for(engine, SECOND); /* it claimed something: the session shows work */
	before = store.count[LLMQ_OP_HEARTBEAT];
	store.failing = "55P03";
	run_for(engine, 10 * SECOND);
	ok(store.count[LLMQ_OP_HEARTBEAT] - before >= 3, "a heartbeat that failed is tried again soon");
	store.failing = NULL;
	before = store.count[LLMQ_OP_HEARTBEAT];
	store.metrics = 0;
	run_for(engine, 30 * SECOND);
	is_int(store.count[LLMQ_OP_HEARTBEAT] - before, 2,
		   "and ends when there is no work to show, and it is told what was counted");
	is_int(store.metrics, 1, "which the first after a failure left out");
	llmq_engine_destroy(engine);
}

static void
test_clock_set(void)
{
	LlmqEngine *engine = start(0);

	run_for(engine, 30 * SECOND);
	is_int(store.clock_set, 0, "a clock that runs as it should is nothing to speak of");
	for (int hours = -1; hours <= 1; hours += 2)
	{
		int before = store.clock_set;

		now.wall_us += hours * 3600 * SECOND;
		run_for(engine, 14 * SECOND);
		ok(store.clock_set > before, "a worker says that the clock was set by %d h", hours);
		run_for(engine, 2 * SECOND);
		before = store.clock_set;
		run_for(engine, 30 * SECOND);
		is_int(store.clock_set, before, "until every worker has written a new heartbeat");
	}
	llmq_engine_destroy(engine);
}

static void
test_new_session(void)
{
	LlmqEngine *engine = start(250);

	run_for(engine, 30 * SECOND);
	memset(store.claimed, 0, sizeof(store.claimed)); /* new tables, where seqs begin anew */
	store.ready_count = 3;
	store.session_gone = true;
	run_for(engine, 10 * SECOND);
	is_int(store.count[LLMQ_OP_HELLO], 2, "a worker whose session is gone says hello again");
	is_int(count_claimed(), 3, "and reads everything anew");
	llmq_engine_destroy(engine);
}

static void
test_outdated(void)
{
	LlmqEngine *engine = start(3);

	store.outdated = true;
	run_for(engine, 29 * SECOND);
	is_int(store.count[LLMQ_OP_HELLO], 6, "an outdated worker says hello again with each interval");
	is_int(warnings, 1, "and once in the log what is wrong");
	is_int(store.count[LLMQ_OP_POLL] + store.count[LLMQ_OP_CLAIM], 0, "and asks for nothing else");
	store.outdated = false;
	run_for(engine, 5 * SECOND);
	is_int(count_claimed(), 3, "until it is not outdated any more");
	llmq_engine_destroy(engine);
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
