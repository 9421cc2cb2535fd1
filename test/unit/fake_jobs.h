/*
 * fake_jobs.h
 *		What the fake store answers about jobs, and a provider on loopback.
 */
#ifndef FAKE_JOBS_H
#define FAKE_JOBS_H

#include "fake_store.h"

#define POLL_COLUMNS   7
#define CLAIM_COLUMNS  13
#define SETTLE_COLUMNS 2
#define DRAW_COLUMNS   12

/* ---- The provider ------------------------------------------------------------------------- */

static atomic_int answers_held;
static const char *_Atomic answered; /* instead of a 200 */

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

/* ---- Jobs --------------------------------------------------------------------------------- */

static inline int
number_of(const char *job_id)
{
	return (int) strtol(job_id + strlen(job_id) - 3, NULL, 10);
}

static inline char *
id_of(int number)
{
	snprintf(store.text[number], sizeof(store.text[0]), "00000000-0000-5000-8000-%012d", number);
	return store.text[number];
}

static inline FakeJob *
job_of(const json_t *entry)
{
	return &store.jobs[number_of(json_string_value(json_object_get(entry, "job_id")))];
}

static inline void
show_jobs(int first, int last)
{
	for (int i = first; i <= last; i++)
		store.jobs[i].visible = true;
}

static inline int
count_claimed(void)
{
	int count = 0;

	for (int i = 1; i <= JOBS_MAX; i++)
		count += store.jobs[i].claimed;
	return count;
}

/* ---- Configuration ------------------------------------------------------------------------ */

/* Its members endpoints and queues. */
static inline void
write_job_config(void)
{
	append_config(
		"\"endpoints\":[{\"name\":\"e\",\"api\":\"%s\",\"url\":\"http://127.0.0.1:%d/v1\","
		"\"model\":\"m\",\"connect_timeout\":5000000,\"max_response_bytes\":1000000%s}%s],",
		store.refuses_config ? "telepathy" : "openai_chat", stub.port, store.of_endpoint,
		store.more_endpoints);
	append_config("\"queues\":[{\"name\":\"q\",\"endpoints\":null,\"call_timeout\":90000000,"
				  "\"deadline\":100000000,\"max_attempts\":4,\"min_attempt\":1000000,"
				  "\"backoff_base\":1000,\"backoff_cap\":1000,\"redelivery_base\":1000,"
				  "\"redelivery_cap\":1000%s}]",
				  store.of_queue);
}

/* ---- Polls -------------------------------------------------------------------------------- */

/* Rows of ready jobs and of the recalled one; how many there are. */
static inline int
list_jobs(void)
{
	char **row = store.cells;

	for (int seq = (int) store.after + 1; seq <= JOBS_MAX; seq++)
	{
		if (!store.jobs[seq].visible || store.jobs[seq].claimed)
			continue;
		snprintf(store.text[seq], sizeof(store.text[0]), "%d", seq);
		row[0] = store.text[seq];
		row[1] = "q";
		row[2] = "tenant";
		row[3] = "0";
		row += POLL_COLUMNS;
	}
	if (store.recall != 0)
	{
		row[5] = id_of(store.recall);
		row[6] = "1";
		store.recall = 0;
		row += POLL_COLUMNS;
	}
	return (int) (row - store.cells) / POLL_COLUMNS;
}

/* ---- Claims ------------------------------------------------------------------------------- */

/* The seqs are an array literal of SQL, which differs from one of JSON in its brackets. */
static inline void
take_job_claim(const char *seqs)
{
	char list[2048];
	size_t i;
	json_t *seq;

	snprintf(list, sizeof(list), "[%s", seqs + 1);
	list[strlen(list) - 1] = ']';
	store.params = json_loads(list, 0, NULL);
	json_array_foreach(store.params, i, seq) store.jobs[json_integer_value(seq)].claims++;
}

/* Leases a job, or says that somebody has locked it; whether there is a row for it. */
static inline bool
lease_job(char **row, int number)
{
	FakeJob *job = &store.jobs[number];

	if (job->locked)
	{
		snprintf(store.text[number], sizeof(store.text[0]), "%d", number);
		row[0] = store.text[number];
		return true;
	}
	job->claimed = true;
	if (!store.hands_out)
		return false;
	row[1] = id_of(number);
	row[2] = "1";
	row[3] = "0";
	row[4] = (char *) (job->queue == NULL ? "q" : job->queue);
	row[5] = "Hello";
	row[8] = (char *) job->params;
	return true;
}

static inline LlmqStoreStatus
answer_job_claim(LlmqRows *rows)
{
	size_t i;
	json_t *seq;

	json_array_foreach(store.params, i, seq)
	{
		if (store.jobs[json_integer_value(seq)].poison)
			return fail(rows, "XX001");
	}
	rows->column_count = CLAIM_COLUMNS;
	json_array_foreach(store.params, i, seq) rows->row_count += lease_job(
		store.cells + (size_t) rows->row_count * CLAIM_COLUMNS, (int) json_integer_value(seq));
	return LLMQ_STORE_OK;
}

/* ---- Settling ----------------------------------------------------------------------------- */

static inline void
take_job_settle(const char *entries)
{
	size_t i;
	json_t *entry;

	store.params = json_loads(entries, 0, NULL);
	json_array_foreach(store.params, i, entry)
	{
		FakeJob *job = job_of(entry);

		job->settles++;
		job->batch = (int) json_array_size(store.params);
		job->raw |= json_is_true(json_object_get(entry, "raw_response"));
	}
}

static inline void
note_entry(const json_t *entry, FakeJob *job)
{
	const json_t *attempts = json_object_get(entry, "attempts");
	const char *class = json_string_value(json_object_get(entry, "error_class"));
	const char *first =
		json_string_value(json_object_get(json_array_get(attempts, 0), "error_class"));
	const char *text = json_string_value(json_object_get(entry, "text"));

	snprintf(job->said, sizeof(job->said), "%s", text == NULL ? "" : text);
	snprintf(job->outcome, sizeof(job->outcome), "%s",
			 json_string_value(json_object_get(entry, "outcome")));
	snprintf(job->error_class, sizeof(job->error_class), "%s", class == NULL ? "" : class);
	snprintf(job->attempt_class, sizeof(job->attempt_class), "%s", first == NULL ? "" : first);
	job->attempts = (int) json_array_size(attempts);
}

static inline LlmqStoreStatus
answer_job_settle(LlmqRows *rows)
{
	bool spoiled = false;
	bool locked = false;
	size_t i;
	json_t *entry;

	json_array_foreach(store.params, i, entry)
	{
		locked |= job_of(entry)->waits;
		spoiled |= job_of(entry)->spoils &&
				   strcmp(json_string_value(json_object_get(entry, "outcome")), "dead") != 0;
	}
	if (spoiled)
		return fail(rows, "22P02");
	if (locked)
		return fail(rows, "55P03");
	rows->column_count = SETTLE_COLUMNS;
	json_array_foreach(store.params, i, entry)
	{
		int number = number_of(json_string_value(json_object_get(entry, "job_id")));

		note_entry(entry, &store.jobs[number]);
		store.cells[i * SETTLE_COLUMNS] = id_of(store.silent ? 0 : number);
		store.cells[i * SETTLE_COLUMNS + 1] = "settled";
		rows->row_count++;
	}
	return LLMQ_STORE_OK;
}

/* ---- Draws -------------------------------------------------------------------------------- */

/* What a draw gives to the endpoints that ask, e and f: tokens, and a word on their breakers. */
static inline LlmqStoreStatus
answer_draw(LlmqRows *rows)
{
	static char *const names[] = {"e", "f"};
	char **row = store.cells;

	rows->column_count = DRAW_COLUMNS;
	for (int n = 0; n < 2; n++)
	{
		char asks[32];

		snprintf(asks, sizeof(asks), "{\"endpoint\":\"%s\"", names[n]);
		if (strstr(store.said, asks) == NULL)
			continue;
		for (int i = 1; i < DRAW_COLUMNS; i++)
			row[i] = "0";
		row[0] = names[n];
		row[5] = store.tokens;
		row[8] = store.may_probe ? "t" : "f";
		row[9] = store.breaker;
		row += DRAW_COLUMNS;
		rows->row_count++;
	}
	return LLMQ_STORE_OK;
}

/* What a store without jobs that stand out says. */
static inline void
reset_jobs(void)
{
	store.of_endpoint = store.of_queue = store.more_endpoints = "";
	store.tokens = store.breaker = "0";
	store.next_xid = store.oldest_xid = 10;
	atomic_store(&answered, NULL);
	atomic_store(&answers_held, 0);
}

#endif /* FAKE_JOBS_H */
