/*
 * reply_ollama.c
 *		Reads answers of Ollama's /api/chat.
 *
 * https://github.com/ollama/ollama/blob/main/docs/api.md
 *
 * A stream is one JSON object per line.  The last one has done true, the reason and the counts.
 * Tool calls come complete, and without ids.
 */
#include "dialects/reply_dialect.h"

static bool read_ollama(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool read_calls(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice calls);

static const LlmqReasonName reasons[] = {
	{"stop", LLMQ_REASON_STOP},
	{NULL, LLMQ_REASON_NONE},
};

const LlmqReplyDialect llmq_reply_ollama = {
	.json_lines = true,
	.reasons = reasons,
	.read = read_ollama,
};

static bool
read_ollama(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	LlmqSlice message = llmq_slice_member(root, "message");
	LlmqSlice content = llmq_slice_member(message, "content");
	bool done = llmq_slice_kind(llmq_slice_member(root, "done")) == 't';
	LlmqChoice *choice = llmq_answer_choice(answer, 0);

	llmq_answer_model(answer, llmq_slice_member(root, "model"));
	llmq_answer_count(answer, LLMQ_COUNT_INPUT, llmq_slice_member(root, "prompt_eval_count"));
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT, llmq_slice_member(root, "eval_count"));
	if (choice == NULL || (!frame && llmq_slice_kind(message) != '{') ||
		(llmq_slice_given(message) && llmq_slice_kind(message) != '{') ||
		(llmq_slice_given(content) && llmq_slice_kind(content) != '"'))
		return false;
	llmq_answer_text(choice, content);
	if (!read_calls(answer, choice, llmq_slice_member(message, "tool_calls")))
		return false;
	if (done)
	{
		llmq_answer_reason(answer, choice, llmq_slice_member(root, "done_reason"));
		answer->terminal = true;
		answer->over = true;
	}
	return true;
}

static bool
read_calls(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice calls)
{
	LlmqSliceWalk walk = llmq_slice_walk(calls);
	LlmqSlice from;

	if (llmq_slice_given(calls) && llmq_slice_kind(calls) != '[')
		return false;
	while (llmq_slice_next(&walk, &from))
	{
		LlmqSlice function = llmq_slice_member(from, "function");
		LlmqAnswerCall *call;

		if (llmq_slice_kind(function) != '{')
			continue;
		call = llmq_answer_call(answer, choice, -1);
		if (call == NULL)
			return false;
		llmq_answer_call_add(answer, call, llmq_slice_member(from, "id"),
							 llmq_slice_member(function, "name"),
							 llmq_slice_member(function, "arguments"));
	}
	return true;
}
