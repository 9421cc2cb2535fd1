/*
 * fake_outbox.h
 *		What the fake store answers about outbox messages, and a receiver on loopback.
 */
#ifndef FAKE_OUTBOX_H
#define FAKE_OUTBOX_H

#include "fake_store.h"

#define MESSAGE_COLUMNS 9
#define VERDICT_COLUMNS 2

/* ---- The receiver ------------------------------------------------------------------------- */

static atomic_int status;	/* of its answers */
static atomic_int at_once;	/* requests that it has not answered, */
static atomic_int most;		/* and the most of them that there were */
static atomic_int held;		/* it answers nothing */
static atomic_int thinking; /* it answers when this is over, */
static atomic_int answers;	/* but for so many */
static atomic_int wish;		/* seconds after which it wants to be asked again */
static atomic_int surplus;	/* it answers the next request twice, and then no more with 200 */

static inline bool
may_answer(void)
{
	int left = atomic_load(&answers);

	return left > 0 && atomic_compare_exchange_strong(&answers, &left, left - 1);
}

static inline void
receive(Stub *server, int fd, int number)
{
	char wished[64];
	char head[128];

	while (read_request(server, fd))
	{
		int now = atomic_fetch_add(&at_once, 1) + 1;

		if (now > atomic_load(&most))
			atomic_store(&most, now);
		if (atomic_load(&held))
			hold(fd);
		while (atomic_load(&thinking) && !may_answer())
			usleep(1000);
		atomic_fetch_sub(&at_once, 1);
		snprintf(wished, sizeof(wished), "Retry-After: %d\r\n", atomic_load(&wish));
		snprintf(head, sizeof(head), "HTTP/1.1 %d Said\r\n%sContent-Length: 0\r\n\r\n",
				 atomic_load(&status), atomic_load(&status) == 429 ? wished : "");
		send_text(fd, head);
		if (atomic_exchange(&surplus, 0))
		{
			atomic_store(&status, 500);
			send_text(fd, head);
		}
	}
}

/* ---- Messages ----------------------------------------------------------------------------- */

static inline void
add_message(int id, const char *topic)
{
	store.messages[id] = (FakeMessage){.place = PENDING, .topic = topic};
}

static inline int
count(Place place)
{
	int found = 0;

	for (int id = 1; id <= STORE_MAX; id++)
		found += store.messages[id].place == place;
	return found;
}

static inline int
with_outcome(const char *outcome)
{
	int found = 0;

	for (int id = 1; id <= STORE_MAX; id++)
		found += strcmp(store.messages[id].outcome, outcome) == 0;
	return found;
}

/* ---- Configuration ------------------------------------------------------------------------ */

/* Its member destinations. */
static inline void
write_message_config(void)
{
	append_config("\"destinations\":[{\"topic\":\"%s\",\"kind\":\"%s\",\"sender\":"
				  "\"robot@example.org\",\"url\":\"%s://127.0.0.1:%d/\",\"timeout\":15000000,"
				  "\"max_attempts\":3,\"backoff_base\":%d,\"backoff_cap\":2000000,"
				  "\"max_in_flight\":%d,\"enabled\":%s,\"credential\":%s}",
				  store.removed ? "removed" : "hook*", store.kind,
				  strcmp(store.kind, "email") == 0 ? "smtp" : "http", stub.port, store.backoff_us,
				  store.max_in_flight, store.disabled ? "false" : "true",
				  store.credential == NULL ? "null" : store.credential);
	append_config(",{\"topic\":\"other*\",\"kind\":\"webhook\",\"url\":\"http://127.0.0.1:%d/\","
				  "\"timeout\":15000000,\"max_attempts\":3}",
				  stub.port);
	for (int i = 1; i <= store.silent_destinations; i++)
		append_config(
			",{\"topic\":\"silent%d\",\"kind\":\"webhook\",\"url\":\"http://127.0.0.1:%d/\","
			"\"timeout\":5000000,\"max_attempts\":3,\"max_in_flight\":4}",
			i, stub.port);
	append_config("]");
}

/* ---- Polls -------------------------------------------------------------------------------- */

/* after is -1 where a sweep begins, topics_after NULL where none is. */
static inline void
take_message_look(const char *after, const char *topics_after)
{
	store.look_after = strtoll(after, NULL, 10);
	store.sweeps = topics_after != NULL;
	snprintf(store.topics_after, sizeof(store.topics_after), "%s",
			 store.sweeps ? topics_after : "");
}

/* The next topic behind one that has pending messages, and its first; 0: there is none. */
static inline int
next_topic(const char *after)
{
	int found = 0;

	for (int id = STORE_MAX; id > 0; id--)
	{
		const FakeMessage *message = &store.messages[id];

		if (message->place == PENDING && strcmp(message->topic, after) > 0 &&
			(found == 0 || strcmp(message->topic, store.messages[found].topic) <= 0))
			found = id;
	}
	return found;
}

/* Adds a page of a sweep. */
static inline void
add_page(json_t *messages)
{
	json_t *page = json_array();
	int left = store.page_max == 0 ? STORE_MAX : store.page_max;
	int id = next_topic(store.topics_after);

	for (; id != 0 && left > 0; id = next_topic(store.messages[id].topic), left--)
		json_array_append_new(page, json_pack("[si]", store.messages[id].topic, id));
	store.sweeping = left == 0;
	json_object_set_new(messages, "page", page);
	json_object_set_new(messages, "page_full", json_boolean(store.sweeping));
}

static inline void
add_topic(json_t *topics, const char *topic, int id)
{
	if (json_object_get(topics, topic) == NULL)
		json_object_set_new(topics, topic, json_integer(id));
}

/* What a poll says of messages: those behind look_after, and the sweep's. */
static inline void
append_messages(void)
{
	json_t *topics = json_object();
	json_t *messages = json_object();
	int tip = 0;
	char *source;

	for (int id = 1; id <= STORE_MAX; id++)
	{
		if (store.messages[id].place != PENDING || id <= store.look_after)
			continue;
		if (store.look_after >= 0)
			add_topic(topics, store.messages[id].topic, id);
		tip = id;
	}
	json_object_set_new(messages, "topics", topics);
	json_object_set_new(messages, "tip", json_integer(tip));
	if (store.sweeps)
		add_page(messages);
	if (store.more)
		json_object_set_new(messages, "more", json_true());
	store.more = false;
	source = json_dumps(messages, JSON_COMPACT);
	append_control(",\"messages\":%s", source);
	free(source);
	json_decref(messages);
}

/* ---- Claims ------------------------------------------------------------------------------- */

static inline void
lease_message(char **row, int id)
{
	FakeMessage *message = &store.messages[id];

	message->place = LEASED;
	message->claims++;
	snprintf(store.text[id], sizeof(store.text[id]), "%d", id);
	row[0] = (char *) message->topic;
	row[1] = store.text[id];
	row[2] = message->attempts == 0 ? "0" : "2";
	row[3] = "key";
	row[4] = "0";
	row[5] = store.body;
	row[7] = store.text[id];
}

/* What is claimed of one topic, from row on; the row behind it. */
static inline char **
claim_topic(char **row, const json_t *wanted)
{
	const char *topic = json_string_value(json_object_get(wanted, "topic"));
	int left = (int) json_integer_value(json_object_get(wanted, "max"));
	int id = (int) json_integer_value(json_object_get(wanted, "after"));

	if (store.busy)
	{
		row[0] = (char *) topic;
		return row + MESSAGE_COLUMNS;
	}
	for (; store.endless && left > 0; left--, row += MESSAGE_COLUMNS)
	{
		row[0] = (char *) topic;
		row[1] = "1";
		row[6] = store.failed;
	}
	while (++id <= STORE_MAX && left > 0)
	{
		FakeMessage *message = &store.messages[id];

		if (message->place != PENDING || strcmp(message->topic, topic) != 0)
			continue;
		if (message->broken && json_is_true(json_object_get(wanted, "doubtful")))
		{
			message->place = SETTLED;
			snprintf(message->outcome, sizeof(message->outcome), "broken");
			continue;
		}
		if (message->poison || message->broken)
		{
			store.poisoned = true;
			return row;
		}
		lease_message(row, id);
		row += MESSAGE_COLUMNS;
		left--;
	}
	return row;
}

/* A claim that fails changes nothing. */
static inline LlmqStoreStatus
answer_message_claim(LlmqRows *rows)
{
	FakeMessage before[STORE_MAX + 1];
	char **row = store.cells;
	size_t i;
	json_t *wanted;

	memcpy(before, store.messages, sizeof(before));
	store.poisoned = false;
	json_array_foreach(store.params, i, wanted) row = claim_topic(row, wanted);
	if (store.poisoned)
	{
		memcpy(store.messages, before, sizeof(before));
		return fail(rows, "54000");
	}
	if (store.adds)
	{
		row[0] = "unknown";
		row[1] = "99";
		row[5] = "{}";
		row[7] = "1";
		row += MESSAGE_COLUMNS;
		store.adds = false;
	}
	rows->column_count = MESSAGE_COLUMNS;
	rows->row_count = (int) (row - store.cells) / MESSAGE_COLUMNS;
	return LLMQ_STORE_OK;
}

/* ---- Settling ----------------------------------------------------------------------------- */

static inline int
message_of(const json_t *entry)
{
	return (int) json_integer_value(json_object_get(entry, "id"));
}

static inline void
take_message_settle(const char *entries)
{
	size_t i;
	json_t *entry;

	store.params = json_loads(entries, 0, NULL);
	json_array_foreach(store.params, i, entry) store.messages[message_of(entry)].settles++;
}

/* Says the verdict of a message, which is not settled. */
static inline void
say_verdict(LlmqRows *rows, int id)
{
	snprintf(store.text[id], sizeof(store.text[id]), "%d",
			 store.verdict_names != 0 ? store.verdict_names : id);
	store.cells[0] = store.text[id];
	store.cells[1] = store.verdict;
	rows->row_count = 1;
	store.verdict = NULL;
}

static inline LlmqStoreStatus
answer_message_settle(LlmqRows *rows)
{
	bool spoiled = false;
	size_t i;
	json_t *entry;

	json_array_foreach(store.params, i, entry) spoiled |= store.messages[message_of(entry)].spoils;
	if (spoiled)
		return fail(rows, "22P02");
	rows->column_count = VERDICT_COLUMNS;
	json_array_foreach(store.params, i, entry)
	{
		int id = message_of(entry);
		FakeMessage *message = &store.messages[id];

		if (store.verdict != NULL && (store.verdict_of == 0 || store.verdict_of == id))
		{
			say_verdict(rows, id);
			continue;
		}
		message->place = store.puts_back ? PENDING : SETTLED;
		message->delay_us = json_integer_value(json_object_get(entry, "delay"));
		message->disables = json_is_true(json_object_get(entry, "disable"));
		snprintf(message->outcome, sizeof(message->outcome), "%s",
				 json_string_value(json_object_get(entry, "outcome")));
	}
	return LLMQ_STORE_OK;
}

/* What a store without messages that stand out says. */
static inline void
reset_messages(void)
{
	store.kind = "webhook";
	store.max_in_flight = 1;
	store.backoff_us = 1000000;
	store.body = "{}";
	atomic_store(&status, 200);
	atomic_store(&most, 0);
	atomic_store(&at_once, 0);
	atomic_store(&held, 0);
	atomic_store(&thinking, 0);
	atomic_store(&answers, 0);
	atomic_store(&wish, 30);
	atomic_store(&surplus, 0);
}

#endif /* FAKE_OUTBOX_H */
