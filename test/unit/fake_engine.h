/*
 * fake_engine.h
 *		An engine before the fake store: the store's port, the turns that a host gives, and what
 *		nobody sees from outside.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "fake_jobs.h"
#include "fake_outbox.h"

/* Nothing takes no time: so long at least does a turn take while the clock stands. */
#define TURN_US 10

/* ---- The port: begin ---------------------------------------------------------------------- */

/* Has a changed configuration be one of another hash. */
static inline void
write_config(void)
{
	char before[sizeof(store.config)];

	memcpy(before, store.config, sizeof(before));
	store.config[0] = '\0';
	append_config("{");
	write_job_config();
	append_config(",");
	write_message_config();
	append_config("}");
	store.configs += strcmp(store.config, before) != 0;
}

/* What a full poll says, behind what every poll does. */
static inline void
append_facts(const char *known_hash)
{
	char hash[16];

	write_config();
	snprintf(hash, sizeof(hash), "h%d", store.configs);
	if (store.state == NULL)
		append_control(",\"state\":null");
	else
		append_control(",\"state\":\"%s\"", store.state);
	append_control(",\"config_hash\":\"%s\",\"workers\":1,\"rank\":0%s", hash, store.facts);
	if (strcmp(hash, known_hash) != 0)
		append_control(",\"config\":%s", store.config);
	if (store.unreadable)
		append_control(",\"x\":1e999");
}

static inline void
take_poll(const char *const *params)
{
	moved_us += store.poll_cost_us;
	store.after = strtoll(params[1], NULL, 10);
	if (store.after < store.after_least)
		store.after_least = store.after;
	if (store.after > store.after_most)
		store.after_most = store.after;
	if (params[4] != NULL)
	{
		snprintf(store.reported, sizeof(store.reported), "%s", params[4]);
		store.clock_set += strstr(params[4], "\"clock_set\":true") != NULL;
	}
	take_message_look(params[5], params[6]);
	store.control[0] = '\0';
	append_control("{\"next_xid\":%" PRId64 ",\"oldest_xid\":%" PRId64 ",\"more\":false",
				   store.next_xid, store.oldest_xid);
	append_messages();
	if (params[3] != NULL)
		append_facts(params[3]);
	append_control("}");
}

static inline void
fake_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	store.operation = operation;
	store.under_way = true;
	store.operations[operation]++;
	json_decref(store.params);
	store.params = NULL;
	switch (operation)
	{
		case LLMQ_OP_POLL:
			take_poll(params);
			break;
		case LLMQ_OP_CLAIM:
			take_job_claim(params[1]);
			break;
		case LLMQ_OP_SETTLE:
			take_job_settle(params[1]);
			break;
		case LLMQ_OP_CLAIM_MESSAGES:
			store.params = json_loads(params[1], 0, NULL);
			break;
		case LLMQ_OP_SETTLE_MESSAGES:
			take_message_settle(params[1]);
			break;
		case LLMQ_OP_DRAW:
			snprintf(store.said, sizeof(store.said), "%s", params[1]);
			break;
		case LLMQ_OP_RECONCILE:
			snprintf(store.said, sizeof(store.said), "%s", params[1]);
			snprintf(store.said_messages, sizeof(store.said_messages), "%s", params[2]);
			break;
		case LLMQ_OP_HEARTBEAT:
			store.in_flight_said = (int) strtol(params[1], NULL, 10);
			store.metrics += params[2] != NULL;
			break;
		default:
			break;
	}
}

/* ---- The port: complete ------------------------------------------------------------------- */

static inline LlmqStoreStatus
answer_poll(LlmqRows *rows)
{
	int jobs = list_jobs();

	rows->column_count = POLL_COLUMNS;
	rows->row_count = jobs + 1;
	store.cells[jobs * POLL_COLUMNS + 4] = store.control;
	return LLMQ_STORE_OK;
}

/* One row, of a worker's id, its state, and a reason. */
static inline LlmqStoreStatus
answer_hello(LlmqRows *rows)
{
	if (store.state == NULL)
		store.state = "running";
	store.forgotten = false;
	rows->row_count = 1;
	rows->column_count = 3;
	store.cells[0] = (char *) store.worker;
	store.cells[1] = (char *) store.hello;
	store.cells[2] = strcmp(store.hello, "running") == 0 ? NULL : "it is not to call anybody";
	return LLMQ_STORE_OK;
}

static inline LlmqStoreStatus
answer_operation(LlmqRows *rows)
{
	switch (store.operation)
	{
		case LLMQ_OP_HELLO:
			return answer_hello(rows);
		case LLMQ_OP_POLL:
			return answer_poll(rows);
		case LLMQ_OP_CLAIM:
			return answer_job_claim(rows);
		case LLMQ_OP_SETTLE:
			return answer_job_settle(rows);
		case LLMQ_OP_CLAIM_MESSAGES:
			return answer_message_claim(rows);
		case LLMQ_OP_SETTLE_MESSAGES:
			return answer_message_settle(rows);
		case LLMQ_OP_DRAW:
			return answer_draw(rows);
		default:
			rows->row_count = rows->column_count = 1;
			store.cells[0] = store.forgotten ? "f" : "t";
			return LLMQ_STORE_OK;
	}
}

/* Fails as fail_next has said. */
static inline LlmqStoreStatus
fail_operation(LlmqRows *rows)
{
	store.failures--;
	if (store.loses)
		answer_operation(rows);
	rows->row_count = 0;
	fail(rows, store.fails);
	return store.failure;
}

static inline LlmqStoreStatus
fake_complete(LlmqStore *port, LlmqRows *rows)
{
	LlmqStoreStatus fate = LLMQ_STORE_OK;

	memset(rows, 0, sizeof(*rows));
	memset(store.cells, 0, sizeof(store.cells));
	rows->cells = store.cells;
	if (store.lasts[store.operation] > 0)
	{
		store.lasts[store.operation]--;
		return LLMQ_STORE_PENDING;
	}
	if (store.fate != NULL)
		fate = store.fate(rows);
	if (fate == LLMQ_STORE_PENDING)
		return fate;
	store.under_way = false;
	if (fate != LLMQ_STORE_OK)
		return fate;
	return is_failing() ? fail_operation(rows) : answer_operation(rows);
}

/* ---- Beginning and end -------------------------------------------------------------------- */

static bool host_changed; /* somebody says that configuration or a job's fate is another */

static inline bool
take_change(void)
{
	bool changed = host_changed;

	host_changed = false;
	return changed;
}

/* No message can be signed. */
static inline bool
no_hmac(const void *key, size_t key_len, const void *data, size_t data_len, unsigned char mac[32])
{
	return false;
}

static const LlmqEngineOptions fake_options = {.name = "test",
											   .kind = "server",
											   .pid = "1",
											   .max_in_flight = 100,
											   .max_connections = 100,
											   .poll_interval_us = 5000000,
											   .user_agent = "test",
											   .seed = 1,
											   .hmac = no_hmac,
											   .clock = read_clock,
											   .log = keep_log,
											   .changed = take_change};

/* An engine before an empty store, with a provider or a receiver that answers so. */
static inline LlmqEngine *
start_engine(StubScript script)
{
	char error[256];

	memset(&store, 0, sizeof(store));
	store.port = (LlmqStore){fake_begin, fake_complete};
	store.worker = "7";
	store.hello = store.state = "running";
	store.facts = "";
	store.fails = "57P01";
	store.failure = LLMQ_STORE_FAILED;
	reset_jobs();
	reset_messages();
	host_changed = false;
	last_log[0] = '\0';
	warnings = 0;
	stub_start(&stub, script);
	return llmq_engine_create(&fake_options, &store.port, error, sizeof(error));
}

static inline void
stop(LlmqEngine *engine)
{
	llmq_engine_destroy(engine);
	json_decref(store.params);
	store.params = NULL;
	stub_stop(&stub);
}

/* ---- What nobody sees from outside ---------------------------------------------------------- */

/* Calls and sends under way: while there are any, time goes by as the network takes it. */
static inline int
transfers(const LlmqEngine *engine)
{
	return llmq_transfer_pool_count(engine->core.transfers);
}

/* Of messages in hand the engine does not tell which are sent, which wait, and which have ended. */
static inline int
sends(const LlmqEngine *engine)
{
	return transfers(engine) - llmq_engine_calls(engine);
}

/* Those that wait for their turn, or to be settled. */
static inline int
queued(const LlmqEngine *engine)
{
	return llmq_engine_messages(engine) - sends(engine);
}

/* Whether a message is under way: the receiver reads nothing of what it is sent. */
static inline bool
is_sending(const LlmqEngine *engine, int id)
{
	const LlmqOutboxMessage *message = engine->relay.in_flight.head;

	while (message != NULL && message->id != id)
		message = message->next;
	return message != NULL;
}

/* The relay alone, for what must be shown with more topics than this store holds. */
static inline LlmqRelay *
relay_of(LlmqEngine *engine)
{
	return &engine->relay;
}

/* Has the next look of the relay be part of a sweep, which else depends on when the last one was.
 */
static inline void
want_sweep(LlmqRelay *relay)
{
	relay->sweep_wanted = true;
	relay->sweep_next_us = 0;
}

/* Topics in memory: that those without messages take no room is seen nowhere else. */
static inline int
topics_in_memory(const LlmqEngine *engine)
{
	return engine->relay.topic_count;
}

/* What is known of an endpoint's limits: its effects come with times that other tests wait for. */
static inline LlmqEndpointLimits *
gate_of(const LlmqEngine *engine, const char *endpoint)
{
	return llmq_jobs_limits_of(&engine->jobs, llmq_config_endpoint(engine->core.config, endpoint));
}

/* ---- Turns -------------------------------------------------------------------------------- */

/* One turn as a host does it, though what waits for the clock alone comes at once, but for what
 * comes later than this. */
static inline void
turn_within(LlmqEngine *engine, int64_t limit_us)
{
	struct pollfd waited = {.fd = llmq_engine_fd(engine), .events = POLLIN};
	int64_t timeout = llmq_engine_timeout(engine);
	bool sending = transfers(engine) > 0;

	if (poll(&waited, 1, sending ? 5 : 0) == 0 && !sending && !store.under_way)
		moved_us += timeout < limit_us ? timeout : limit_us;
	llmq_engine_dispatch(engine);
}

static inline void
turn(LlmqEngine *engine)
{
	/* What never comes is not waited for. */
	turn_within(engine, llmq_engine_timeout(engine) < SECONDS(3600) ? SECONDS(3600) : 0);
}

/* Gives turns for a time; returns how many operations were begun. */
static inline int
run_for(LlmqEngine *engine, int64_t span_us)
{
	int64_t end = read_clock().mono_us + span_us;
	int before = count_operations();
	int64_t left;

	while ((left = end - read_clock().mono_us) > 0)
	{
		turn_within(engine, left);
		moved_us += stopped_us != 0 ? TURN_US : 0;
	}
	return count_operations() - before;
}

/* Gives turns until so many of an operation were begun. */
static inline void
run_until(LlmqEngine *engine, LlmqOperation operation, int times)
{
	int64_t limit = now_us() + HANG_US;

	while (store.operations[operation] < times && now_us() < limit)
		turn(engine);
}

static inline void
run_until_stopped(LlmqEngine *engine)
{
	int64_t limit = now_us() + HANG_US;

	while (llmq_engine_state(engine) != LLMQ_ENGINE_STOPPED && now_us() < limit)
		turn(engine);
}

/* Has a destination count as one that has long answered in time: that would take 64 messages. */
static inline void
trust(LlmqEngine *engine, const char *topic)
{
	run_until(engine, LLMQ_OP_POLL, 1);
	llmq_relay_state_of(&engine->relay, llmq_config_route(engine->core.config, topic))->answered =
		LLMQ_RELAY_SHARED;
}

#endif /* FAKE_ENGINE_H */
