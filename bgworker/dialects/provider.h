/*
 * provider.h
 *		Turns a job into the HTTP request of one provider dialect.
 *
 * Pure.  The writer of each dialect is provider_<api>.c, with the params in a second file if
 * there are many; provider.c has the table of dialects.  The user's JSON reaches the provider
 * unchanged: numbers are never converted.  Answers are read by reply.h.
 */
#ifndef LLMQ_PROVIDER_H
#define LLMQ_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "wire/http_request.h"
#include "dialects/outcome.h"

/*
 * What the user submitted, as it is stored in llmq.job.  JSON fields are valid JSON source or
 * NULL.
 */
typedef struct LlmqPrompt
{
	const char *prompt;
	const char *system;
	const char *messages; /* OpenAI form, an array */
	const char *params;	  /* an object */
	const char *model;	  /* of the job, or else of the endpoint, or else NULL */
} LlmqPrompt;

/* Where the request goes. */
typedef struct LlmqTarget
{
	LlmqApi api;
	const char *url;				/* base, without the dialect's path */
	const char *headers;			/* JSON object of name: value, or NULL */
	const char *credential;			/* the secret itself, or NULL */
	const char *idempotency_header; /* name, or NULL */
	const char *idempotency_key;	/* its value */
	const char *traceparent;		/* or NULL */
	bool stream;
} LlmqTarget;

/*
 * Writes the request; memory comes from arena.  On failure it returns false and sets *error to
 * a sentence for the user (class bad_request: no provider would accept it).
 *
 * The dialect's authentication header is left out when a value in target->headers contains
 * ${credential}, which is replaced by the secret.  A header of the user replaces one of ours
 * with the same name.  A header value with CR, LF or NUL is refused.  A query string in the base
 * URL stays after the dialect's path (Azure's ?api-version=).
 */
extern bool
llmq_provider_request(LlmqArena *arena, const LlmqTarget *target, const LlmqPrompt *prompt,
					  LlmqHttpRequest *request, const char **error);

#endif /* LLMQ_PROVIDER_H */
