/*
 * outcome.c
 *		The names for how an attempt, a delivery and a job can end.
 */
#include "dialects/outcome.h"

#include <stddef.h>
#include <string.h>

#define LENGTH_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const api_names[] = {
	[LLMQ_API_OPENAI_CHAT] = "openai_chat",
	[LLMQ_API_OPENAI_RESPONSES] = "openai_responses",
	[LLMQ_API_ANTHROPIC_MESSAGES] = "anthropic_messages",
	[LLMQ_API_GEMINI] = "gemini",
	[LLMQ_API_OLLAMA_CHAT] = "ollama_chat",
	[LLMQ_API_OPENAI_EMBEDDINGS] = "openai_embeddings",
};

static const char *const outcome_names[] = {
	[LLMQ_OUTCOME_SUCCESS] = "success",
	[LLMQ_OUTCOME_RETRY] = "retry",
	[LLMQ_OUTCOME_PERMANENT] = "permanent",
};

static const char *const billing_names[] = {
	[LLMQ_BILLING_NONE] = "none",
	[LLMQ_BILLING_BILLED] = "billed",
	[LLMQ_BILLING_UNKNOWN] = "unknown",
};

static const char *const error_names[] = {
	[LLMQ_ERROR_NONE] = NULL,
	[LLMQ_ERROR_RATE_LIMITED] = "rate_limited",
	[LLMQ_ERROR_OVERLOADED] = "overloaded",
	[LLMQ_ERROR_SERVER_ERROR] = "server_error",
	[LLMQ_ERROR_TIMEOUT] = "timeout",
	[LLMQ_ERROR_CONNECTION] = "connection",
	[LLMQ_ERROR_INTERRUPTED] = "interrupted",
	[LLMQ_ERROR_INCOMPLETE] = "incomplete",
	[LLMQ_ERROR_INVALID_RESPONSE] = "invalid_response",
	[LLMQ_ERROR_EMPTY_RESPONSE] = "empty_response",
	[LLMQ_ERROR_CONFLICT] = "conflict",
	[LLMQ_ERROR_REQUEST_TIMEOUT] = "request_timeout",
	[LLMQ_ERROR_BAD_REQUEST] = "bad_request",
	[LLMQ_ERROR_AUTH] = "auth",
	[LLMQ_ERROR_NOT_FOUND] = "not_found",
	[LLMQ_ERROR_CONTEXT_LENGTH] = "context_length",
	[LLMQ_ERROR_CONTENT_FILTER] = "content_filter",
	[LLMQ_ERROR_REFUSAL] = "refusal",
	[LLMQ_ERROR_TRUNCATED] = "truncated",
	[LLMQ_ERROR_QUOTA_EXHAUSTED] = "quota_exhausted",
	[LLMQ_ERROR_TOO_LARGE] = "too_large",
	[LLMQ_ERROR_REDIRECT] = "redirect",
	[LLMQ_ERROR_INTERNAL] = "internal",
	[LLMQ_ERROR_DEADLINE_EXCEEDED] = "deadline_exceeded",
	[LLMQ_ERROR_LIMITER] = "limiter",
	[LLMQ_ERROR_BREAKER] = "breaker",
};

const char *
llmq_outcome_name(LlmqOutcome outcome)
{
	return outcome_names[outcome];
}

const char *
llmq_error_name(LlmqErrorClass error)
{
	return error_names[error];
}

const char *
llmq_billing_name(LlmqBilling billing)
{
	return billing_names[billing];
}

const char *
llmq_api_name(LlmqApi api)
{
	return api_names[api];
}

bool
llmq_api_find(const char *name, LlmqApi *api)
{
	for (size_t i = 0; i < LENGTH_OF(api_names); i++)
	{
		if (strcmp(api_names[i], name) == 0)
		{
			*api = (LlmqApi) i;
			return true;
		}
	}
	return false;
}

bool
llmq_error_find(const char *name, LlmqErrorClass *error)
{
	for (size_t i = LLMQ_ERROR_NONE + 1; i < LENGTH_OF(error_names); i++)
	{
		if (strcmp(error_names[i], name) == 0)
		{
			*error = (LlmqErrorClass) i;
			return true;
		}
	}
	return false;
}

LlmqOutcome
llmq_error_outcome(LlmqErrorClass error)
{
	if (error == LLMQ_ERROR_NONE)
		return LLMQ_OUTCOME_SUCCESS;
	if (error >= LLMQ_ERROR_BAD_REQUEST && error <= LLMQ_ERROR_INTERNAL)
		return LLMQ_OUTCOME_PERMANENT;
	return LLMQ_OUTCOME_RETRY;
}
