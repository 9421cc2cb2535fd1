/*
 * relay_test.c
 *		The relay from the claim of outbox messages to their settling: real webhooks to a
 *		server on loopback, an outbox in memory, and a clock that can be moved forward.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "../../bgworker/engine_private.h"

#include <inttypes.h>
#include <jansson.h>

#include "http_stub.h"

#define MESSAGES_MAX 60
#define COLUMNS		 7

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
	FakeMessage messages[MESSAGES_MAX + 1];
	bool busy; /* another worker has the topic */
	const char *settle_error;
	int settle_failures; /* how many more */
	int in_flight_said;	 /* by the last heartbeat */
	int max_in_flight;
	json_t *params;
	int64_t look_after;
	char control[2048];
	char text[MESSAGES_MAX + 1][24];
	char *cells[(MESSAGES_MAX + 2) * COLUMNS];
} FakeStore;

static FakeStore store;
static Stub stub;
static int64_t moved_us;
static atomic_int status; /* of the receiver's answers */
static atomic_int most;	  /* requests at a time */
static atomic_int at_once;
static atomic_int held;

static LlmqTime
read_clock(void)
{
	return (LlmqTime){now_us() + moved_us, now_us() + moved_us};
}

static void
ignore_log(LlmqLogLevel level, const char *message)
{
}

static bool
no_hmac(const void *key, size_t key_len, const void *data, size_t data_len, unsigned char mac[32])
{
	return false;
}

/* ---- The receiver --------------------------------------------------------------------- */

static void
receive(Stub *server, int fd, int number)
{
	char head[128];

	while (read_request(server, fd))
	{
		int now = atomic_fetch_add(&at_once, 1) + 1;

		if (now > atomic_load(&most))
			atomic_store(&most, now);
		if (atomic_load(&held))
			hold(fd);
		atomic_fetch_sub(&at_once, 1);
		snprintf(head, sizeof(head), "HTTP/1.1 %d Said\r\n%sContent-Length: 0\r\n\r\n",
				 atomic_load(&status), atomic_load(&status) == 429 ? "Retry-After: 30\r\n" : "");
		send_text(fd, head);
	}
}

/* ---- The store ------------------------------------------------------------------------ */

static void
add_topic(json_t *topics, const char *topic, int id)
{
	if (json_object_get(topics, topic) == NULL)
		json_object_set_new(topics, topic, json_integer(id));
}

/* What a poll says of messages behind look_after, or, as a sweep, of all. */
static void
write_control(bool full)
{
	json_t *topics = json_object();
	int tip = 0;
	char *source;

	for (int id = 1; id <= MESSAGES_MAX; id++)
	{
		if (store.messages[id].place != PENDING || id <= store.look_after)
			continue;
		add_topic(topics, store.messages[id].topic, id);
		tip = id;
	}
	source = json_dumps(topics, JSON_COMPACT);
	snprintf(store.control, sizeof(store.control),
			 "{\"next_xid\":10,\"oldest_xid\":10,\"more\":false,\"messages\":{\"tip\":%d,"
			 "\"topics\":%s}%s",
			 tip, source, full ? "," : "}");
	if (full)
		snprintf(store.control + strlen(store.control),
				 sizeof(store.control) - strlen(store.control),
				 "\"state\":\"running\",\"config_hash\":\"h\",\"workers\":1,\"rank\":0,\"config\":{"
				 "\"endpoints\":[],\"queues\":[],\"destinations\":[{\"topic\":\"hook*\",\"kind\":"
				 "\"webhook\",\"url\":\"http://127.0.0.1:%d/\",\"timeout\":15000000,"
				 "\"max_attempts\":3,\"backoff_base\":1000000,\"backoff_cap\":2000000,"
				 "\"max_in_flight\":%d,\"enabled\":true}]}}",
				 stub.port, store.max_in_flight);
	free(source);
	json_decref(topics);
}

static void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	store.operations[operation]++;
	json_decref(store.params);
	store.params = NULL;
	if (operation == LLMQ_OP_POLL)
	{
		store.look_after = strtoll(params[5], NULL, 10);
		write_control(params[3] != NULL);
	}
	else if (operation == LLMQ_OP_CLAIM_MESSAGES || operation == LLMQ_OP_SETTLE_MESSAGES)
		store.params = json_loads(params[1], 0, NULL);
	else if (operation == LLMQ_OP_HEARTBEAT)
		store.in_flight_said = (int) strtol(params[1], NULL, 10);
}

static void
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
		while (!store.busy && ++id <= MESSAGES_MAX && left > 0)
		{
			FakeMessage *message = &store.messages[id];

			if (message->place != PENDING || strcmp(message->topic, topic) != 0)
				continue;
			message->place = LEASED;
			message->claims++;
			snprintf(store.text[id], sizeof(store.text[id]), "%d", id);
			row[0] = (char *) topic;
			row[1] = store.text[id];
			row[2] = message->attempts == 0 ? "0" : "2";
			row[3] = "key";
			row[4] = "0";
			row[5] = "{}";
			row += COLUMNS;
			left--;
		}
	}
	rows->row_count = (int) (row - store.cells) / COLUMNS;
}

static LlmqStoreStatus
fail(LlmqRows *rows, const char *sqlstate)
{
	snprintf(rows->sqlstate, sizeof(rows->sqlstate), "%s", sqlstate);
	snprintf(rows->error, sizeof(rows->error), "it was to be");
	return LLMQ_STORE_FAILED;
}

static LlmqStoreStatus
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
		FakeMessage *message = &store.messages[json_integer_value(json_object_get(entry, "id"))];

		message->place = SETTLED;
		message->delay_us = json_integer_value(json_object_get(entry, "delay"));
		message->disables = json_is_true(json_object_get(entry, "disable"));
		snprintf(message->outcome, sizeof(message->outcome), "%s",
				 json_string_value(json_object_get(entry, "outcome")));
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
			rows->row_count = 1;
			rows->column_count = COLUMNS;
			store.cells[4] = store.control;
			return LLMQ_STORE_OK;
		case LLMQ_OP_CLAIM_MESSAGES:
			answer_claim(rows);
			return LLMQ_STORE_OK;
		case LLMQ_OP_SETTLE_MESSAGES:
			return answer_settle(rows);
		default:
			rows->row_count = 1;
			rows->column_count = 3;
			store.cells[0] = store.operation == LLMQ_OP_HELLO ? "7" : "t";
			store.cells[1] = "running";
			return LLMQ_STORE_OK;
	}
}

/* ---- Turns ------------------------------------------------------------------------------ */

/* An engine before an outbox with so many messages of a topic. */
static LlmqEngine *
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
	for (int id = 1; id <= messages; id++)
		store.messages[id] = (FakeMessage){.place = PENDING, .topic = topic};
	atomic_store(&status, 200);
	atomic_store(&most, 0);
	atomic_store(&at_once, 0);
	atomic_store(&held, 0);
	stub_start(&stub, receive);
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
	bool sending = engine->relay.in_flight.count > 0;
	int64_t timeout = llmq_engine_timeout(engine);

	if (poll(&waited, 1, sending ? 5 : 0) == 0 && !sending)
		moved_us += timeout;
	llmq_engine_dispatch(engine);
}

static int
count(Place place)
{
	int found = 0;

	for (int id = 1; id <= MESSAGES_MAX; id++)
		found += store.messages[id].place == place;
	return found;
}

static void
run_until_settled(LlmqEngine *engine, int messages)
{
	int64_t limit = now_us() + HANG_US;

	while (count(SETTLED) < messages && now_us() < limit)
		turn(engine);
}

static void
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = read_clock().mono_us + span_us;

	while (read_clock().mono_us < end)
		turn(engine);
}

static int
with_outcome(const char *outcome)
{
	int found = 0;

	for (int id = 1; id <= MESSAGES_MAX; id++)
		found += strcmp(store.messages[id].outcome, outcome) == 0;
	return found;
}

/* ---- Tests -------------------------------------------------------------------------------- */

static void
test_many(void)
{
	LlmqEngine *engine = start("hook", MESSAGES_MAX);

	run_until_settled(engine, MESSAGES_MAX);
	is_int(with_outcome("sent"), MESSAGES_MAX,
		   "all messages are sent, also those beyond one batch");
	is_int(atomic_load(&stub.requests), MESSAGES_MAX, "each once");
	is_int(atomic_load(&most), 1, "one of a topic at a time");
	ok(store.operations[LLMQ_OP_SETTLE_MESSAGES] < MESSAGES_MAX / 2, "they are settled in batches");
	run_for(engine, SECONDS(1));
	is_int(engine->relay.topic_count, 0, "a topic without messages is forgotten");
	stop(engine);
}

static void
test_wide(void)
{
	LlmqEngine *engine = start("hook", 10);

	store.max_in_flight = 4;
	atomic_store(&held, 1);
	while (atomic_load(&at_once) < 4)
		turn(engine);
	for (int i = 0; i < 20; i++)
		turn(engine);
	is_int(atomic_load(&at_once), 4, "as many of a topic at once as its destination says");
	is_int(llmq_engine_calls(engine), 0, "they take no slot from calls");
	stop(engine);
}

static void
test_late_commit(void)
{
	LlmqEngine *engine = start("hook", 9);

	store.messages[4].place = NOWHERE;
	run_until_settled(engine, 8);
	store.messages[4].place = PENDING;
	llmq_engine_wake(engine);
	run_for(engine, SECONDS(2));
	is_string(store.messages[4].outcome, "sent", "a message that was committed late is found");
	stop(engine);
}

static void
test_no_destination(void)
{
	LlmqEngine *engine = start("pulled", 3);

	run_for(engine, SECONDS(20));
	is_int(count(PENDING), 3, "messages of a topic without destination are left alone");
	is_int(store.operations[LLMQ_OP_CLAIM_MESSAGES], 0, "and are not even asked for");
	stop(engine);
}

static void
test_busy_topic(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.busy = true;
	run_for(engine, SECONDS(3));
	ok(store.operations[LLMQ_OP_CLAIM_MESSAGES] > 5,
	   "a topic that another worker has is asked for again");
	ok(store.operations[LLMQ_OP_CLAIM_MESSAGES] < 30, "now and then");
	store.busy = false;
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "sent", "and is taken up when it is free");
	stop(engine);
}

static void
test_failure(void)
{
	LlmqEngine *engine = start("hook", 2);

	store.messages[2].attempts = 2;
	atomic_store(&status, 500);
	run_until_settled(engine, 2);
	is_string(store.messages[1].outcome, "retry", "a message that failed is to be tried again");
	ok(store.messages[1].delay_us <= 1000000, "after its backoff");
	is_string(store.messages[2].outcome, "dead", "the last attempt is the last one");
	stop(engine);
}

static void
test_wish(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&status, 429);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "retry", "429 is a failed attempt");
	is_int(store.messages[1].delay_us, 30000000, "which waits as long as the receiver wishes");
	is_int(with_outcome("return"), 2, "the others of the topic go back unsent");
	is_int(store.messages[3].delay_us, 30000000, "for as long");
	is_int(atomic_load(&stub.requests), 1, "after one request");
	stop(engine);
}

static void
test_gone(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&status, 410);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "dead", "410 is dead at once");
	ok(store.messages[1].disables, "and disables the destination");
	is_int(with_outcome("return"), 2, "the others go back");
	is_int(atomic_load(&stub.requests), 1, "unsent");
	stop(engine);
}

static void
test_store_trouble(void)
{
	LlmqEngine *engine = start("hook", 3);

	store.settle_error = "55P03";
	store.settle_failures = 8;
	run_until_settled(engine, 3);
	is_int(with_outcome("sent"), 3, "what was sent outlasts a store that fails for a while");
	is_int(atomic_load(&stub.requests), 3, "and is not sent again");
	stop(engine);

	engine = start("hook", 3);
	store.messages[2].spoils = true;
	run_until_settled(engine, 2);
	is_int(with_outcome("sent"), 2, "a message that cannot be settled does not keep the others");
	run_for(engine, SECONDS(30));
	ok(store.messages[2].settles < 40, "and is tried again with a growing pause");
	store.messages[2].spoils = false;
	run_until_settled(engine, 3);
	is_string(store.messages[2].outcome, "sent", "until it can be");
	is_int(atomic_load(&stub.requests), 3, "each was sent once");
	stop(engine);
}

static void
test_stop(void)
{
	LlmqEngine *engine = start("hook", 5);
	int64_t limit;

	atomic_store(&held, 1);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	run_for(engine, SECONDS(6));
	is_int(store.in_flight_said, 5, "the heartbeat counts messages in hand");
	llmq_engine_stop(engine);
	limit = now_us() + HANG_US;
	while (llmq_engine_state(engine) != LLMQ_ENGINE_STOPPED && now_us() < limit)
		turn(engine);
	is_int(with_outcome("return"), 5, "an engine that stops gives all of them back");
	is_int(store.operations[LLMQ_OP_GOODBYE], 1, "before it says goodbye");
	stop(engine);
}

int
main(void)
{
	test_many();
	test_wide();
	test_late_commit();
	test_no_destination();
	test_busy_topic();
	test_failure();
	test_wish();
	test_gone();
	test_store_trouble();
	test_stop();
	return tap_done();
}
