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
	while (!store.under_way || store.operation != operation)
		turn(engine);
}

static void
test_drain_during_claim(void)
{
	LlmqEngine *engine = start("hook", 3);

	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = INT_MAX;
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	llmq_engine_drain(engine);
	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = 0;
	run_until_stopped(engine);
	is_int(llmq_engine_state(engine), LLMQ_ENGINE_STOPPED, "an engine that claims can be drained");
	is_int(with_outcome("return"), 3, "what an engine was claiming as it began to drain goes back");
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
	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = INT_MAX;
	llmq_engine_wake(engine);
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	atomic_store(&thinking, 0);
	while (sends(engine) > 0)
		turn(engine);
	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = 0;
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
	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = INT_MAX;
	llmq_engine_wake(engine);
	turn_until(engine, LLMQ_OP_CLAIM_MESSAGES);
	atomic_store(&thinking, 0);
	while (sends(engine) > 0)
		turn(engine);
	store.lasts[LLMQ_OP_CLAIM_MESSAGES] = 0;
	run_until_settled(engine, 2);
	is_string(store.messages[2].outcome, "return",
			  "what was being claimed goes back if the receiver asks for time");
	ok(store.messages[2].delay_us > 20000000,
	   "what was being claimed waits as long as the receiver asks for");
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
	host_changed = true;
	run_until_settled(engine, 2);
	is_int(with_outcome("return"), 2, "what was made for another kind of destination goes back");
	store.disabled = true;
	host_changed = true;
	run_for(engine, SECONDS(1));
	add_message(4, "hook");
	run_for(engine, SECONDS(6));
	atomic_store(&thinking, 0);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "sent",
			  "a message that was under way as its destination changed is sent");
	run_for(engine, SECONDS(1));
	is_int(topics_in_memory(engine), 0, "a topic whose destination is switched off is forgotten");
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
	is_string(store.messages[1].outcome, "retry",
			  "the message of a worker that was stopped for long has run out of time");
	is_int(with_outcome("return"), 2,
		   "a worker that was stopped for long sends nothing that may be another's now");
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

	store.puts_back = true;
	lose_next(LLMQ_OP_SETTLE_MESSAGES);
	store.backoff_us = 0;
	atomic_store(&status, 500);
	while (store.failures > 0)
		turn(engine);
	fail_next(LLMQ_OP_SETTLE_MESSAGES, INT_MAX, "55P03", LLMQ_STORE_FAILED);
	atomic_store(&status, 200);
	atomic_store(&thinking, 1);
	llmq_engine_wake(engine);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	is_int(llmq_engine_messages(engine), 1, "a message that comes again was settled");
	store.failures = 0;
	store.puts_back = false;
	atomic_store(&thinking, 0);
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "sent",
			  "of a message that comes again counts what becomes of it then");
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
	while (sends(engine) + count(SETTLED) == 0)
		turn(engine);
	is_int(sends(engine), 1, "a large mail of letters that are encoded is sent");
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
		add_message(id, names[id]);
	}
}

static void
test_topics_in_turn(void)
{
	LlmqEngine *engine = start("hook", 0);
	int added = 40;
	int first = 0;

	name_topics("hook", 1, 40);
	atomic_store(&thinking, 1);
	trust(engine, "hook");
	while (sends(engine) < 32 || queued(engine) < 8)
		turn(engine);
	for (int id = 1; added < MESSAGES_MAX; id++)
	{
		if (is_sending(engine, id))
			add_message(++added, names[id]);
	}
	llmq_engine_wake(engine);
	while (queued(engine) < 28)
		turn(engine);
	atomic_store(&answers, 8);
	while (count(SETTLED) < 8)
		turn(engine);
	for (int id = 1; id <= 40; id++)
		first += is_sending(engine, id);
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
	ok(store.operations[LLMQ_OP_CLAIM_MESSAGES] < 40,
	   "a message that cannot be claimed is left alone for a while");
	store.messages[3].poison = false;
	run_for(engine, SECONDS(60));
	is_int(with_outcome("sent"), 20,
		   "a message that could not be claimed is claimed and sent when it can be");
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
	is_int(with_outcome("sent"), 19, "a message that cannot be read holds no other");
	stop(engine);
}

static void
test_quarantine(void)
{
	LlmqEngine *engine = start("hook", 5);
	int64_t limit = now_us() + HANG_US;

	atomic_store(&thinking, 1);
	while (queued(engine) < 4 && now_us() < limit)
		turn(engine);
	store.hello = store.state = "quarantined";
	moved_us += SECONDS(5);
	while (with_outcome("return") < 4 && now_us() < limit)
		turn(engine);
	is_int(with_outcome("return"), 4,
		   "a worker that is quarantined gives back what it has not sent");
	atomic_store(&thinking, 0);
	run_until_settled(engine, 5);
	is_int(with_outcome("sent"), 1, "a worker that is quarantined ends what it was sending");
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
	while (queued(engine) < 49)
		turn(engine);
	for (int id = 51; id <= MESSAGES_MAX; id++)
		add_message(id, "hook2");
	llmq_engine_wake(engine);
	for (end = now_us() + SECONDS(2); now_us() < end || sends(engine) < 2;)
		turn(engine);
	is_int(queued(engine), 50, "while much waits in memory, little is added to it");
	atomic_store(&thinking, 0);
	run_until_settled(engine, MESSAGES_MAX);
	is_int(with_outcome("sent"), MESSAGES_MAX, "what waited for room in memory is sent");
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

	store.silent_destinations = destinations;
	run_until_settled(engine, 1);
	for (int i = 0; i < destinations * messages; i++)
	{
		snprintf(names[i], sizeof(names[i]), "silent%d", i / messages + 1);
		add_message(i + 2, names[i]);
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

	while (queued(engine) < 7 * 7 && now_us() < limit)
		turn(engine);
	is_int(sends(engine), 7, "a new destination begins with one send at a time");
	atomic_store(&answers, 7);
	while ((count(SETTLED) < 8 || sends(engine) < 14) && now_us() < limit)
		turn(engine);
	is_int(sends(engine), 14, "a destination may have one more send after it has answered");
	moved_us += SECONDS(5);
	while (count(SETTLED) < 22 && now_us() < limit)
		turn(engine);
	is_int(sends(engine), 7, "a destination that lets sends run out of time has one again");
	atomic_store(&thinking, 0);
	stop(engine);
}

static void
test_many_silent(void)
{
	LlmqEngine *engine = start_silent(LLMQ_RELAY_SHARED + 2, 1);
	int64_t limit = now_us() + HANG_US;

	while (llmq_engine_messages(engine) < LLMQ_RELAY_SHARED + 2 && now_us() < limit)
		turn(engine);
	is_int(sends(engine), LLMQ_RELAY_SHARED, "new destinations take what all share, and no more");
	add_message(STORE_MAX, "hook");
	llmq_engine_wake(engine);
	while (sends(engine) <= LLMQ_RELAY_SHARED && now_us() < limit)
		turn(engine);
	is_int(sends(engine), LLMQ_RELAY_SHARED + 1,
		   "a destination that has answered is sent to though new ones take what all share");
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
