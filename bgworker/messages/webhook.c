/*
 * webhook.c
 *		Writes an outbox message as a signed HTTP request.
 *
 * The signature covers "id.timestamp.body".  That text is built once, and the body that is sent
 * is the end of it, so the receiver checks exactly what was signed.
 *
 * Each message uses a connection of its own.  If a receiver answers twice, by mistake or on
 * purpose, the second answer would otherwise be taken for that to the next message, which
 * would then be lost.  The second answer can come so soon after the first that nobody notices
 * it in time.
 */
#include "messages/webhook.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/buffer.h"
#include "base/idempotency_key.h"

#define SECRET_PREFIX "whsec_"

/* Bytes in a secret.  The standard says 24 to 64, but the secret of its own example has 18. */
#define SECRET_MIN_BYTES 16
#define SECRET_MAX_BYTES 64

#define MAC_BYTES 32

/* Content-Type, Idempotency-Key, traceparent, and the three of the standard. */
#define OWN_HEADERS_MAX 6

/* A part of the signature: "v1,", the code, a space. */
#define SIGNATURE_MAX_BYTES (3 + LLMQ_BASE64_ENCODED(MAC_BYTES) + 1)

#define WHITE_SPACE " \t\r\n"

static const char *const standard_headers[] = {"webhook-id", "webhook-timestamp",
											   "webhook-signature"};

static bool write_request(LlmqHttpWriter *writer, const LlmqWebhook *webhook, LlmqHmacSha256 hmac);
static bool check_id(LlmqHttpWriter *writer, const char *id);
static bool open_headers(LlmqHttpWriter *writer, const LlmqWebhook *webhook);
static bool add_signature(LlmqHttpWriter *writer, LlmqHmacSha256 hmac, const char *signed_text,
						  size_t signed_len);
static bool append_mac(LlmqHttpWriter *writer, LlmqHmacSha256 hmac, const char *secret, size_t len,
					   const char *signed_text, size_t signed_len, LlmqBuffer *out);

bool
llmq_webhook_request(LlmqArena *arena, const LlmqWebhook *webhook, LlmqHmacSha256 hmac,
					 LlmqHttpRequest *request, const char **error)
{
	LlmqHttpWriter writer = {
		.arena = arena, .request = request, .row = "destination", .secret = webhook->secret};
	bool written;

	memset(request, 0, sizeof(*request));
	written = write_request(&writer, webhook, hmac);
	*error = writer.error;
	return written;
}

static bool
write_request(LlmqHttpWriter *writer, const LlmqWebhook *webhook, LlmqHmacSha256 hmac)
{
	LlmqHttpRequest *request = writer->request;
	const char *timestamp = llmq_arena_printf(writer->arena, "%" PRId64, webhook->timestamp_s);
	const char *key = NULL;
	char *text;
	size_t head;

	if (!llmq_http_check_url(writer, webhook->url) || !check_id(writer, webhook->id) ||
		!open_headers(writer, webhook))
		return false;
	if (webhook->idempotency_key != NULL)
		key = llmq_idempotency_key_encode(writer->arena, webhook->idempotency_key);
	if (timestamp == NULL || (key == NULL && webhook->idempotency_key != NULL))
		return false;
	head = strlen(webhook->id) + strlen(timestamp) + 2;
	text = llmq_arena_alloc(writer->arena, head + webhook->body_len + 1);
	if (text == NULL)
		return false;
	memcpy(text, webhook->id, strlen(webhook->id));
	text[strlen(webhook->id)] = '.';
	memcpy(text + strlen(webhook->id) + 1, timestamp, strlen(timestamp));
	text[head - 1] = '.';
	memcpy(text + head, webhook->body, webhook->body_len);
	request->url = webhook->url;
	request->body = text + head;
	request->body_len = webhook->body_len;
	request->own_connection = true;
	return llmq_http_add_header(writer, "Content-Type", "", "application/json") &&
		   (key == NULL || llmq_http_add_header(writer, "Idempotency-Key", "", key)) &&
		   (webhook->traceparent == NULL ||
			llmq_http_add_header(writer, "traceparent", "", webhook->traceparent)) &&
		   llmq_http_add_header(writer, "webhook-id", "", webhook->id) &&
		   llmq_http_add_header(writer, "webhook-timestamp", "", timestamp) &&
		   add_signature(writer, hmac, text, head + webhook->body_len);
}

/* Checks the id.  A dot would make the signed text ambiguous. */
static bool
check_id(LlmqHttpWriter *writer, const char *id)
{
	for (const char *c = id; *c != '\0'; c++)
		if (*c <= ' ' || *c > '~' || *c == '.')
			return llmq_http_fail(writer,
								  "The message's id contains a character that is not allowed.");
	return id[0] != '\0' || llmq_http_fail(writer, "The message has no id.");
}

static bool
open_headers(LlmqHttpWriter *writer, const LlmqWebhook *webhook)
{
	if (!llmq_http_open_headers(writer, webhook->headers, OWN_HEADERS_MAX))
		return false;
	for (size_t i = 0; i < sizeof(standard_headers) / sizeof(standard_headers[0]); i++)
		if (llmq_http_has_header(writer->request, standard_headers[i]))
			return llmq_http_fail(writer, "The destination must not set the header %s.",
								  standard_headers[i]);
	return true;
}

/* Adds a signature with each of the secrets. */
static bool
add_signature(LlmqHttpWriter *writer, LlmqHmacSha256 hmac, const char *signed_text,
			  size_t signed_len)
{
	const char *secret = writer->secret;
	LlmqBuffer signature;
	bool added = true;

	if (secret == NULL || writer->secret_placed)
		return true;
	llmq_buffer_init(&signature, LLMQ_WEBHOOK_SECRETS_MAX * SIGNATURE_MAX_BYTES);
	secret += strspn(secret, WHITE_SPACE);
	if (*secret == '\0')
		added = llmq_http_fail(writer, "The destination's secret is empty.");
	while (added && *secret != '\0')
	{
		size_t len = strcspn(secret, WHITE_SPACE);

		added = append_mac(writer, hmac, secret, len, signed_text, signed_len, &signature);
		secret += len;
		secret += strspn(secret, WHITE_SPACE);
	}
	if (added && signature.failed)
		added = llmq_http_fail(writer, "The destination has more than %d secrets at a time.",
							   LLMQ_WEBHOOK_SECRETS_MAX);
	added = added &&
			llmq_http_add_header(writer, "webhook-signature", "", llmq_buffer_string(&signature));
	llmq_buffer_free(&signature);
	return added;
}

/* Appends the part of the signature that uses one secret, which is len bytes long. */
static bool
append_mac(LlmqHttpWriter *writer, LlmqHmacSha256 hmac, const char *secret, size_t len,
		   const char *signed_text, size_t signed_len, LlmqBuffer *out)
{
	unsigned char key[LLMQ_BASE64_DECODED(LLMQ_BASE64_ENCODED(SECRET_MAX_BYTES))];
	unsigned char mac[MAC_BYTES];
	char code[LLMQ_BASE64_ENCODED(MAC_BYTES)];
	size_t key_len = 0;

	if (len >= strlen(SECRET_PREFIX) && memcmp(secret, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0)
	{
		secret += strlen(SECRET_PREFIX);
		len -= strlen(SECRET_PREFIX);
	}
	if (len > LLMQ_BASE64_ENCODED(SECRET_MAX_BYTES) ||
		!llmq_base64_decode(key, &key_len, secret, len) || key_len < SECRET_MIN_BYTES ||
		key_len > SECRET_MAX_BYTES)
		return llmq_http_fail(writer,
							  "The destination's secret must be whsec_ and %d to %d bytes in "
							  "base64.",
							  SECRET_MIN_BYTES, SECRET_MAX_BYTES);
	if (!hmac(key, key_len, signed_text, signed_len, mac))
		return false;
	llmq_base64_encode(code, mac, sizeof(mac));
	llmq_buffer_append_string(out, out->len > 0 ? " v1," : "v1,");
	llmq_buffer_append(out, code, sizeof(code));
	return true;
}
