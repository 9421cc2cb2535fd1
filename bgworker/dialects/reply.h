/*
 * reply.h
 *		Reads one HTTP answer of a provider and says what came of the attempt.
 *
 * Pure: it is given bytes and times, it does no I/O and looks at no clock.  The
 * transfer layer feeds status, headers and decoded body bytes as they arrive
 * (in any portions), then says once how the transfer ended.  The reply then
 * gives a verdict by the rules in test/cases/README.md.
 *
 * A streamed answer is split into frames while it arrives, so that the reply
 * can tell when nothing more is wanted (LLMQ_FEED_DONE: the terminal marker and
 * what may follow it, such as usage, have been read).
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

/* An error text is stored up to this many bytes, cut at a character. */
#define LLMQ_ERROR_MESSAGE_MAX 1000

/*
 * What one attempt came to.  Strings are NUL-ended UTF-8 that PostgreSQL takes
 * as text (JSON fields: as jsonb), live in the reply's arena, and are NULL
 * where the field does not apply.
 */
typedef struct LlmqVerdict
{
	LlmqOutcome outcome;
	LlmqErrorClass error_class;
	LlmqBilling billing;
	int http_status;		/* 0: no status line was read */
	int64_t retry_after_us; /* the provider's retry hint, -1: none (always -1 unless RETRY) */
	int64_t
		exhausted_us; /* by the limit headers nothing is left for so long, -1: they do not say so */
	int64_t
		left_calls; /* by the limit headers so many such calls are left, -1: they do not say... */
	int64_t left_for_us;	   /* ...until the limits are whole again */
	const char *text;		   /* the answer; for truncated the partial answer; never "" */
	const char *json;		   /* with require_json: the text as JSON source */
	const char *tool_calls;	   /* JSON array in OpenAI form:
								  [{"id","type":"function","function":{"name","arguments"}}] */
	const char *embedding;	   /* float4[] literal, 1-D or (embedding_array) 2-D */
	const char *finish_reason; /* stop, length, content_filter, refusal, tool_calls */
	const char *model;
	const char *error_message; /* for people: what the provider said, or what went wrong */
	const char *request_id;	   /* x-request-id, request-id, or the like */
	const char
		*response; /* the provider's bytes as JSON source that jsonb accepts (success, truncated) */
	int64_t input_tokens; /* -1: not reported, likewise below */
	int64_t output_tokens;
	int64_t cached_tokens;
	size_t bytes_in; /* decoded body bytes read */
} LlmqVerdict;

typedef struct LlmqReply LlmqReply;

/* Starts to read an answer; all memory comes from arena.  NULL when memory is out. */
extern LlmqReply *llmq_reply_create(LlmqArena *arena, const LlmqReplyOptions *options);

/* Frees what the reply holds outside the arena (buffers); verdict strings stay valid. */
extern void llmq_reply_destroy(LlmqReply *reply);

/* The reply as the transfer layer knows it. */
extern LlmqSink *llmq_reply_sink(LlmqReply *reply);

/* A status line was read.  Interim (1xx) answers are forgotten when the next one comes. */
extern void llmq_reply_status(LlmqReply *reply, int status);

/* A header was read: name and value as sent, len bytes each, not NUL-ended. */
extern void llmq_reply_header(LlmqReply *reply, const char *name, size_t name_len,
							  const char *value, size_t value_len);

/* Body bytes were read, decoded from any Content-Encoding. */
extern LlmqFeed llmq_reply_body(LlmqReply *reply, const char *bytes, size_t len);

/*
 * The transfer has ended.  now_us is the wall clock in microseconds since the
 * Unix epoch, used for an HTTP-date when the answer has no Date.  detail is what
 * the transfer layer says of the end (for error_message), or NULL.  The verdict
 * is filled in completely, also when memory ran out (class internal).
 */
extern void llmq_reply_finish(LlmqReply *reply, LlmqTransferEnd end, const char *detail,
							  int64_t now_us, LlmqVerdict *verdict);

#endif /* LLMQ_REPLY_H */
