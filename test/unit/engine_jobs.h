/*
 * engine_jobs.h
 *		An engine before jobs in memory: real calls to a server on loopback, a store that
 *		fails when it is told to, and a clock that can be moved forward.
 *
 * Whoever includes it defines _GNU_SOURCE, for http_stub.h.
 */
#ifndef ENGINE_JOBS_H
#define ENGINE_JOBS_H

#include "engine/engine_state.h"

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
	bool spoils;		/* a settle with it fails */
	bool waits;			/* a settle with it runs into a lock */
	int batch;			/* how many were in its last settle */
	int settles;		/* that it was in */
	bool raw;			/* the last one had its response as a string */
	const char *queue;	/* NULL: "q" */
	const char *params; /* or NULL */
	char outcome[16];
	char error_class[32];
	char attempt_class[32]; /* of its first attempt */
	char said[32];			/* the text that it ended with */
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
	int operations[LLMQ_OPERATIONS]; /* begun */
	int failing;					 /* the operation that fails, as fails says, so often: */
	int failures;
	const char *fails;
	LlmqStoreStatus failure;
	int lasts;		/* looks that the next claim takes */
	bool forgotten; /* heartbeats say that the session is gone */
	bool silent;	/* settling says nothing of what it settled */
	bool refuses_config;
	const char *state;			/* of full polls */
	const char *facts;			/* further members of them, with a comma in front */
	const char *of_endpoint;	/* further members, with a comma in front */
	const char *of_queue;		/* likewise */
	const char *more_endpoints; /* a comma, and endpoints */
	char *tokens;
	bool may_probe;
	char *breaker;
	char said[4096]; /* the last parameters of DRAW, RECONCILE and of polls that report */
	char reported[1024];
	int recall; /* the job that is recalled with the next poll */
	int64_t next_xid;
	int64_t oldest_xid;
	int64_t after;
	json_t *params; /* of the operation under way: seqs or entries */
	char control[4096];
	char text[JOBS_MAX + 1][64];
	char *cells[(JOBS_MAX + 2) * COLUMNS];
} FakeStore;

static FakeStore store;
static Stub stub;
static int64_t moved_us; /* how far the clock was moved forward */
static atomic_int answers_held;
static const char *_Atomic answered; /* by the provider, instead of a 200 */
static char last_log[512];

static inline LlmqTime
read_clock(void)
{
	return (LlmqTime){now_us() + moved_us, now_us() + moved_us};
}

static inline void
keep_log(LlmqLogLevel level, const char *message)
{
	if (level == LLMQ_LOG_WARNING)
		snprintf(last_log, sizeof(last_log), "%s", message);
}

/* ---- The provider ------------------------------------------------------------------- */

static inline bool
client_has_left(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static inline void
answer(Stub *server, int fd, int number)
{
	static const char body[] = "{\"model\":\"m\",\"choices\":[{\"message\":{\"content\":\"Hi\"},"
							   "\"finish_reason\":\"stop\"}]}";
	char head[128];

	while (read_request(server, fd))
	{
		while (atomic_load(&answers_held) != 0 && !client_has_left(fd))
			poll(NULL, 0, 1);
		if (client_has_left(fd))
			return;
		if (atomic_load(&answered) != NULL)
		{
			send_text(fd, atomic_load(&answered));
			continue;
		}
		snprintf(head, sizeof(head),
				 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
				 sizeof(body) - 1);
		send_text(fd, head);
		send_text(fd, body);
	}
}

/* ---- The store ------------------------------------------------------------------------ */

static inline int
number_of(const char *job_id)
{
	return (int) strtol(job_id + strlen(job_id) - 2, NULL, 10);
}

static inline char *
id_of(int number)
{
	snprintf(store.text[number], sizeof(store.text[0]), "00000000-0000-5000-8000-0000000000%02d",
			 number);
	return store.text[number];
}

/* What a full poll says, behind what every poll does. */
static inline void
write_facts(void)
{
	size_t len = strlen(store.control);

	snprintf(store.control + len, sizeof(store.control) - len,
			 "\"state\":\"%s\",\"config_hash\":\"h\",\"workers\":1,\"rank\":0%s,\"config\":{"
			 "\"endpoints\":[{\"name\":\"e\",\"api\":\"%s\",\"url\":"
			 "\"http://127.0.0.1:%d/v1\",\"model\":\"m\",\"connect_timeout\":5000000,"
			 "\"max_response_bytes\":1000000%s}%s],\"queues\":[{\"name\":\"q\",\"endpoints\":null,"
			 "\"call_timeout\":90000000,\"deadline\":100000000,\"max_attempts\":4,"
			 "\"min_attempt\":1000000,\"backoff_base\":1000,\"backoff_cap\":1000,"
			 "\"redelivery_base\":1000,\"redelivery_cap\":1000%s}]}}",
			 store.state, store.facts, store.refuses_config ? "telepathy" : "openai_chat",
			 stub.port, store.of_endpoint, store.more_endpoints, store.of_queue);
}

static inline void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	store.operations[operation]++;
	if (operation == LLMQ_OP_DRAW || operation == LLMQ_OP_RECONCILE)
		snprintf(store.said, sizeof(store.said), "%s", params[1]);
	if (operation == LLMQ_OP_POLL)
	{
		if (params[4] != NULL)
			snprintf(store.reported, sizeof(store.reported), "%s", params[4]);
		store.after = strtoll(params[1], NULL, 10);
		snprintf(store.control, sizeof(store.control),
				 "{\"next_xid\":%" PRId64 ",\"oldest_xid\":%" PRId64 ",\"more\":false%s",
				 store.next_xid, store.oldest_xid, params[3] == NULL ? "}" : ",");
		if (params[3] != NULL)
			write_facts();
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

static inline LlmqStoreStatus
fail(LlmqRows *rows, const char *sqlstate)
{
	snprintf(rows->sqlstate, sizeof(rows->sqlstate), "%s", sqlstate);
	snprintf(rows->error, sizeof(rows->error), "it was to be");
	return LLMQ_STORE_FAILED;
}

static inline void
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

static inline void
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
		row[4] = (char *) (store.jobs[number].queue == NULL ? "q" : store.jobs[number].queue);
		row[5] = "Hello";
		row[8] = (char *) store.jobs[number].params;
		row += COLUMNS;
		rows->row_count++;
	}
}

static inline void
note_entry(const json_t *entry, FakeJob *job)
{
	const json_t *attempts = json_object_get(entry, "attempts");
	const char *class = json_string_value(json_object_get(entry, "error_class"));
	const char *text = json_string_value(json_object_get(entry, "text"));
	const char *first =
		json_string_value(json_object_get(json_array_get(attempts, 0), "error_class"));

	snprintf(job->outcome, sizeof(job->outcome), "%s",
			 json_string_value(json_object_get(entry, "outcome")));
	snprintf(job->error_class, sizeof(job->error_class), "%s", class == NULL ? "" : class);
	snprintf(job->attempt_class, sizeof(job->attempt_class), "%s", first == NULL ? "" : first);
	snprintf(job->said, sizeof(job->said), "%s", text == NULL ? "" : text);
	job->attempts = (int) json_array_size(attempts);
}

static inline LlmqStoreStatus
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
		if (store.silent)
			number = 0;
		store.cells[i * 2] = id_of(number);
		store.cells[i * 2 + 1] = "settled";
		rows->row_count++;
	}
	return LLMQ_STORE_OK;
}

/* What a draw gives to the endpoints that ask, e and f: tokens, and a word on their breakers. */
static inline void
answer_draw(LlmqRows *rows)
{
	static char *const names[] = {"e", "f"};
	char **row = store.cells;

	rows->column_count = COLUMNS;
	for (int n = 0; n < 2; n++)
	{
		char asks[32];

		snprintf(asks, sizeof(asks), "{\"endpoint\":\"%s\"", names[n]);
		if (strstr(store.said, asks) == NULL)
			continue;
		for (int i = 1; i < COLUMNS; i++)
			row[i] = "0";
		row[0] = names[n];
		row[5] = store.tokens;
		row[8] = store.may_probe ? "t" : "f";
		row[9] = store.breaker;
		row += COLUMNS;
		rows->row_count++;
	}
}

static inline LlmqStoreStatus
fake_complete(LlmqStore *port, LlmqRows *rows)
{
	memset(rows, 0, sizeof(*rows));
	memset(store.cells, 0, sizeof(store.cells));
	rows->cells = store.cells;
	if (store.operation == LLMQ_OP_CLAIM && store.lasts > 0)
	{
		store.lasts--;
		return LLMQ_STORE_PENDING;
	}
	if (store.failures > 0 && (int) store.operation == store.failing)
	{
		store.failures--;
		fail(rows, store.fails);
		return store.failure;
	}
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
		case LLMQ_OP_DRAW:
			answer_draw(rows);
			return LLMQ_STORE_OK;
		default:
			rows->row_count = 1;
			rows->column_count = 3;
			store.cells[0] = store.operation == LLMQ_OP_HELLO ? "7" : store.forgotten ? "f" : "t";
			store.cells[1] = "running";
			return LLMQ_STORE_OK;
	}
}

/* ---- Turns -------------------------------------------------------------------------------- */

static inline LlmqEngine *
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
											  .log = keep_log};
	char error[256];

	memset(&store, 0, sizeof(store));
	store.state = "running";
	store.facts = store.of_endpoint = store.of_queue = store.more_endpoints = "";
	store.tokens = store.breaker = "0";
	store.fails = "57P01";
	store.failure = LLMQ_STORE_FAILED;
	atomic_store(&answered, NULL);
	atomic_store(&answers_held, 0);
	last_log[0] = '\0';
	store.port = (LlmqStore){fake_begin, fake_complete};
	store.hands_out = hands_out;
	store.next_xid = store.oldest_xid = 10;
	for (int i = 1; i <= jobs; i++)
		store.jobs[i].visible = true;
	stub_start(&stub, answer);
	return llmq_engine_create(&options, &store.port, error, sizeof(error));
}

static inline void
stop(LlmqEngine *engine)
{
	llmq_engine_destroy(engine);
	json_decref(store.params);
	store.params = NULL;
	stub_stop(&stub);
}

/* One turn as a host does it, though what waits for the clock alone comes at once. */
static inline void
turn(LlmqEngine *engine)
{
	struct pollfd waited = {.fd = llmq_engine_fd(engine), .events = POLLIN};
	int64_t timeout = llmq_engine_timeout(engine);

	if (poll(&waited, 1, llmq_engine_calls(engine) > 0 ? 5 : 0) == 0 &&
		llmq_engine_calls(engine) == 0)
		moved_us += timeout < SECONDS(3600) ? timeout : 0; /* what never comes is not waited for */
	llmq_engine_dispatch(engine);
}

static inline void
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

static inline void
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = read_clock().mono_us + span_us;

	while (read_clock().mono_us < end)
		turn(engine);
}

#endif /* ENGINE_JOBS_H */
