/*
 * relay_store.c
 *		What the relay asks of the store: claims and settling.
 */
#include "relay/relay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/store_columns.h"
#include "json/json_write.h"

/* How many messages of one topic are in hand at most, and below how many more are claimed. */
#define TOPIC_BATCH 50
#define TOPIC_LOW	10

/*
 * With this many messages, or bytes of bodies, in the queues, no topic may have more than one
 * there.
 */
#define QUEUED_MAX		 2000
#define QUEUED_MAX_BYTES ((size_t) 64 * 1024 * 1024)

/* The limits of one claim. */
#define CLAIM_MAX_TOPICS	100
#define CLAIM_MAX_MESSAGES	500
#define CLAIM_BATCH_BYTES	(8 * 1024 * 1024) /* half of what worker_claim_messages returns */
#define CLAIM_REQUEST_BYTES ((size_t) 1024 * 1024)

/*
 * After a third of llmq.lease_ttl() without another sign of life, a claim with messages counts
 * as one.
 */
#define CLAIM_SHOWS_LIFE_US 5000000

/* How long a topic is skipped when its next message cannot be claimed. */
#define TOPIC_HOLD_US 60000000

/* When a topic that another worker has in hand is asked for again. */
#define TOPIC_BUSY_US 200000

/*
 * The memory for one message: a request, its answer, and for each byte of the body the body
 * itself, the text of the mail, and a little more than three bytes of encoded text.
 */
#define MESSAGE_BASE_BYTES	   ((size_t) 4 * 1024 * 1024)
#define MESSAGE_BYTES_PER_BYTE 6

/* The limits of one batch to settle, and how long it waits for more. */
#define SETTLE_MAX_MESSAGES 200
#define SETTLE_LINGER_US	10000
#define SETTLE_BYTES		((size_t) 4 * 1024 * 1024)

/* ---- Claiming ------------------------------------------------------------------------ */

static bool
is_full(const LlmqRelay *relay)
{
	return relay->queued >= QUEUED_MAX || relay->queued_bytes >= QUEUED_MAX_BYTES;
}

static bool
wants_messages(const LlmqRelay *relay, const LlmqTopic *topic)
{
	return topic->more && llmq_relay_is_open(relay, topic->destination) &&
		   !llmq_relay_gives_way(relay, topic) &&
		   topic->queue.count < (is_full(relay) ? 1 : TOPIC_LOW);
}

int64_t
llmq_relay_claim_due(const LlmqRelay *relay)
{
	int64_t due = LLMQ_NEVER;

	if (relay->core->state != LLMQ_ENGINE_RUNNING)
		return due;
	for (const LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		if (wants_messages(relay, topic) && topic->claim_at_us < due)
			due = topic->claim_at_us;
	}
	return due;
}

/* Adds a topic to those that the claim asks for. */
static void
ask_for(LlmqBuffer *wanted, LlmqTopic *topic, int max)
{
	static const char *const kinds[] = {[LLMQ_DESTINATION_WEBHOOK] = "webhook",
										[LLMQ_DESTINATION_EMAIL] = "email",
										[LLMQ_DESTINATION_NOTIFY] = "notify"};
	const LlmqDestination *destination = topic->destination;

	topic->claiming = max;
	topic->claimed = 0;
	topic->kind = destination->kind;
	llmq_write_open(wanted, '{');
	llmq_write_member_text(wanted, "topic", topic->name);
	llmq_write_member_text(wanted, "kind", kinds[destination->kind]);
	llmq_write_member_int(wanted, "after", topic->after);
	llmq_write_member_int(wanted, "max", max);
	if (destination->max_in_flight == 1)
		llmq_write_member_bool(wanted, "exclusive", true);
	if (topic->suspect)
		llmq_write_member_bool(wanted, "doubtful", true);
	if (destination->kind == LLMQ_DESTINATION_NOTIFY)
		llmq_write_member_text(wanted, "url", destination->url);
	llmq_write_close(wanted, '}');
}

void
llmq_relay_begin_claim(LlmqRelay *relay)
{
	LlmqBuffer wanted;
	int topics = 0;
	int messages = 0;

	llmq_buffer_init(&wanted, CLAIM_REQUEST_BYTES);
	llmq_write_open(&wanted, '[');
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		bool one = topic->suspect || is_full(relay);
		int max = one ? 1 : TOPIC_BATCH - topic->queue.count;

		if (!wants_messages(relay, topic) || topic->claim_at_us > relay->core->now.mono_us ||
			(topic->suspect && topics > 0))
			continue;
		if (topics == CLAIM_MAX_TOPICS || messages + max > CLAIM_MAX_MESSAGES)
			break;
		ask_for(&wanted, topic, max);
		topics++;
		messages += max;
		if (topic->suspect)
			break;
	}
	llmq_write_close(&wanted, ']');
	llmq_core_begin(
		relay->core, LLMQ_OP_CLAIM_MESSAGES,
		(const char *[]){relay->core->worker_id, wanted.failed ? "" : llmq_buffer_string(&wanted)});
	llmq_buffer_free(&wanted);
}

static void
add_ids(LlmqBuffer *ids, const LlmqOutboxList *list)
{
	for (const LlmqOutboxMessage *message = list->head; message != NULL; message = message->next)
		llmq_buffer_printf(ids, "%s%" PRId64, ids->len == 1 ? "" : ",", message->id);
}

void
llmq_relay_list_ids(const LlmqRelay *relay, LlmqBuffer *ids)
{
	llmq_buffer_init(ids, ((size_t) llmq_relay_in_hand(relay) + 1) * LLMQ_NUMBER_LENGTH);
	llmq_buffer_append_char(ids, '{');
	add_ids(ids, &relay->in_flight);
	add_ids(ids, &relay->ended);
	for (const LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
		add_ids(ids, &topic->queue);
	llmq_buffer_append_char(ids, '}');
}

static LlmqTopic *
claiming_topic(const LlmqRelay *relay, const char *name)
{
	LlmqTopic *topic = llmq_relay_find_topic(relay, name);

	return topic != NULL && topic->claiming > 0 ? topic : NULL;
}

/* Creates a message from a row; NULL when out of memory. */
static LlmqOutboxMessage *
create_message(const LlmqRows *rows, int i)
{
	const char *body = llmq_rows_cell(rows, i, LLMQ_OUTBOX_BODY);
	LlmqArena *arena =
		llmq_arena_create(MESSAGE_BASE_BYTES + MESSAGE_BYTES_PER_BYTE * strlen(body));
	LlmqOutboxMessage *message = arena == NULL ? NULL : llmq_arena_alloc(arena, sizeof(*message));

	if (message == NULL)
	{
		llmq_arena_destroy(arena);
		return NULL;
	}
	message->arena = arena;
	message->id = strtoll(llmq_rows_cell(rows, i, LLMQ_OUTBOX_ID), NULL, 10);
	message->attempts = (int) strtol(llmq_rows_cell(rows, i, LLMQ_OUTBOX_ATTEMPTS), NULL, 10);
	message->dedupe_key = llmq_arena_strdup(arena, llmq_rows_cell(rows, i, LLMQ_OUTBOX_DEDUPE_KEY));
	message->created_us = strtoll(llmq_rows_cell(rows, i, LLMQ_OUTBOX_CREATED_AT), NULL, 10);
	message->body_len = strlen(body);
	message->body = llmq_arena_strndup(arena, body, message->body_len);
	message->remaining = llmq_arena_strdup(arena, llmq_rows_cell(rows, i, LLMQ_OUTBOX_REMAINING));
	message->claimed_us = strtoll(llmq_rows_cell(rows, i, LLMQ_OUTBOX_CLAIMED_AT), NULL, 10);
	message->traceparent =
		llmq_arena_strdup(arena, llmq_rows_cell(rows, i, LLMQ_OUTBOX_TRACEPARENT));
	if (!llmq_arena_failed(arena))
		return message;
	llmq_arena_destroy(arena);
	return NULL;
}

/* Gives back a message that was claimed but does not fit into memory; its lease must not stay. */
static void
miss_message(LlmqRelay *relay, const LlmqRows *rows, int i)
{
	llmq_core_log(relay->core, LLMQ_LOG_WARNING,
				  "outbox message %s was claimed, does not fit into memory, and goes back",
				  llmq_rows_cell(rows, i, LLMQ_OUTBOX_ID));
	llmq_core_miss_lease(relay->core);
}

/*
 * Forgets a message that was claimed again while it waits to be settled once more: it had been
 * settled, and only the store's answer was lost.
 */
static void
forget_settled(LlmqRelay *relay, int64_t id)
{
	LlmqOutboxMessage *message = relay->ended.head;

	while (message != NULL && message->id != id)
		message = message->next;
	if (message == NULL)
		return;
	llmq_message_list_remove(&relay->ended, message);
	llmq_message_destroy(message);
}

/*
 * Counts a message that the claim itself has sent or tried to send; `failure` is what became
 * of it then.
 */
static void
count_notification(LlmqRelay *relay, const char *failure)
{
	LlmqMessageOutcome outcome = LLMQ_MESSAGE_SENT;

	if (failure != NULL)
		outcome = strcmp(failure, "dead") == 0 ? LLMQ_MESSAGE_DEAD : LLMQ_MESSAGE_RETRY;
	llmq_metric_count_message(&relay->core->metrics, outcome);
}

/*
 * Takes one row: a message, a message that was already sent (notify), or a topic that cannot
 * be claimed now.
 */
static void
take_claimed(LlmqRelay *relay, LlmqTopic *topic, const LlmqRows *rows, int i)
{
	LlmqOutboxMessage *message;
	int64_t wait = topic->claim_at_us - relay->core->now.mono_us;

	topic->claimed++;
	if (llmq_rows_cell(rows, i, LLMQ_OUTBOX_ID) == NULL)
	{
		topic->claim_at_us = relay->core->now.mono_us + TOPIC_BUSY_US;
		topic->claimed = topic->claiming;
		return;
	}
	topic->after = strtoll(llmq_rows_cell(rows, i, LLMQ_OUTBOX_ID), NULL, 10);
	if (llmq_rows_cell(rows, i, LLMQ_OUTBOX_BODY) == NULL)
	{
		count_notification(relay, llmq_rows_cell(rows, i, LLMQ_OUTBOX_REMAINING));
		return;
	}
	forget_settled(relay, topic->after);
	message = create_message(rows, i);
	if (message == NULL)
		miss_message(relay, rows, i);
	else if (wait > 0) /* its receiver has meanwhile asked for that */
		llmq_relay_end(relay, message, LLMQ_MESSAGE_RETURN, wait, NULL);
	else
		llmq_relay_enqueue(relay, topic, message);
}

/* Ends the claim for all topics that it asked for. */
static void
end_claim(LlmqRelay *relay, bool cut)
{
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		if (topic->claiming > 0 && topic->claimed < topic->claiming && !cut)
			topic->more = false;
		topic->served = topic->claiming > 0;
		topic->had_turn |= topic->served;
		topic->claiming = 0;
	}
	llmq_relay_rotate(relay);
	llmq_relay_forget_idle(relay);
}

static void
suspect_claimed(LlmqRelay *relay, bool suspect)
{
	for (LlmqTopic *topic = relay->topics; topic != NULL; topic = topic->next)
	{
		if (topic->claiming > 0)
			topic->suspect = suspect;
	}
}

static void
hold(LlmqRelay *relay, LlmqTopic *topic, const char *error)
{
	llmq_core_log(relay->core, LLMQ_LOG_WARNING,
				  "the message after %" PRId64 " of topic \"%s\" cannot be claimed, and the topic "
				  "is skipped for a minute: %s",
				  topic->after, topic->name, error);
	topic->claim_at_us = relay->core->now.mono_us + TOPIC_HOLD_US;
}

void
llmq_relay_complete_claim(LlmqRelay *relay, const LlmqRows *rows)
{
	size_t bytes = 0;

	relay->core->heartbeat_shows_work = true;
	if (relay->core->sure_us < relay->core->began_us - CLAIM_SHOWS_LIFE_US && rows->row_count > 0)
		relay->core->sure_us = relay->core->began_us - CLAIM_SHOWS_LIFE_US;
	for (int i = 0; i < rows->row_count; i++)
	{
		LlmqTopic *topic = claiming_topic(relay, llmq_rows_cell(rows, i, LLMQ_OUTBOX_TOPIC));
		const char *body = llmq_rows_cell(rows, i, LLMQ_OUTBOX_BODY);

		bytes += body == NULL ? 0 : strlen(body);
		if (topic != NULL)
			take_claimed(relay, topic, rows, i);
		else if (llmq_rows_cell(rows, i, LLMQ_OUTBOX_ID) != NULL)
			miss_message(relay, rows, i);
	}
	suspect_claimed(relay, false);
	end_claim(relay, bytes >= CLAIM_BATCH_BYTES);
	llmq_relay_sort_out(relay);
	llmq_relay_start_due(relay);
}

/*
 * Handles a claim that failed.  Unless the error is transient, some message is the cause, such
 * as one that is too large.  It is found by claiming from its topic alone, and one message at a
 * time; the store then makes it fail, if it can.
 */
void
llmq_relay_fail_claim(LlmqRelay *relay, const LlmqRows *rows)
{
	LlmqTopic *topic = relay->topics;

	while (topic != NULL && !(topic->claiming > 0 && topic->suspect))
		topic = topic->next;
	if (!llmq_store_error_passes(rows->sqlstate))
	{
		relay->core->store_at_us = 0;
		suspect_claimed(relay, topic == NULL);
		if (topic != NULL)
			hold(relay, topic, rows->error);
	}
	end_claim(relay, true);
}

/* ---- Settling ------------------------------------------------------------------------ */

/*
 * Returns when ended messages should be settled; they wait a little, so that others can be
 * settled with them.
 */
int64_t
llmq_relay_settle_due(const LlmqRelay *relay)
{
	int64_t due = LLMQ_NEVER;

	for (const LlmqOutboxMessage *message = relay->ended.head; message != NULL;
		 message = message->next)
	{
		if (message->settle_at_us < due)
			due = message->settle_at_us;
	}
	if (due == LLMQ_NEVER || relay->core->state >= LLMQ_ENGINE_DRAINING ||
		relay->ended.count >= SETTLE_MAX_MESSAGES ||
		(relay->in_flight.count == 0 && relay->queued == 0))
		return due;
	return due + SETTLE_LINGER_US;
}

static void
append_entry(LlmqBuffer *entries, const LlmqOutboxMessage *message)
{
	llmq_write_open(entries, '{');
	llmq_write_member_int(entries, "id", message->id);
	llmq_write_member_int(entries, "claimed_at", message->claimed_us);
	llmq_write_member_text(entries, "outcome", llmq_message_outcome_name(message->outcome));
	llmq_write_member_int(entries, "delay", message->delay_us);
	if (message->disables)
		llmq_write_member_bool(entries, "disable", true);
	if (message->remaining != NULL)
	{
		llmq_write_key(entries, "remaining");
		llmq_write_raw(entries, message->remaining);
	}
	if (message->error != NULL)
		llmq_write_member_text(entries, "error", message->error);
	llmq_write_close(entries, '}');
}

void
llmq_relay_begin_settle(LlmqRelay *relay)
{
	LlmqOutboxMessage *message = relay->ended.head;
	LlmqBuffer entries;

	llmq_buffer_init(&entries, SETTLE_BYTES);
	llmq_write_open(&entries, '[');
	while (message != NULL && relay->settling.count < SETTLE_MAX_MESSAGES)
	{
		LlmqOutboxMessage *following = message->next;

		if (message->settle_at_us <= relay->core->now.mono_us &&
			!(message->solo && relay->settling.count > 0))
		{
			append_entry(&entries, message);
			llmq_message_list_remove(&relay->ended, message);
			llmq_message_list_add(&relay->settling, message);
			if (message->solo)
				break;
		}
		message = following;
	}
	llmq_write_close(&entries, ']');
	llmq_core_begin(relay->core, LLMQ_OP_SETTLE_MESSAGES,
					(const char *[]){relay->core->worker_id,
									 entries.failed ? "" : llmq_buffer_string(&entries)});
	llmq_buffer_free(&entries);
}

/* Settles a message later, because somebody has locked it; the others of the batch are settled. */
static void
settle_later(LlmqRelay *relay, const char *id)
{
	LlmqOutboxMessage *message = relay->settling.head;

	while (message != NULL && message->id != strtoll(id, NULL, 10))
		message = message->next;
	if (message == NULL)
		return;
	llmq_message_list_remove(&relay->settling, message);
	llmq_message_list_add(&relay->ended, message);
	message->settle_at_us = relay->core->now.mono_us + llmq_core_backoff(relay->core, 0);
}

/*
 * Notes that a message was settled.  One that goes back is looked for again, and not only with
 * the next safety poll.
 */
static void
note_settled(LlmqRelay *relay, const LlmqOutboxMessage *message)
{
	int64_t due = relay->core->now.mono_us + message->delay_us;

	/* The database decides whether the destination is disabled, and tells us. */
	if (message->disables)
	{
		relay->core->config_doubted = true;
		relay->core->full_poll_at_us = relay->core->now.mono_us;
	}
	if (message->outcome != LLMQ_MESSAGE_RETURN && message->outcome != LLMQ_MESSAGE_RETRY)
		return;
	if (message->delay_us == 0)
		relay->sweep_wanted = true;
	else
		llmq_core_poll_by(relay->core, due);
}

void
llmq_relay_complete_settle(LlmqRelay *relay, const LlmqRows *rows)
{
	for (int i = 0; i < rows->row_count; i++)
	{
		const char *verdict = llmq_rows_cell(rows, i, LLMQ_OUTBOX_SETTLE_VERDICT);

		if (strcmp(verdict, "busy") == 0)
			settle_later(relay, llmq_rows_cell(rows, i, LLMQ_OUTBOX_SETTLE_ID));
		else if (strcmp(verdict, "settled") != 0)
			llmq_core_log(relay->core, LLMQ_LOG_INFO, "outbox message %s: its sending came %s",
						  llmq_rows_cell(rows, i, LLMQ_OUTBOX_SETTLE_ID), verdict);
	}
	while (relay->settling.head != NULL)
	{
		LlmqOutboxMessage *message = relay->settling.head;

		llmq_message_list_remove(&relay->settling, message);
		note_settled(relay, message);
		llmq_message_destroy(message);
	}
	llmq_relay_forget_idle(relay);
}

/*
 * Handles a batch that could not be settled and is still in hand: it is tried again together
 * if the error is transient, or else one by one.
 */
void
llmq_relay_fail_settle(LlmqRelay *relay, bool passes)
{
	bool alone = relay->settling.count == 1;

	while (relay->settling.head != NULL)
	{
		LlmqOutboxMessage *message = relay->settling.head;

		llmq_message_list_remove(&relay->settling, message);
		llmq_message_list_add(&relay->ended, message);
		message->solo |= !passes;
		if (alone || passes)
			message->settle_at_us = relay->core->now.mono_us +
									llmq_core_backoff(relay->core, message->settle_failures++);
	}
}
