/*
 * engine_settle_test.c
 *		The engine from a claim to the settled answer: real calls to a server on
 *		loopback, a store in memory that fails when it is told to, and a clock that can
 *		be moved forward.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "../../bgworker/engine_private.h"

#include <inttypes.h>
#include <jansson.h>

#include "http_stub.h"

#define JOBS_MAX 12
#define COLUMNS	 12

/* A job of the store, by its seq: 1..JOBS_MAX. */
typedef struct FakeJob
{
	bool visible; /* its transaction has committed */
	bool claimed;
	bool spoils; /* a settle with it fails */
	bool waits;	 /* a settle with it runs into a lock */
	int batch;	 /* how many were in its last settle */
	int settles; /* that it was in */
	bool raw;	 /* the last one had its response as a string */
	char outcome[16];
	char error_class[32];
	char attempt_class[32]; /* of its first attempt */
	int attempts;
} FakeJob;

typedef struct FakeStore
{
	LlmqStore port;
	LlmqOperation operation;
	FakeJob jobs[JOBS_MAX + 1];
	bool hands_out; /* claims return jobs; else they are somebody else's by then */
	const char *settle_error;
	int settle_failures; /* how many more */
	int settles;
	int recall; /* the job that is recalled with the next poll */
	int64_t next_xid;
	int64_t oldest_xid;
	int64_t after;
	json_t *params; /* of the operation under way: seqs or entries */
	char control[1024];
	char text[JOBS_MAX + 1][64];
	char *cells[(JOBS_MAX + 2) * COLUMNS];
} FakeStore;

static FakeStore store;
static Stub stub;
static int64_t moved_us; /* how far the clock was moved forward */
static atomic_int answers_held;

static LlmqTime
read_clock(void)
{
	return (LlmqTime){now_us() + moved_us, now_us() + moved_us};
}

static void
ignore_log(LlmqLogLevel level, const char *message)
{
}

/* ---- The provider ------------------------------------------------------------------- */

static void
answer(Stub *server, int fd, int number)
{
	static const char body[] = "{\"model\":\"m\",\"choices\":[{\"message\":{\"content\":\"Hi\"},"
							   "\"finish_reason\":\"stop\"}]}";
	char head[128];

	while (read_request(server, fd))
	{
		if (atomic_load(&answers_held))
		{
			hold(fd);
			return;
		}
		snprintf(head, sizeof(head),
				 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
				 sizeof(body) - 1);
		send_text(fd, head);
		send_text(fd, body);
	}
}

/* ---- The store ------------------------------------------------------------------------ */

static int
number_of(const char *job_id)
{
	return (int) strtol(job_id + strlen(job_id) - 2, NULL, 10);
}

static char *
id_of(int number)
{
	snprintf(store.text[number], sizeof(store.text[0]), "00000000-0000-5000-8000-0000000000%02d",
			 number);
	return store.text[number];
}

static void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	if (operation == LLMQ_OP_POLL)
	{
		store.after = strtoll(params[1], NULL, 10);
		snprintf(store.control, sizeof(store.control),
				 "{\"next_xid\":%" PRId64 ",\"oldest_xid\":%" PRId64 ",\"more\":false%s",
				 store.next_xid, store.oldest_xid, params[3] == NULL ? "}" : ",");
		if (params[3] != NULL)
			snprintf(
				store.control + strlen(store.control), 800,
				"\"state\":\"running\",\"config_hash\":\"h\",\"workers\":1,\"rank\":0,\"config\":{"
				"\"endpoints\":[{\"name\":\"e\",\"api\":\"openai_chat\",\"url\":"
				"\"http://127.0.0.1:%d/v1\",\"model\":\"m\",\"connect_timeout\":5000000,"
				"\"max_response_bytes\":1000000}],\"queues\":[{\"name\":\"q\",\"endpoints\":null,"
				"\"call_timeout\":90000000,\"deadline\":100000000,\"max_attempts\":4,"
				"\"min_attempt\":1000000,\"backoff_base\":1000,\"backoff_cap\":1000,"
				"\"redelivery_base\":1000,\"redelivery_cap\":1000}]}}",
				stub.port);
	}
	json_decref(store.params);
	store.params = NULL;
	if (operation == LLMQ_OP_CLAIM)
	{
		char list[256];

		snprintf(list, sizeof(list), "[%s", params[1] + 1);
		list[strlen(list) - 1] = ']';
		store.params = json_loads(list, 0, NULL);
	}
	if (operation == LLMQ_OP_SETTLE)
		store.params = json_loads(params[1], 0, NULL);
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
	char **row = store.cells;

	rows->column_count = 7;
	for (int seq = (int) store.after + 1; seq <= JOBS_MAX; seq++)
	{
		if (!store.jobs[seq].visible || store.jobs[seq].claimed)
			continue;
		snprintf(store.text[seq], sizeof(store.text[0]), "%d", seq);
		row[0] = store.text[seq];
		row[1] = "q";
		row[2] = "tenant";
		row[3] = "0";
		row += 7;
	}
	if (store.recall != 0)
	{
		row[5] = id_of(store.recall);
		row[6] = "1";
		store.recall = 0;
		row += 7;
	}
	row[4] = store.control;
	rows->row_count = (int) (row - store.cells) / 7 + 1;
}

static void
answer_claim(LlmqRows *rows)
{
	char **row = store.cells;
	size_t i;
	json_t *seq;

	rows->column_count = COLUMNS;
	json_array_foreach(store.params, i, seq)
	{
		int number = (int) json_integer_value(seq);

		store.jobs[number].claimed = true;
		if (!store.hands_out)
			continue;
		row[1] = id_of(number);
		row[2] = "1";
		row[3] = "0";
		row[4] = "q";
		row[5] = "Hello";
		row += COLUMNS;
		rows->row_count++;
	}
}

static void
note_entry(const json_t *entry, FakeJob *job)
{
	const json_t *attempts = json_object_get(entry, "attempts");
	const char *class = json_string_value(json_object_get(entry, "error_class"));
	const char *first =
		json_string_value(json_object_get(json_array_get(attempts, 0), "error_class"));

	snprintf(job->outcome, sizeof(job->outcome), "%s",
			 json_string_value(json_object_get(entry, "outcome")));
	snprintf(job->error_class, sizeof(job->error_class), "%s", class == NULL ? "" : class);
	snprintf(job->attempt_class, sizeof(job->attempt_class), "%s", first == NULL ? "" : first);
	job->attempts = (int) json_array_size(attempts);
}

static LlmqStoreStatus
answer_settle(LlmqRows *rows)
{
	bool spoiled = false;
	bool locked = false;
	size_t i;
	json_t *entry;

	store.settles++;
	json_array_foreach(store.params, i, entry)
	{
		FakeJob *job = &store.jobs[number_of(json_string_value(json_object_get(entry, "job_id")))];

		job->settles++;
		job->batch = (int) json_array_size(store.params);
		locked |= job->waits;
		job->raw |= json_is_true(json_object_get(entry, "raw_response"));
		spoiled |= job->spoils &&
				   strcmp(json_string_value(json_object_get(entry, "outcome")), "dead") != 0;
	}
	if (spoiled)
		return fail(rows, "22P02");
	if (locked)
		return fail(rows, "55P03");
	if (store.settle_failures > 0)
	{
		store.settle_failures--;
		return fail(rows, store.settle_error);
	}
	rows->column_count = 2;
	json_array_foreach(store.params, i, entry)
	{
		int number = number_of(json_string_value(json_object_get(entry, "job_id")));

		note_entry(entry, &store.jobs[number]);
		store.cells[i * 2] = id_of(number);
		store.cells[i * 2 + 1] = "settled";
		rows->row_count++;
	}
	return LLMQ_STORE_OK;
}

static LlmqStoreStatus
fake_complete(LlmqStore *port, LlmqRows *rows)
{
	memset(rows, 0, sizeof(*rows));
	memset(store.cells, 0, sizeof(store.cells));
	rows->cells = store.cells;
	switch (store.operation)
	{
		case LLMQ_OP_POLL:
			answer_poll(rows);
			return LLMQ_STORE_OK;
		case LLMQ_OP_CLAIM:
			answer_claim(rows);
			return LLMQ_STORE_OK;
		case LLMQ_OP_SETTLE:
			return answer_settle(rows);
		default:
			rows->row_count = 1;
			rows->column_count = 3;
			store.cells[0] = store.operation == LLMQ_OP_HELLO ? "7" : "t";
			store.cells[1] = "running";
			return LLMQ_STORE_OK;
	}
}

/* ---- Turns -------------------------------------------------------------------------------- */

static LlmqEngine *
start(bool hands_out, int jobs)
{
	static const LlmqEngineOptions options = {.name = "test",
											  .kind = "server",
											  .pid = "1",
											  .max_in_flight = 100,
											  .max_connections = 100,
											  .poll_interval_us = 5000000,
											  .user_agent = "test",
											  .seed = 1,
											  .clock = read_clock,
											  .log = ignore_log};
	char error[256];

	memset(&store, 0, sizeof(store));
	store.port = (LlmqStore){fake_begin, fake_complete};
	store.hands_out = hands_out;
	store.next_xid = store.oldest_xid = 10;
	for (int i = 1; i <= jobs; i++)
		store.jobs[i].visible = true;
	stub_start(&stub, answer);
	return llmq_engine_create(&options, &store.port, error, sizeof(error));
}

static void
stop(LlmqEngine *engine)
{
	llmq_engine_destroy(engine);
	json_decref(store.params);
	store.params = NULL;
	stub_stop(&stub);
}

/* One turn as a host does it, though what waits for the clock alone comes at once. */
static void
turn(LlmqEngine *engine)
{
	struct pollfd waited = {.fd = llmq_engine_fd(engine), .events = POLLIN};
	int64_t timeout = llmq_engine_timeout(engine);

	if (poll(&waited, 1, llmq_engine_calls(engine) > 0 ? 5 : 0) == 0 &&
		llmq_engine_calls(engine) == 0)
		moved_us += timeout;
	llmq_engine_dispatch(engine);
}

static void
run_until_settled(LlmqEngine *engine, int jobs)
{
	int64_t limit = now_us() + HANG_US;
	int settled = 0;

	while (settled < jobs && now_us() < limit)
	{
		turn(engine);
		settled = 0;
		for (int i = 1; i <= JOBS_MAX; i++)
			settled += store.jobs[i].outcome[0] != '\0';
	}
}

static void
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = read_clock().mono_us + span_us;

	while (read_clock().mono_us < end)
		turn(engine);
}

/* ---- Tests ------------------------------------------------------------------------------------
 */

static void
test_passing_failure(void)
{
	LlmqEngine *engine = start(true, 1);

	store.settle_error = "55P03";
	store.settle_failures = 8;
	run_until_settled(engine, 1);
	is_string(store.jobs[1].outcome, "succeeded",
			  "an answer outlasts a store that fails for a while");
	is_int(store.jobs[1].settles, 9, "it is settled again and again");
	is_int(store.jobs[1].raw, false, "whole, since its row was not to blame");
	is_int(atomic_load(&stub.requests), 1, "and was asked for once");
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
				  i == 3 ? "a job that cannot be stored goes dead" : "its neighbours succeed");
	is_string(store.jobs[3].error_class, "internal", "for want of a better reason");
	ok(store.jobs[3].raw, "its answer was tried as a string before");
	is_int(atomic_load(&stub.requests), 5, "each was asked for once");
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
	is_int(store.jobs[3].batch, 1, "until who waits for it does so alone");
	store.jobs[3].waits = false;
	run_until_settled(engine, 8);
	is_string(store.jobs[3].outcome, "succeeded", "as long as it must");
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
	is_string(store.jobs[1].attempt_class, "interrupted", "its call is recorded as interrupted");
	is_string(store.jobs[2].outcome, "", "the other goes on");
	is_int(llmq_engine_calls(engine), 1, "one call is left");
	atomic_store(&answers_held, 0);
	stop(engine);
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
	is_int(engine->position.tip, 10, "the tip is where the last job was seen");
	ok(engine->position.base < 5, "the base stays in front of a transaction that may still commit");
	ok(store.jobs[4].claimed && store.jobs[10].claimed, "the others are claimed meanwhile");

	store.jobs[5].visible = true;
	store.oldest_xid = store.next_xid = 21;
	llmq_engine_wake(engine);
	run_for(engine, 1000000);
	ok(store.jobs[5].claimed, "a job whose transaction commits late is found");
	run_for(engine, 20000000);
	is_int(engine->position.base, 10, "then the base moves on");

	store.jobs[11].visible = true;
	llmq_engine_wake(engine);
	run_for(engine, 1000000);
	ok(store.jobs[11].claimed, "and what comes behind it is found");
	stop(engine);
}

int
main(void)
{
	test_passing_failure();
	test_spoiled_batch();
	test_locked_batch();
	test_recall();
	test_late_commit();
	return tap_done();
}
