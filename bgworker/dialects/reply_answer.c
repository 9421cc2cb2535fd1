/*
 * reply_answer.c
 *		What a provider's answer says, in a form common to all dialects.
 *
 * The number of choices and calls is limited, so that finding one by its index for every frame
 * stays cheap, whatever a provider sends.
 */
#include "dialects/reply_answer.h"

#include <string.h>

#include "json/json_text.h"
#include "json/json_write.h"

/* An answer with more does not have the dialect's shape; no provider gives as many. */
#define CHOICES_MAX 256
#define CALLS_MAX	1024

/*
 * How many bytes one byte of a body can become at most: U+FFFD for each, and quotes around a
 * number.
 */
#define GROWTH_MAX 4
#define GROWTH_MIN 65536

/* How many bytes one byte of text can become in a JSON string: \u0001. */
#define ESCAPE_MAX 6

/* Names that mean the same in all dialects; a NULL name ends the list. */
static const LlmqReasonName shared_reasons[] = {
	{"length", LLMQ_REASON_LENGTH},
	{"model_length", LLMQ_REASON_LENGTH},
	{"max_tokens", LLMQ_REASON_LENGTH},
	{"max_output_tokens", LLMQ_REASON_LENGTH},
	{"MAX_TOKENS", LLMQ_REASON_LENGTH},
	{"model_context_window_exceeded", LLMQ_REASON_LENGTH},
	/* A retry would cost the whole turn again. */
	{"pause_turn", LLMQ_REASON_LENGTH},
	{"content_filter", LLMQ_REASON_FILTER},
	{NULL, LLMQ_REASON_NONE},
};

static LlmqReason find_reason(const LlmqReasonName *names, LlmqSlice reason);
static size_t room(const LlmqAnswer *answer);
static LlmqAnswerCall *add_call(LlmqAnswer *answer, LlmqChoice *choice, int64_t index);
static bool carries(const LlmqChoice *choice);
static void free_calls(LlmqAnswer *answer, LlmqChoice *choice);
static void write_call(LlmqAnswer *answer, LlmqBuffer *out, const LlmqAnswerCall *call, int number);

void
llmq_answer_init(LlmqAnswer *answer, LlmqArena *arena, const LlmqReplyOptions *options)
{
	memset(answer, 0, sizeof(*answer));
	answer->arena = arena;
	answer->options = options;
	for (int i = 0; i < LLMQ_COUNTS; i++)
		answer->counts[i] = -1;
}

void
llmq_answer_clear(LlmqAnswer *answer)
{
	for (LlmqChoice *choice = answer->choices; choice != NULL; choice = choice->next)
	{
		llmq_buffer_free(&choice->text);
		llmq_buffer_free(&choice->refusal);
		free_calls(answer, choice);
	}
	answer->choices = NULL;
	answer->last_choice = NULL;
	answer->choice_count = 0;
	answer->call_count = 0;
}

LlmqChoice *
llmq_answer_choice(LlmqAnswer *answer, int64_t index)
{
	LlmqChoice *choice = answer->last_choice;

	if (choice != NULL && choice->index == index)
		return choice;
	for (choice = answer->choices; choice != NULL; choice = choice->next)
	{
		if (choice->index == index)
			break;
	}
	if (choice == NULL)
		return llmq_answer_add_choice(answer, index);
	answer->last_choice = choice;
	return choice;
}

LlmqChoice *
llmq_answer_add_choice(LlmqAnswer *answer, int64_t index)
{
	LlmqChoice **end = &answer->choices;
	LlmqChoice *choice;

	if (answer->choice_count == CHOICES_MAX)
		return NULL;
	choice = llmq_arena_alloc(answer->arena, sizeof(*choice));
	if (choice == NULL)
		return NULL;
	choice->index = index;
	llmq_buffer_init(&choice->text, room(answer));
	llmq_buffer_init(&choice->refusal, room(answer));
	while (*end != NULL)
		end = &(*end)->next;
	*end = choice;
	answer->last_choice = choice;
	answer->choice_count++;
	return choice;
}

int64_t
llmq_answer_index(LlmqSlice value, int64_t position)
{
	int64_t index;

	return llmq_json_text_integer(value, &index) && index >= 0 ? index : position;
}

LlmqChoice *
llmq_answer_pick(const LlmqAnswer *answer)
{
	LlmqChoice *picked = NULL;

	for (LlmqChoice *choice = answer->choices; choice != NULL; choice = choice->next)
	{
		if (picked == NULL || carries(choice) > carries(picked) ||
			(carries(choice) == carries(picked) && choice->index < picked->index))
			picked = choice;
	}
	return picked;
}

bool
llmq_answer_has_text(const LlmqAnswer *answer)
{
	for (LlmqChoice *choice = answer->choices; choice != NULL; choice = choice->next)
	{
		if (choice->text.len > 0)
			return true;
	}
	return false;
}

void
llmq_answer_text(LlmqChoice *choice, LlmqSlice text)
{
	if (choice != NULL)
		llmq_json_text_piece(&choice->text, text);
}

void
llmq_answer_refusal(LlmqChoice *choice, LlmqSlice refusal)
{
	if (choice != NULL)
		llmq_json_text_piece(&choice->refusal, refusal);
}

void
llmq_answer_reason(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice reason)
{
	if (choice == NULL || choice->reason != LLMQ_REASON_NONE || !llmq_slice_given(reason) ||
		llmq_slice_equals(reason, ""))
		return;
	choice->reason = find_reason(answer->reasons, reason);
	if (choice->reason == LLMQ_REASON_NONE)
		choice->reason = find_reason(shared_reasons, reason);
	if (choice->reason == LLMQ_REASON_NONE)
		choice->reason = LLMQ_REASON_UNKNOWN;
}

LlmqAnswerCall *
llmq_answer_call(LlmqAnswer *answer, LlmqChoice *choice, int64_t index)
{
	LlmqAnswerCall *call;

	if (choice == NULL)
		return NULL;
	call = llmq_answer_find_call(choice, index);
	return call != NULL ? call : add_call(answer, choice, index);
}

LlmqAnswerCall *
llmq_answer_find_call(const LlmqChoice *choice, int64_t index)
{
	LlmqAnswerCall *call = choice->last_call;

	if (index < 0)
		return NULL;
	/* The last one with this index counts, and usually it is the last of all. */
	if (call != NULL && call->index == index)
		return call;
	for (call = choice->calls; call != NULL; call = call->next)
	{
		if (call->index == index)
			return call;
	}
	return NULL;
}

void
llmq_answer_call_add(LlmqAnswer *answer, LlmqAnswerCall *call, LlmqSlice id, LlmqSlice name,
					 LlmqSlice arguments)
{
	char kind = llmq_slice_kind(arguments);

	if (call == NULL)
		return;
	if (call->id == NULL)
		call->id = llmq_answer_string(answer, id);
	if (call->name == NULL)
		call->name = llmq_answer_string(answer, name);
	if (kind == '{' || kind == '[')
		llmq_json_text_jsonb(&call->arguments, arguments.at, arguments.len);
	else
		llmq_json_text_piece(&call->arguments, arguments);
}

void
llmq_answer_model(LlmqAnswer *answer, LlmqSlice name)
{
	if (answer->model == NULL)
		answer->model = llmq_answer_string(answer, name);
}

void
llmq_answer_count(LlmqAnswer *answer, LlmqCount which, LlmqSlice value)
{
	int64_t count;

	if (llmq_json_text_integer(value, &count) && count >= 0)
		answer->counts[which] = count;
}

int64_t
llmq_answer_sum(const LlmqAnswer *answer, LlmqCount first, LlmqCount last)
{
	int64_t sum = -1;

	for (int i = (int) first; i <= (int) last; i++)
	{
		if (answer->counts[i] < 0)
			continue;
		if (sum > INT64_MAX - answer->counts[i])
			return -1;
		sum = (sum < 0 ? 0 : sum) + answer->counts[i];
	}
	return sum;
}

char *
llmq_answer_joined(LlmqAnswer *answer, const LlmqBuffer *pieces)
{
	LlmqBuffer joined;
	char *text = NULL;

	if (pieces->failed)
		answer->no_memory = true;
	if (pieces->len == 0)
		return NULL;
	llmq_buffer_init(&joined, room(answer));
	if (!llmq_json_text_join(&joined, pieces))
		answer->no_memory = true;
	else if (joined.len > 0)
		text = llmq_arena_strndup(answer->arena, joined.data, joined.len);
	llmq_buffer_free(&joined);
	return text;
}

char *
llmq_answer_string(LlmqAnswer *answer, LlmqSlice string)
{
	LlmqBuffer pieces;
	char *text;

	if (llmq_slice_kind(string) != '"')
		return NULL;
	llmq_buffer_init(&pieces, room(answer));
	llmq_json_text_piece(&pieces, string);
	text = llmq_answer_joined(answer, &pieces);
	llmq_buffer_free(&pieces);
	return text;
}

const char *
llmq_answer_calls_json(LlmqAnswer *answer, const LlmqChoice *choice)
{
	LlmqBuffer out;
	const char *json;
	int number = 0;

	if (choice->calls == NULL)
		return NULL;
	llmq_buffer_init(&out, room(answer) * ESCAPE_MAX);
	llmq_write_open(&out, '[');
	for (const LlmqAnswerCall *call = choice->calls; call != NULL; call = call->next)
		write_call(answer, &out, call, ++number);
	llmq_write_close(&out, ']');
	if (out.failed)
		answer->no_memory = true;
	json = llmq_arena_strndup(answer->arena, llmq_buffer_string(&out), out.len);
	llmq_buffer_free(&out);
	return json;
}

static LlmqReason
find_reason(const LlmqReasonName *names, LlmqSlice reason)
{
	while (names->name != NULL && !llmq_slice_equals(reason, names->name))
		names++;
	return names->reason;
}

/* Returns how much a buffer may need at most for text of this answer. */
static size_t
room(const LlmqAnswer *answer)
{
	return answer->options->max_bytes * GROWTH_MAX + GROWTH_MIN;
}

static LlmqAnswerCall *
add_call(LlmqAnswer *answer, LlmqChoice *choice, int64_t index)
{
	LlmqAnswerCall *call;

	if (answer->call_count == CALLS_MAX)
		return NULL;
	call = llmq_arena_alloc(answer->arena, sizeof(*call));
	if (call == NULL)
		return NULL;
	answer->call_count++;
	call->index = index;
	llmq_buffer_init(&call->arguments, room(answer));
	if (choice->last_call != NULL)
		choice->last_call->next = call;
	else
		choice->calls = call;
	choice->last_call = call;
	return call;
}

static bool
carries(const LlmqChoice *choice)
{
	return choice->text.len > 0 || choice->calls != NULL || choice->refusal.len > 0;
}

static void
free_calls(LlmqAnswer *answer, LlmqChoice *choice)
{
	for (LlmqAnswerCall *call = choice->calls; call != NULL; call = call->next)
		llmq_buffer_free(&call->arguments);
	choice->calls = NULL;
	choice->last_call = NULL;
}

/* Writes one call.  A call without an id gets one, because its answer must refer to it. */
static void
write_call(LlmqAnswer *answer, LlmqBuffer *out, const LlmqAnswerCall *call, int number)
{
	const char *kind = call->custom ? "custom" : "function";
	const char *arguments = llmq_answer_joined(answer, &call->arguments);
	const char *none = call->custom ? "" : "{}";

	llmq_write_open(out, '{');
	llmq_write_key(out, "id");
	if (call->id != NULL)
		llmq_write_text(out, call->id);
	else
	{
		llmq_write_string_start(out);
		llmq_buffer_printf(out, "call_%d", number);
		llmq_write_string_end(out);
	}
	llmq_write_member_text(out, "type", kind);
	llmq_write_key(out, kind);
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "name", call->name != NULL ? call->name : "");
	llmq_write_member_text(out, call->custom ? "input" : "arguments",
						   arguments != NULL ? arguments : none);
	llmq_write_close(out, '}');
	llmq_write_close(out, '}');
}
