/*
 * relay_message.c
 *		Messages in hand: queued, in flight, or ended and waiting to be settled.
 */
#include "relay/relay.h"

/* ---- Lists --------------------------------------------------------------------------- */

void
llmq_message_list_add(LlmqOutboxList *list, LlmqOutboxMessage *message)
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
llmq_message_list_remove(LlmqOutboxList *list, LlmqOutboxMessage *message)
{
	/*
	 * The analyzer does not see that this message is no longer the head of the list, and that
	 * those in a queue or in flight have a topic.
	 */
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
llmq_message_destroy(LlmqOutboxMessage *message)
{
	llmq_arena_destroy(message->arena);
}

void
llmq_message_list_free(LlmqOutboxList *list)
{
	while (list->head != NULL)
	{
		LlmqOutboxMessage *message = list->head;

		llmq_message_list_remove(list, message);
		llmq_message_destroy(message);
	}
}

/* ---- Queues -------------------------------------------------------------------------- */

void
llmq_relay_leave_queue(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	llmq_message_list_remove(&message->topic->queue, message);
	relay->queued--;
	relay->queued_bytes -= message->body_len;
}

void
llmq_relay_return_queue(LlmqRelay *relay, LlmqTopic *topic, int64_t delay_us, const char *reason)
{
	while (topic->queue.head != NULL)
	{
		LlmqOutboxMessage *message = topic->queue.head;

		llmq_relay_leave_queue(relay, message);
		llmq_relay_end(relay, message, LLMQ_MESSAGE_RETURN, delay_us, reason);
	}
}

void
llmq_relay_pause(LlmqRelay *relay, LlmqTopic *topic, int64_t delay_us, const char *reason)
{
	topic->claim_at_us = relay->core->now.mono_us + delay_us;
	llmq_relay_return_queue(relay, topic, delay_us, reason);
}

/* Ends a message that is in no list, so that it gets settled. */
void
llmq_relay_end(LlmqRelay *relay, LlmqOutboxMessage *message, LlmqMessageOutcome outcome,
			   int64_t delay_us, const char *error)
{
	message->topic = NULL;
	message->outcome = outcome;
	message->delay_us = delay_us;
	message->error = llmq_arena_strdup(message->arena, error);
	message->settle_at_us = relay->core->now.mono_us;
	llmq_message_list_add(&relay->ended, message);
	llmq_metric_count_message(&relay->core->metrics, outcome);
}
