/*
 * reply_dialect.h
 *		A dialect as the driver of replies sees it: how it reads a JSON value.
 */
#ifndef LLMQ_REPLY_DIALECT_H
#define LLMQ_REPLY_DIALECT_H

#include "dialects/reply_answer.h"

typedef struct LlmqReplyDialect
{
	bool json_lines; /* a stream is lines of JSON, not server-sent events */
	const LlmqReasonName *reasons;

	/*
	 * Reads an object, which is a whole document or a frame, into the answer.  Returns false if
	 * it does not have the dialect's shape.  Errors of the provider are found elsewhere.
	 */
	bool (*read)(LlmqAnswer *answer, LlmqSlice root, bool frame);
} LlmqReplyDialect;

extern const LlmqReplyDialect llmq_reply_openai_chat;
extern const LlmqReplyDialect llmq_reply_openai_responses;
extern const LlmqReplyDialect llmq_reply_anthropic;
extern const LlmqReplyDialect llmq_reply_gemini;
extern const LlmqReplyDialect llmq_reply_ollama;
extern const LlmqReplyDialect llmq_reply_embeddings;

/* Reads usage in the form of Chat Completions and Embeddings (reply_openai_chat.c). */
extern void llmq_reply_read_usage(LlmqAnswer *answer, LlmqSlice usage);

#endif /* LLMQ_REPLY_DIALECT_H */
