/*
 * provider_message.h
 *		Parses messages in OpenAI form, for dialects that have another form.
 *
 * Everything is a slice of the source, and is decoded only where a dialect needs the decoded
 * text.  A message that cannot be understood fails the draft with a sentence that gives the
 * message's position in the array.
 */
#ifndef LLMQ_PROVIDER_MESSAGE_H
#define LLMQ_PROVIDER_MESSAGE_H

#include "dialects/provider_private.h"

/*
 * The most tool calls in one message.  No provider allows as many, and it keeps finding one
 * cheap.
 */
#define LLMQ_TOOL_CALLS_MAX 256

typedef enum LlmqRole
{
	LLMQ_ROLE_SYSTEM, /* or developer */
	LLMQ_ROLE_USER,
	LLMQ_ROLE_ASSISTANT,
	LLMQ_ROLE_TOOL
} LlmqRole;

typedef struct LlmqMessage
{
	LlmqRole role;
	LlmqSlice role_name;
	LlmqSlice content;	  /* a string, an array of objects, or none */
	LlmqSlice tool_calls; /* an array that is not empty, or none */
	LlmqSlice tool_call_id;
	LlmqSlice name;
	LlmqSlice refusal;
} LlmqMessage;

/* A walk over the draft's messages. */
typedef struct LlmqMessageWalk
{
	LlmqSliceWalk at;
	int count;
	bool failed;
	LlmqSlice last_calls; /* of the last assistant message that has any */
} LlmqMessageWalk;

typedef enum LlmqPartKind
{
	LLMQ_PART_TEXT,
	LLMQ_PART_REFUSAL,
	LLMQ_PART_IMAGE,
	LLMQ_PART_AUDIO,
	LLMQ_PART_FILE,
	LLMQ_PART_OTHER /* not OpenAI's; perhaps the dialect's own */
} LlmqPartKind;

typedef struct LlmqPart
{
	LlmqPartKind kind;
	LlmqSlice source; /* the part itself; none if the content was a string */
	LlmqSlice text;	  /* TEXT and REFUSAL: a string */
	/* IMAGE, AUDIO and FILE: either url (a string), or file_id, or media type and base64 data. */
	LlmqSlice url;
	LlmqSlice file_id;
	LlmqSlice filename;
	const char *media_type; /* not NUL-terminated; the same holds for data */
	size_t media_type_len;
	const char *data;
	size_t data_len;
} LlmqPart;

typedef struct LlmqToolCall
{
	LlmqSlice source;
	bool custom; /* of type custom: its input is free text */
	LlmqSlice id;
	LlmqSlice name;
	LlmqSlice arguments; /* as given: a string of JSON source (custom: any string) */
} LlmqToolCall;

extern LlmqMessageWalk llmq_message_walk(const LlmqDraft *draft);

/* Reads the next message; false at the end and when the draft has failed (walk->failed). */
extern bool llmq_message_next(LlmqDraft *draft, LlmqMessageWalk *walk, LlmqMessage *message);

typedef bool (*LlmqPartWriter)(LlmqDraft *draft, const LlmqPart *part);
typedef bool (*LlmqToolCallWriter)(LlmqDraft *draft, const LlmqToolCall *call);

/*
 * Calls `write` for each part of the content, where a string is one text part; stops when it
 * fails.
 */
extern bool
llmq_message_each_part(LlmqDraft *draft, const LlmqMessage *message, LlmqPartWriter write);

/* Writes media type and data of an inline part as two members. */
extern void llmq_part_write_inline(LlmqDraft *draft, const LlmqPart *part, const char *type_key,
								   const char *data_key);

/* Returns whether the content has anything except empty text. */
extern bool llmq_message_has_content(const LlmqMessage *message);

/* Calls `write` for each tool call; stops when it fails. */
extern bool
llmq_message_each_call(LlmqDraft *draft, const LlmqMessage *message, LlmqToolCallWriter write);

/*
 * Finds the call that a tool message answers, among those of the last message with calls
 * (which each_call has checked).  Returns false if it is not there.
 */
extern bool llmq_message_find_call(LlmqDraft *draft, const LlmqMessageWalk *walk,
								   const LlmqMessage *answer, LlmqToolCall *call);

/* Reads the arguments of a call as a JSON object; "" counts as {}. */
extern bool llmq_tool_call_object(LlmqDraft *draft, const LlmqToolCall *call, LlmqSlice *object);

#endif /* LLMQ_PROVIDER_MESSAGE_H */
