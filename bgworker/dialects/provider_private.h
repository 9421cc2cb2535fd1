/*
 * provider_private.h
 *		What the dialects' writers share; nobody else includes it.
 *
 * A request is written from a draft: the job's messages as slices of their
 * source, its params as a list that is taken from by name, and the buffer that
 * the body grows in.  What a dialect does not take from the params is written
 * at the top level of the body as it stands.
 */
#ifndef LLMQ_PROVIDER_PRIVATE_H
#define LLMQ_PROVIDER_PRIVATE_H

#include "json/json_slice.h"
#include "json/json_write.h"
#include "dialects/provider.h"

/* No provider takes a larger body; a hostile prompt must not take the worker's memory. */
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
	const char *model; /* NULL: none, also where it was empty; likewise system */
	const char *system;
	LlmqSlice messages; /* never none: a prompt stands in it as a user's message */
	int message_number; /* of the message being read, for errors */
	LlmqParam *params;
	size_t param_count;
	LlmqBuffer body;
	const char *error; /* the first thing that was wrong */
} LlmqDraft;

/* One dialect. */
typedef struct LlmqDialect
{
	const char *path;		  /* behind the base url; NULL: write_path says */
	const char *auth_header;  /* the header that carries the secret */
	const char *auth_prefix;  /* before the secret in it */
	const char *extra_header; /* the name of one more header, or NULL */
	const char *extra_value;
	const char *stream_accept; /* Accept of a streamed answer */
	bool needs_model;
	bool has_stream_options; /* passes params.stream_options when it streams */
	bool reads_input; /* takes params.input in place of messages; draft->messages may be none */

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

/* provider_draft.c.  Notes what is wrong (the first call counts) and returns false. */
extern bool
llmq_draft_fail(LlmqDraft *draft, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads a string's text, in place where it holds no escape; false when memory is out. */
extern bool
llmq_draft_read_text(LlmqDraft *draft, LlmqSlice string, const char **text, size_t *len);

/* Percent-encodes all but unreserved characters (RFC 3986, 2.3). */
extern const char *llmq_draft_percent_encode(LlmqDraft *draft, const char *text);

/* provider_http.c: the request's url and headers. */
extern bool llmq_draft_url(LlmqDraft *draft, const char *path);
extern bool llmq_draft_headers(LlmqDraft *draft, const LlmqDialect *dialect);

/*
 * Params.  Taking one means that it is not written as it stands; a null counts as
 * not given.  take_either prefers the dialect's own name to OpenAI's, and takes both.
 */
extern LlmqSlice llmq_param_take(LlmqDraft *draft, const char *name);
extern LlmqSlice llmq_param_take_either(LlmqDraft *draft, const char *own, const char *openai);

/* Takes a param that must be an object, if it is given. */
extern bool llmq_param_take_object(LlmqDraft *draft, const char *name, LlmqSlice *object);

/*
 * Writes the params of a table under the dialect's own names into an object that
 * is open, except those that own, the object as the user gave it, has already.
 */
typedef struct LlmqRename
{
	const char *own;
	const char *openai;
} LlmqRename;

extern void
llmq_param_write_renamed(LlmqDraft *draft, LlmqSlice own, const LlmqRename *renames, size_t count);

/* Writes stops, a string or an array, as an array; nothing when there are none. */
extern void llmq_param_write_stops(LlmqDraft *draft, const char *name, LlmqSlice stops);

/* Takes tools: an array of objects, in which a function has a name; or none. */
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
