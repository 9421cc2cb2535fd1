/*
 * webhook.h
 *		An outbox message as a signed HTTP request, and what its receiver says.
 *
 * Standard Webhooks 1.0.0 (https://www.standardwebhooks.com).  Pure: the time is
 * given, and so is the HMAC, since the engine has no cryptography of its own.
 */
#ifndef LLMQ_WEBHOOK_H
#define LLMQ_WEBHOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/hmac.h"
#include "wire/http_request.h"
#include "messages/send_verdict.h"
#include "wire/sink.h"

/* More secrets at a time than a rotation needs are refused. */
#define LLMQ_WEBHOOK_SECRETS_MAX 8

typedef struct LlmqWebhook
{
	const char *url;
	const char *headers;		 /* the destination's: a JSON object of name: value, or NULL */
	const char *secret;			 /* whsec_ secrets with white space between them; NULL: unsigned */
	const char *id;				 /* webhook-id: printable ASCII without a dot */
	const char *idempotency_key; /* any text; NULL: none */
	const char *traceparent;	 /* as W3C Trace Context has it; NULL: none */
	int64_t timestamp_s;		 /* of this attempt, since the Unix epoch */
	const char *body;			 /* JSON */
	size_t body_len;
} LlmqWebhook;

/*
 * Writes the request; memory comes from arena, once the body's length and some.
 * False with a sentence for the user in *error, which holds no secret: no attempt
 * could succeed.  False with NULL in *error: memory is out, or no HMAC to be had.
 *
 * Headers: the destination's own, then, unless it has set one of that name,
 * Content-Type, Idempotency-Key and traceparent; webhook-id, webhook-timestamp and
 * webhook-signature, which are nobody else's to set.  The signature has one part
 * for each secret, so that receivers may change to a new one when they like.  If
 * a header of the destination's holds ${credential}, that stands for the secret,
 * and nothing is signed.
 *
 * Idempotency-Key is encoded as idempotency_key.h says.
 */
extern bool llmq_webhook_request(LlmqArena *arena, const LlmqWebhook *webhook, LlmqHmacSha256 hmac,
								 LlmqHttpRequest *request, const char **error);

/* Reads the answer. */
typedef struct LlmqWebhookReply LlmqWebhookReply;

/*
 * Starts to read an answer; all memory comes from arena.  secret, or NULL, must
 * outlive the reply: it is hidden where the answer repeats it.  NULL when memory
 * is out.
 */
extern LlmqWebhookReply *llmq_webhook_reply_create(LlmqArena *arena, const char *secret);

/* The reply as the transfer layer knows it. */
extern LlmqSink *llmq_webhook_reply_sink(LlmqWebhookReply *reply);

/*
 * Judges the answer when the transfer has ended; detail is what the transfer
 * layer says of the end.  now_us: wall clock since the Unix epoch, for a
 * Retry-After with a date.  Strings are in the reply's arena.
 *
 * 2xx: sent, whatever became of the body behind it.  410: dead, and the
 * destination is to be disabled.  All else is tried again, as Standard Webhooks
 * has it, with the receiver's Retry-After if a 4xx or 5xx has one; a 3xx too,
 * since redirects are not followed.
 */
extern void llmq_webhook_verdict(const LlmqWebhookReply *reply, LlmqTransferEnd end,
								 const char *detail, int64_t now_us, LlmqSendVerdict *verdict);

#endif /* LLMQ_WEBHOOK_H */
