/*
 * webhook_test.c
 *		What a webhook's request looks like, and what is made of its answer.
 *
 * The signatures were made with the standard's own library (npm standardwebhooks
 * 1.1.1); the first one is the example in its specification.
 */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include "base/base64.h"
#include "messages/webhook.h"
#include "tap.h"

#define ARENA_BYTES (1 << 20)

#define SECRET	  "whsec_plJ3nmyCDGBKInavdOK15jsl"
#define BODY	  "{\"event_type\":\"ping\",\"data\":{\"success\":true}}"
#define SIGNATURE "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="

/* Of 2026-01-01 00:00:00 UTC. */
#define NOW_US (INT64_C(1767225600) * 1000000)

static LlmqArena *arena;
static LlmqHttpRequest request;
static const char *error;

static const LlmqWebhook plain = {.url = "https://example.test/hook",
								  .secret = SECRET,
								  .id = "msg_loFOjxBNrRLzqYUf",
								  .idempotency_key = "order-1",
								  .timestamp_s = 1731705121,
								  .body = BODY,
								  .body_len = sizeof(BODY) - 1};

static bool
hmac(const void *key, size_t key_len, const void *data, size_t data_len, unsigned char mac[32])
{
	return HMAC(EVP_sha256(), key, (int) key_len, data, data_len, mac, NULL) != NULL;
}

static bool
no_hmac(const void *key, size_t key_len, const void *data, size_t data_len, unsigned char mac[32])
{
	return false;
}

static bool
ask(LlmqWebhook webhook)
{
	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
	return llmq_webhook_request(arena, &webhook, hmac, &request, &error);
}

/* The value of a header of the request, NULL: there is none. */
static const char *
header(const char *name)
{
	size_t len = strlen(name);

	for (int i = 0; i < request.header_count; i++)
		if (strncmp(request.headers[i], name, len) == 0 &&
			strncmp(request.headers[i] + len, ": ", 2) == 0)
			return request.headers[i] + len + 2;
	return NULL;
}

/* -- The request ------------------------------------------------------------------- */

static void
test_headers(void)
{
	ok(ask(plain), "a webhook is written");
	is_string(request.url, "https://example.test/hook", "it goes to the url as it stands");
	ok(request.body_len == sizeof(BODY) - 1 && memcmp(request.body, BODY, request.body_len) == 0,
	   "its body is the one that was given");
	is_string(header("Content-Type"), "application/json", "it is JSON");
	is_string(header("webhook-id"), "msg_loFOjxBNrRLzqYUf", "it has the message's id");
	is_string(header("webhook-timestamp"), "1731705121", "it has the attempt's time in seconds");
	is_string(header("Idempotency-Key"), "order-1", "it has the deduplication key");
	is_int(request.header_count, 5, "there is nothing else");
	ok(request.own_connection,
	   "no other has its connection, where an answer too many would be taken for the next one's");
}

static void
test_signatures(void)
{
	LlmqWebhook webhook = plain;

	ask(plain);
	is_string(header("webhook-signature"), SIGNATURE, "the signature is that of the specification");
	webhook.secret = SECRET + 6;
	ask(webhook);
	is_string(header("webhook-signature"), SIGNATURE, "a secret may come without its prefix");
	webhook.secret = " " SECRET "\n\twhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
	webhook.id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
	webhook.timestamp_s = 1614265330;
	webhook.body = "{\"test\": 2432232314}";
	webhook.body_len = strlen(webhook.body);
	ask(webhook);
	ok(header("webhook-signature") != NULL &&
		   strstr(header("webhook-signature"),
				  "= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=") != NULL,
	   "each of several secrets signs");
	webhook.secret =
		"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1"
		"Njc4OTo7PD0+Pw==";
	webhook.body = "{\"text\":\"Gr\xC3\xBC\xC3\x9F"
				   "e \xE2\x9C\x93\"}";
	webhook.body_len = strlen(webhook.body);
	ask(webhook);
	is_string(header("webhook-signature"), "v1,IFp4U2sFbB3c7uAOlBcr0pGKgbw2hPeMZrxJhpvAHb8=",
			  "the longest secret signs a body that is not ASCII");
	webhook.secret = NULL;
	ok(ask(webhook) && header("webhook-signature") == NULL, "without a secret nothing is signed");
	ok(header("webhook-id") != NULL, "... but the id is sent");
}

static void
test_secrets_refused(void)
{
	static const struct
	{
		const char *secret;
		const char *sentence;
	} refused[] = {
		{"hunter2-hunter2", "a secret that is no base64 is refused"},
		{"whsec_AAECAwQFBgcICQoLDA0O", "a secret of 15 bytes is refused"},
		{"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0"
		 "+P0A=",
		 "a secret of 65 bytes is refused"},
		{"whsk_plJ3nmyCDGBKInavdOK15jslplJ3nmyCDGBKInavdOK1", "an asymmetric key is refused"},
		{SECRET " whsec_", "a second secret without bytes is refused"},
	};
	LlmqWebhook webhook = plain;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
	{
		webhook.secret = refused[i].secret;
		ok(!ask(webhook) && error != NULL && strstr(error, "secret") != NULL, "%s",
		   refused[i].sentence);
		ok(error != NULL && strstr(error, "hunter2") == NULL && strstr(error, "plJ3") == NULL,
		   "... in words that do not show it");
	}
	webhook.secret = " \n";
	ok(!ask(webhook) && error != NULL, "a secret of white space is refused");
	webhook.secret = SECRET " " SECRET " " SECRET " " SECRET " " SECRET " " SECRET " " SECRET
							" " SECRET " " SECRET;
	ok(!ask(webhook) && error != NULL && strstr(error, "more than 8") != NULL,
	   "nine secrets are too many");
}

static void
test_user_headers(void)
{
	LlmqWebhook webhook = plain;

	webhook.headers = "{\"X-Team\":\"a\",\"content-type\":\"application/cloudevents+json\"}";
	ok(ask(webhook), "the destination may have headers of its own");
	is_string(header("X-Team"), "a", "... which are sent");
	ok(header("Content-Type") == NULL && header("content-type") != NULL,
	   "... in place of ours of that name");
	is_string(header("webhook-signature"), SIGNATURE, "... and the message is signed still");
	webhook.headers = "{\"Authorization\":\"Bearer ${credential}\"}";
	webhook.secret = "hunter2";
	ok(ask(webhook), "a secret may stand in a header");
	is_string(header("Authorization"), "Bearer hunter2", "... as it is");
	ok(header("webhook-signature") == NULL, "... and then nothing is signed");
	webhook.secret = "hunter2\nx";
	ok(!ask(webhook) && error != NULL && strstr(error, "control character") != NULL &&
		   strstr(error, "hunter2") == NULL,
	   "a secret with a line end may not stand in a header");
	webhook.secret = NULL;
	ok(!ask(webhook) && error != NULL, "a header cannot ask for a secret that is not there");
}

static void
test_refused(void)
{
	static const char *const headers[] = {"{\"webhook-id\":\"1\"}",
										  "{\"Webhook-Timestamp\":\"1\"}",
										  "{\"WEBHOOK-SIGNATURE\":\"1\"}",
										  "{\"Content-Length\":\"1\"}",
										  "{\"X-A\":\"a\\r\\nX-B: b\"}",
										  "{\"X A\":\"a\"}",
										  "{\"X-A\":1}",
										  "[]",
										  "{"};
	LlmqWebhook webhook = plain;

	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
	{
		webhook.headers = headers[i];
		ok(!ask(webhook) && error != NULL, "headers are refused: %zu", i);
	}
	webhook = plain;
	webhook.url = "ftp://example.test/";
	ok(!ask(webhook) && error != NULL && strstr(error, "destination's url") != NULL,
	   "another scheme is refused");
	webhook = plain;
	webhook.id = "msg.1";
	ok(!ask(webhook) && error != NULL, "an id with a dot is refused");
	ok(!llmq_webhook_request(arena, &plain, no_hmac, &request, &error) && error == NULL,
	   "without an HMAC there is no request, and no sentence: it may be tried again");
}

static void
test_idempotency_keys(void)
{
	static const struct
	{
		const char *key;
		const char *sent;
	} keys[] = {
		{"order-1:a b/(c)", "order-1:a b/(c)"},
		{"100%", "100%"},
		{"a%0a", "a%250a"},
		{"a%%41%", "a%%2541%"},
		{"a\nb\r", "a%0Ab%0D"},
		{" a ", "%20a%20"},
		{"\xC3\xA9", "%C3%A9"},
		{"\x7F", "%7F"},
	};
	LlmqWebhook webhook = plain;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
	{
		webhook.idempotency_key = keys[i].key;
		ask(webhook);
		is_string(header("Idempotency-Key"), keys[i].sent, "a key is sent encoded");
	}
	webhook.idempotency_key = NULL;
	ok(ask(webhook) && header("Idempotency-Key") == NULL, "a key need not be sent");
}

static void
test_memory(void)
{
	LlmqWebhook webhook = plain;
	bool written = false;
	bool silent = true;
	size_t room;

	webhook.headers = "{\"X-A\":\"\\u0062\"}";
	webhook.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
	for (room = 0; room < 10000 && !written; room += 4)
	{
		LlmqArena *small = llmq_arena_create(room);

		written = llmq_webhook_request(small, &webhook, hmac, &request, &error);
		silent = silent && error == NULL;
		llmq_arena_destroy(small);
	}
	ok(written && silent && room > 100,
	   "with too little memory there is no request, and no sentence, however little it is");
}

/* -- The answer -------------------------------------------------------------------- */

static LlmqSendVerdict verdict;

/* Judges an answer; headers and body may be NULL. */
static void
judge(int status, const char *name, const char *value, const char *body, LlmqTransferEnd end)
{
	LlmqWebhookReply *reply;
	LlmqSink *sink;

	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
	reply = llmq_webhook_reply_create(arena, "hunter2");
	sink = llmq_webhook_reply_sink(reply);
	if (status > 0)
		sink->status(sink, status);
	if (name != NULL)
		sink->header(sink, name, strlen(name), value, strlen(value));
	if (body != NULL)
		sink->body(sink, body, strlen(body));
	llmq_webhook_verdict(reply, end, "the detail", NOW_US, &verdict);
}

static void
test_verdicts(void)
{
	judge(204, NULL, NULL, NULL, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_SENT && verdict.message == NULL && verdict.code == 204,
	   "a 2xx is sent");
	judge(200, NULL, NULL, "o", LLMQ_END_RESET);
	is_int(verdict.outcome, LLMQ_SEND_SENT, "a 2xx is sent whatever became of its body");
	judge(410, "Retry-After", "9", "bye", LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_DEAD && verdict.disable, "a 410 is dead, and disables");
	is_string(verdict.message, "The receiver answered 410, gone: bye", "... and says so");
	is_int(verdict.retry_after_us, -1, "... and has no wish");
	judge(302, "Retry-After", "9", NULL, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_RETRY && !verdict.disable, "a redirect is tried again");
	is_string(verdict.message,
			  "The receiver answered 302, a redirect, and redirects are not followed",
			  "... and said not to be followed");
	judge(400, NULL, NULL, "no", LLMQ_END_COMPLETE);
	is_int(verdict.outcome, LLMQ_SEND_RETRY, "a 4xx is tried again");
	is_string(verdict.message, "The receiver answered 400: no", "... with the body's words");
	judge(0, NULL, NULL, NULL, LLMQ_END_NOT_SENT);
	is_int(verdict.outcome, LLMQ_SEND_RETRY, "what could not be sent is tried again");
	is_string(verdict.message, "The message could not be sent: the detail", "... with the detail");
	judge(0, NULL, NULL, NULL, LLMQ_END_TIMEOUT);
	is_string(verdict.message, "The receiver did not answer in time: the detail",
			  "so is what was not answered in time");
	judge(0, NULL, NULL, NULL, LLMQ_END_INTERRUPTED);
	is_string(verdict.message, "The delivery was interrupted: the detail",
			  "what we broke off ourselves is said to be so");
	judge(103, NULL, NULL, NULL, LLMQ_END_NO_RESPONSE);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.code == 0, "an interim answer is none");
}

static void
test_wishes(void)
{
	judge(503, "retry-after", "120", NULL, LLMQ_END_COMPLETE);
	is_int(verdict.retry_after_us, INT64_C(120000000), "Retry-After is heeded");
	judge(429, "Retry-After", "Thu, 01 Jan 2026 00:01:00 GMT", NULL, LLMQ_END_COMPLETE);
	is_int(verdict.retry_after_us, INT64_C(60000000), "... as a date too");
	judge(500, "Retry-After", "soon", NULL, LLMQ_END_COMPLETE);
	is_int(verdict.retry_after_us, -1, "... unless it cannot be read");
}

/* What an interim answer says, and what comes behind the body, is no header of the answer. */
static void
test_other_headers(void)
{
	LlmqWebhookReply *reply = llmq_webhook_reply_create(arena, NULL);
	LlmqSink *sink = llmq_webhook_reply_sink(reply);

	sink->status(sink, 103);
	sink->header(sink, "Retry-After", 11, "9", 1);
	sink->status(sink, 503);
	llmq_webhook_verdict(reply, LLMQ_END_COMPLETE, NULL, NOW_US, &verdict);
	is_int(verdict.retry_after_us, -1, "the Retry-After of an interim answer is forgotten");
	sink->body(sink, "busy", 4);
	sink->header(sink, "Retry-After", 11, "9", 1);
	llmq_webhook_verdict(reply, LLMQ_END_COMPLETE, NULL, NOW_US, &verdict);
	is_int(verdict.retry_after_us, -1, "one in a trailer is passed over");
}

static void
test_words(void)
{
	char longer[2000];

	judge(500, NULL, NULL, "key hunter2 \xFF\x01", LLMQ_END_COMPLETE);
	is_string(verdict.message, "The receiver answered 500: key *** \xEF\xBF\xBD\x01",
			  "the body's words are UTF-8 without the secret");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	judge(500, NULL, NULL, longer, LLMQ_END_COMPLETE);
	ok(verdict.message != NULL && strlen(verdict.message) < 560, "... and not too many");
}

static void
test_long_body(void)
{
	static char bytes[32 * 1024];
	LlmqWebhookReply *reply = llmq_webhook_reply_create(arena, NULL);
	LlmqSink *sink = llmq_webhook_reply_sink(reply);

	sink->status(sink, 200);
	is_int(sink->body(sink, bytes, sizeof(bytes)), LLMQ_FEED_MORE, "a body is read to its end");
	sink->body(sink, bytes, sizeof(bytes));
	is_int(sink->body(sink, bytes, 1), LLMQ_FEED_DONE, "... but not beyond 64 kB");
}

static void
test_base64(void)
{
	unsigned char out[16];
	char text[16];
	size_t len;

	llmq_base64_encode(text, "a\xFF", 2);
	ok(memcmp(text, "Yf8=", 4) == 0, "base64 pads");
	ok(llmq_base64_decode(out, &len, "Yf8", 3) && len == 2 && out[1] == 0xFF,
	   "base64 without padding is read");
	ok(llmq_base64_decode(out, &len, "", 0) && len == 0, "nothing is the base64 of nothing");
	ok(!llmq_base64_decode(out, &len, "Yf9=", 4), "bits that stand for no byte are refused");
	ok(!llmq_base64_decode(out, &len, "Y", 1), "a length that cannot be is refused");
	ok(!llmq_base64_decode(out, &len, "Y===", 4), "so is padding of three");
	ok(!llmq_base64_decode(out, &len, "Yf8-", 4), "so is another alphabet");
}

int
main(void)
{
	test_headers();
	test_signatures();
	test_secrets_refused();
	test_user_headers();
	test_refused();
	test_idempotency_keys();
	test_memory();
	test_verdicts();
	test_wishes();
	test_other_headers();
	test_words();
	test_long_body();
	test_base64();
	llmq_arena_destroy(arena);
	return tap_done();
}
