/*
 * relay_topic_test.c
 *		The relay before more topics than it holds: places in memory, sweeps in pages.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */

#include "relay_outbox.h"

#define MANY (LLMQ_RELAY_TOPICS_MAX * 2)

static char names[STORE_MAX + 1][24];

static void
name_topics(const char *prefix, int first, int last)
{
	for (int id = first; id <= last; id++)
	{
		snprintf(names[id], sizeof(names[id]), "%s%02d", prefix, id);
		add_message(id, names[id]);
	}
}

/* Has a sweep of one page name so many topics; true in held for those that have a place. */
static void
sweep(LlmqEngine *engine, const char *prefix, int topics, bool *held)
{
	LlmqRelay *relay = relay_of(engine);
	json_t *page = json_array();
	json_t *control = json_pack("{s:{s:o,s:i}}", "messages", "page", page, "tip", 1);
	LlmqRelayLook look;
	char name[24];

	for (int i = 0; i < topics; i++)
	{
		snprintf(name, sizeof(name), "%s%d", prefix, i);
		json_array_append_new(page, json_pack("[si]", name, i + 1));
	}
	want_sweep(relay);
	llmq_relay_begin_look(relay, false, &look);
	llmq_relay_complete_look(relay, control);
	json_decref(control);
	for (int i = 0; i < topics; i++)
	{
		snprintf(name, sizeof(name), "%s%d", prefix, i);
		held[i] = llmq_relay_find_topic(relay, name) != NULL;
	}
}

/* Plays a claim from each topic, which brings one message that is sent at once. */
static void
give_turns(LlmqEngine *engine)
{
	for (LlmqTopic *topic = relay_of(engine)->topics; topic != NULL; topic = topic->next)
		topic->had_turn = true;
	llmq_relay_forget_idle(relay_of(engine));
}

static int
held_count(const bool *held, int topics)
{
	int count = 0;

	for (int i = 0; i < topics; i++)
		count += held[i];
	return count;
}

static void
test_rotation(void)
{
	static bool held[MANY];
	static bool seen[MANY];
	LlmqEngine *engine = start("hook", 0);
	int sweeps = 0;

	trust(engine, "hook");
	while (held_count(seen, MANY) < MANY && sweeps < 20)
	{
		sweep(engine, "hook", MANY, held);
		for (int i = 0; i < MANY; i++)
			seen[i] |= held[i];
		if (sweeps++ == 0)
			is_int(held_count(held, MANY), LLMQ_RELAY_TOPICS_MAX / 2,
				   "a destination has half of the places, if it is alone");
		give_turns(engine);
	}
	is_int(held_count(seen, MANY), MANY, "topics that always have messages make room for others");
	ok(sweeps <= 6, "each of many topics has a place before long");
	stop(engine);
}

static void
test_shares(void)
{
	static bool held[MANY];
	static bool others[MANY];
	LlmqEngine *engine = start("hook", 0);

	trust(engine, "hook");
	sweep(engine, "hook", MANY, held);
	sweep(engine, "other", 10, others);
	is_int(held_count(others, 10), 10, "one destination's topics leave places to another's");
	sweep(engine, "other", MANY, others);
	ok(held_count(others, MANY) < LLMQ_RELAY_TOPICS_MAX / 2 &&
		   topics_in_memory(engine) < LLMQ_RELAY_TOPICS_MAX,
	   "the topics of two destinations leave places to a third one's");
	stop(engine);
}

static void
test_first_things(void)
{
	static bool held[MANY];
	LlmqEngine *engine = start("hook", 0);
	LlmqRelay *relay = relay_of(engine);

	trust(engine, "hook");
	sweep(engine, "hook", MANY, held);
	llmq_relay_note_topic(relay, "hook new", 9000, false);
	ok(llmq_relay_find_topic(relay, "hook new") == NULL,
	   "new topics do not overtake those that wait");
	llmq_relay_note_topic(relay, "other", 9001, false);
	is_int(llmq_relay_find_topic(relay, "other")->after, 9000,
		   "where none waits messages are claimed from the first new one on");
	give_turns(engine);
	sweep(engine, "hook", 10, held);
	llmq_relay_note_topic(relay, "hook back", 9002, false);
	is_int(llmq_relay_find_topic(relay, "hook back")->after, 0,
		   "while a topic may have waited it is claimed from its very first message on");
	sweep(engine, "hook", 10, held);
	llmq_relay_note_topic(relay, "hook late", 9003, false);
	is_int(
		llmq_relay_find_topic(relay, "hook late")->after, 9002,
		"after a sweep that found a place for all, messages are claimed from the first new one on");
	stop(engine);
}

/* What a look asks for: all behind the tip, or with a sweep the tip itself and the first page. */
static void
test_looks(void)
{
	LlmqEngine *engine = start("hook", 0);
	LlmqRelay *relay = &engine->relay;
	LlmqRelayLook look;

	trust(engine, "hook");
	relay->tip = 100;
	relay->sweep_wanted = false;
	relay->sweep_next_us = LLMQ_NEVER;
	llmq_relay_begin_look(&engine->relay, false, &look);
	ok(look.after == 100 && look.topics_after == NULL, "a look reads what is behind the tip");
	relay->sweep_wanted = true;
	relay->sweep_next_us = 0;
	llmq_relay_begin_look(&engine->relay, false, &look);
	ok(look.after == -1 && strcmp(look.topics_after, "") == 0,
	   "a sweep begins with the first topic, and asks where the tip is now");
	stop(engine);
}

/* A topic that is held, of which a message is found in front of those that were claimed. */
static void
test_message_in_front(void)
{
	LlmqEngine *engine = start("hook", 0);
	LlmqTopic *topic;

	trust(engine, "hook");
	llmq_relay_note_topic(&engine->relay, "hook", 50, false);
	topic = llmq_relay_find_topic(&engine->relay, "hook");
	topic->after = 60;
	topic->more = false;
	llmq_relay_note_topic(&engine->relay, "hook", 61, false);
	ok(topic->more && topic->after == 60,
	   "a message behind those that were claimed is to be claimed");
	llmq_relay_note_topic(&engine->relay, "hook", 55, false);
	is_int(topic->after, 54, "one in front of them is claimed before what follows");
	stop(engine);
}

static void
test_pages(void)
{
	LlmqEngine *engine = start("hook", 0);

	name_topics("hook", 1, 60);
	store.page_max = 7;
	run_until_settled(engine, 60);
	is_int(with_outcome("sent"), 60, "a sweep in pages comes to all topics");
	run_for(engine, SECONDS(2));
	ok(!store.sweeping, "a sweep in pages has an end");
	stop(engine);
}

static void
test_pages_and_looks(void)
{
	LlmqEngine *engine = start("hook", 0);

	name_topics("hook", 1, 60);
	store.page_max = 5;
	while (!store.sweeping)
		turn(engine);
	name_topics("hook ", 61, 70); /* the sweep is past them */
	llmq_engine_wake(engine);
	while (store.sweeping && store.messages[61].place == PENDING)
		turn(engine);
	ok(store.messages[61].place != PENDING,
	   "what comes while a sweep is under way is found beside it");
	run_until_settled(engine, 70);
	is_int(with_outcome("sent"), 70,
		   "what comes while a sweep is under way is sent with what it finds");
	stop(engine);
}

static void
test_change_during_sweep(void)
{
	LlmqEngine *engine = start("hook", 0);

	name_topics("hook", 1, 60);
	store.page_max = 5;
	store.disabled = true;
	while (!store.sweeping)
		turn(engine);
	store.disabled = false;
	moved_us += SECONDS(5);
	while (store.configs < 2)
		turn(engine);
	run_until_settled(engine, 60);
	is_int(with_outcome("sent"), 60, "a sweep begins again when destinations have changed");
	stop(engine);
}

static void
test_left_out_before_sweep(void)
{
	LlmqEngine *engine = start("hook", 0);
	LlmqRelay *relay = relay_of(engine);
	LlmqDestinationState *state;
	LlmqRelayLook look;

	trust(engine, "hook");
	run_for(engine, SECONDS(2));
	state = llmq_relay_state_of(relay, llmq_config_route(relay->core->config, "hook"));
	state->left_out = 3;
	want_sweep(relay);
	llmq_relay_begin_look(relay, true, &look);
	is_int(state->waiting, 3, "topics that found no place between two sweeps wait in the next");
	stop(engine);
}

int
main(void)
{
	test_rotation();
	test_shares();
	test_first_things();
	test_looks();
	test_message_in_front();
	test_pages();
	test_pages_and_looks();
	test_change_during_sweep();
	test_left_out_before_sweep();
	return tap_done();
}
