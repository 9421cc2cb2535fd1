/*
 * provider_anthropic.h
 *		The two halves of Anthropic's dialect: conversation and params.
 */
#ifndef LLMQ_PROVIDER_ANTHROPIC_H
#define LLMQ_PROVIDER_ANTHROPIC_H

#include "dialects/provider_message.h"

/*
 * The limit for a job that sets none: unlike OpenAI, Anthropic requires one in every request.
 * All its models accept this one.
 */
#define LLMQ_ANTHROPIC_MAX_TOKENS 4096

/* Writes the params that have another name or form in Anthropic's API. */
extern bool llmq_anthropic_write_params(LlmqDraft *draft);

#endif /* LLMQ_PROVIDER_ANTHROPIC_H */
