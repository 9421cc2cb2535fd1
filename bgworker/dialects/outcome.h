/*
 * outcome.h
 *		The names for how an attempt, a delivery and a job can end.
 *
 * These names are stored in llmq.attempt and llmq.dead_job and are part of the
 * public contract: the enum order may change, the names may not.
 */
#ifndef LLMQ_OUTCOME_H
#define LLMQ_OUTCOME_H

#include <stdbool.h>

typedef enum LlmqApi
{
	LLMQ_API_OPENAI_CHAT,
	LLMQ_API_OPENAI_RESPONSES,
	LLMQ_API_ANTHROPIC_MESSAGES,
	LLMQ_API_GEMINI,
	LLMQ_API_OLLAMA_CHAT,
	LLMQ_API_OPENAI_EMBEDDINGS
} LlmqApi;

typedef enum LlmqOutcome
{
	LLMQ_OUTCOME_SUCCESS,
	LLMQ_OUTCOME_RETRY,
	LLMQ_OUTCOME_PERMANENT,
	LLMQ_OUTCOMES
} LlmqOutcome;

typedef enum LlmqErrorClass
{
	LLMQ_ERROR_NONE,
	/* Retried. */
	LLMQ_ERROR_RATE_LIMITED,
	LLMQ_ERROR_OVERLOADED,
	LLMQ_ERROR_SERVER_ERROR,
	LLMQ_ERROR_TIMEOUT,
	LLMQ_ERROR_CONNECTION,
	LLMQ_ERROR_INTERRUPTED,
	LLMQ_ERROR_INCOMPLETE,
	LLMQ_ERROR_INVALID_RESPONSE,
	LLMQ_ERROR_EMPTY_RESPONSE,
	LLMQ_ERROR_CONFLICT,
	LLMQ_ERROR_REQUEST_TIMEOUT,
	/* Dead at once. */
	LLMQ_ERROR_BAD_REQUEST,
	LLMQ_ERROR_AUTH,
	LLMQ_ERROR_NOT_FOUND,
	LLMQ_ERROR_CONTEXT_LENGTH,
	LLMQ_ERROR_CONTENT_FILTER,
	LLMQ_ERROR_REFUSAL,
	LLMQ_ERROR_TRUNCATED,
	LLMQ_ERROR_QUOTA_EXHAUSTED,
	LLMQ_ERROR_TOO_LARGE,
	LLMQ_ERROR_REDIRECT,
	LLMQ_ERROR_INTERNAL,
	/* These end a delivery, and the job is delivered again. */
	LLMQ_ERROR_DEADLINE_EXCEEDED,
	LLMQ_ERROR_LIMITER, /* waiting for a quota would have taken too long... */
	LLMQ_ERROR_BREAKER, /* ...or waiting for an endpoint that keeps failing */
	LLMQ_ERROR_CLASSES
} LlmqErrorClass;

typedef enum LlmqBilling
{
	LLMQ_BILLING_NONE,
	LLMQ_BILLING_BILLED,
	LLMQ_BILLING_UNKNOWN
} LlmqBilling;

/* The stored names; llmq_error_name(LLMQ_ERROR_NONE) is NULL. */
extern const char *llmq_outcome_name(LlmqOutcome outcome);
extern const char *llmq_error_name(LlmqErrorClass error);
extern const char *llmq_billing_name(LlmqBilling billing);
extern const char *llmq_api_name(LlmqApi api);

/* Finds an api by its name in llmq.endpoint; false if there is none. */
extern bool llmq_api_find(const char *name, LlmqApi *api);

/* Finds a class by its name; false if there is none. */
extern bool llmq_error_find(const char *name, LlmqErrorClass *error);

/* Returns the outcome that follows from a class: RETRY or PERMANENT; SUCCESS for NONE. */
extern LlmqOutcome llmq_error_outcome(LlmqErrorClass error);

#endif /* LLMQ_OUTCOME_H */
