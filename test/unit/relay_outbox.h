/*
 * relay_outbox.h
 *		An engine's relay before an outbox in memory, with a receiver on loopback and a
 *		clock that can be moved forward.
 *
 * Whoever includes it defines _GNU_SOURCE, for http_stub.h.
 */
#ifndef RELAY_OUTBOX_H
#define RELAY_OUTBOX_H

#include "engine/engine_state.h"

#include <inttypes.h>
#include <jansson.h>

#include "http_stub.h"

#define MESSAGES_MAX 60 /* of most tests */
#define STORE_MAX	 100
#define COLUMNS		 9

typedef enum Place
{
	NOWHERE, /* its transaction has not committed */
	PENDING,
	LEASED,
	SETTLED
} Place;

typedef struct FakeMessage
{
	Place place;
	const char *topic;
	int attempts;
	bool spoils; /* a settle with it fails */
	bool poison; /* a claim of it fails, */
	bool broken; /* or does unless it is doubtful */
	int claims;
	int settles;
	char outcome[16];
	int64_t delay_us;
	bool disables;
} FakeMessage;

typedef struct FakeStore
{
	LlmqStore port;
	LlmqOperation operation;
	int operations[LLMQ_OPERATIONS];
	FakeMessage messages[STORE_MAX + 1];
	bool busy;		/* another worker has the topic */
	bool slow;		/* a claim is under way */
	bool endless;	/* there are always more, and a claim is all that they need */
	bool adds;		/* a claim brings a message that nobody asked for */
	bool puts_back; /* what goes back is pending at once */
	bool loses;		/* the next settling is done, and its answer lost */
	const char *kind;
	char *body;
	bool changes; /* the configuration, with each poll */
	bool disabled;
	int backoff_us;
	const char *settle_error;
	bool poisoned;
	int settle_failures; /* how many more */
	int in_flight_said;	 /* by the last heartbeat */
	int max_in_flight;
	json_t *params;
	int64_t look_after;
	char topics_after[24];
	bool sweeps;
	int page_max; /* topics; 0: no limit */
	bool quarantined;
	bool away;		/* the connection breaks under the next claim */
	bool removed;	/* the destination is not configured any more */
	char *worker;	/* what hello says */
	bool forgotten; /* heartbeats say that the session is gone */
	bool more;		/* the next look says that there is more */
	char *failed;	/* what became of messages that a claim has sent; NULL: sent */
	char *verdict;	/* settling says this once: of verdict_of, or of the first message */
	int verdict_of;
	int verdict_names;		/* and calls it so; 0: by its id */
	const char *credential; /* of the destination, or NULL */
	char said[256];			/* messages in hand, as RECONCILE has them */
	int silent;				/* further destinations, "silent<n>" */
	char control[16384];
	char text[STORE_MAX + 1][24];
	char *cells[(STORE_MAX + 2) * COLUMNS];
} FakeStore;

static FakeStore store;
static Stub stub;
static int64_t moved_us;
static int64_t stopped_us; /* the clock stands there; 0: it runs */
static atomic_int status;  /* of the receiver's answers */
static atomic_int most;	   /* requests at a time */
static atomic_int at_once;
static atomic_int held;
static atomic_int thinking; /* the receiver answers when it is over, */
static atomic_int answers;	/* but for so many */
static atomic_int wish;
static atomic_int surplus; /* it answers the next request twice, and then no more with 200 */

static inline LlmqTime
read_clock(void)
{
	int64_t now = stopped_us != 0 ? stopped_us : now_us() + moved_us;

	return (LlmqTime){now, now};
}

static inline void
ignore_log(LlmqLogLevel level, const char *message)
{
}

static inline bool
no_hmac(const void *key, size_t key_len, const void *data, size_t data_len, unsigned char mac[32])
{
	return false;
}

/* ---- The receiver --------------------------------------------------------------------- */

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

/* ---- The store ------------------------------------------------------------------------ */

static inline void
add_topic(json_t *topics, const char *topic, int id)
{
	if (json_object_get(topics, topic) == NULL)
		json_object_set_new(topics, topic, json_integer(id));
}

static inline void append_control(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline void
append_control(const char *format, ...)
{
	size_t len = strlen(store.control);
	va_list args;

	va_start(args, format);
	vsnprintf(store.control + len, sizeof(store.control) - len, format, args);
	va_end(args);
}

static inline void
append_config(void)
{
	append_control(
		"\"state\":\"running\",\"config_hash\":\"h\",\"workers\":1,\"rank\":0,\"config\":{"
		"\"endpoints\":[],\"queues\":[],\"destinations\":[{\"topic\":\"%s\",\"kind\":"
		"\"%s\",\"sender\":\"robot@example.org\",\"url\":\"%s://127.0.0.1:%d/"
		"\",\"timeout\":15000000,"
		"\"max_attempts\":3,\"backoff_base\":%d,\"backoff_cap\":2000000,"
		"\"max_in_flight\":%d,\"enabled\":%s,\"credential\":%s}",
		store.removed ? "removed" : "hook*", store.kind,
		strcmp(store.kind, "email") == 0 ? "smtp" : "http", stub.port, store.backoff_us,
		store.max_in_flight, store.disabled ? "false" : "true",
		store.credential == NULL ? "null" : store.credential);
	append_control(",{\"topic\":\"other*\",\"kind\":\"webhook\",\"url\":\"http://127.0.0.1:%d/\","
				   "\"timeout\":15000000,\"max_attempts\":3}",
				   stub.port);
	for (int i = 1; i <= store.silent; i++)
		append_control(
			",{\"topic\":\"silent%d\",\"kind\":\"webhook\",\"url\":\"http://127.0.0.1:%d/\","
			"\"timeout\":5000000,\"max_attempts\":3,\"max_in_flight\":4}",
			i, stub.port);
	append_control("]}}");
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
	json_object_set_new(messages, "page", page);
	json_object_set_new(messages, "page_full", json_boolean(left == 0));
}

/* What a poll says of messages: those behind look_after, and the sweep's. */
static inline void
write_control(const char *hash)
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
	snprintf(store.control, sizeof(store.control),
			 "{\"next_xid\":10,\"oldest_xid\":10,\"more\":false,\"messages\":%s%s", source,
			 hash != NULL ? "," : "}");
	if (hash != NULL && strcmp(hash, "h") == 0 && !store.changes)
		append_control("\"state\":\"%s\",\"config_hash\":\"h\",\"workers\":1,\"rank\":0}",
					   store.quarantined ? "quarantined" : "running");
	else if (hash != NULL)
		append_config();
	free(source);
	json_decref(messages);
}

static inline void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	store.operations[operation]++;
	json_decref(store.params);
	store.params = NULL;
	if (operation == LLMQ_OP_POLL)
	{
		store.look_after = strtoll(params[5], NULL, 10);
		store.sweeps = params[6] != NULL;
		snprintf(store.topics_after, sizeof(store.topics_after), "%s",
				 store.sweeps ? params[6] : "");
		write_control(params[3]);
	}
	else if (operation == LLMQ_OP_CLAIM_MESSAGES || operation == LLMQ_OP_SETTLE_MESSAGES)
		store.params = json_loads(params[1], 0, NULL);
	else if (operation == LLMQ_OP_RECONCILE)
		snprintf(store.said, sizeof(store.said), "%s", params[2]);
	else if (operation == LLMQ_OP_HEARTBEAT)
		store.in_flight_said = (int) strtol(params[1], NULL, 10);
}

static inline void
lease(char **row, int id)
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

static inline void
answer_claim(LlmqRows *rows)
{
	char **row = store.cells;
	size_t i;
	json_t *wanted;

	rows->column_count = COLUMNS;
	json_array_foreach(store.params, i, wanted)
	{
		const char *topic = json_string_value(json_object_get(wanted, "topic"));
		int left = (int) json_integer_value(json_object_get(wanted, "max"));
		int id = (int) json_integer_value(json_object_get(wanted, "after"));

		if (store.busy)
		{
			row[0] = (char *) topic;
			row += COLUMNS;
		}
		while (store.endless && left > 0)
		{
			row[0] = (char *) topic;
			row[1] = "1";
			row[6] = store.failed;
			row += COLUMNS;
			left--;
		}
		while (!store.busy && ++id <= STORE_MAX && left > 0)
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
				return;
			}
			lease(row, id);
			row += COLUMNS;
			left--;
		}
	}
	if (store.adds)
	{
		row[0] = "unknown";
		row[1] = "99";
		row[5] = "{}";
		row[7] = "1";
		row += COLUMNS;
		store.adds = false;
	}
	rows->row_count = (int) (row - store.cells) / COLUMNS;
}

static inline LlmqStoreStatus
fail(LlmqRows *rows, const char *sqlstate)
{
	snprintf(rows->sqlstate, sizeof(rows->sqlstate), "%s", sqlstate);
	snprintf(rows->error, sizeof(rows->error), "it was to be");
	return LLMQ_STORE_FAILED;
}

/* A claim that fails changes nothing. */
static inline LlmqStoreStatus
try_claim(LlmqRows *rows)
{
	FakeMessage before[STORE_MAX + 1];

	memcpy(before, store.messages, sizeof(before));
	store.poisoned = false;
	answer_claim(rows);
	if (!store.poisoned)
		return LLMQ_STORE_OK;
	memcpy(store.messages, before, sizeof(before));
	rows->row_count = 0;
	return fail(rows, "54000");
}

static inline LlmqStoreStatus
answer_settle(LlmqRows *rows)
{
	size_t i;
	json_t *entry;
	bool spoiled = false;

	json_array_foreach(store.params, i, entry)
	{
		FakeMessage *message = &store.messages[json_integer_value(json_object_get(entry, "id"))];

		message->settles++;
		spoiled |= message->spoils;
	}
	if (spoiled)
		return fail(rows, "22P02");
	if (store.settle_failures > 0)
	{
		store.settle_failures--;
		return fail(rows, store.settle_error);
	}
	rows->column_count = 2;
	json_array_foreach(store.params, i, entry)
	{
		int id = (int) json_integer_value(json_object_get(entry, "id"));
		FakeMessage *message = &store.messages[id];

		if (store.verdict != NULL && (store.verdict_of == 0 || store.verdict_of == id))
		{
			snprintf(store.text[id], sizeof(store.text[id]), "%d",
					 store.verdict_names != 0 ? store.verdict_names : id);
			store.cells[0] = store.text[id];
			store.cells[1] = store.verdict;
			rows->row_count = 1;
			store.verdict = NULL;
			continue;
		}
		message->place = store.puts_back ? PENDING : SETTLED;
		message->delay_us = json_integer_value(json_object_get(entry, "delay"));
		message->disables = json_is_true(json_object_get(entry, "disable"));
		snprintf(message->outcome, sizeof(message->outcome), "%s",
				 json_string_value(json_object_get(entry, "outcome")));
	}
	if (store.loses)
	{
		store.loses = false;
		fail(rows, "08006");
		return LLMQ_STORE_AWAY;
	}
	return LLMQ_STORE_OK;
}

static inline LlmqStoreStatus
fake_complete(LlmqStore *port, LlmqRows *rows)
{
	memset(rows, 0, sizeof(*rows));
	memset(store.cells, 0, sizeof(store.cells));
	rows->cells = store.cells;
	switch (store.operation)
	{
		case LLMQ_OP_POLL:
			rows->row_count = 1;
			rows->column_count = COLUMNS;
			store.cells[4] = store.control;
			return LLMQ_STORE_OK;
		case LLMQ_OP_CLAIM_MESSAGES:
			if (store.slow)
				return LLMQ_STORE_PENDING;
			if (store.away)
			{
				store.away = false;
				fail(rows, "");
				return LLMQ_STORE_AWAY;
			}
			return try_claim(rows);
		case LLMQ_OP_SETTLE_MESSAGES:
			return answer_settle(rows);
		default:
			rows->row_count = 1;
			rows->column_count = 3;
			store.cells[0] = store.operation == LLMQ_OP_HELLO ? store.worker
							 : store.forgotten				  ? "f"
															  : "t";
			store.forgotten = store.forgotten && store.operation != LLMQ_OP_HELLO;
			store.cells[1] = store.quarantined ? "quarantined" : "running";
			return LLMQ_STORE_OK;
	}
}

/* ---- Turns ------------------------------------------------------------------------------ */

/* An engine before an outbox with so many messages of a topic. */
static inline LlmqEngine *
start(const char *topic, int messages)
{
	static const LlmqEngineOptions options = {.name = "test",
											  .kind = "server",
											  .pid = "1",
											  .max_in_flight = 10,
											  .max_connections = 10,
											  .poll_interval_us = 5000000,
											  .user_agent = "test",
											  .seed = 1,
											  .hmac = no_hmac,
											  .clock = read_clock,
											  .log = ignore_log};
	char error[256];

	memset(&store, 0, sizeof(store));
	store.port = (LlmqStore){fake_begin, fake_complete};
	store.max_in_flight = 1;
	store.kind = "webhook";
	store.worker = "7";
	store.body = "{}";
	store.backoff_us = 1000000;
	for (int id = 1; id <= messages; id++)
		store.messages[id] = (FakeMessage){.place = PENDING, .topic = topic};
	atomic_store(&status, 200);
	atomic_store(&most, 0);
	atomic_store(&at_once, 0);
	atomic_store(&held, 0);
	atomic_store(&thinking, 0);
	atomic_store(&answers, 0);
	atomic_store(&wish, 30);
	atomic_store(&surplus, 0);
	stub_start(&stub, receive);
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
	bool sending = engine->relay.in_flight.count > 0;
	int64_t timeout = llmq_engine_timeout(engine);

	if (poll(&waited, 1, sending ? 5 : 0) == 0 && !sending && !engine->core.operating)
		moved_us += timeout;
	llmq_engine_dispatch(engine);
}

/* Has a destination count as one that has long answered in time. */
static inline void
trust(LlmqEngine *engine, const char *topic)
{
	while (llmq_config_route(engine->core.config, topic) == NULL)
		turn(engine);
	llmq_relay_state_of(&engine->relay, llmq_config_route(engine->core.config, topic))->answered =
		LLMQ_RELAY_SHARED;
}

static inline int
count(Place place)
{
	int found = 0;

	for (int id = 1; id <= STORE_MAX; id++)
		found += store.messages[id].place == place;
	return found;
}

static inline void
run_until_settled(LlmqEngine *engine, int messages)
{
	int64_t limit = now_us() + HANG_US;

	while (count(SETTLED) < messages && now_us() < limit)
		turn(engine);
}

static inline void
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = read_clock().mono_us + span_us;

	while (read_clock().mono_us < end)
		turn(engine);
}

static inline int
with_outcome(const char *outcome)
{
	int found = 0;

	for (int id = 1; id <= STORE_MAX; id++)
		found += strcmp(store.messages[id].outcome, outcome) == 0;
	return found;
}

#endif /* RELAY_OUTBOX_H */
