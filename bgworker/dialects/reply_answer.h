/*
 * reply_answer.h
 *		What a provider's answer says, the same for every dialect.
 *
 * A dialect reads JSON values, a whole document or one frame after the other,
 * into an LlmqAnswer.  A frame lives only while it is read, so whatever is kept
 * is copied: text as pieces in buffers, the rest into the arena.  Out of memory
 * is noted (no_memory) and looked at once, at the end.
 */
#ifndef LLMQ_REPLY_ANSWER_H
#define LLMQ_REPLY_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "json/json_slice.h"
#include "dialects/reply_options.h"

/* Why an answer ended, whatever the dialect calls it. */
typedef enum LlmqReason
{
	LLMQ_REASON_NONE, /* null, missing or empty: it did not end */
	LLMQ_REASON_STOP,
	LLMQ_REASON_LENGTH,
	LLMQ_REASON_FILTER,
	LLMQ_REASON_REFUSAL,
	LLMQ_REASON_UNKNOWN /* not in the list of the dialect */
} LlmqReason;

/* A dialect's own names, besides those that all share; a NULL name ends the list. */
typedef struct LlmqReasonName
{
	const char *name;
	LlmqReason reason;
} LlmqReasonName;

typedef struct LlmqAnswerCall
{
	struct LlmqAnswerCall *next;
	int64_t index;	/* by which deltas find it; -1: none was given */
	bool custom;	/* takes text, not JSON */
	const char *id; /* NULL until known, likewise name */
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

/* What is counted; the parts of a sum are kept apart, as each may be corrected later. */
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
	bool terminal; /* the dialect's end was read, whatever the reason */
	bool over;	   /* nothing that counts will follow */
	const char *model;
	int64_t counts[LLMQ_COUNTS]; /* -1: not reported */
	const char *embedding;
	bool no_memory;
} LlmqAnswer;

extern void llmq_answer_init(LlmqAnswer *answer, LlmqArena *arena, const LlmqReplyOptions *options);

/* Finds a choice, or adds one; NULL when there are too many or memory is out. */
extern LlmqChoice *llmq_answer_choice(LlmqAnswer *answer, int64_t index);
extern LlmqChoice *llmq_answer_add_choice(LlmqAnswer *answer, int64_t index);

/* The index that a value gives, or else the position. */
extern int64_t llmq_answer_index(LlmqSlice value, int64_t position);

/* The answer: the choice of the lowest index that carries anything, else of the lowest. */
extern LlmqChoice *llmq_answer_pick(const LlmqAnswer *answer);

/* Tells whether any choice carries text. */
extern bool llmq_answer_has_text(const LlmqAnswer *answer);

/* Forgets all choices, and frees what they hold. */
extern void llmq_answer_clear(LlmqAnswer *answer);

/* Adds text; what is no string, or NULL for the choice, adds nothing. */
extern void llmq_answer_text(LlmqChoice *choice, LlmqSlice text);
extern void llmq_answer_refusal(LlmqChoice *choice, LlmqSlice refusal);

/* Notes why a choice ended; the first reason stands. */
extern void llmq_answer_reason(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice reason);

/* Finds the call of this index, or adds one; index -1 always adds.  NULL as above. */
extern LlmqAnswerCall *llmq_answer_call(LlmqAnswer *answer, LlmqChoice *choice, int64_t index);

/* Finds the call of an index of 0 or more; NULL if there is none. */
extern LlmqAnswerCall *llmq_answer_find_call(const LlmqChoice *choice, int64_t index);

/* Fills in id and name (the first that is not empty) and adds arguments: text, or JSON as source.
 */
extern void llmq_answer_call_add(LlmqAnswer *answer, LlmqAnswerCall *call, LlmqSlice id,
								 LlmqSlice name, LlmqSlice arguments);

/* Notes a model's name; the first that is not empty stands. */
extern void llmq_answer_model(LlmqAnswer *answer, LlmqSlice name);

/* Notes a count; what is no count leaves the one before. */
extern void llmq_answer_count(LlmqAnswer *answer, LlmqCount which, LlmqSlice value);

/* The sum of parts of which at least one was reported, else -1. */
extern int64_t llmq_answer_sum(const LlmqAnswer *answer, LlmqCount first, LlmqCount last);

/* The joined text of pieces, or of a JSON string, in the arena; NULL if it is empty. */
extern char *llmq_answer_joined(LlmqAnswer *answer, const LlmqBuffer *pieces);
extern char *llmq_answer_string(LlmqAnswer *answer, LlmqSlice string);

/* The calls of a choice in OpenAI form, in the arena; NULL if there are none. */
extern const char *llmq_answer_calls_json(LlmqAnswer *answer, const LlmqChoice *choice);

#endif /* LLMQ_REPLY_ANSWER_H */
