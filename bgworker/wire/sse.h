/*
 * sse.h
 *		Splits a streamed body into frames while it arrives, in any portions.
 *
 * Two forms: server-sent events (a frame is the data of one event; comments and
 * the other fields say nothing that a dialect needs), and lines of JSON.  Lines
 * end in LF, CR or CR LF.  https://html.spec.whatwg.org/#parsing-an-event-stream
 */
#ifndef LLMQ_SSE_H
#define LLMQ_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/*
 * Takes a frame: len bytes at data, NUL-ended, which it may change, valid during
 * the call.  A frame that the end of the body cut short is not whole.  Returns
 * false to read no more.
 */
typedef bool (*LlmqFrameTaker)(void *user, char *data, size_t len, bool whole);

typedef struct LlmqSse
{
	LlmqBuffer line; /* an unfinished line */
	LlmqBuffer data; /* data lines of an unfinished event, each with its LF */
	bool json_lines; /* a line is a frame */
	bool after_cr;	 /* an LF now belongs to the CR before it */
	LlmqFrameTaker take;
	void *user;
} LlmqSse;

/* Prepares a splitter; no line or frame will be longer than max bytes. */
extern void
llmq_sse_init(LlmqSse *sse, bool json_lines, size_t max, LlmqFrameTaker take, void *user);

/* Frees what the splitter holds. */
extern void llmq_sse_free(LlmqSse *sse);

/*
 * Splits the next bytes.  Returns false when the taker wants no more, or when
 * memory is out (then llmq_sse_failed).
 */
extern bool llmq_sse_feed(LlmqSse *sse, const char *bytes, size_t len);

/* The body has ended: hands out what is left, as not whole. */
extern void llmq_sse_end(LlmqSse *sse);

/* Tells whether a line or a frame was too long or found no memory. */
extern bool llmq_sse_failed(const LlmqSse *sse);

#endif /* LLMQ_SSE_H */
