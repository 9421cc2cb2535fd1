/*
 * relay_topic.c
 *		The topics that the relay holds in memory, and whose turn it is.
 *
 * There may be more topics than places (LLMQ_RELAY_TOPICS_MAX).  Sweeps then offer the places
 * of a destination to its topics in turn: each sweep begins with the first topic that the
 * previous one had to leave out.  While others wait, a topic that was claimed from gives up its
 * place as soon as those messages are sent; a sweep finds it again.
 *
 * The hash table by name is our own because a topic must find its place in it without
 * allocating memory, and libc's hsearch has one global table.
 */
#include "relay/relay.h"

#include <stdlib.h>
#include <string.h>

static LlmqTopic **
bucket_of(LlmqRelay *relay, const char *name)
{
	uint64_t hash = UINT64_C(1469598103934665603); /* FNV-1a */

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char) *name) * UINT64_C(1099511628211);
	return &relay->buckets[hash % LLMQ_RELAY_TOPICS_MAX];
}

LlmqTopic *
llmq_relay_find_topic(const LlmqRelay *relay, const char *name)
{
	LlmqTopic *topic = *bucket_of((LlmqRelay *) relay, name);

	while (topic != NULL && strcmp(topic->name, name) != 0)
		topic = topic->next_in_bucket;
	return topic;
}

/*
 * Returns how many more topics a destination may have in memory; each one that it takes leaves
 * one place less.
 */
static int
room(const LlmqRelay *relay, const LlmqDestination *destination)
{
	int left = LLMQ_RELAY_TOPICS_MAX - relay->topic_count -
			   llmq_relay_state_of(relay, destination)->topics;

	return left > 0 ? (left + 1) / 2 : 0;
}

/* Returns how many topics of a destination wait in the table for a place. */
static int
waiting(const LlmqRelay *relay, const LlmqDestination *destination)
{
	const LlmqDestinationState *state = llmq_relay_state_of(relay, destination);

	return state->waiting > state->left_out ? state->waiting : state->left_out;
}

bool
llmq_relay_gives_way(const LlmqRelay *relay, const LlmqTopic *topic)
{
	return topic->had_turn && topic->destination != NULL &&
		   room(relay, topic->destination) < waiting(relay, topic->destination);
}

/* Adds a topic; the next rotation puts it behind the others. */
static LlmqTopic *
add_topic(LlmqRelay *relay, const char *name, const LlmqDestination *destination, int64_t after)
{
	LlmqTopic **bucket = bucket_of(relay, name);
	LlmqTopic *topic = calloc(1, sizeof(*topic));

	if (topic == NULL || (topic->name = strdup(name)) == NULL)
	{
		free(topic);
		return NULL;
	}
	topic->destination = destination;
	topic->after = after;
	topic->served = true;
	topic->next = relay->topics;
	relay->topics = topic;
	topic->next_in_bucket = *bucket;
	*bucket = topic;
	relay->topic_count++;
	llmq_relay_state_of(relay, destination)->topics++;
	return topic;
}

/* Admits a topic that a sweep has found, if its position among those of its destination allows. */
static LlmqTopic *
admit_swept(LlmqRelay *relay, const char *name, const LlmqDestination *destination, int64_t lowest)
{
	LlmqDestinationState *state = llmq_relay_state_of(relay, destination);
	LlmqTopic *topic = NULL;

	if (state->swept < state->resume)
		return NULL;
	if (room(relay, destination) > 0)
		topic = add_topic(relay, name, destination, lowest - 1);
	if (topic == NULL && state->first_left == 0)
		state->first_left = state->swept;
	return topic;
}

/*
 * Admits a topic with new messages.  Topics that wait come first.  While there are any, or may
 * be, this topic may also have older messages, which must be claimed first.
 */
static LlmqTopic *
admit_new(LlmqRelay *relay, const char *name, const LlmqDestination *destination, int64_t lowest)
{
	bool known = relay->knows_tip && waiting(relay, destination) == 0;

	if (room(relay, destination) <= waiting(relay, destination))
		return NULL;
	return add_topic(relay, name, destination, known ? lowest - 1 : 0);
}

void
llmq_relay_note_topic(LlmqRelay *relay, const char *name, int64_t lowest, bool swept)
{
	const LlmqDestination *destination = llmq_config_route(relay->core->config, name);
	LlmqTopic *topic = llmq_relay_find_topic(relay, name);

	if (!llmq_relay_is_open(relay, destination))
		return;
	if (swept)
		llmq_relay_state_of(relay, destination)->swept++;
	if (topic == NULL && swept)
		topic = admit_swept(relay, name, destination, lowest);
	else if (topic == NULL)
		topic = admit_new(relay, name, destination, lowest);
	if (topic == NULL)
	{
		llmq_relay_state_of(relay, destination)->left_out++;
		relay->topics_left = true;
		return;
	}
	topic->more = true;
	if (topic->after >= lowest)
		topic->after = lowest - 1;
}

void
llmq_relay_rotate(LlmqRelay *relay)
{
	LlmqTopic **link = &relay->topics;
	LlmqTopic *served = NULL;
	LlmqTopic **served_link = &served;

	while (*link != NULL)
	{
		LlmqTopic *topic = *link;

		if (!topic->served)
		{
			link = &topic->next;
			continue;
		}
		*link = topic->next;
		topic->served = false;
		topic->next = NULL;
		*served_link = topic;
		served_link = &topic->next;
	}
	*link = served;
}

/* Forgets the topic that link points to. */
static void
remove_topic(LlmqRelay *relay, LlmqTopic **link)
{
	LlmqTopic *topic = *link;
	LlmqTopic **in_bucket = bucket_of(relay, topic->name);

	*link = topic->next;
	while (*in_bucket != topic)
		in_bucket = &(*in_bucket)->next_in_bucket;
	*in_bucket = topic->next_in_bucket;
	relay->topic_count--;
	if (topic->destination != NULL)
	{
		LlmqDestinationState *state = llmq_relay_state_of(relay, topic->destination);

		state->topics--;
		state->left_out += topic->more;
	}
	relay->topics_left |= topic->more;
	llmq_message_list_free(&topic->queue);
	free(topic->name);
	free(topic);
}

void
llmq_relay_forget_idle(LlmqRelay *relay)
{
	LlmqTopic **link = &relay->topics;
	int before = relay->topic_count;

	while (*link != NULL)
	{
		LlmqTopic *topic = *link;

		if (topic->queue.count > 0 || topic->in_flight > 0 || topic->claiming > 0 ||
			(topic->more && !llmq_relay_gives_way(relay, topic)))
			link = &topic->next;
		else
			remove_topic(relay, link);
	}
	if (relay->topics_left && relay->topic_count < before)
	{
		relay->sweep_wanted = true;
		relay->topics_left = false;
	}
}

void
llmq_relay_free_topics(LlmqRelay *relay)
{
	while (relay->topics != NULL)
		remove_topic(relay, &relay->topics);
}
