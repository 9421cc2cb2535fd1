/*
 * webhook_reply.c
 *		Reads and judges what the receiver of a webhook answers.
 *
 * Only the status decides.  The beginning of the body is kept for people to read.  The rest is
 * read, up to a limit, only so that the receiver can finish without an error.
 */
#include "messages/webhook.h"

#include <string.h>
#include <strings.h>

#include "base/retry.h"

/* A longer answer to a webhook has no use. */
#define BODY_MAX_BYTES ((size_t) 64 * 1024)

struct LlmqWebhookReply
{
	LlmqSink sink; /* first: a sink is cast to its reply */
	LlmqArena *arena;
	const char *secret;
	int status;
	const char *retry_after; /* headers as sent; NULL if not sent */
	const char *date;
	char excerpt[LLMQ_SEND_MESSAGE_MAX]; /* the body's beginning */
	size_t excerpt_len;
	size_t body_len;
};

static void take_status(LlmqSink *sink, int status);
static void
take_header(LlmqSink *sink, const char *name, size_t name_len, const char *value, size_t value_len);
static LlmqFeed take_body(LlmqSink *sink, const char *bytes, size_t len);
static const char *words_for(LlmqTransferEnd end);
static void judge_status(const LlmqWebhookReply *reply, int64_t now_us, LlmqSendVerdict *verdict);

LlmqWebhookReply *
llmq_webhook_reply_create(LlmqArena *arena, const char *secret)
{
	LlmqWebhookReply *reply = llmq_arena_alloc(arena, sizeof(*reply));

	if (reply == NULL)
		return NULL;
	reply->sink = (LlmqSink){.status = take_status, .header = take_header, .body = take_body};
	reply->arena = arena;
	reply->secret = secret;
	return reply;
}

LlmqSink *
llmq_webhook_reply_sink(LlmqWebhookReply *reply)
{
	return &reply->sink;
}

void
llmq_webhook_verdict(const LlmqWebhookReply *reply, LlmqTransferEnd end, const char *detail,
					 int64_t now_us, LlmqSendVerdict *verdict)
{
	memset(verdict, 0, sizeof(*verdict));
	verdict->outcome = LLMQ_SEND_RETRY;
	verdict->retry_after_us = -1;
	if (reply->status >= 200)
		judge_status(reply, now_us, verdict);
	else
		verdict->message =
			llmq_send_verdict_message(reply->arena, words_for(end), detail != NULL ? detail : "",
									  detail != NULL ? strlen(detail) : 0, reply->secret);
}

static void
take_status(LlmqSink *sink, int status)
{
	LlmqWebhookReply *reply = (LlmqWebhookReply *) sink;

	reply->status = status;
	reply->retry_after = NULL;
	reply->date = NULL;
}

/* Takes a header.  Those that come after the body are trailers. */
static void
take_header(LlmqSink *sink, const char *name, size_t name_len, const char *value, size_t value_len)
{
	LlmqWebhookReply *reply = (LlmqWebhookReply *) sink;
	const char **header = NULL;

	if (name_len == strlen("retry-after") && strncasecmp(name, "retry-after", name_len) == 0)
		header = &reply->retry_after;
	else if (name_len == strlen("date") && strncasecmp(name, "date", name_len) == 0)
		header = &reply->date;
	if (header != NULL && *header == NULL && reply->body_len == 0)
		*header = llmq_arena_strndup(reply->arena, value, value_len);
}

static LlmqFeed
take_body(LlmqSink *sink, const char *bytes, size_t len)
{
	LlmqWebhookReply *reply = (LlmqWebhookReply *) sink;
	size_t room = sizeof(reply->excerpt) - reply->excerpt_len;
	size_t kept = len < room ? len : room;

	memcpy(reply->excerpt + reply->excerpt_len, bytes, kept);
	reply->excerpt_len += kept;
	reply->body_len += len;
	return reply->body_len > BODY_MAX_BYTES ? LLMQ_FEED_DONE : LLMQ_FEED_MORE;
}

/* Returns the sentence for a transfer that ended without an answer. */
static const char *
words_for(LlmqTransferEnd end)
{
	switch (end)
	{
		case LLMQ_END_NOT_SENT:
			return "The message could not be sent";
		case LLMQ_END_TIMEOUT:
			return "The receiver did not answer in time";
		case LLMQ_END_INTERRUPTED:
			return "The delivery was interrupted";
		default:
			return "The connection ended without an answer";
	}
}

static void
judge_status(const LlmqWebhookReply *reply, int64_t now_us, LlmqSendVerdict *verdict)
{
	const char *sentence;

	verdict->code = reply->status;
	if (reply->status <= 299)
	{
		verdict->outcome = LLMQ_SEND_SENT;
		return;
	}
	if (reply->status == 410)
	{
		verdict->outcome = LLMQ_SEND_DEAD;
		verdict->disable = true;
	}
	else if (reply->status >= 400)
		llmq_retry_parse_after(reply->retry_after, reply->date, now_us, &verdict->retry_after_us);
	sentence =
		llmq_arena_printf(reply->arena, "The receiver answered %d%s", reply->status,
						  reply->status == 410	? ", gone"
						  : reply->status < 400 ? ", a redirect, and redirects are not followed"
												: "");
	if (sentence != NULL)
		verdict->message = llmq_send_verdict_message(reply->arena, sentence, reply->excerpt,
													 reply->excerpt_len, reply->secret);
}
