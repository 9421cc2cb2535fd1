/*
 * reply_openai_chat.c
 *		Reads answers of OpenAI's Chat Completions and of compatible APIs.
 *
 * https://platform.openai.com/docs/api-reference/chat
 *
 * Streams consist of deltas: texts are joined, and tool calls are found by their index.  Usage
 * is next to the choices, in any chunk.
 */
#include "dialects/reply_dialect.h"

static bool read_chat(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool read_choice(LlmqAnswer *answer, LlmqSlice from, int64_t position, bool frame);
static bool read_content(LlmqChoice *choice, LlmqSlice content);
static bool read_calls(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice calls, bool frame);
static void read_call(LlmqAnswer *answer, LlmqAnswerCall *call, LlmqSlice from);
static LlmqAnswerCall *find_call(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice delta);
static void read_function(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice function, bool frame);

static const LlmqReasonName reasons[] = {
	{"stop", LLMQ_REASON_STOP},			 {"eos", LLMQ_REASON_STOP},
	{"eos_token", LLMQ_REASON_STOP},	 {"tool_calls", LLMQ_REASON_STOP},
	{"function_call", LLMQ_REASON_STOP}, {NULL, LLMQ_REASON_NONE},
};

const LlmqReplyDialect llmq_reply_openai_chat = {
	.json_lines = false,
	.reasons = reasons,
	.read = read_chat,
};

static bool
read_chat(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	LlmqSlice choices = llmq_slice_member(root, "choices");
	LlmqSliceWalk walk = llmq_slice_walk(choices);
	LlmqSlice choice;
	int64_t position = 0;

	llmq_answer_model(answer, llmq_slice_member(root, "model"));
	llmq_reply_read_usage(answer, llmq_slice_member(root, "usage"));
	if (!llmq_slice_given(choices))
		return frame;
	if (llmq_slice_kind(choices) != '[')
		return false;
	while (llmq_slice_next(&walk, &choice))
	{
		if (!read_choice(answer, choice, position++, frame))
			return false;
	}
	return frame || position > 0;
}

/* Reads a choice: its message, or what a chunk adds to that. */
static bool
read_choice(LlmqAnswer *answer, LlmqSlice from, int64_t position, bool frame)
{
	int64_t index = llmq_answer_index(llmq_slice_member(from, "index"), position);
	LlmqSlice message = llmq_slice_member(from, frame ? "delta" : "message");
	LlmqChoice *choice;

	if (llmq_slice_kind(from) != '{')
		return false;
	/* In a document, two choices with the same index are still two. */
	choice = frame ? llmq_answer_choice(answer, index) : llmq_answer_add_choice(answer, index);
	if (choice == NULL)
		return false;
	/* Some servers put the whole answer into a single chunk. */
	if (frame && !llmq_slice_given(message) && choice->text.len == 0)
		message = llmq_slice_member(from, "message");
	if (llmq_slice_given(message))
	{
		if (llmq_slice_kind(message) != '{' ||
			!read_content(choice, llmq_slice_member(message, "content")) ||
			!read_calls(answer, choice, llmq_slice_member(message, "tool_calls"), frame))
			return false;
		llmq_answer_refusal(choice, llmq_slice_member(message, "refusal"));
		read_function(answer, choice, llmq_slice_member(message, "function_call"), frame);
	}
	llmq_answer_reason(answer, choice, llmq_slice_member(from, "finish_reason"));
	return true;
}

/* Reads the content, which is text, or an array of parts of which some are text. */
static bool
read_content(LlmqChoice *choice, LlmqSlice content)
{
	LlmqSliceWalk walk = llmq_slice_walk(content);
	LlmqSlice part;

	if (!llmq_slice_given(content))
		return true;
	llmq_answer_text(choice, content);
	if (llmq_slice_kind(content) != '[')
		return llmq_slice_kind(content) == '"';
	while (llmq_slice_next(&walk, &part))
	{
		LlmqSlice type = llmq_slice_member(part, "type");

		llmq_answer_text(choice, part);
		if (!llmq_slice_given(type) || llmq_slice_equals(type, "text") ||
			llmq_slice_equals(type, "output_text"))
			llmq_answer_text(choice, llmq_slice_member(part, "text"));
		else if (llmq_slice_equals(type, "refusal"))
			llmq_answer_refusal(choice, llmq_slice_member(part, "refusal"));
	}
	return true;
}

static bool
read_calls(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice calls, bool frame)
{
	LlmqSliceWalk walk = llmq_slice_walk(calls);
	LlmqSlice from;

	if (!llmq_slice_given(calls))
		return true;
	if (llmq_slice_kind(calls) != '[')
		return false;
	while (llmq_slice_next(&walk, &from))
	{
		LlmqAnswerCall *call;

		if (!llmq_slice_given(llmq_slice_member(from, "function")) &&
			!llmq_slice_given(llmq_slice_member(from, "custom")))
			continue;
		call = frame ? find_call(answer, choice, from) : llmq_answer_call(answer, choice, -1);
		if (call == NULL)
			return false;
		read_call(answer, call, from);
	}
	return true;
}

static void
read_call(LlmqAnswer *answer, LlmqAnswerCall *call, LlmqSlice from)
{
	LlmqSlice id = llmq_slice_member(from, "id");
	LlmqSlice function = llmq_slice_member(from, "function");
	LlmqSlice custom = llmq_slice_member(from, "custom");

	if (llmq_slice_given(custom))
	{
		call->custom = true;
		llmq_answer_call_add(answer, call, id, llmq_slice_member(custom, "name"),
							 llmq_slice_member(custom, "input"));
		return;
	}
	llmq_answer_call_add(answer, call, id, llmq_slice_member(function, "name"),
						 llmq_slice_member(function, "arguments"));
}

/*
 * Finds the call that a delta belongs to.  Some servers give all calls the index 0, or no
 * index; then a different id means a new call.
 */
static LlmqAnswerCall *
find_call(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice delta)
{
	int64_t index = llmq_answer_index(llmq_slice_member(delta, "index"), -1);
	LlmqSlice id = llmq_slice_member(delta, "id");
	bool named = llmq_slice_kind(id) == '"' && !llmq_slice_equals(id, "");
	LlmqAnswerCall *call = choice->last_call;

	if (index >= 0)
		call = llmq_answer_call(answer, choice, index);
	if (call != NULL && (!named || call->id == NULL || llmq_slice_equals(id, call->id)))
		return call;
	call = llmq_answer_call(answer, choice, -1);
	if (call != NULL)
		call->index = index;
	return call;
}

/* Reads the older form of a tool call: there is only one, without an id. */
static void
read_function(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice function, bool frame)
{
	LlmqSlice none = {NULL, 0};
	LlmqSlice name = llmq_slice_member(function, "name");
	LlmqSlice arguments = llmq_slice_member(function, "arguments");

	if (!llmq_slice_given(name) && !llmq_slice_given(arguments))
		return;
	llmq_answer_call_add(answer, llmq_answer_call(answer, choice, frame ? 0 : -1), none, name,
						 arguments);
}

void
llmq_reply_read_usage(LlmqAnswer *answer, LlmqSlice usage)
{
	LlmqSlice details = llmq_slice_member(usage, "prompt_tokens_details");

	llmq_answer_count(answer, LLMQ_COUNT_INPUT, llmq_slice_member(usage, "prompt_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT, llmq_slice_member(usage, "completion_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_CACHED, llmq_slice_member(details, "cached_tokens"));
}
