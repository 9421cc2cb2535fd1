/*
 * provider_private.h
 *		What the writers of the dialects share; no other file includes it.
 *
 * A request is written from a draft: the job's messages as slices of their source, its params
 * as a list from which a dialect takes them by name, and the buffer for the body.  Params that
 * the dialect does not take are written unchanged at the top level of the body.
 */
#ifndef LLMQ_PROVIDER_PRIVATE_H
#define LLMQ_PROVIDER_PRIVATE_H

#include "json/json_slice.h"
#include "json/json_write.h"
#include "dialects/provider.h"

/* No provider accepts a larger body, and a huge prompt must not use up the worker's memory. */
#define LLMQ_REQUEST_MAX_BYTES ((size_t) 128 << 20)

typedef struct LlmqParam
{
	LlmqSlice key;
	LlmqSlice value;
	bool taken;
} LlmqParam;

typedef struct LlmqDraft
{
	LlmqArena *arena;
	const LlmqTarget *target;
	const LlmqPrompt *prompt;
	LlmqHttpRequest *request;
	const char *model; /* NULL: none, or it was empty; the same holds for system */
	const char *system;
	LlmqSlice messages; /* never none: a prompt is in it as a user message */
	int message_number; /* of the message being read, for errors */
	LlmqParam *params;
	size_t param_count;
	LlmqBuffer body;
	const char *error; /* the first thing that was wrong */
} LlmqDraft;

/* One dialect. */
typedef struct LlmqDialect
{
	const char *path;		  /* after the base URL; NULL: see write_path */
	const char *auth_header;  /* the header with the secret */
	const char *auth_prefix;  /* before the secret in it */
	const char *extra_header; /* the name of one more header, or NULL */
	const char *extra_value;
	const char *stream_accept; /* the Accept header for a streamed answer */
	bool needs_model;
	bool has_stream_options; /* passes params.stream_options when it streams */
	bool reads_input; /* takes params.input instead of messages; draft->messages may be none */

	/* Returns the path (which may end in a query), or NULL when the draft has failed. */
	const char *(*write_path)(LlmqDraft *draft);

	/* Writes draft->body; false when the draft has failed. */
	bool (*write_body)(LlmqDraft *draft);
} LlmqDialect;

extern const LlmqDialect llmq_dialect_openai_chat;
extern const LlmqDialect llmq_dialect_openai_responses;
extern const LlmqDialect llmq_dialect_anthropic;
extern const LlmqDialect llmq_dialect_gemini;
extern const LlmqDialect llmq_dialect_ollama;
extern const LlmqDialect llmq_dialect_embeddings;

/* provider_draft.c: records what is wrong (only the first call counts) and returns false. */
extern bool
llmq_draft_fail(LlmqDraft *draft, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads the text of a string, in place if it contains no escape; false when out of memory. */
extern bool
llmq_draft_read_text(LlmqDraft *draft, LlmqSlice string, const char **text, size_t *len);

/*
 * Percent-encodes all but unreserved characters (RFC 3986, 2.3).  libcurl's function needs its
 * header, which dialects/ must not include.
 */
extern const char *llmq_draft_percent_encode(LlmqDraft *draft, const char *text);

/* provider_http.c: the request's url and headers. */
extern bool llmq_draft_url(LlmqDraft *draft, const char *path);
extern bool llmq_draft_headers(LlmqDraft *draft, const LlmqDialect *dialect);

/*
 * These take params.  A param that was taken is not written unchanged; null counts as not
 * given.  take_either prefers the dialect's own name to OpenAI's, and takes both.
 */
extern LlmqSlice llmq_param_take(LlmqDraft *draft, const char *name);
extern LlmqSlice llmq_param_take_either(LlmqDraft *draft, const char *own, const char *openai);

/* Takes a param that must be an object, if it is given. */
extern bool llmq_param_take_object(LlmqDraft *draft, const char *name, LlmqSlice *object);

/*
 * Writes the params of a table under the dialect's own names into the open object, except
 * those that `own`, the object as the user gave it, already has.
 */
typedef struct LlmqRename
{
	const char *own;
	const char *openai;
} LlmqRename;

extern void
llmq_param_write_renamed(LlmqDraft *draft, LlmqSlice own, const LlmqRename *renames, size_t count);

/* Writes stops, a string or an array, as an array; writes nothing if there are none. */
extern void llmq_param_write_stops(LlmqDraft *draft, const char *name, LlmqSlice stops);

/* Takes the tools, if there are any: an array of objects, in which a function has a name. */
extern bool llmq_param_take_tools(LlmqDraft *draft, LlmqSlice *tools);

/* What response_format asks for. */
typedef enum LlmqFormatKind
{
	LLMQ_FORMAT_TEXT,
	LLMQ_FORMAT_JSON,
	LLMQ_FORMAT_SCHEMA
} LlmqFormatKind;

typedef struct LlmqFormat
{
	LlmqFormatKind kind;
	LlmqSlice json_schema; /* SCHEMA: the object with name, strict and schema */
	LlmqSlice schema;	   /* SCHEMA: the schema, an object */
} LlmqFormat;

extern bool llmq_param_take_format(LlmqDraft *draft, LlmqFormat *format);

/* Writes the params that nobody took as members of the open object. */
extern void llmq_param_write_rest(LlmqDraft *draft);

#endif /* LLMQ_PROVIDER_PRIVATE_H */
