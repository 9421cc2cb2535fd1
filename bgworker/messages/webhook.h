/*
 * webhook.h
 *		Writes an outbox message as a signed HTTP request, and judges what its receiver
 *		answers.
 *
 * It follows Standard Webhooks 1.0.0 (https://www.standardwebhooks.com).  Pure: the time is
 * passed in, and so is the HMAC, since the engine has no cryptography of its own.
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

/* More secrets at a time are refused; no rotation needs as many. */
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
 * Writes the request.  Memory comes from arena: a little more than the length of the body.
 * Returns false when no attempt could succeed, with a sentence for the user in *error, which
 * contains no secret; or with NULL there when out of memory or when the HMAC failed.
 *
 * The headers are those of the destination; then, unless it has set them, Content-Type,
 * Idempotency-Key and traceparent; and webhook-id, webhook-timestamp and webhook-signature,
 * which a destination must not set.  The signature has one part for each secret, so that
 * receivers may change to a new one at any time.  If a header of the destination contains
 * ${credential}, the secret replaces that, and nothing is signed.
 *
 * Idempotency-Key is encoded as idempotency_key.h says.
 */
extern bool llmq_webhook_request(LlmqArena *arena, const LlmqWebhook *webhook, LlmqHmacSha256 hmac,
								 LlmqHttpRequest *request, const char **error);

/* A reader of the answer. */
typedef struct LlmqWebhookReply LlmqWebhookReply;

/*
 * Prepares to read an answer; all memory comes from arena.  The secret, which may be NULL, must
 * outlive the reply: it is hidden where the answer repeats it.  Returns NULL when out of
 * memory.
 */
extern LlmqWebhookReply *llmq_webhook_reply_create(LlmqArena *arena, const char *secret);

/* Returns the reply as the transfer layer knows it. */
extern LlmqSink *llmq_webhook_reply_sink(LlmqWebhookReply *reply);

/*
 * Judges the answer when the transfer has ended.  detail is what the transfer layer says about
 * the end.  now_us is the wall clock since the Unix epoch, for a Retry-After with a date.
 * Strings are in the reply's arena.
 *
 * After a 2xx the message is sent, whatever became of the body that follows.  After a 410 it is
 * dead, and the destination should be disabled.  Everything else is tried again, as Standard
 * Webhooks says, and after the receiver's Retry-After if a 4xx or 5xx has one.  That includes
 * 3xx, since redirects are not followed.
 */
extern void llmq_webhook_verdict(const LlmqWebhookReply *reply, LlmqTransferEnd end,
								 const char *detail, int64_t now_us, LlmqSendVerdict *verdict);

#endif /* LLMQ_WEBHOOK_H */
