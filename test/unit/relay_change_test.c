/*
 * relay_change_test.c
 *		The relay when things change under it (destinations, leases, claims under way), and
 *		how it divides what there is.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "relay_outbox.h"

static void
test_gone_in_error(void)
{
	LlmqEngine *engine = start("hook", 2);

	store.messages[2].place = NOWHERE;
	atomic_store(&status, 410);
	run_until_settled(engine, 1);
	atomic_store(&status, 200);
	store.messages[2].place = PENDING;
	run_for(engine, SECONDS(8));
	is_string(store.messages[2].outcome, "sent",
			  "a destination that was gone, and that the database did not switch off, is used");
	stop(engine);
}

static void
test_small_wish(void)
{
	LlmqEngine *engine = start("hook", 1);

	atomic_store(&status, 429);
	atomic_store(&wish, 0);
	run_until_settled(engine, 1);
	ok(store.messages[1].delay_us > 0, "a receiver's wish does not cut the backoff short");
	stop(engine);
}

static void
test_retry_at_once(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.backoff_us = 0;
	store.puts_back = true;
	atomic_store(&status, 500);
	run_for(engine, SECONDS(4));
	ok(store.messages[1].claims > 2, "a message without backoff is found again within a second");
	stop(engine);
}

static void
turn_until(LlmqEngine *engine, LlmqOperation operation)
{
	while (!engine->core.operating || engine->core.operation != operation)
		turn(engine);
}

static void
test_drain_during_claim(void)
{
	LlmqEngine *engine = start("hook", 3);
	int64_t limit = now_us() + HANG_US;

	store.slow = true;
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	llmq_engine_drain(engine);
	store.slow = false;
	while (llmq_engine_state(engine) != LLMQ_ENGINE_STOPPED && now_us() < limit)
		llmq_engine_dispatch(engine);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_STOPPED, "an engine that claims can be drained");
	is_int(with_outcome("return"), 3, "what it was claiming goes back");
	stop(engine);
}

static void
test_gone_during_claim(void)
{
	LlmqEngine *engine = start("hook", 2);

	store.messages[2].place = NOWHERE;
	atomic_store(&thinking, 1);
	atomic_store(&status, 410);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	store.messages[2].place = PENDING;
	store.slow = true;
	llmq_engine_wake(engine);
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	atomic_store(&thinking, 0);
	while (engine->relay.in_flight.count > 0)
		turn(engine);
	store.slow = false;
	run_until_settled(engine, 2);
	is_string(store.messages[2].outcome, "return",
			  "what was being claimed of a destination that is gone goes back");
	stop(engine);
}

static void
test_wish_during_claim(void)
{
	LlmqEngine *engine = start("hook", 2);

	store.messages[2].place = NOWHERE;
	atomic_store(&thinking, 1);
	atomic_store(&status, 429);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	store.messages[2].place = PENDING;
	store.slow = true;
	llmq_engine_wake(engine);
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	atomic_store(&thinking, 0);
	while (engine->relay.in_flight.count > 0)
		turn(engine);
	store.slow = false;
	run_until_settled(engine, 2);
	is_string(store.messages[2].outcome, "return", "what was being claimed waits with the others");
	ok(store.messages[2].delay_us > 20000000, "as the receiver has wished");
	stop(engine);
}

static void
test_other_kind(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&thinking, 1);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	store.kind = "notify";
	store.changes = true;
	engine->core.full_poll_at_us = 0;
	run_until_settled(engine, 2);
	is_int(with_outcome("return"), 2, "what was made for another kind of destination goes back");
	store.disabled = true;
	engine->core.full_poll_at_us = 0;
	run_for(engine, SECONDS(1));
	store.messages[4] = (FakeMessage){.place = PENDING, .topic = "hook"};
	run_for(engine, SECONDS(6));
	atomic_store(&thinking, 0);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "sent", "what was under way is sent");
	run_for(engine, SECONDS(1));
	is_int(engine->relay.topic_count, 0, "a topic whose destination is switched off is forgotten");
	stop(engine);
}

static void
test_stuck(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&thinking, 1);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	moved_us += SECONDS(20);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "retry", "a worker that was stopped for long");
	is_int(with_outcome("return"), 2, "sends nothing that may be another's now");
	atomic_store(&thinking, 0);
	stop(engine);
}

static void
test_stranger(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.adds = true;
	run_until_settled(engine, 1);
	run_for(engine, SECONDS(3));
	is_int(store.operations[LLMQ_OP_RECONCILE], 1, "a message that cannot be held is given back");
	stop(engine);
}

static void
test_lost_answer(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.loses = store.puts_back = true;
	store.backoff_us = 0;
	atomic_store(&status, 500);
	while (store.loses)
		turn(engine);
	store.settle_error = "55P03";
	store.settle_failures = 1000;
	atomic_store(&status, 200);
	atomic_store(&thinking, 1);
	engine->relay.sweep_wanted = true;
	while (atomic_load(&at_once) < 1)
		turn(engine);
	is_int(engine->relay.ended.count, 0, "a message that comes again was settled");
	store.settle_failures = 0;
	store.puts_back = false;
	atomic_store(&thinking, 0);
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "sent", "and what becomes of it now is what counts");
	stop(engine);
}

static void
test_turns_with_jobs(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.kind = "notify";
	store.endless = true;
	while (store.operations[LLMQ_OP_CLAIM_MESSAGES] < 3)
		turn(engine);
	engine->jobs.suspects[0] = 1;
	engine->jobs.suspect_count = 1;
	for (int i = 0; i < 3; i++)
		turn(engine);
	is_int(store.operations[LLMQ_OP_CLAIM], 1, "jobs are claimed while messages have no end");
	stop(engine);
}

static void
test_large_mail(void)
{
	const size_t text = 5 * 1024 * 1024;
	LlmqEngine *engine = start("hook", 1);

	store.kind = "email";
	store.body = malloc(text + 100);
	strcpy(store.body, "{\"to\":[\"one@example.org\"],\"text\":\"");
	for (size_t len = strlen(store.body), end = len + text; len < end; len += 2)
		strcpy(store.body + len, "\303\244");
	strcat(store.body, "\"}");
	while (engine->relay.in_flight.count + count(SETTLED) == 0)
		turn(engine);
	is_int(engine->relay.in_flight.count, 1, "a large mail of letters that are encoded is sent");
	free(store.body);
	stop(engine);
}

static char names[MESSAGES_MAX + 1][24];

static void
name_topics(const char *prefix, int first, int last)
{
	for (int id = first; id <= last; id++)
	{
		snprintf(names[id], sizeof(names[id]), "%s%d", prefix, id);
		store.messages[id] = (FakeMessage){.place = PENDING, .topic = names[id]};
	}
}

static void
test_topics_in_turn(void)
{
	LlmqEngine *engine = start("hook", 0);
	const LlmqOutboxMessage *message;
	int id = 40;
	int first = 0;

	name_topics("hook", 1, 40);
	atomic_store(&thinking, 1);
	trust(engine, "hook");
	while (engine->relay.in_flight.count < 32 || engine->relay.queued < 8)
		turn(engine);
	for (message = engine->relay.in_flight.head; id < MESSAGES_MAX; message = message->next)
		store.messages[++id] = (FakeMessage){.place = PENDING, .topic = message->topic->name};
	engine->relay.sweep_wanted = true;
	engine->relay.sweep_next_us = 0;
	while (engine->relay.queued < 28)
		turn(engine);
	atomic_store(&answers, 8);
	while (count(SETTLED) < 8)
		turn(engine);
	for (message = engine->relay.in_flight.head; message != NULL; message = message->next)
		first += message->id <= 40;
	is_int(first, 32, "topics that have not had their turn come before those that have");
	atomic_store(&thinking, 0);
	run_until_settled(engine, MESSAGES_MAX);
	stop(engine);
}

static void
test_poison(void)
{
	LlmqEngine *engine = start("hook", 5);

	name_topics("other", 6, 20);
	store.messages[3].poison = true;
	run_for(engine, SECONDS(20));
	is_int(with_outcome("sent"), 17,
		   "a message that cannot be claimed keeps no other topic, and none before it");
	ok(store.operations[LLMQ_OP_CLAIM_MESSAGES] < 40, "and is left alone for a while");
	store.messages[3].poison = false;
	run_for(engine, SECONDS(60));
	is_int(with_outcome("sent"), 20, "then it is tried again");
	stop(engine);
}

static void
test_broken(void)
{
	LlmqEngine *engine = start("hook", 5);

	name_topics("other", 6, 20);
	store.messages[3].broken = true;
	run_for(engine, SECONDS(10));
	is_string(store.messages[3].outcome, "broken", "a message that cannot be read fails");
	is_int(with_outcome("sent"), 19, "alone, and holds no topic");
	stop(engine);
}

static void
test_quarantine(void)
{
	LlmqEngine *engine = start("hook", 5);
	int64_t limit = now_us() + HANG_US;

	atomic_store(&thinking, 1);
	while (engine->relay.queued < 4 && now_us() < limit)
		turn(engine);
	store.quarantined = true;
	moved_us += SECONDS(5);
	while (with_outcome("return") < 4 && now_us() < limit)
		turn(engine);
	is_int(with_outcome("return"), 4,
		   "a worker that is quarantined gives back what it has not sent");
	atomic_store(&thinking, 0);
	run_until_settled(engine, 5);
	is_int(with_outcome("sent"), 1, "and keeps what it has");
	stop(engine);
}

static void
test_large_queue(void)
{
	LlmqEngine *engine = start("hook", 50);
	int64_t end;

	store.body = malloc(2 * 1024 * 1024 + 1);
	memset(store.body, ' ', 2 * 1024 * 1024);
	store.body[2 * 1024 * 1024] = '\0';
	atomic_store(&thinking, 1);
	trust(engine, "hook");
	while (engine->relay.queued < 49)
		turn(engine);
	for (int id = 51; id <= MESSAGES_MAX; id++)
		store.messages[id] = (FakeMessage){.place = PENDING, .topic = "hook2"};
	llmq_engine_wake(engine);
	for (end = now_us() + SECONDS(2); now_us() < end || engine->relay.in_flight.count < 2;)
		turn(engine);
	is_int(engine->relay.queued, 50, "while much waits in memory, little is added to it");
	atomic_store(&thinking, 0);
	run_until_settled(engine, MESSAGES_MAX);
	is_int(with_outcome("sent"), MESSAGES_MAX, "and all is sent");
	stop(engine);
	free(store.body);
}

static void
test_slow_destinations(void)
{
	LlmqEngine *engine = start("hook", MESSAGES_MAX);
	int64_t end = now_us() + SECONDS(1);

	name_topics("hook", 1, 35);
	name_topics("other", 36, MESSAGES_MAX);
	atomic_store(&thinking, 1);
	trust(engine, "hook");
	trust(engine, "other");
	while (atomic_load(&at_once) < 40 || now_us() < end)
		turn(engine);
	ok(atomic_load(&at_once) < 50, "two destinations that hang leave room for others");
	atomic_store(&thinking, 0);
	stop(engine);
}

/* New destinations that hang, with so many messages each. */
static LlmqEngine *
start_silent(int destinations, int messages)
{
	static char names[STORE_MAX][24];
	LlmqEngine *engine = start("hook", 1);

	store.silent = destinations;
	run_until_settled(engine, 1);
	for (int i = 0; i < destinations * messages; i++)
	{
		snprintf(names[i], sizeof(names[i]), "silent%d", i / messages + 1);
		store.messages[i + 2] = (FakeMessage){.place = PENDING, .topic = names[i]};
	}
	atomic_store(&thinking, 1);
	llmq_engine_wake(engine);
	return engine;
}

static void
test_new_destinations(void)
{
	LlmqEngine *engine = start_silent(7, 8);
	int64_t limit = now_us() + HANG_US;

	while (engine->relay.queued < 7 * 7 && now_us() < limit)
		turn(engine);
	is_int(engine->relay.in_flight.count, 7, "a new destination begins with one send at a time");
	atomic_store(&answers, 7);
	while ((count(SETTLED) < 8 || engine->relay.in_flight.count < 14) && now_us() < limit)
		turn(engine);
	is_int(engine->relay.in_flight.count, 14, "and may have one more after it has answered");
	moved_us += SECONDS(5);
	while (count(SETTLED) < 22 && now_us() < limit)
		turn(engine);
	is_int(engine->relay.in_flight.count, 7, "if it lets sends run out of time it has one again");
	atomic_store(&thinking, 0);
	stop(engine);
}

static void
test_many_silent(void)
{
	LlmqEngine *engine = start_silent(LLMQ_RELAY_SHARED + 2, 1);
	int64_t limit = now_us() + HANG_US;

	while (engine->relay.queued + engine->relay.in_flight.count < LLMQ_RELAY_SHARED + 2 &&
		   now_us() < limit)
		turn(engine);
	is_int(engine->relay.in_flight.count, LLMQ_RELAY_SHARED,
		   "new destinations take what all share, and no more");
	store.messages[STORE_MAX] = (FakeMessage){.place = PENDING, .topic = "hook"};
	llmq_engine_wake(engine);
	while (engine->relay.in_flight.count <= LLMQ_RELAY_SHARED && now_us() < limit)
		turn(engine);
	is_int(engine->relay.in_flight.count, LLMQ_RELAY_SHARED + 1,
		   "one that has answered is sent to even so");
	atomic_store(&thinking, 0);
	stop(engine);
}

int
main(void)
{
	test_gone_in_error();
	test_small_wish();
	test_retry_at_once();
	test_drain_during_claim();
	test_gone_during_claim();
	test_wish_during_claim();
	test_other_kind();
	test_stuck();
	test_stranger();
	test_lost_answer();
	test_turns_with_jobs();
	test_large_mail();
	test_topics_in_turn();
	test_large_queue();
	test_slow_destinations();
	test_new_destinations();
	test_many_silent();
	test_poison();
	test_broken();
	test_quarantine();
	return tap_done();
}
