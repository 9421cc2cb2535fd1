/*
 * provider_gemini_params.c
 *		Writes requests for Gemini's generateContent: the params.
 *
 * What the job gives in Gemini's own form (generationConfig, toolConfig, tools without a
 * function) is kept, and takes precedence over the same in OpenAI's form.
 */
#include "dialects/provider_gemini.h"

#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool write_generation_config(LlmqDraft *draft);
static bool write_format(LlmqDraft *draft, LlmqSlice own);
static bool write_thinking(LlmqDraft *draft, LlmqSlice own);
static bool write_tools(LlmqDraft *draft);
static void write_declarations(LlmqDraft *draft, LlmqSlice tools);
static void write_declaration(LlmqDraft *draft, LlmqSlice function);
static bool write_tool_config(LlmqDraft *draft);
static bool write_calling_config(LlmqDraft *draft, LlmqSlice choice);

static const LlmqRename renames[] = {
	{"temperature", "temperature"},
	{"topP", "top_p"},
	{"topK", "top_k"},
	{"seed", "seed"},
	{"candidateCount", "n"},
	{"presencePenalty", "presence_penalty"},
	{"frequencyPenalty", "frequency_penalty"},
	{"responseLogprobs", "logprobs"},
	{"logprobs", "top_logprobs"},
};

/*
 * The budgets that Google's OpenAI-compatible API uses for each effort, for models that count
 * thinking in tokens.
 */
static const struct
{
	const char *effort;
	const char *budget;
} budgets[] = {
	{"none", "0"}, {"minimal", "1024"}, {"low", "1024"}, {"medium", "8192"}, {"high", "24576"},
};

bool
llmq_gemini_write_params(LlmqDraft *draft)
{
	return write_generation_config(draft) && write_tools(draft) && write_tool_config(draft);
}

static bool
write_generation_config(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice own;
	LlmqSlice limit = llmq_param_take_either(draft, "max_tokens", "max_completion_tokens");
	LlmqSlice stops = llmq_param_take(draft, "stop");
	size_t start = out->len;

	if (!llmq_param_take_object(draft, "generationConfig", &own))
		return false;
	llmq_write_key(out, "generationConfig");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	llmq_param_write_renamed(draft, own, renames, COUNT_OF(renames));
	if (limit.at != NULL && llmq_slice_member(own, "maxOutputTokens").at == NULL)
		llmq_write_member(out, "maxOutputTokens", limit);
	if (llmq_slice_member(own, "stopSequences").at == NULL)
		llmq_param_write_stops(draft, "stopSequences", stops);
	if (!write_format(draft, own) || !write_thinking(draft, own))
		return false;
	llmq_write_close_or_drop(out, '}', start);
	return true;
}

static bool
write_format(LlmqDraft *draft, LlmqSlice own)
{
	LlmqBuffer *out = &draft->body;
	LlmqFormat format;

	if (!llmq_param_take_format(draft, &format))
		return false;
	if (format.kind == LLMQ_FORMAT_TEXT || llmq_slice_member(own, "responseMimeType").at != NULL)
		return true;
	llmq_write_member_text(out, "responseMimeType", "application/json");
	/* responseSchema supports only a part of JSON Schema. */
	if (format.kind == LLMQ_FORMAT_SCHEMA && llmq_slice_member(own, "responseSchema").at == NULL &&
		llmq_slice_member(own, "responseJsonSchema").at == NULL)
		llmq_write_member(out, "responseJsonSchema", format.schema);
	return true;
}

static bool
write_thinking(LlmqDraft *draft, LlmqSlice own)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice effort = llmq_param_take(draft, "reasoning_effort");
	const char *budget = NULL;

	if (effort.at == NULL || llmq_slice_member(own, "thinkingConfig").at != NULL)
		return true;
	for (size_t i = 0; i < COUNT_OF(budgets); i++)
		if (llmq_slice_equals(effort, budgets[i].effort))
			budget = budgets[i].budget;
	if (budget == NULL)
		return llmq_draft_fail(
			draft,
			"params.reasoning_effort must be none, minimal, low, medium or high for gemini.");
	llmq_write_key(out, "thinkingConfig");
	llmq_write_open(out, '{');
	if (strstr(draft->model, "gemini-2.") != NULL || strcmp(budget, "0") == 0)
	{
		llmq_write_key(out, "thinkingBudget");
		llmq_write_raw(out, budget);
	}
	else
		llmq_write_member(out, "thinkingLevel", effort);
	llmq_write_close(out, '}');
	return true;
}

/*
 * Writes the tools.  Each of Gemini's own (googleSearch and the like) is an element by itself,
 * and all functions share one.
 */
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
		if (llmq_slice_member(tool, "function").at == NULL)
			llmq_write_slice(out, tool);
	write_declarations(draft, tools);
	llmq_write_close(out, ']');
	return true;
}

static void
write_declarations(LlmqDraft *draft, LlmqSlice tools)
{
	LlmqBuffer *out = &draft->body;
	LlmqSliceWalk walk = llmq_slice_walk(tools);
	LlmqSlice tool;
	bool open = false;

	while (llmq_slice_next(&walk, &tool))
	{
		LlmqSlice function = llmq_slice_member(tool, "function");

		if (function.at == NULL)
			continue;
		if (!open)
		{
			llmq_write_open(out, '{');
			llmq_write_key(out, "functionDeclarations");
			llmq_write_open(out, '[');
		}
		open = true;
		write_declaration(draft, function);
	}
	if (open)
	{
		llmq_write_close(out, ']');
		llmq_write_close(out, '}');
	}
}

/*
 * Writes a function.  "parameters" supports only a part of JSON Schema, the other name supports
 * all of it.
 */
static void
write_declaration(LlmqDraft *draft, LlmqSlice function)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice description = llmq_slice_member(function, "description");
	LlmqSlice parameters = llmq_slice_member(function, "parameters");

	llmq_write_open(out, '{');
	llmq_write_member(out, "name", llmq_slice_member(function, "name"));
	if (llmq_slice_given(description))
		llmq_write_member(out, "description", description);
	if (llmq_slice_given(parameters))
		llmq_write_member(out, "parametersJsonSchema", parameters);
	llmq_write_close(out, '}');
}

static bool
write_tool_config(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice choice = llmq_param_take(draft, "tool_choice");
	LlmqSlice own;

	if (!llmq_param_take_object(draft, "toolConfig", &own))
		return false;
	if (own.at == NULL && choice.at == NULL)
		return true;
	llmq_write_key(out, "toolConfig");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	if (choice.at != NULL && llmq_slice_member(own, "functionCallingConfig").at == NULL &&
		!write_calling_config(draft, choice))
		return false;
	llmq_write_close(out, '}');
	return true;
}

static bool
write_calling_config(LlmqDraft *draft, LlmqSlice choice)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice name = llmq_slice_member(llmq_slice_member(choice, "function"), "name");
	bool named = llmq_slice_kind(name) == '"';

	llmq_write_key(out, "functionCallingConfig");
	llmq_write_open(out, '{');
	if (llmq_slice_equals(choice, "auto"))
		llmq_write_member_text(out, "mode", "AUTO");
	else if (llmq_slice_equals(choice, "none"))
		llmq_write_member_text(out, "mode", "NONE");
	else if (llmq_slice_equals(choice, "required") || named)
		llmq_write_member_text(out, "mode", "ANY");
	else
		return llmq_draft_fail(draft, "params.tool_choice must be auto, none, required or a "
									  "function by its name.");
	if (named)
	{
		llmq_write_key(out, "allowedFunctionNames");
		llmq_write_open(out, '[');
		llmq_write_slice(out, name);
		llmq_write_close(out, ']');
	}
	llmq_write_close(out, '}');
	return true;
}
