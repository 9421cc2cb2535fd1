/*
 * relay_send.c
 *		Sends one outbox message as a webhook or an e-mail, and judges the end.
 *
 * A message is not to blame for a fault of its destination, such as a missing secret.  It goes
 * back without a counted attempt, until somebody has repaired that.
 */
#include "relay/relay.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "json/json_write.h"
#include "messages/email.h"
#include "wire/trace.h"

/* When a destination that cannot be used is tried again, unless its row changes earlier. */
#define UNUSABLE_WAIT_US 10000000

#define SEND_ERROR_MAX 256

/* Enough for as many addresses as a mail may have. */
#define REMAINING_MAX_BYTES ((size_t) 64 * 1024)

/* ---- What both need ------------------------------------------------------------------ */

/* Makes the topic wait, because its destination cannot be used. */
static bool
set_aside(LlmqRelay *relay, LlmqOutboxMessage *message, const char *reason)
{
	LlmqTopic *topic = message->topic;

	llmq_core_log(relay->core, LLMQ_LOG_WARNING, "outbox messages of topic \"%s\" wait: %s",
				  topic->name, reason);
	llmq_relay_end(relay, message, LLMQ_MESSAGE_RETURN, UNUSABLE_WAIT_US, reason);
	llmq_relay_pause(relay, topic, UNUSABLE_WAIT_US, reason);
	return false;
}

/*
 * Finds the secret of the topic's destination; if it is missing, sets the message aside and
 * returns false.
 */
static bool
find_secret(LlmqRelay *relay, LlmqOutboxMessage *message, const char **secret)
{
	const char *credential = message->topic->destination->credential;
	char error[SEND_ERROR_MAX];

	*secret = NULL;
	if (credential == NULL)
		return true;
	*secret = llmq_secret_read(message->arena, relay->core->options.secrets_directory, credential,
							   error, sizeof(error));
	return *secret != NULL || set_aside(relay, message, error);
}

/*
 * Checks that a transfer was started.  If not, this machine lacked resources, or the URL is
 * wrong.
 */
static bool
has_started(LlmqRelay *relay, LlmqOutboxMessage *message, const char *error)
{
	return message->transfer != NULL || set_aside(relay, message, error);
}

/* ---- Webhook ------------------------------------------------------------------------- */

static bool
send_webhook(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	const LlmqDestination *destination = message->topic->destination;
	LlmqClocks clocks = {.attempt_us = destination->timeout_us};
	char id[LLMQ_NUMBER_LENGTH];
	char error[SEND_ERROR_MAX] = "out of memory";
	const char *reason = NULL;
	LlmqWebhook webhook = {.url = destination->url,
						   .headers = destination->headers,
						   .idempotency_key = message->dedupe_key,
						   .timestamp_s = relay->core->now.wall_us / 1000000,
						   .body = message->body,
						   .body_len = message->body_len};

	if (!find_secret(relay, message, &webhook.secret))
		return false;
	snprintf(id, sizeof(id), "%" PRId64, message->id);
	webhook.id = id;
	webhook.traceparent = llmq_trace_child(message->arena, message->traceparent,
										   llmq_random_bits(&relay->core->random));
	if (!llmq_webhook_request(message->arena, &webhook, relay->core->options.hmac,
							  &message->request, &reason))
		return set_aside(relay, message, reason == NULL ? error : reason);
	message->reply = llmq_webhook_reply_create(message->arena, webhook.secret);
	if (message->reply != NULL)
		message->transfer = llmq_transfer_start(
			relay->core->transfers, &message->request, llmq_webhook_reply_sink(message->reply),
			&clocks, &message->caller, relay->core->now.mono_us, error, sizeof(error));
	return has_started(relay, message, error);
}

/* ---- E-mail -------------------------------------------------------------------------- */

/* Ends a message that no server would accept as a mail. */
static bool
refuse(LlmqRelay *relay, LlmqOutboxMessage *message, const char *reason)
{
	llmq_relay_end(relay, message, LLMQ_MESSAGE_DEAD, 0, reason);
	return false;
}

/* Reads an array of texts; false when out of memory. */
static bool
read_texts(LlmqArena *arena, const char *source, const char *const **texts, int *count)
{
	json_t *array = source == NULL ? NULL : json_loads(source, 0, NULL);
	size_t size = json_array_size(array);
	const char **copy = llmq_arena_alloc(arena, sizeof(*copy) * (size + 1));

	for (size_t i = 0; i < size && copy != NULL; i++)
		copy[i] = llmq_arena_strdup(arena, json_string_value(json_array_get(array, i)));
	json_decref(array);
	*texts = source == NULL ? NULL : copy;
	*count = (int) size;
	return !llmq_arena_failed(arena);
}

/* Returns what the SQL has already found wrong: see llmq.worker_claim_messages. */
static const char *
find_fault(LlmqOutboxMessage *message)
{
	json_t *body = json_loads(message->body, 0, NULL);
	const char *fault =
		llmq_arena_strdup(message->arena, json_string_value(json_object_get(body, "error")));

	json_decref(body);
	return fault;
}

/*
 * Returns an id that is the same in each attempt.  Mail servers drop messages whose id they
 * have seen, and the ids of another database begin with 1 too, so the time is part of it.
 */
static const char *
mail_id(LlmqOutboxMessage *message)
{
	return llmq_arena_printf(message->arena, "%" PRId64 ".%" PRIx64, message->id,
							 message->created_us);
}

/* Turns the body into a request.  Returns false with the reason, or with NULL when out of memory.
 */
static bool
write_mail(LlmqRelay *relay, LlmqOutboxMessage *message, const char *secret, const char **reason)
{
	const LlmqDestination *destination = message->topic->destination;
	LlmqEmail email = {.url = destination->url,
					   .secret = secret,
					   .sender = destination->sender,
					   .id = mail_id(message),
					   .idempotency_key = message->dedupe_key,
					   .date_us = message->created_us};

	*reason = find_fault(message);
	return *reason == NULL &&
		   read_texts(message->arena, message->remaining, &email.remaining,
					  &email.remaining_count) &&
		   llmq_email_read(message->arena, message->body, message->body_len, &email, reason) &&
		   llmq_email_request(message->arena, &email, &message->mail, reason);
}

static bool
send_email(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	const LlmqDestination *destination = message->topic->destination;
	LlmqClocks clocks = {.attempt_us = destination->timeout_us};
	char error[SEND_ERROR_MAX] = "out of memory";
	const char *secret;
	const char *reason;

	if (!find_secret(relay, message, &secret))
		return false;
	if (!write_mail(relay, message, secret, &reason))
		return reason == NULL ? set_aside(relay, message, error) : refuse(relay, message, reason);
	message->mail_reply = llmq_mail_reply_create(message->arena, &message->mail);
	if (message->mail_reply != NULL)
		message->transfer = llmq_transfer_start_mail(
			relay->core->transfers, &message->mail, message->mail_reply, &clocks, &message->caller,
			relay->core->now.mono_us, error, sizeof(error));
	return has_started(relay, message, error);
}

/* Keeps the recipients who have not got it yet, for the next attempt. */
static void
keep_remaining(LlmqOutboxMessage *message, const LlmqSendVerdict *verdict)
{
	LlmqBuffer list;

	if (verdict->remaining == NULL || verdict->remaining_count == 0)
		return;
	llmq_buffer_init(&list, REMAINING_MAX_BYTES);
	llmq_write_open(&list, '[');
	for (int i = 0; i < verdict->remaining_count; i++)
		llmq_write_text(&list, verdict->remaining[i]);
	llmq_write_close(&list, ']');
	if (!list.failed)
		message->remaining = llmq_arena_strdup(message->arena, llmq_buffer_string(&list));
	llmq_buffer_free(&list);
}

/* ---- Both ---------------------------------------------------------------------------- */

bool
llmq_relay_send(LlmqRelay *relay, LlmqOutboxMessage *message)
{
	return message->topic->destination->kind == LLMQ_DESTINATION_EMAIL
			   ? send_email(relay, message)
			   : send_webhook(relay, message);
}

void
llmq_relay_judge(LlmqRelay *relay, LlmqOutboxMessage *message, const LlmqTransferResult *result,
				 LlmqSendVerdict *verdict)
{
	const char *detail = result->detail[0] == '\0' ? NULL : result->detail;

	if (message->mail_reply != NULL)
	{
		llmq_email_verdict(message->mail_reply, result->end, detail, verdict);
		keep_remaining(message, verdict);
	}
	else
		llmq_webhook_verdict(message->reply, result->end, detail, relay->core->now.wall_us,
							 verdict);
}
