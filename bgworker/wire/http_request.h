/*
 * http_request.h
 *		An HTTP request to be sent, and the writing of its url and headers.
 *
 * Pure.  What a row of configuration says (url, headers, the secret) is checked
 * here, for calls of models and for webhooks alike: nothing that comes from
 * outside can end a header line or start another request.
 */
#ifndef LLMQ_HTTP_REQUEST_H
#define LLMQ_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

typedef struct LlmqHttpRequest
{
	const char *url;
	const char **headers; /* "Name: value" each, header_count of them */
	int header_count;
	const char *body;
	size_t body_len;
	bool own_connection; /* goes over none that was used before, and that is used no more */
	/* What the reader of the answer must know of the request. */
	int embedding_inputs;
	bool embedding_array;
	int embedding_dimensions;
} LlmqHttpRequest;

/* A request being written. */
typedef struct LlmqHttpWriter
{
	LlmqArena *arena;
	LlmqHttpRequest *request;
	const char *row;	/* whose url and headers these are, for errors: "endpoint", "destination" */
	const char *secret; /* may be NULL */
	bool secret_placed; /* a header of the user's holds it */
	const char *error;	/* the first thing that was wrong; NULL after a failure: memory is out */
} LlmqHttpWriter;

/* Notes what is wrong (the first call counts) and returns false. */
extern bool llmq_http_fail(LlmqHttpWriter *writer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Tells whether url may be called: http or https, and nothing in it that has no business there. */
extern bool llmq_http_check_url(LlmqHttpWriter *writer, const char *url);

/* Tells whether a header of this name (len bytes) may be sent. */
extern bool llmq_http_check_name(LlmqHttpWriter *writer, const char *name, size_t len);

/* Tells whether the secret, if there is one, may stand in a header. */
extern bool llmq_http_check_secret(LlmqHttpWriter *writer);

/*
 * Adds the user's headers (a JSON object of name: value, or NULL) and makes room
 * for own_max of ours.  ${credential} in a value stands for the secret.
 */
extern bool llmq_http_open_headers(LlmqHttpWriter *writer, const char *headers, size_t own_max);

/* Adds a header of ours, prefix before value, unless the user has set one of that name. */
extern bool llmq_http_add_header(LlmqHttpWriter *writer, const char *name, const char *prefix,
								 const char *value);

/* Tells whether there is a header of this name. */
extern bool llmq_http_has_header(const LlmqHttpRequest *request, const char *name);

/* No control characters: CR and LF would end the line, the others have no business in it. */
extern bool llmq_http_is_clean(const char *text);

#endif /* LLMQ_HTTP_REQUEST_H */
