/*
 * provider_gemini.h
 *		The two halves of Gemini's dialect: conversation and params.
 */
#ifndef LLMQ_PROVIDER_GEMINI_H
#define LLMQ_PROVIDER_GEMINI_H

#include "dialects/provider_message.h"

/* Writes the params that have another name or form in Gemini's API. */
extern bool llmq_gemini_write_params(LlmqDraft *draft);

#endif /* LLMQ_PROVIDER_GEMINI_H */
