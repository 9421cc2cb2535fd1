/*
 * provider_anthropic.h
 *		The two halves of Anthropic's dialect: conversation and params.
 */
#ifndef LLMQ_PROVIDER_ANTHROPIC_H
#define LLMQ_PROVIDER_ANTHROPIC_H

#include "dialects/provider_message.h"

/*
 * Anthropic wants a limit in every request, OpenAI does not: this one stands
 * where the job names none.  Every model of theirs takes it.
 */
#define LLMQ_ANTHROPIC_MAX_TOKENS 4096

/* Writes the params that have another name or form at Anthropic's. */
extern bool llmq_anthropic_write_params(LlmqDraft *draft);

#endif /* LLMQ_PROVIDER_ANTHROPIC_H */
