/*
 * sink.h
 *		Where the bytes of an HTTP answer go, and how a transfer can end.
 *
 * The transfer layer feeds a sink with status, headers and decoded body bytes as they arrive,
 * in portions of any size, and then says once how the transfer ended.  A reader of answers
 * embeds an LlmqSink: reply.h reads the answer of a model, webhook.h whether a receiver
 * accepted a message.
 */
#ifndef LLMQ_SINK_H
#define LLMQ_SINK_H

#include <stdbool.h>
#include <stddef.h>

/* How a transfer ended, as the transfer layer saw it. */
typedef enum LlmqTransferEnd
{
	LLMQ_END_COMPLETE,	   /* a whole response, or FIN where that is its end */
	LLMQ_END_SHORT,		   /* FIN after a status line, before the announced end */
	LLMQ_END_NO_RESPONSE,  /* request sent, connection closed without a status line */
	LLMQ_END_RESET,		   /* RST or another network error after a byte was sent */
	LLMQ_END_NOT_SENT,	   /* no byte of the request was sent: refused, DNS, TLS, connect timeout */
	LLMQ_END_TIMEOUT,	   /* one of our time limits was reached after a byte was sent */
	LLMQ_END_BAD_ENCODING, /* Content-Encoding unknown or broken */
	LLMQ_END_HEADERS_LARGE, /* headers over libcurl's limit */
	LLMQ_END_STOPPED,		/* the sink itself ended it (DONE or TOO_LARGE) */
	LLMQ_END_INTERRUPTED	/* ended by a cancel or a drain; to be tried again */
} LlmqTransferEnd;

/* What a sink returns for body bytes. */
typedef enum LlmqFeed
{
	LLMQ_FEED_MORE,		/* go on */
	LLMQ_FEED_DONE,		/* the answer is whole: end the transfer */
	LLMQ_FEED_TOO_LARGE /* over the cap: end the transfer */
} LlmqFeed;

typedef struct LlmqSink LlmqSink;

struct LlmqSink
{
	/* A status line was read.  An interim (1xx) answer is replaced by the next one. */
	void (*status)(LlmqSink *sink, int status);

	/* A header was read: name and value as sent, each with its length and not NUL-terminated. */
	void (*header)(LlmqSink *sink, const char *name, size_t name_len, const char *value,
				   size_t value_len);

	/* Body bytes were read, decoded from any Content-Encoding. */
	LlmqFeed (*body)(LlmqSink *sink, const char *bytes, size_t len);
};

#endif /* LLMQ_SINK_H */
