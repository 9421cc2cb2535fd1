/*
 * reply_answer.h
 *		What a provider's answer says, in a form common to all dialects.
 *
 * A dialect reads JSON values, which are a whole document or one frame after the other, into
 * an LlmqAnswer.  A frame exists only while it is read, so everything that is kept is copied:
 * text as pieces into buffers, the rest into the arena.  Running out of memory sets no_memory,
 * which is checked once at the end.
 */
#ifndef LLMQ_REPLY_ANSWER_H
#define LLMQ_REPLY_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "json/json_slice.h"
#include "dialects/reply_options.h"

/* Why an answer ended, whatever the dialect calls the reason. */
typedef enum LlmqReason
{
	LLMQ_REASON_NONE, /* null, missing or empty: it has not ended */
	LLMQ_REASON_STOP,
	LLMQ_REASON_LENGTH,
	LLMQ_REASON_FILTER,
	LLMQ_REASON_REFUSAL,
	LLMQ_REASON_UNKNOWN /* not in the dialect's list */
} LlmqReason;

/* A dialect's own names, in addition to the shared ones; a NULL name ends the list. */
typedef struct LlmqReasonName
{
	const char *name;
	LlmqReason reason;
} LlmqReasonName;

typedef struct LlmqAnswerCall
{
	struct LlmqAnswerCall *next;
	int64_t index;	/* deltas refer to it by this; -1: none was given */
	bool custom;	/* its input is text, not JSON */
	const char *id; /* NULL until known; the same holds for name */
	const char *name;
	LlmqBuffer arguments; /* pieces */
} LlmqAnswerCall;

typedef struct LlmqChoice
{
	struct LlmqChoice *next;
	int64_t index;
	LlmqReason reason;
	LlmqBuffer text;	/* pieces */
	LlmqBuffer refusal; /* pieces */
	LlmqAnswerCall *calls;
	LlmqAnswerCall *last_call;
} LlmqChoice;

/* What is counted.  The parts of a sum are kept separately, because each may be corrected later. */
typedef enum LlmqCount
{
	LLMQ_COUNT_INPUT,
	LLMQ_COUNT_INPUT_2,
	LLMQ_COUNT_INPUT_3,
	LLMQ_COUNT_OUTPUT,
	LLMQ_COUNT_OUTPUT_2,
	LLMQ_COUNT_CACHED,
	LLMQ_COUNTS
} LlmqCount;

typedef struct LlmqAnswer
{
	LlmqArena *arena;
	const LlmqReplyOptions *options;
	const LlmqReasonName *reasons;
	LlmqChoice *choices;
	LlmqChoice *last_choice; /* the one found last */
	int choice_count;
	int call_count;
	bool terminal; /* the dialect's end marker was read, whatever the reason */
	bool over;	   /* nothing that counts will follow */
	const char *model;
	int64_t counts[LLMQ_COUNTS]; /* -1: not reported */
	const char *embedding;
	bool no_memory;
} LlmqAnswer;

extern void llmq_answer_init(LlmqAnswer *answer, LlmqArena *arena, const LlmqReplyOptions *options);

/* Finds a choice, or adds one; NULL when there are too many, or when out of memory. */
extern LlmqChoice *llmq_answer_choice(LlmqAnswer *answer, int64_t index);
extern LlmqChoice *llmq_answer_add_choice(LlmqAnswer *answer, int64_t index);

/* Returns the index in value, or else the position. */
extern int64_t llmq_answer_index(LlmqSlice value, int64_t position);

/*
 * Returns the choice that is the answer: the one with the lowest index that has any content,
 * or else the one with the lowest index.
 */
extern LlmqChoice *llmq_answer_pick(const LlmqAnswer *answer);

/* Returns whether any choice has text. */
extern bool llmq_answer_has_text(const LlmqAnswer *answer);

/* Removes all choices, and frees what they hold. */
extern void llmq_answer_clear(LlmqAnswer *answer);

/* These add text; a value that is not a string adds nothing, and choice may be NULL. */
extern void llmq_answer_text(LlmqChoice *choice, LlmqSlice text);
extern void llmq_answer_refusal(LlmqChoice *choice, LlmqSlice refusal);

/* Records why a choice ended; the first reason is kept. */
extern void llmq_answer_reason(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice reason);

/* Finds the call with this index, or adds one; index -1 always adds one.  NULL as above. */
extern LlmqAnswerCall *llmq_answer_call(LlmqAnswer *answer, LlmqChoice *choice, int64_t index);

/* Finds the call with an index of 0 or more; NULL if there is none. */
extern LlmqAnswerCall *llmq_answer_find_call(const LlmqChoice *choice, int64_t index);

/*
 * Sets id and name (the first that is not empty is kept) and adds arguments: text, or JSON as
 * source.
 */
extern void llmq_answer_call_add(LlmqAnswer *answer, LlmqAnswerCall *call, LlmqSlice id,
								 LlmqSlice name, LlmqSlice arguments);

/* Records the model's name; the first that is not empty is kept. */
extern void llmq_answer_model(LlmqAnswer *answer, LlmqSlice name);

/* Records a count; a value that is not a count changes nothing. */
extern void llmq_answer_count(LlmqAnswer *answer, LlmqCount which, LlmqSlice value);

/* Returns the sum of the parts, or -1 if none of them was reported. */
extern int64_t llmq_answer_sum(const LlmqAnswer *answer, LlmqCount first, LlmqCount last);

/*
 * These return the joined text of pieces, or the text of a JSON string, in the arena; NULL if
 * it is empty.
 */
extern char *llmq_answer_joined(LlmqAnswer *answer, const LlmqBuffer *pieces);
extern char *llmq_answer_string(LlmqAnswer *answer, LlmqSlice string);

/* Returns the calls of a choice in OpenAI form, in the arena; NULL if there are none. */
extern const char *llmq_answer_calls_json(LlmqAnswer *answer, const LlmqChoice *choice);

#endif /* LLMQ_REPLY_ANSWER_H */
