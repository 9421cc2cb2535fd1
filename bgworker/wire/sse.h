/*
 * sse.h
 *		Splits a streamed body into frames while it arrives, in portions of any size.
 *
 * There are two forms: server-sent events (a frame is the data of one event; no dialect needs
 * comments and other fields), and lines of JSON.  Lines end in LF, CR or CR LF.  libcurl has no
 * parser for either.  https://html.spec.whatwg.org/#parsing-an-event-stream
 */
#ifndef LLMQ_SSE_H
#define LLMQ_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/*
 * Takes a frame: len bytes at data, NUL-terminated, which it may change and which are valid
 * during the call.  `whole` is false for a frame that the end of the body cut short.  Returns
 * false to stop reading.
 */
typedef bool (*LlmqFrameTaker)(void *user, char *data, size_t len, bool whole);

typedef struct LlmqSse
{
	LlmqBuffer line; /* an unfinished line */
	LlmqBuffer data; /* data lines of an unfinished event, each with its LF */
	bool json_lines; /* a line is a frame */
	bool after_cr;	 /* if an LF comes next, it belongs to this CR */
	LlmqFrameTaker take;
	void *user;
} LlmqSse;

/* Prepares a splitter; no line or frame will be longer than max bytes. */
extern void
llmq_sse_init(LlmqSse *sse, bool json_lines, size_t max, LlmqFrameTaker take, void *user);

/* Frees what the splitter holds. */
extern void llmq_sse_free(LlmqSse *sse);

/*
 * Splits the next bytes.  Returns false when the taker stops, or when out of memory (then
 * llmq_sse_failed is true).
 */
extern bool llmq_sse_feed(LlmqSse *sse, const char *bytes, size_t len);

/* Ends the body: hands out what is left, as not whole. */
extern void llmq_sse_end(LlmqSse *sse);

/* Returns whether a line or a frame was too long or found no memory. */
extern bool llmq_sse_failed(const LlmqSse *sse);

#endif /* LLMQ_SSE_H */
