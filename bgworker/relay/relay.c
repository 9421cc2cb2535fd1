/*
 * relay.c
 *		The relay: the way of a message to its destination and back.
 *
 * A message is queued in its topic, in flight, or ended and waits in the list to be
 * settled: llmq_relay_enqueue, start and llmq_relay_end are the moves.
 */
#include "engine/engine_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * A worker that has not been heard of for llmq.lease_ttl(), 15 s, may have lost its leases
 * without knowing: it begins no send so late that another worker may have sent that already.
 */
#define SURE_US INT64_C(12000000)

/* How long to wait when the machine itself had no descriptor or memory for a send. */
#define MACHINE_TROUBLE_WAIT_US 1000000

static bool can_start(const LlmqRelay *relay, const LlmqTopic *topic);
static void start(LlmqEngine *engine, LlmqMessage *message);
static void take_end(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result);
static void leave_flight(LlmqEngine *engine, LlmqMessage *message);

/* ---- Lists --------------------------------------------------------------------------- */

void
llmq_message_list_add(LlmqMessageList *list, LlmqMessage *message)
{
	message->previous = list->tail;
	message->next = NULL;
	if (list->tail == NULL)
		list->head = message;
	else
		list->tail->next = message;
	list->tail = message;
	list->count++;
}

void
llmq_message_list_remove(LlmqMessageList *list, LlmqMessage *message)
{
	/* The analyzer does not see that this message is at the list's head no more, and that
	 * those in a queue or in flight have a topic. */
	/* NOLINTBEGIN(clang-analyzer-core.NullDereference) */
	if (message->previous == NULL)
		list->head = message->next;
	else
		message->previous->next = message->next;
	if (message->next == NULL)
		list->tail = message->previous;
	else
		message->next->previous = message->previous;
	/* NOLINTEND(clang-analyzer-core.NullDereference) */
	message->previous = message->next = NULL;
	list->count--;
}

void
llmq_message_destroy(LlmqMessage *message)
{
	llmq_arena_destroy(message->arena);
}

void
llmq_message_list_free(LlmqMessageList *list)
{
	while (list->head != NULL)
	{
		LlmqMessage *message = list->head;

		llmq_message_list_remove(list, message);
		llmq_message_destroy(message);
	}
}

void
llmq_relay_free(LlmqRelay *relay)
{
	llmq_message_list_free(&relay->in_flight);
	llmq_message_list_free(&relay->ended);
	llmq_message_list_free(&relay->settling);
	llmq_relay_free_topics(relay);
	free(relay->swept_to);
	memset(relay, 0, sizeof(*relay));
}

int
llmq_relay_in_hand(const LlmqRelay *relay)
{
	return relay->queued + relay->in_flight.count + relay->ended.count + relay->settling.count;
}

/* ---- Queues -------------------------------------------------------------------------- */

static void
leave_queue(LlmqRelay *relay, LlmqMessage *message)
{
	llmq_message_list_remove(&message->topic->queue, message);
	relay->queued--;
	relay->queued_bytes -= message->body_len;
}

/* Gives back what is queued of a topic. */
static void
return_queue(LlmqEngine *engine, LlmqTopic *topic, int64_t delay_us, const char *reason)
{
	while (topic->queue.head != NULL)
	{
		LlmqMessage *message = topic->queue.head;

		leave_queue(&engine->relay, message);
		llmq_relay_end(engine, message, LLMQ_MESSAGE_RETURN, delay_us, reason);
	}
}

void
llmq_relay_pause(LlmqEngine *engine, LlmqTopic *topic, int64_t delay_us, const char *reason)
{
	topic->claim_at_us = engine->now.mono_us + delay_us;
	return_queue(engine, topic, delay_us, reason);
}

static bool
is_sure(const LlmqEngine *engine)
{
	return engine->now.mono_us - engine->relay.sure_us < SURE_US;
}

/* Whether what is queued can go to where the topic's messages go now. */
static bool
fits(const LlmqTopic *topic)
{
	return topic->destination != NULL && topic->destination->enabled &&
		   topic->destination->kind == topic->kind;
}

void
llmq_relay_sort_out(LlmqEngine *engine)
{
	bool all = engine->state != LLMQ_ENGINE_RUNNING || !is_sure(engine);

	for (LlmqTopic *topic = engine->relay.topics; topic != NULL; topic = topic->next)
	{
		if (all || !fits(topic))
			return_queue(engine, topic, 0, NULL);
	}
}

/* Destinations of the configuration before are gone: each topic is routed anew. */
void
llmq_relay_take_config(LlmqEngine *engine)
{
	LlmqRelay *relay = &engine->relay;

	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		topic->destination = llmq_config_route(engine->config, topic->name);
		if (topic->destination != NULL)
		{
			topic->destination->topics++;
			topic->destination->in_flight += topic->in_flight;
		}
		if (topic->destination == NULL || !topic->destination->enabled)
			topic->more = false;
		topic->claim_at_us = 0;
	}
	llmq_relay_sort_out(engine);
	/* Topics that had no destination may have one now; a sweep that just begins will tell. */
	llmq_relay_sweep_afresh(relay);
}

/* ---- Messages ------------------------------------------------------------------------ */

void
llmq_relay_enqueue(LlmqEngine *engine, LlmqTopic *topic, LlmqMessage *message)
{
	message->caller.ended = take_end;
	message->topic = topic;
	llmq_message_list_add(&topic->queue, message);
	engine->relay.queued++;
	engine->relay.queued_bytes += message->body_len;
}

/* Whether a slot may go to the destination: see LLMQ_RELAY_SHARED. */
static bool
is_slot_left(const LlmqRelay *relay, const LlmqDestination *destination)
{
	int shared = LLMQ_RELAY_SHARED - relay->in_flight.count;

	if (destination->in_flight == 0)
		return shared + (destination->answered > 0 ? LLMQ_RELAY_RESERVED : 0) > 0;
	return destination->in_flight <= destination->answered && destination->in_flight < shared;
}

static bool
can_start(const LlmqRelay *relay, const LlmqTopic *topic)
{
	const LlmqDestination *destination = topic->destination;

	return topic->queue.count > 0 && destination != NULL && destination->enabled &&
		   topic->in_flight < destination->max_in_flight && is_slot_left(relay, destination);
}

void
llmq_relay_start_due(LlmqEngine *engine)
{
	LlmqRelay *relay = &engine->relay;

	if (relay->queued == 0 || engine->state != LLMQ_ENGINE_RUNNING)
		return;
	if (!is_sure(engine))
		llmq_relay_sort_out(engine);
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		while (can_start(relay, topic))
		{
			start(engine, topic->queue.head);
			topic->served = true;
		}
	}
	llmq_relay_rotate(relay);
}

/* Sends the first message of its topic's queue. */
static void
start(LlmqEngine *engine, LlmqMessage *message)
{
	LlmqTopic *topic = message->topic;

	leave_queue(&engine->relay, message);
	if (!llmq_relay_send(engine, message))
		return;
	message->started_us = engine->now.mono_us;
	llmq_message_list_add(&engine->relay.in_flight, message);
	topic->in_flight++;
	topic->destination->in_flight++;
}

static void
leave_flight(LlmqEngine *engine, LlmqMessage *message)
{
	LlmqTopic *topic = message->topic;

	llmq_message_list_remove(&engine->relay.in_flight, message);
	message->transfer = NULL;
	topic->in_flight--; /* NOLINT(clang-analyzer-core.NullDereference): likewise */
	if (topic->destination != NULL && topic->destination->in_flight > 0)
		topic->destination->in_flight--;
}

static int64_t
heeded(int64_t wish)
{
	return wish < LLMQ_WISH_WAIT_MAX_US ? wish : LLMQ_WISH_WAIT_MAX_US;
}

/* What an attempt that failed leads to. */
static void
end_failed(LlmqEngine *engine, LlmqMessage *message, const LlmqRelayVerdict *verdict)
{
	const LlmqDestination *destination = message->topic->destination;
	int64_t delay;

	if (destination == NULL)
	{
		llmq_relay_end(engine, message, LLMQ_MESSAGE_RETRY, 0, verdict->message);
		return;
	}
	if (message->attempts + 1 >= destination->max_attempts)
	{
		llmq_relay_end(engine, message, LLMQ_MESSAGE_DEAD, 0, verdict->message);
		return;
	}
	/* A receiver that is down and wishes for little would have all attempts within seconds. */
	delay = llmq_retry_backoff(&engine->random, destination->backoff_base_us,
							   destination->backoff_cap_us, message->attempts);
	if (delay < heeded(verdict->retry_after_us))
		delay = heeded(verdict->retry_after_us);
	llmq_relay_end(engine, message, LLMQ_MESSAGE_RETRY, delay, verdict->message);
}

/* The receiver speaks for all of the topic: it wants no more, or not so soon. */
static void
heed_receiver(LlmqEngine *engine, LlmqTopic *topic, const LlmqRelayVerdict *verdict)
{
	int64_t wish = verdict->retry_after_us;

	if (verdict->disable && topic->destination != NULL)
	{
		topic->destination->enabled = false;
		topic->more = false;
		return_queue(engine, topic, 0, NULL);
	}
	else if (verdict->outcome == LLMQ_RELAY_RETRY && wish > 0)
		llmq_relay_pause(engine, topic, heeded(wish), NULL);
}

/* An attempt that ran out of time shows a destination that hangs. */
static void
note_answer(const LlmqEngine *engine, const LlmqMessage *message, LlmqDestination *destination)
{
	if (destination == NULL)
		return;
	if (engine->now.mono_us - message->started_us >= destination->timeout_us)
		destination->answered = 0;
	else if (destination->answered < LLMQ_RELAY_SHARED)
		destination->answered++;
}

/* Takes in how a send has ended. */
static void
take_end(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result)
{
	LlmqMessage *message = (LlmqMessage *) caller;
	LlmqTopic *topic = message->topic;
	LlmqRelayVerdict verdict;

	leave_flight(engine, message);
	if (result->local_trouble)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "outbox message %" PRId64 " was not sent: %s",
						message->id, result->detail);
		llmq_relay_end(engine, message, LLMQ_MESSAGE_RETURN, MACHINE_TROUBLE_WAIT_US,
					   result->detail);
		return;
	}
	note_answer(engine, message, topic->destination);
	llmq_relay_judge(engine, message, result, &verdict);
	message->disables = verdict.disable;
	if (verdict.outcome == LLMQ_RELAY_RETRY)
		end_failed(engine, message, &verdict);
	else
		llmq_relay_end(engine, message,
					   verdict.outcome == LLMQ_RELAY_SENT ? LLMQ_MESSAGE_SENT : LLMQ_MESSAGE_DEAD,
					   0, verdict.message);
	heed_receiver(engine, topic, &verdict);
}

const char *
llmq_message_outcome_name(LlmqMessageOutcome outcome)
{
	static const char *const names[LLMQ_MESSAGE_OUTCOMES] = {[LLMQ_MESSAGE_SENT] = "sent",
															 [LLMQ_MESSAGE_RETRY] = "retry",
															 [LLMQ_MESSAGE_DEAD] = "dead",
															 [LLMQ_MESSAGE_RETURN] = "return"};

	return names[outcome];
}

/* Ends a message that is in no list; it is to be settled. */
void
llmq_relay_end(LlmqEngine *engine, LlmqMessage *message, LlmqMessageOutcome outcome,
			   int64_t delay_us, const char *error)
{
	message->topic = NULL;
	message->outcome = outcome;
	message->delay_us = delay_us;
	message->error = llmq_arena_strdup(message->arena, error);
	message->settle_at_us = engine->now.mono_us;
	llmq_message_list_add(&engine->relay.ended, message);
	llmq_metric_count_message(&engine->metrics, outcome);
}

/* ---- The end ------------------------------------------------------------------------- */

static void
drop_flight(LlmqEngine *engine, LlmqMessage *message)
{
	llmq_transfer_abort(engine->transfers, message->transfer);
	leave_flight(engine, message);
}

void
llmq_relay_stop(LlmqEngine *engine)
{
	LlmqRelay *relay = &engine->relay;

	while (relay->in_flight.head != NULL)
	{
		LlmqMessage *message = relay->in_flight.head;

		drop_flight(engine, message);
		llmq_relay_end(engine, message, LLMQ_MESSAGE_RETURN, 0, NULL);
	}
}

void
llmq_relay_forget(LlmqEngine *engine)
{
	LlmqRelay *relay = &engine->relay;

	while (relay->in_flight.head != NULL)
	{
		LlmqMessage *message = relay->in_flight.head;

		drop_flight(engine, message);
		llmq_message_destroy(message);
	}
	llmq_relay_free(relay);
}
