/*
 * provider_responses_params.c
 *		Writes requests for OpenAI's Responses: the params.
 *
 * What chat completions nest in a member of its own (function, json_schema) is flat here.  A
 * param in the form of Responses (text, reasoning) is kept, and takes precedence over the same
 * in the form of chat completions.
 */
#include "dialects/provider_responses.h"

static bool write_text(LlmqDraft *draft);
static void write_format(LlmqDraft *draft, const LlmqFormat *format);
static bool write_reasoning(LlmqDraft *draft);
static bool write_tools(LlmqDraft *draft);
static void write_tool(LlmqDraft *draft, LlmqSlice tool);
static void write_tool_choice(LlmqDraft *draft);
static void write_allowed_tools(LlmqDraft *draft, LlmqSlice allowed);

bool
llmq_responses_write_params(LlmqDraft *draft)
{
	LlmqSlice own = llmq_param_take(draft, "max_output_tokens");
	LlmqSlice limit = llmq_param_take_either(draft, "max_completion_tokens", "max_tokens");

	if (own.at != NULL || limit.at != NULL)
		llmq_write_member(&draft->body, "max_output_tokens", own.at != NULL ? own : limit);
	if (!write_text(draft) || !write_reasoning(draft) || !write_tools(draft))
		return false;
	write_tool_choice(draft);
	return true;
}

static bool
write_text(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice verbosity = llmq_param_take(draft, "verbosity");
	LlmqFormat format;
	LlmqSlice own;
	size_t start = out->len;

	if (!llmq_param_take_object(draft, "text", &own) || !llmq_param_take_format(draft, &format))
		return false;
	llmq_write_key(out, "text");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	if (verbosity.at != NULL && llmq_slice_member(own, "verbosity").at == NULL)
		llmq_write_member(out, "verbosity", verbosity);
	if (format.kind != LLMQ_FORMAT_TEXT && llmq_slice_member(own, "format").at == NULL)
		write_format(draft, &format);
	llmq_write_close_or_drop(out, '}', start);
	return true;
}

static void
write_format(LlmqDraft *draft, const LlmqFormat *format)
{
	LlmqBuffer *out = &draft->body;
	bool schema = format->kind == LLMQ_FORMAT_SCHEMA;

	llmq_write_key(out, "format");
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", schema ? "json_schema" : "json_object");
	llmq_write_members(out, format->json_schema);
	llmq_write_close(out, '}');
}

static bool
write_reasoning(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice effort = llmq_param_take(draft, "reasoning_effort");
	LlmqSlice own;
	size_t start = out->len;

	if (!llmq_param_take_object(draft, "reasoning", &own))
		return false;
	llmq_write_key(out, "reasoning");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	if (effort.at != NULL && llmq_slice_member(own, "effort").at == NULL)
		llmq_write_member(out, "effort", effort);
	llmq_write_close_or_drop(out, '}', start);
	return true;
}

static bool
write_tools(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice tools;
	LlmqSliceWalk walk;
	LlmqSlice tool;

	if (!llmq_param_take_tools(draft, &tools))
		return false;
	if (tools.at == NULL)
		return true;
	walk = llmq_slice_walk(tools);
	llmq_write_key(out, "tools");
	llmq_write_open(out, '[');
	while (llmq_slice_next(&walk, &tool))
		write_tool(draft, tool);
	llmq_write_close(out, ']');
	return true;
}

/*
 * Writes a tool.  The members of function or custom move up; a tool without either is flat
 * already.
 */
static void
write_tool(LlmqDraft *draft, LlmqSlice tool)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice function = llmq_slice_member(tool, "function");
	LlmqSlice custom = llmq_slice_member(tool, "custom");

	if (function.at == NULL && custom.at == NULL)
	{
		llmq_write_slice(out, tool);
		return;
	}
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", function.at != NULL ? "function" : "custom");
	llmq_write_members(out, function.at != NULL ? function : custom);
	/* If it is missing, it means false in chat completions and true here. */
	if (function.at != NULL && llmq_slice_member(function, "strict").at == NULL)
	{
		llmq_write_key(out, "strict");
		llmq_write_raw(out, "false");
	}
	llmq_write_close(out, '}');
}

static void
write_tool_choice(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice choice = llmq_param_take(draft, "tool_choice");
	LlmqSlice function = llmq_slice_member(choice, "function");
	LlmqSlice custom = llmq_slice_member(choice, "custom");
	LlmqSlice allowed = llmq_slice_member(choice, "allowed_tools");

	if (choice.at == NULL)
		return;
	llmq_write_key(out, "tool_choice");
	if (allowed.at != NULL)
		write_allowed_tools(draft, allowed);
	else if (function.at == NULL && custom.at == NULL)
		llmq_write_slice(out, choice);
	else
	{
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "type", function.at != NULL ? "function" : "custom");
		llmq_write_members(out, function.at != NULL ? function : custom);
		llmq_write_close(out, '}');
	}
}

static void
write_allowed_tools(LlmqDraft *draft, LlmqSlice allowed)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice mode = llmq_slice_member(allowed, "mode");
	LlmqSliceWalk walk = llmq_slice_walk(llmq_slice_member(allowed, "tools"));
	LlmqSlice tool;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "allowed_tools");
	if (mode.at != NULL)
		llmq_write_member(out, "mode", mode);
	llmq_write_key(out, "tools");
	llmq_write_open(out, '[');
	while (llmq_slice_next(&walk, &tool))
	{
		LlmqSlice name = llmq_slice_member(llmq_slice_member(tool, "function"), "name");

		if (name.at == NULL)
		{
			llmq_write_slice(out, tool);
			continue;
		}
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "type", "function");
		llmq_write_member(out, "name", name);
		llmq_write_close(out, '}');
	}
	llmq_write_close(out, ']');
	llmq_write_close(out, '}');
}
