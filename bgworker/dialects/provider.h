/*
 * provider.h
 *		Turns a job into the HTTP request of one provider dialect.
 *
 * Pure.  A dialect's writer is provider_<api>.c, with its params in a file of
 * their own where they are many; provider.c is the table of them.  What the
 * user's JSON says reaches the provider as it stands: numbers are never
 * converted.  Answers are read by reply.h.
 */
#ifndef LLMQ_PROVIDER_H
#define LLMQ_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "wire/http_request.h"
#include "dialects/outcome.h"

/* What the user submitted, as it stands in llmq.job.  JSON fields are valid JSON source or NULL. */
typedef struct LlmqPrompt
{
	const char *prompt;
	const char *system;
	const char *messages; /* OpenAI form, an array */
	const char *params;	  /* an object */
	const char *model;	  /* the job's, else the endpoint's, else NULL */
} LlmqPrompt;

/* Where it goes. */
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
 * Writes the request; memory comes from arena.  On failure returns false and
 * sets *error to a sentence for the user (class bad_request: no provider could
 * take it).
 *
 * The dialect's authentication header is left out when a value in target->headers
 * holds ${credential}, which is replaced by the secret.  A header of the user's
 * with the name of one of ours replaces ours.  A header value with CR, LF or NUL
 * is refused.  A query string in the base url stays behind the dialect's path
 * (Azure's ?api-version=).
 */
extern bool
llmq_provider_request(LlmqArena *arena, const LlmqTarget *target, const LlmqPrompt *prompt,
					  LlmqHttpRequest *request, const char **error);

#endif /* LLMQ_PROVIDER_H */
