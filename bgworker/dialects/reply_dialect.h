/*
 * reply_dialect.h
 *		A dialect as the driver of replies sees it: how to read a JSON value.
 */
#ifndef LLMQ_REPLY_DIALECT_H
#define LLMQ_REPLY_DIALECT_H

#include "dialects/reply_answer.h"

typedef struct LlmqReplyDialect
{
	bool json_lines; /* a stream is lines of JSON, not server-sent events */
	const LlmqReasonName *reasons;

	/*
	 * Reads an object, a whole document or a frame, into the answer.  False: it
	 * has not the dialect's shape.  Errors are not its business.
	 */
	bool (*read)(LlmqAnswer *answer, LlmqSlice root, bool frame);
} LlmqReplyDialect;

extern const LlmqReplyDialect llmq_reply_openai_chat;
extern const LlmqReplyDialect llmq_reply_openai_responses;
extern const LlmqReplyDialect llmq_reply_anthropic;
extern const LlmqReplyDialect llmq_reply_gemini;
extern const LlmqReplyDialect llmq_reply_ollama;
extern const LlmqReplyDialect llmq_reply_embeddings;

/* Reads usage as Chat Completions and Embeddings give it (reply_openai_chat.c). */
extern void llmq_reply_read_usage(LlmqAnswer *answer, LlmqSlice usage);

#endif /* LLMQ_REPLY_DIALECT_H */
