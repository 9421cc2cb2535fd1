/*
 * http_request.h
 *		An HTTP request, and functions that write its URL and headers.
 *
 * Pure.  What a row of configuration contains (URL, headers, secret) is checked here, for calls
 * to models and for webhooks alike, so that nothing from outside can end a header line or
 * start another request.
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
	bool own_connection; /* uses a new connection, and no other request uses it afterwards */
	/* What the reader of the answer must know about the request. */
	int embedding_inputs;
	bool embedding_array;
	int embedding_dimensions;
} LlmqHttpRequest;

/* A request being written. */
typedef struct LlmqHttpWriter
{
	LlmqArena *arena;
	LlmqHttpRequest *request;
	const char *row;	/* the kind of the row, for errors: "endpoint", "destination" */
	const char *secret; /* may be NULL */
	bool secret_placed; /* one of the user's headers contains it */
	const char *error;	/* the first thing that was wrong; NULL after a failure: out of memory */
} LlmqHttpWriter;

/* Records what is wrong (only the first call counts) and returns false. */
extern bool llmq_http_fail(LlmqHttpWriter *writer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Checks that url may be called: it is http or https, and contains no space, control character
 * or #.
 */
extern bool llmq_http_check_url(LlmqHttpWriter *writer, const char *url);

/* Checks that a header of this name (len bytes) may be sent. */
extern bool llmq_http_check_name(LlmqHttpWriter *writer, const char *name, size_t len);

/* Checks that the secret, if there is one, may be sent in a header. */
extern bool llmq_http_check_secret(LlmqHttpWriter *writer);

/*
 * Adds the user's headers (a JSON object of name: value, or NULL) and makes room for own_max
 * of ours.  ${credential} in a value is replaced by the secret.
 */
extern bool llmq_http_open_headers(LlmqHttpWriter *writer, const char *headers, size_t own_max);

/* Adds one of our headers, with prefix and value, unless the user has set one of that name. */
extern bool llmq_http_add_header(LlmqHttpWriter *writer, const char *name, const char *prefix,
								 const char *value);

/* Returns whether there is a header of this name. */
extern bool llmq_http_has_header(const LlmqHttpRequest *request, const char *name);

/*
 * Returns whether text has no control characters.  CR and LF would end a header line; the
 * others are not allowed in one.
 */
extern bool llmq_http_is_clean(const char *text);

#endif /* LLMQ_HTTP_REQUEST_H */
