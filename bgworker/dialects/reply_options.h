/*
 * reply_options.h
 *		What the reader of an answer must know about its request.
 */
#ifndef LLMQ_REPLY_OPTIONS_H
#define LLMQ_REPLY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "dialects/outcome.h"

/* What was asked; strings must outlive the reply. */
typedef struct LlmqReplyOptions
{
	LlmqApi api;
	bool stream;			  /* a stream was asked for */
	size_t max_bytes;		  /* cap on decoded body bytes */
	int embedding_inputs;	  /* openai_embeddings: how many inputs were sent */
	bool embedding_array;	  /* openai_embeddings: params.input was an array (result is 2-D) */
	int embedding_dimensions; /* openai_embeddings: what was asked for; 0: nothing */
	bool accept_truncated;	  /* a truncated answer is a success */
	bool require_json;		  /* a text that is not JSON is an invalid_response */
	const char *secret;		  /* that was sent, or NULL; hidden where an error repeats it */
} LlmqReplyOptions;

#endif /* LLMQ_REPLY_OPTIONS_H */
