/*
 * provider_anthropic_params.c
 *		Writes requests for Anthropic's Messages: the params.
 *
 * A param under Anthropic's own name takes precedence over the same param under OpenAI's.
 */
#include "dialects/provider_anthropic.h"

static void write_max_tokens(LlmqDraft *draft);
static bool write_metadata(LlmqDraft *draft);
static bool write_output_config(LlmqDraft *draft);
static LlmqSlice take_effort(LlmqDraft *draft);
static bool take_schema(LlmqDraft *draft, LlmqSlice *schema);
static bool write_tools(LlmqDraft *draft);
static void write_tool(LlmqDraft *draft, LlmqSlice tool);
static bool write_tool_choice(LlmqDraft *draft);
static bool write_choice(LlmqDraft *draft, LlmqSlice choice);

bool
llmq_anthropic_write_params(LlmqDraft *draft)
{
	write_max_tokens(draft);
	llmq_param_write_stops(draft, "stop_sequences",
						   llmq_param_take_either(draft, "stop_sequences", "stop"));
	return write_metadata(draft) && write_output_config(draft) && write_tools(draft) &&
		   write_tool_choice(draft);
}

static void
write_max_tokens(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice limit = llmq_param_take_either(draft, "max_tokens", "max_completion_tokens");

	llmq_write_key(out, "max_tokens");
	if (limit.at != NULL)
		llmq_write_slice(out, limit);
	else
		llmq_buffer_printf(out, "%d", LLMQ_ANTHROPIC_MAX_TOKENS);
}

/* Writes metadata.  OpenAI's user is Anthropic's metadata.user_id. */
static bool
write_metadata(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice user = llmq_param_take(draft, "user");
	LlmqSlice metadata;

	if (!llmq_param_take_object(draft, "metadata", &metadata))
		return false;
	if (user.at == NULL && metadata.at == NULL)
		return true;
	llmq_write_key(out, "metadata");
	llmq_write_open(out, '{');
	llmq_write_members(out, metadata);
	if (user.at != NULL && llmq_slice_member(metadata, "user_id").at == NULL)
		llmq_write_member(out, "user_id", user);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_output_config(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice effort = take_effort(draft);
	LlmqSlice own;
	LlmqSlice schema;

	if (!llmq_param_take_object(draft, "output_config", &own) || !take_schema(draft, &schema))
		return false;
	if (own.at == NULL && schema.at == NULL && effort.at == NULL)
		return true;
	llmq_write_key(out, "output_config");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	if (schema.at != NULL && llmq_slice_member(own, "format").at == NULL)
	{
		llmq_write_key(out, "format");
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "type", "json_schema");
		llmq_write_member(out, "schema", schema);
		llmq_write_close(out, '}');
	}
	if (effort.at != NULL && llmq_slice_member(own, "effort").at == NULL)
		llmq_write_member(out, "effort", effort);
	llmq_write_close(out, '}');
	return true;
}

/* Takes the effort.  Anthropic has none below low; a request for none leaves thinking out. */
static LlmqSlice
take_effort(LlmqDraft *draft)
{
	LlmqSlice effort = llmq_param_take(draft, "reasoning_effort");

	if (llmq_slice_equals(effort, "none"))
		return (LlmqSlice){NULL, 0};
	if (llmq_slice_equals(effort, "minimal"))
		return (LlmqSlice){"\"low\"", 5};
	return effort;
}

/*
 * Takes the schema.  Anthropic has no JSON mode without one, and an answer in prose would cost
 * money for nothing.
 */
static bool
take_schema(LlmqDraft *draft, LlmqSlice *schema)
{
	LlmqFormat format;

	if (!llmq_param_take_format(draft, &format))
		return false;
	*schema = format.schema;
	if (format.kind != LLMQ_FORMAT_JSON)
		return true;
	return llmq_draft_fail(draft, "anthropic_messages has no response_format json_object: give "
								  "json_schema with a schema.");
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

/* Writes a tool.  One without a function is Anthropic's own (web search and the like). */
static void
write_tool(LlmqDraft *draft, LlmqSlice tool)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice function = llmq_slice_member(tool, "function");
	LlmqSlice parameters = llmq_slice_member(function, "parameters");
	LlmqSliceWalk walk = llmq_slice_walk(function);
	LlmqSlice key;
	LlmqSlice value;

	if (function.at == NULL)
	{
		llmq_write_slice(out, tool);
		return;
	}
	llmq_write_open(out, '{');
	while (llmq_slice_next_member(&walk, &key, &value))
		if (llmq_slice_given(value) && !llmq_slice_equals(key, "parameters"))
			llmq_write_pair(out, key, value);
	llmq_write_key(out, "input_schema");
	if (llmq_slice_given(parameters))
		llmq_write_slice(out, parameters);
	else
		llmq_write_raw(out, "{\"type\":\"object\"}");
	if (llmq_slice_member(tool, "cache_control").at != NULL)
		llmq_write_member(out, "cache_control", llmq_slice_member(tool, "cache_control"));
	llmq_write_close(out, '}');
}

static bool
write_tool_choice(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice choice = llmq_param_take(draft, "tool_choice");
	LlmqSlice parallel = llmq_param_take(draft, "parallel_tool_calls");
	bool one_only = llmq_slice_kind(parallel) == 'f';

	if (choice.at == NULL && !one_only)
		return true;
	/* Anthropic has this switch inside tool_choice. */
	llmq_write_key(out, "tool_choice");
	llmq_write_open(out, '{');
	if (!write_choice(draft, choice))
		return false;
	if (one_only && !llmq_slice_equals(choice, "none"))
	{
		llmq_write_key(out, "disable_parallel_tool_use");
		llmq_write_raw(out, "true");
	}
	llmq_write_close(out, '}');
	return true;
}

static bool
write_choice(LlmqDraft *draft, LlmqSlice choice)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice name = llmq_slice_member(llmq_slice_member(choice, "function"), "name");

	if (choice.at == NULL || llmq_slice_equals(choice, "auto"))
		llmq_write_member_text(out, "type", "auto");
	else if (llmq_slice_equals(choice, "required"))
		llmq_write_member_text(out, "type", "any");
	else if (llmq_slice_equals(choice, "none"))
		llmq_write_member_text(out, "type", "none");
	else if (llmq_slice_kind(name) == '"')
	{
		llmq_write_member_text(out, "type", "tool");
		llmq_write_member(out, "name", name);
	}
	else if (llmq_slice_kind(choice) == '{' && llmq_slice_member(choice, "type").at != NULL &&
			 !llmq_slice_equals(llmq_slice_member(choice, "type"), "function"))
		llmq_write_members(out, choice); /* Anthropic's own form */
	else
		return llmq_draft_fail(draft, "params.tool_choice must be auto, none, required or a "
									  "function by its name.");
	return true;
}
