/*
 * relay.c
 *		The relay: how a message gets to its destination, and what follows.
 *
 * A message is queued in its topic, in flight, or ended and waiting to be settled.
 * llmq_relay_enqueue, start and llmq_relay_end move it from one to the next.
 */
#include "relay/relay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * A worker that gave no sign of life for llmq.lease_ttl(), 15 s, may have lost its leases
 * without knowing.  So it begins no send when that is so close that another worker may already
 * have sent the message.
 */
#define SURE_US INT64_C(12000000)

/* How long to wait when this machine had no descriptor or memory for a send. */
#define MACHINE_TROUBLE_WAIT_US 1000000

static bool can_start(const LlmqRelay *relay, const LlmqTopic *topic);
static void start(LlmqRelay *relay, LlmqOutboxMessage *message);
static void take_end(void *client, LlmqCaller *caller, const LlmqTransferResult *result);
static void leave_flight(LlmqRelay *relay, LlmqOutboxMessage *message);

void
llmq_relay_free(LlmqRelay *relay)
{
	llmq_message_list_free(&relay->in_flight);
	llmq_message_list_free(&relay->ended);
	llmq_message_list_free(&relay->settling);
	llmq_relay_free_topics(relay);
	free(relay->swept_to);
	free(relay->destinations);
	memset(relay, 0, sizeof(*relay));
}

int
llmq_relay_in_hand(const LlmqRelay *relay)
{
	return relay->queued + relay->in_flight.count + relay->ended.count + relay->settling.count;
}

/* ---- Queues -------------------------------------------------------------------------- */

static bool
is_sure(const LlmqRelay *relay)
{
	return relay->core->now.mono_us - relay->core->sure_us < SURE_US;
}

/* Returns whether the queued messages can be sent to the topic's current destination. */
static bool
fits(const LlmqRelay *relay, const LlmqTopic *topic)
{
	return llmq_relay_is_open(relay, topic->destination) && topic->destination->kind == topic->kind;
}

void
llmq_relay_sort_out(LlmqRelay *relay)
{
	bool all = relay->core->state != LLMQ_ENGINE_RUNNING || !is_sure(relay);

	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		if (all || !fits(relay, topic))
			llmq_relay_return_queue(relay, topic, 0, NULL);
	}
}

LlmqDestinationState *
llmq_relay_carry_over(const LlmqRelay *relay, const LlmqConfig *fresh)
{
	int count = llmq_config_destination_count(fresh);
	LlmqDestinationState *states = calloc((size_t) count + 1, sizeof(*states));
	const LlmqDestination *before;

	for (int i = 0; states != NULL && i < count; i++)
	{
		const LlmqDestination *now = llmq_config_destination_at(fresh, i);

		for (int k = 0; (before = llmq_config_destination_at(relay->core->config, k)) != NULL; k++)
		{
			if (strcmp(before->topic, now->topic) == 0 && strcmp(before->url, now->url) == 0)
				states[i].answered = relay->destinations[k].answered;
		}
	}
	return states;
}

/* Routes each topic again, because the destinations of the previous configuration are gone. */
void
llmq_relay_take_config(LlmqRelay *relay, LlmqDestinationState *states)
{
	free(relay->destinations);
	relay->destinations = states;
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		topic->destination = llmq_config_route(relay->core->config, topic->name);
		if (topic->destination != NULL)
		{
			llmq_relay_state_of(relay, topic->destination)->topics++;
			llmq_relay_state_of(relay, topic->destination)->in_flight += topic->in_flight;
		}
		if (!llmq_relay_is_open(relay, topic->destination))
			topic->more = false;
		topic->claim_at_us = 0;
	}
	llmq_relay_sort_out(relay);
	/* Topics that had no destination may have one now; a new sweep will find them. */
	llmq_relay_sweep_afresh(relay);
}

/* ---- Messages ------------------------------------------------------------------------ */

void
llmq_relay_enqueue(LlmqRelay *relay, LlmqTopic *topic, LlmqOutboxMessage *message)
{
	message->caller = (LlmqCaller){relay, take_end};
	message->topic = topic;
	llmq_message_list_add(&topic->queue, message);
	relay->queued++;
	relay->queued_bytes += message->body_len;
}

/* Returns whether the destination may have one more slot: see LLMQ_RELAY_SHARED. */
static bool
is_slot_left(const LlmqRelay *relay, const LlmqDestinationState *state)
{
	int shared = LLMQ_RELAY_SHARED - relay->in_flight.count;

	if (state->in_flight == 0)
		return shared + (state->answered > 0 ? LLMQ_RELAY_RESERVED : 0) > 0;
	return state->in_flight <= state->answered && state->in_flight < shared;
}

static bool
can_start(const LlmqRelay *relay, const LlmqTopic *topic)
{
	const LlmqDestination *destination = topic->destination;

	return topic->queue.count > 0 && llmq_relay_is_open(relay, destination) &&
		   topic->in_flight < destination->max_in_flight &&
		   is_slot_left(relay, llmq_relay_state_of(relay, destination));
}

void
llmq_relay_start_due(LlmqRelay *relay)
{
	if (relay->queued == 0 || relay->core->state != LLMQ_ENGINE_RUNNING)
		return;
	if (!is_sure(relay))
		llmq_relay_sort_out(relay);
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		while (can_start(relay, topic))
		{
			start(relay, topic->queue.head);
			topic->served = true;
		}
	}
	llmq_relay_rotate(relay);
}

/* Sends the first message of its topic's queue. */
static void
start(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	LlmqTopic *topic = message->topic;

	llmq_relay_leave_queue(relay, message);
	if (!llmq_relay_send(relay, message))
		return;
	message->started_us = relay->core->now.mono_us;
	llmq_message_list_add(&relay->in_flight, message);
	topic->in_flight++;
	llmq_relay_state_of(relay, topic->destination)->in_flight++;
}

static void
leave_flight(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	LlmqTopic *topic = message->topic;
	LlmqDestinationState *state;

	llmq_message_list_remove(&relay->in_flight, message);
	message->transfer = NULL;
	topic->in_flight--; /* NOLINT(clang-analyzer-core.NullDereference): likewise */
	if (topic->destination == NULL)
		return;
	state = llmq_relay_state_of(relay, topic->destination);
	if (state->in_flight > 0)
		state->in_flight--;
}

static int64_t
heeded(int64_t hint)
{
	return hint < LLMQ_RETRY_HINT_WAIT_MAX_US ? hint : LLMQ_RETRY_HINT_WAIT_MAX_US;
}

/* Decides what follows an attempt that failed. */
static void
end_failed(LlmqRelay *relay, LlmqOutboxMessage *message, const LlmqSendVerdict *verdict)
{
	const LlmqDestination *destination = message->topic->destination;
	int64_t delay;

	if (destination == NULL)
	{
		llmq_relay_end(relay, message, LLMQ_MESSAGE_RETRY, 0, verdict->message);
		return;
	}
	if (message->attempts + 1 >= destination->max_attempts)
	{
		llmq_relay_end(relay, message, LLMQ_MESSAGE_DEAD, 0, verdict->message);
		return;
	}
	/*
	 * Without the backoff, a receiver that is down and hints at a short wait would use up all
	 * attempts within seconds.
	 */
	delay = llmq_retry_backoff(&relay->core->random, destination->backoff_base_us,
							   destination->backoff_cap_us, message->attempts);
	if (delay < heeded(verdict->retry_after_us))
		delay = heeded(verdict->retry_after_us);
	llmq_relay_end(relay, message, LLMQ_MESSAGE_RETRY, delay, verdict->message);
}

/* Applies to the whole topic what the receiver asks for: to send nothing more, or not so soon. */
static void
heed_receiver(LlmqRelay *relay, LlmqTopic *topic, const LlmqSendVerdict *verdict)
{
	int64_t hint = verdict->retry_after_us;

	if (verdict->disable && topic->destination != NULL)
	{
		llmq_relay_state_of(relay, topic->destination)->gone = true;
		topic->more = false;
		llmq_relay_return_queue(relay, topic, 0, NULL);
	}
	else if (verdict->outcome == LLMQ_SEND_RETRY && hint > 0)
		llmq_relay_pause(relay, topic, heeded(hint), NULL);
}

/* Notes whether the destination answered.  An attempt that timed out means that it hangs. */
static void
note_answer(const LlmqRelay *relay, const LlmqOutboxMessage *message,
			const LlmqDestination *destination)
{
	LlmqDestinationState *state;

	if (destination == NULL)
		return;
	state = llmq_relay_state_of(relay, destination);
	if (relay->core->now.mono_us - message->started_us >= destination->timeout_us)
		state->answered = 0;
	else if (state->answered < LLMQ_RELAY_SHARED)
		state->answered++;
}

/* Handles the end of a send. */
static void
take_end(void *client, LlmqCaller *caller, const LlmqTransferResult *result)
{
	LlmqRelay *relay = client;
	LlmqOutboxMessage *message = (LlmqOutboxMessage *) caller;
	LlmqTopic *topic = message->topic;
	LlmqSendVerdict verdict;

	leave_flight(relay, message);
	if (result->local_trouble)
	{
		llmq_core_log(relay->core, LLMQ_LOG_WARNING, "outbox message %" PRId64 " was not sent: %s",
					  message->id, result->detail);
		llmq_relay_end(relay, message, LLMQ_MESSAGE_RETURN, MACHINE_TROUBLE_WAIT_US,
					   result->detail);
		return;
	}
	note_answer(relay, message, topic->destination);
	llmq_relay_judge(relay, message, result, &verdict);
	message->disables = verdict.disable;
	if (verdict.outcome == LLMQ_SEND_RETRY)
		end_failed(relay, message, &verdict);
	else
		llmq_relay_end(relay, message,
					   verdict.outcome == LLMQ_SEND_SENT ? LLMQ_MESSAGE_SENT : LLMQ_MESSAGE_DEAD, 0,
					   verdict.message);
	heed_receiver(relay, topic, &verdict);
}

/* ---- The end ------------------------------------------------------------------------- */

static void
drop_flight(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	llmq_transfer_abort(relay->core->transfers, message->transfer);
	leave_flight(relay, message);
}

void
llmq_relay_stop(LlmqRelay *relay)
{
	while (relay->in_flight.head != NULL)
	{
		LlmqOutboxMessage *message = relay->in_flight.head;

		drop_flight(relay, message);
		llmq_relay_end(relay, message, LLMQ_MESSAGE_RETURN, 0, NULL);
	}
}

void
llmq_relay_forget(LlmqRelay *relay)
{
	LlmqRelay fresh = {.core = relay->core, .destinations = relay->destinations};

	while (relay->in_flight.head != NULL)
	{
		LlmqOutboxMessage *message = relay->in_flight.head;

		drop_flight(relay, message);
		llmq_message_destroy(message);
	}
	llmq_relay_free_topics(relay);
	relay->destinations = NULL;
	llmq_relay_free(relay);
	*relay = fresh;
}
