/*
 * relay_test.c
 *		The relay from the claim of outbox messages to their settling: real webhooks to a
 *		server on loopback, an outbox in memory, and a clock that can be moved forward.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "relay_outbox.h"

static void
test_many(void)
{
	LlmqEngine *engine = start("hook", MESSAGES_MAX);

	run_until_settled(engine, MESSAGES_MAX);
	is_int(with_outcome("sent"), MESSAGES_MAX,
		   "all messages are sent, also those beyond one batch");
	is_int(atomic_load(&stub.requests), MESSAGES_MAX, "each of many messages is sent once");
	is_int(atomic_load(&most), 1, "messages of a topic are sent one at a time");
	run_for(engine, SECONDS(1));
	is_int(topics_in_memory(engine), 0, "a topic without messages is forgotten");
	stop(engine);
}

static void
test_wide(void)
{
	LlmqEngine *engine = start("hook", 10);

	store.max_in_flight = 4;
	atomic_store(&held, 1);
	trust(engine, "hook");
	while (atomic_load(&at_once) < 4)
		turn(engine);
	for (int i = 0; i < 20; i++)
		turn(engine);
	is_int(atomic_load(&at_once), 4,
		   "as many messages of a topic are sent at once as its destination says");
	is_int(llmq_engine_calls(engine), 0, "messages take no slot from calls");
	stop(engine);
}

static void
test_batch(void)
{
	LlmqEngine *engine = start("hook", 8);
	int64_t limit = now_us() + HANG_US;

	store.max_in_flight = 4;
	atomic_store(&thinking, 1);
	trust(engine, "hook");
	while (atomic_load(&at_once) < 4 && now_us() < limit)
		turn(engine);
	stopped_us = now_us();
	atomic_store(&answers, 4);
	while ((atomic_load(&stub.requests) < 8 || sends(engine) > 4) && now_us() < limit)
		turn(engine);
	is_int(store.operations[LLMQ_OP_SETTLE_MESSAGES], 0,
		   "messages that have been sent wait for others to be settled with");
	stopped_us = 0;
	run_until_settled(engine, 4);
	is_int(store.operations[LLMQ_OP_SETTLE_MESSAGES], 1,
		   "messages that have waited for others are settled in one batch");
	atomic_store(&thinking, 0);
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
	is_int(store.operations[LLMQ_OP_CLAIM_MESSAGES], 0,
		   "messages of a topic without destination are not asked for");
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
	ok(store.operations[LLMQ_OP_CLAIM_MESSAGES] < 30,
	   "a topic that another worker has is asked for now and then");
	store.busy = false;
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "sent",
			  "a topic that another worker had is taken up when it is free");
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
	ok(store.messages[1].delay_us <= 1000000,
	   "a message that failed is tried again after its backoff");
	is_string(store.messages[2].outcome, "dead", "a message whose last attempt fails is dead");
	stop(engine);
}

static void
test_wish(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&status, 429);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "retry",
			  "a message that is answered with 429 has failed, and is tried again");
	is_int(store.messages[1].delay_us, 30000000,
		   "a message that is answered with 429 waits as long as the receiver wishes");
	is_int(with_outcome("return"), 2,
		   "messages behind one that is answered with 429 go back unsent");
	is_int(store.messages[3].delay_us, 30000000,
		   "messages behind one that is answered with 429 wait as long as it does");
	is_int(atomic_load(&stub.requests), 1, "a receiver that answers with 429 has one request");
	stop(engine);
}

static void
test_gone(void)
{
	LlmqEngine *engine = start("hook", 3);

	atomic_store(&status, 410);
	run_until_settled(engine, 3);
	is_string(store.messages[1].outcome, "dead",
			  "a message that is answered with 410 is dead at once");
	ok(store.messages[1].disables, "a message that is answered with 410 disables the destination");
	is_int(with_outcome("return"), 2, "messages behind one that is answered with 410 go back");
	is_int(atomic_load(&stub.requests), 1, "a receiver that answers with 410 has one request");
	stop(engine);
}

static void
test_surplus_answer(void)
{
	LlmqEngine *engine = start("hook", 2);

	atomic_store(&surplus, 1);
	run_until_settled(engine, 2);
	is_string(store.messages[1].outcome, "sent",
			  "a receiver that answers twice has taken a message");
	is_string(store.messages[2].outcome, "retry",
			  "a receiver that answers twice has not taken the message after that");
	is_int(atomic_load(&stub.connections), 2, "each message has a connection of its own");
	stop(engine);
}

static void
test_store_trouble(void)
{
	LlmqEngine *engine = start("hook", 3);

	fail_next(LLMQ_OP_SETTLE_MESSAGES, 8, "55P03", LLMQ_STORE_FAILED);
	run_until_settled(engine, 3);
	is_int(with_outcome("sent"), 3, "what was sent outlasts a store that fails for a while");
	is_int(atomic_load(&stub.requests), 3, "what was sent is not sent again while the store fails");
	stop(engine);

	engine = start("hook", 3);
	store.messages[2].spoils = true;
	run_until_settled(engine, 2);
	is_int(with_outcome("sent"), 2, "a message that cannot be settled does not keep the others");
	run_for(engine, SECONDS(30));
	ok(store.messages[2].settles < 40,
	   "a message that cannot be settled is tried again with a growing pause");
	store.messages[2].spoils = false;
	run_until_settled(engine, 3);
	is_string(store.messages[2].outcome, "sent",
			  "a message that could not be settled is settled when it can be");
	is_int(atomic_load(&stub.requests), 3, "a message that could not be settled was sent once");
	stop(engine);
}

static void
test_stop(void)
{
	LlmqEngine *engine = start("hook", 5);

	atomic_store(&held, 1);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	run_for(engine, SECONDS(6));
	is_int(store.in_flight_said, 5, "the heartbeat counts messages in hand");
	llmq_engine_stop(engine);
	run_until_stopped(engine);
	is_int(with_outcome("return"), 5, "an engine that stops gives all of them back");
	is_int(store.operations[LLMQ_OP_GOODBYE], 1,
		   "an engine that stops says goodbye when it has given all messages back");
	stop(engine);
}

int
main(void)
{
	test_many();
	test_wide();
	test_batch();
	test_late_commit();
	test_no_destination();
	test_busy_topic();
	test_failure();
	test_wish();
	test_gone();
	test_surplus_answer();
	test_store_trouble();
	test_stop();
	return tap_done();
}
