/*
 * reply.h
 *		Reads one HTTP answer of a provider and judges the attempt.
 *
 * Pure: it is given bytes and times, does no I/O and reads no clock.  The transfer layer feeds
 * status, headers and decoded body bytes as they arrive, in portions of any size, and then
 * says once how the transfer ended.  The reply then gives a verdict by the rules in
 * test/cases/README.md.
 *
 * A streamed answer is split into frames while it arrives, so that the reply can say when it
 * needs nothing more (LLMQ_FEED_DONE: it has read the terminal marker and what may follow it,
 * such as usage).
 */
#ifndef LLMQ_REPLY_H
#define LLMQ_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "dialects/outcome.h"
#include "dialects/reply_options.h"
#include "wire/sink.h"

/* An error text is stored up to this many bytes; no character is cut. */
#define LLMQ_ERROR_MESSAGE_MAX 1000

/*
 * The verdict on one attempt.  Strings are NUL-terminated UTF-8 that PostgreSQL accepts as text
 * (JSON fields: as jsonb).  They live in the reply's arena, and are NULL where the field does
 * not apply.
 */
typedef struct LlmqVerdict
{
	LlmqOutcome outcome;
	LlmqErrorClass error_class;
	LlmqBilling billing;
	int http_status;		/* 0: no status line was read */
	int64_t retry_after_us; /* the provider's retry hint; -1 if none, and always -1 unless RETRY */
	int64_t exhausted_us;	/* how long nothing is left, by the limit headers; -1: unknown */
	int64_t left_calls;		/* such calls left, by the limit headers, -1: unknown... */
	int64_t left_for_us;	/* ...and how long until the full limit is available again */
	const char *text;		/* the answer, or for truncated the partial answer; never "" */
	const char *json;		/* with require_json: the text as JSON source */
	const char *tool_calls; /* JSON array in OpenAI form:
							   [{"id","type":"function","function":{"name","arguments"}}] */
	const char *embedding;	/* float4[] literal, 1-D or (embedding_array) 2-D */
	const char *finish_reason; /* stop, length, content_filter, refusal, tool_calls */
	const char *model;
	const char *error_message; /* for people to read: what the provider said, or what went wrong */
	const char *request_id;	   /* x-request-id, request-id, or the like */
	const char *response; /* the provider's bytes as JSON that jsonb accepts (success, truncated) */
	int64_t input_tokens; /* -1: not reported; the same holds below */
	int64_t output_tokens;
	int64_t cached_tokens;
	size_t bytes_in; /* decoded body bytes read */
} LlmqVerdict;

typedef struct LlmqReply LlmqReply;

/* Prepares to read an answer; all memory comes from arena.  Returns NULL when out of memory. */
extern LlmqReply *llmq_reply_create(LlmqArena *arena, const LlmqReplyOptions *options);

/* Frees what the reply holds outside the arena (buffers); verdict strings stay valid. */
extern void llmq_reply_destroy(LlmqReply *reply);

/* Returns the reply as the transfer layer knows it. */
extern LlmqSink *llmq_reply_sink(LlmqReply *reply);

/* Takes a status line.  An interim (1xx) answer is replaced by the next one. */
extern void llmq_reply_status(LlmqReply *reply, int status);

/* Takes a header: name and value as sent, each with its length and not NUL-terminated. */
extern void llmq_reply_header(LlmqReply *reply, const char *name, size_t name_len,
							  const char *value, size_t value_len);

/* Takes bytes of the body, decoded from any Content-Encoding. */
extern LlmqFeed llmq_reply_body(LlmqReply *reply, const char *bytes, size_t len);

/*
 * Ends the transfer and gives the verdict.  now_us is the wall clock in microseconds since the
 * Unix epoch, used for an HTTP-date when the answer has no Date.  detail is what the transfer
 * layer says about the end (for error_message), or NULL.  The verdict is always complete, also
 * when out of memory (class internal).
 */
extern void llmq_reply_finish(LlmqReply *reply, LlmqTransferEnd end, const char *detail,
							  int64_t now_us, LlmqVerdict *verdict);

#endif /* LLMQ_REPLY_H */
