/*
 * provider_responses.h
 *		The two halves of the dialect for OpenAI's Responses: conversation and params.
 */
#ifndef LLMQ_PROVIDER_RESPONSES_H
#define LLMQ_PROVIDER_RESPONSES_H

#include "dialects/provider_message.h"

/* Writes the params that have another name or form in Responses. */
extern bool llmq_responses_write_params(LlmqDraft *draft);

#endif /* LLMQ_PROVIDER_RESPONSES_H */
