/*
 * relay_loss_test.c
 *		The relay when something is lost: connections, sessions, descriptors, secrets, and
 *		destinations under messages that are on their way.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include <sys/resource.h>

#include "relay_outbox.h"

/* A message whose receiver does not answer yet. */
static LlmqEngine *
start_sending(void)
{
	LlmqEngine *engine = start("hook", 1);

	atomic_store(&thinking, 1);
	while (atomic_load(&at_once) < 1)
		turn(engine);
	return engine;
}

/* The connection breaks while a message of another topic is claimed. */
static void
claim_with_unknown_end(LlmqEngine *engine, int id)
{
	add_message(id, "hook2");
	fail_next(LLMQ_OP_CLAIM_MESSAGES, 1, "", LLMQ_STORE_AWAY);
	llmq_engine_wake(engine);
	run_until(engine, LLMQ_OP_RECONCILE, 1);
}

static void
test_doubt(void)
{
	LlmqEngine *engine = start_sending();

	claim_with_unknown_end(engine, 2);
	is_string(store.said_messages, "{1}",
			  "after a claim of unknown end all messages but those in hand go back");
	atomic_store(&thinking, 0);
	run_until_settled(engine, 2);
	is_int(with_outcome("sent"), 2, "messages are sent whose claim had an unknown end");
	stop(engine);
}

static void
test_doubt_of_many(void)
{
	LlmqEngine *engine = start("hook", 3);

	store.max_in_flight = 1;
	atomic_store(&thinking, 1);
	while (atomic_load(&at_once) < 1 || store.messages[3].place != LEASED)
		turn(engine);
	claim_with_unknown_end(engine, 4);
	is_string(store.said_messages, "{1,2,3}",
			  "messages that wait for their turn are among those in hand");
	atomic_store(&thinking, 0);
	stop(engine);
}

static void
test_new_session(void)
{
	LlmqEngine *engine = start_sending();

	store.worker = "8";
	store.forgotten = true;
	moved_us += SECONDS(6);
	run_until(engine, LLMQ_OP_HELLO, 2);
	is_int(sends(engine), 0, "what the worker of another session sent is nothing to this one");
	atomic_store(&thinking, 0);
	store.messages[1].place = PENDING;
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "sent",
			  "a message of a session that is gone is claimed again, and sent");
	stop(engine);
}

/* A worker that says hello again may stand before new tables, whose ids begin anew. */
static void
test_same_session(void)
{
	LlmqEngine *engine = start_sending();

	engine->relay.tip = 1000;
	store.forgotten = true;
	moved_us += SECONDS(6);
	run_until(engine, LLMQ_OP_HELLO, 2);
	is_int(engine->relay.tip, 0, "after a new hello messages are read from the first id on");
	is_int(engine->relay.in_flight.count, 1, "what the same worker sends it goes on sending");
	atomic_store(&thinking, 0);
	stop(engine);
}

static void
test_removed(void)
{
	LlmqEngine *engine = start_sending();

	store.removed = true;
	llmq_engine_wake(engine);
	moved_us += SECONDS(6);
	while (store.configs < 2)
		turn(engine);
	atomic_store(&status, 500);
	atomic_store(&thinking, 0);
	run_until_settled(engine, 1);
	is_string(store.messages[1].outcome, "retry",
			  "a message that fails has another attempt, though its destination was removed");
	is_int(store.messages[1].delay_us, 0,
		   "a message whose destination was removed has no backoff of its own");
	stop(engine);
}

static void
test_no_descriptors(void)
{
	LlmqEngine *engine = start("hook", 1);
	struct rlimit old;
	struct rlimit none;

	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	run_until_settled(engine, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	is_string(store.messages[1].outcome, "return",
			  "a message that the machine has no descriptor for goes back, uncounted");
	is_int(atomic_load(&stub.requests), 0, "nothing is sent while the machine has no descriptor");
	stop(engine);
}

static void
test_unsigned(void)
{
	LlmqEngine *engine = start("hook", 1);

	setenv("LLMQ_SECRET_HOOK", "whsec_plJ3nmyCDGBKInavdOK15jsl", 1);
	store.credential = "\"hook\"";
	run_for(engine, SECONDS(10));
	ok(atomic_load(&stub.requests) == 0 && with_outcome("sent") + with_outcome("dead") == 0,
	   "a message that cannot be signed is not sent without a signature, and not dead");
	stop(engine);
}

static void
test_no_secret(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.kind = "email";
	store.credential = "\"missing\"";
	run_for(engine, SECONDS(10));
	ok(atomic_load(&stub.connections) == 0 && with_outcome("sent") + with_outcome("dead") == 0,
	   "an e-mail waits for the secret of its server");
	stop(engine);
}

/* ---- What settling and claims say --------------------------------------------------------- */

static void
test_verdicts(void)
{
	LlmqEngine *engine = start("hook", 1);

	store.verdict = "busy";
	run_until_settled(engine, 1);
	is_int(store.messages[1].settles, 2, "a message that somebody has locked is settled later");
	is_int(atomic_load(&stub.requests), 1, "a message that somebody has locked was sent once");
	stop(engine);

	engine = start("hook", 1);
	store.verdict = "late";
	run_for(engine, SECONDS(2));
	is_int(store.messages[1].settles, 1,
		   "a message that is another worker's by then is settled once");
	is_int(llmq_engine_messages(engine), 0, "a message that is another worker's by then is let go");
	stop(engine);
}

/* Three messages that have been sent, and whose settling fails until all of them have. */
static LlmqEngine *
start_settling(void)
{
	LlmqEngine *engine = start("hook", 3);

	store.max_in_flight = 3;
	fail_next(LLMQ_OP_SETTLE_MESSAGES, INT_MAX, "57P01", LLMQ_STORE_FAILED);
	while (atomic_load(&stub.requests) < 3 || sends(engine) > 0)
		turn(engine);
	for (int id = 1; id <= 3; id++)
		store.messages[id].settles = 0;
	store.failures = 0;
	moved_us += SECONDS(600); /* all are due again */
	return engine;
}

static void
test_locked_among_others(void)
{
	LlmqEngine *engine = start_settling();

	store.verdict = "busy";
	store.verdict_of = 2;
	run_until_settled(engine, 3);
	is_int(store.messages[2].settles, 2, "one of a batch that is locked is settled later");
	is_int(store.messages[1].settles + store.messages[3].settles, 2,
		   "messages of a batch with one that is locked are settled at once");
	stop(engine);

	engine = start_settling();
	store.verdict = "busy";
	store.verdict_of = 2;
	store.verdict_names = 77;
	run_until_settled(engine, 2);
	is_int(llmq_engine_messages(engine), 0,
		   "a verdict on a message that nobody settles changes nothing");
	stop(engine);
}

static void
test_failed_notifications(void)
{
	LlmqEngine *engine = start("hook", 1);
	LlmqBuffer text;

	store.kind = "notify";
	store.endless = true;
	store.failed = "dead";
	run_until(engine, LLMQ_OP_CLAIM_MESSAGES, 1);
	store.failed = "retry";
	run_until(engine, LLMQ_OP_CLAIM_MESSAGES, 2);
	llmq_buffer_init(&text, LLMQ_METRIC_MAX_BYTES);
	llmq_engine_write_metrics(engine, &text);
	ok(strstr(llmq_buffer_string(&text), "llmq_messages_total{outcome=\"dead\"}") != NULL,
	   "a notification that cannot be made is counted as dead");
	ok(strstr(llmq_buffer_string(&text), "llmq_messages_total{outcome=\"retry\"}") != NULL,
	   "a notification that is to be made again is counted as one that failed");
	llmq_buffer_free(&text);
	stop(engine);
}

static void
test_more(void)
{
	LlmqEngine *engine = start("hook", 0);
	int polls;

	run_for(engine, SECONDS(10));
	polls = store.operations[LLMQ_OP_POLL];
	store.more = true;
	llmq_engine_wake(engine);
	run_for(engine, 50000);
	ok(store.operations[LLMQ_OP_POLL] - polls >= 2,
	   "where there is more the relay looks again at once");
	stop(engine);
}

int
main(void)
{
	test_doubt();
	test_doubt_of_many();
	test_new_session();
	test_same_session();
	test_removed();
	test_no_descriptors();
	test_unsigned();
	test_no_secret();
	test_verdicts();
	test_locked_among_others();
	test_failed_notifications();
	test_more();
	return tap_done();
}
