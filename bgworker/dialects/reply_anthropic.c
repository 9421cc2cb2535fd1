/*
 * reply_anthropic.c
 *		Reads answers of Anthropic's Messages.
 *
 * https://docs.anthropic.com/en/api/messages and /en/docs/build-with-claude/streaming
 *
 * A stream consists of content blocks; each has a beginning, deltas that add to it, and an
 * end.  The input of a tool comes as pieces of JSON.  input_tokens does not include tokens that
 * were read from the cache or written to it, so the three counts add up to the input.
 */
#include "dialects/reply_dialect.h"

static bool read_anthropic(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool read_event(LlmqAnswer *answer, LlmqSlice event);
static bool read_delta(LlmqAnswer *answer, LlmqSlice event);
static bool read_content(LlmqAnswer *answer, LlmqSlice content);
static bool read_block(LlmqAnswer *answer, LlmqSlice block, int64_t index);
static void read_head(LlmqAnswer *answer, LlmqSlice message);
static void read_usage(LlmqAnswer *answer, LlmqSlice usage);

static const LlmqReasonName reasons[] = {
	{"end_turn", LLMQ_REASON_STOP}, {"stop_sequence", LLMQ_REASON_STOP},
	{"tool_use", LLMQ_REASON_STOP}, {"refusal", LLMQ_REASON_REFUSAL},
	{NULL, LLMQ_REASON_NONE},
};

const LlmqReplyDialect llmq_reply_anthropic = {
	.json_lines = false,
	.reasons = reasons,
	.read = read_anthropic,
};

static bool
read_anthropic(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	if (frame)
		return read_event(answer, root);
	read_head(answer, root);
	if (!read_content(answer, llmq_slice_member(root, "content")))
		return false;
	llmq_answer_reason(answer, llmq_answer_choice(answer, 0),
					   llmq_slice_member(root, "stop_reason"));
	return true;
}

/* Reads an event.  Unknown types are ignored, because new ones will be added. */
static bool
read_event(LlmqAnswer *answer, LlmqSlice event)
{
	LlmqSlice type = llmq_slice_member(event, "type");
	int64_t index = llmq_answer_index(llmq_slice_member(event, "index"), -1);

	if (llmq_slice_equals(type, "message_start"))
	{
		LlmqSlice message = llmq_slice_member(event, "message");
		LlmqSlice content = llmq_slice_member(message, "content");

		read_head(answer, message);
		if (llmq_slice_given(content) && !read_content(answer, content))
			return false;
		llmq_answer_reason(answer, llmq_answer_choice(answer, 0),
						   llmq_slice_member(message, "stop_reason"));
	}
	else if (llmq_slice_equals(type, "content_block_start"))
		return read_block(answer, llmq_slice_member(event, "content_block"), index);
	else if (llmq_slice_equals(type, "content_block_delta"))
		return read_delta(answer, event);
	else if (llmq_slice_equals(type, "message_delta"))
	{
		read_usage(answer, llmq_slice_member(event, "usage"));
		llmq_answer_reason(answer, llmq_answer_choice(answer, 0),
						   llmq_slice_member(llmq_slice_member(event, "delta"), "stop_reason"));
	}
	else if (llmq_slice_equals(type, "message_stop"))
		answer->over = true;
	return true;
}

/* Reads a delta.  Thinking, signatures and citations are not text. */
static bool
read_delta(LlmqAnswer *answer, LlmqSlice event)
{
	LlmqSlice none = {NULL, 0};
	LlmqSlice delta = llmq_slice_member(event, "delta");
	LlmqSlice type = llmq_slice_member(delta, "type");
	int64_t index = llmq_answer_index(llmq_slice_member(event, "index"), -1);
	LlmqChoice *choice = llmq_answer_choice(answer, 0);

	if (choice == NULL)
		return false;
	if (llmq_slice_equals(type, "text_delta"))
		llmq_answer_text(choice, llmq_slice_member(delta, "text"));
	else if (llmq_slice_equals(type, "input_json_delta"))
	{
		LlmqAnswerCall *call = llmq_answer_find_call(choice, index);

		/* The input of a server-side tool is not for us. */
		llmq_answer_call_add(answer, call, none, none, llmq_slice_member(delta, "partial_json"));
	}
	return true;
}

static bool
read_content(LlmqAnswer *answer, LlmqSlice content)
{
	LlmqSliceWalk walk = llmq_slice_walk(content);
	LlmqSlice block;

	if (llmq_slice_kind(content) != '[')
		return false;
	while (llmq_slice_next(&walk, &block))
	{
		if (!read_block(answer, block, -1))
			return false;
	}
	return true;
}

/* Reads a content block, or its beginning in a stream (then it has an index). */
static bool
read_block(LlmqAnswer *answer, LlmqSlice block, int64_t index)
{
	LlmqSlice type = llmq_slice_member(block, "type");
	LlmqSlice input = llmq_slice_member(block, "input");
	LlmqChoice *choice = llmq_answer_choice(answer, 0);
	LlmqAnswerCall *call;

	if (llmq_slice_kind(block) != '{' || choice == NULL)
		return false;
	if (llmq_slice_equals(type, "text"))
		llmq_answer_text(choice, llmq_slice_member(block, "text"));
	if (!llmq_slice_equals(type, "tool_use"))
		return true;
	call = llmq_answer_call(answer, choice, -1);
	if (call == NULL)
		return false;
	call->index = index;
	/*
	 * A stream begins with an empty input object, which is not part of what the deltas add up
	 * to.
	 */
	if (index >= 0 && llmq_slice_kind(input) == '{' && llmq_slice_count(input) == 0)
		input = (LlmqSlice){NULL, 0};
	llmq_answer_call_add(answer, call, llmq_slice_member(block, "id"),
						 llmq_slice_member(block, "name"), input);
	return true;
}

static void
read_head(LlmqAnswer *answer, LlmqSlice message)
{
	llmq_answer_model(answer, llmq_slice_member(message, "model"));
	read_usage(answer, llmq_slice_member(message, "usage"));
}

static void
read_usage(LlmqAnswer *answer, LlmqSlice usage)
{
	LlmqSlice created = llmq_slice_member(usage, "cache_creation_input_tokens");
	LlmqSlice cached = llmq_slice_member(usage, "cache_read_input_tokens");

	llmq_answer_count(answer, LLMQ_COUNT_INPUT, llmq_slice_member(usage, "input_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_INPUT_2, created);
	llmq_answer_count(answer, LLMQ_COUNT_INPUT_3, cached);
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT, llmq_slice_member(usage, "output_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_CACHED, cached);
}
