/*
 * reply_openai_responses.c
 *		Reads answers of OpenAI's Responses.
 *
 * https://platform.openai.com/docs/api-reference/responses
 *
 * A stream consists of deltas and ends with an event that contains the whole response, which
 * takes precedence over the deltas.
 */
#include "dialects/reply_dialect.h"

#include <string.h>

static bool read_responses(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool read_event(LlmqAnswer *answer, LlmqSlice event);
static bool read_terminal(LlmqAnswer *answer, LlmqSlice event, LlmqSlice type);
static bool read_response(LlmqAnswer *answer, LlmqSlice response);
static bool read_item(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice item);
static bool read_message(LlmqChoice *choice, LlmqSlice content);
static void read_reason(LlmqAnswer *answer, LlmqSlice status, LlmqSlice response);
static void read_head(LlmqAnswer *answer, LlmqSlice response);

/* The reason of an incomplete response is elsewhere; see read_reason. */
static const LlmqReasonName reasons[] = {
	{"completed", LLMQ_REASON_STOP},
	{NULL, LLMQ_REASON_NONE},
};

const LlmqReplyDialect llmq_reply_openai_responses = {
	.json_lines = false,
	.reasons = reasons,
	.read = read_responses,
};

static bool
read_responses(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	LlmqSlice status = llmq_slice_member(root, "status");

	if (frame)
		return read_event(answer, root);
	read_head(answer, root);
	if (!read_response(answer, root))
		return false;
	read_reason(answer, status, root);
	return true;
}

/* Reads an event.  Unknown types are ignored, because new ones will be added. */
static bool
read_event(LlmqAnswer *answer, LlmqSlice event)
{
	LlmqSlice type = llmq_slice_member(event, "type");

	read_head(answer, llmq_slice_member(event, "response"));
	if (llmq_slice_equals(type, "response.output_text.delta"))
		llmq_answer_text(llmq_answer_choice(answer, 0), llmq_slice_member(event, "delta"));
	else if (llmq_slice_equals(type, "response.refusal.delta"))
		llmq_answer_refusal(llmq_answer_choice(answer, 0), llmq_slice_member(event, "delta"));
	else if (llmq_slice_equals(type, "response.output_item.done"))
	{
		LlmqSlice item = llmq_slice_member(event, "item");

		/* The text of a message has already come in deltas. */
		return llmq_slice_equals(llmq_slice_member(item, "type"), "message") ||
			   read_item(answer, llmq_answer_choice(answer, 0), item);
	}
	else if (llmq_slice_equals(type, "response.completed") ||
			 llmq_slice_equals(type, "response.incomplete") ||
			 llmq_slice_equals(type, "response.failed"))
		return read_terminal(answer, event, type);
	return true;
}

/* Returns the status that a terminal event stands for, as JSON. */
static LlmqSlice
status_of_type(LlmqSlice type)
{
	if (llmq_slice_equals(type, "response.completed"))
		return (LlmqSlice){"\"completed\"", strlen("\"completed\"")};
	if (llmq_slice_equals(type, "response.incomplete"))
		return (LlmqSlice){"\"incomplete\"", strlen("\"incomplete\"")};
	return (LlmqSlice){"\"failed\"", strlen("\"failed\"")};
}

static bool
read_terminal(LlmqAnswer *answer, LlmqSlice event, LlmqSlice type)
{
	LlmqSlice response = llmq_slice_member(event, "response");
	LlmqSlice output = llmq_slice_member(response, "output");
	LlmqSlice status = llmq_slice_member(response, "status");

	answer->terminal = true;
	answer->over = true;
	if (llmq_slice_given(output))
	{
		llmq_answer_clear(answer);
		if (!read_response(answer, response))
			return false;
	}
	if (!llmq_slice_given(status))
		status = status_of_type(type);
	read_reason(answer, status, response);
	return true;
}

/* Reads the output of a whole response. */
static bool
read_response(LlmqAnswer *answer, LlmqSlice response)
{
	LlmqSlice output = llmq_slice_member(response, "output");
	LlmqSliceWalk walk = llmq_slice_walk(output);
	LlmqChoice *choice = llmq_answer_choice(answer, 0);
	LlmqSlice item;

	if (!llmq_slice_given(output))
	{
		LlmqSlice status = llmq_slice_member(response, "status");

		/* A response that did not complete may have no output. */
		return llmq_slice_kind(status) == '"' && !llmq_slice_equals(status, "completed");
	}
	if (llmq_slice_kind(output) != '[')
		return false;
	while (llmq_slice_next(&walk, &item))
	{
		if (!read_item(answer, choice, item))
			return false;
	}
	return true;
}

/*
 * Reads messages and calls of the user's tools.  Items of server-side tools and reasoning are
 * ignored.
 */
static bool
read_item(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice item)
{
	LlmqSlice type = llmq_slice_member(item, "type");
	bool custom = llmq_slice_equals(type, "custom_tool_call");
	LlmqAnswerCall *call;

	if (llmq_slice_kind(item) != '{')
		return false;
	if (llmq_slice_equals(type, "message"))
		return read_message(choice, llmq_slice_member(item, "content"));
	if (!custom && !llmq_slice_equals(type, "function_call"))
		return true;
	call = llmq_answer_call(answer, choice, -1);
	if (call == NULL)
		return false;
	call->custom = custom;
	llmq_answer_call_add(answer, call, llmq_slice_member(item, "call_id"),
						 llmq_slice_member(item, "name"),
						 llmq_slice_member(item, custom ? "input" : "arguments"));
	return true;
}

static bool
read_message(LlmqChoice *choice, LlmqSlice content)
{
	LlmqSliceWalk walk = llmq_slice_walk(content);
	LlmqSlice part;

	if (llmq_slice_given(content) && llmq_slice_kind(content) != '[')
		return false;
	while (llmq_slice_next(&walk, &part))
	{
		LlmqSlice type = llmq_slice_member(part, "type");

		if (llmq_slice_equals(type, "output_text"))
			llmq_answer_text(choice, llmq_slice_member(part, "text"));
		else if (llmq_slice_equals(type, "refusal"))
			llmq_answer_refusal(choice, llmq_slice_member(part, "refusal"));
	}
	return true;
}

/* Reads the reason.  For an incomplete response it is in the details. */
static void
read_reason(LlmqAnswer *answer, LlmqSlice status, LlmqSlice response)
{
	LlmqSlice details = llmq_slice_member(response, "incomplete_details");

	if (llmq_slice_equals(status, "incomplete"))
		status = llmq_slice_member(details, "reason");
	llmq_answer_reason(answer, llmq_answer_choice(answer, 0), status);
}

static void
read_head(LlmqAnswer *answer, LlmqSlice response)
{
	LlmqSlice usage = llmq_slice_member(response, "usage");
	LlmqSlice details = llmq_slice_member(usage, "input_tokens_details");

	llmq_answer_model(answer, llmq_slice_member(response, "model"));
	llmq_answer_count(answer, LLMQ_COUNT_INPUT, llmq_slice_member(usage, "input_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT, llmq_slice_member(usage, "output_tokens"));
	llmq_answer_count(answer, LLMQ_COUNT_CACHED, llmq_slice_member(details, "cached_tokens"));
}
