/*
 * provider_param.c
 *		Params: they are taken by name, parsed where a dialect must understand OpenAI's form,
 *		and written at the top level if the dialect did not take them.
 */
#include "dialects/provider_private.h"

#include <string.h>

LlmqSlice
llmq_param_take(LlmqDraft *draft, const char *name)
{
	LlmqSlice found = {NULL, 0};

	for (size_t i = 0; i < draft->param_count; i++)
	{
		LlmqParam *param = &draft->params[i];

		if (!llmq_slice_equals(param->key, name))
			continue;
		param->taken = true;
		if (llmq_slice_given(param->value))
			found = param->value;
	}
	return found;
}

LlmqSlice
llmq_param_take_either(LlmqDraft *draft, const char *own, const char *openai)
{
	LlmqSlice ours = llmq_param_take(draft, own);
	LlmqSlice theirs = llmq_param_take(draft, openai);

	return ours.at != NULL ? ours : theirs;
}

bool
llmq_param_take_object(LlmqDraft *draft, const char *name, LlmqSlice *object)
{
	*object = llmq_param_take(draft, name);
	if (object->at == NULL || llmq_slice_kind(*object) == '{')
		return true;
	return llmq_draft_fail(draft, "params.%s must be a JSON object.", name);
}

void
llmq_param_write_rest(LlmqDraft *draft)
{
	for (size_t i = 0; i < draft->param_count; i++)
	{
		const LlmqParam *param = &draft->params[i];

		if (!param->taken)
			llmq_write_pair(&draft->body, param->key, param->value);
	}
}

void
llmq_param_write_renamed(LlmqDraft *draft, LlmqSlice own, const LlmqRename *renames, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		LlmqSlice value = llmq_param_take(draft, renames[i].openai);

		if (value.at != NULL && llmq_slice_member(own, renames[i].own).at == NULL)
			llmq_write_member(&draft->body, renames[i].own, value);
	}
}

void
llmq_param_write_stops(LlmqDraft *draft, const char *name, LlmqSlice stops)
{
	LlmqBuffer *out = &draft->body;

	if (stops.at == NULL)
		return;
	llmq_write_key(out, name);
	if (llmq_slice_kind(stops) == '"')
	{
		llmq_write_open(out, '[');
		llmq_write_slice(out, stops);
		llmq_write_close(out, ']');
		return;
	}
	llmq_write_slice(out, stops);
}

bool
llmq_param_take_tools(LlmqDraft *draft, LlmqSlice *tools)
{
	LlmqSliceWalk walk;
	LlmqSlice tool;

	*tools = llmq_param_take(draft, "tools");
	if (tools->at == NULL)
		return true;
	if (llmq_slice_kind(*tools) != '[')
		return llmq_draft_fail(draft, "params.tools must be an array.");
	walk = llmq_slice_walk(*tools);
	while (llmq_slice_next(&walk, &tool))
	{
		LlmqSlice function = llmq_slice_member(tool, "function");
		bool named = llmq_slice_kind(llmq_slice_member(function, "name")) == '"';

		if (llmq_slice_kind(tool) != '{')
			return llmq_draft_fail(draft, "params.tools must contain objects only.");
		if (function.at != NULL && !named)
			return llmq_draft_fail(draft, "params.tools: a function needs a name.");
	}
	return true;
}

bool
llmq_param_take_format(LlmqDraft *draft, LlmqFormat *format)
{
	LlmqSlice type;
	LlmqSlice object;

	memset(format, 0, sizeof(*format));
	if (!llmq_param_take_object(draft, "response_format", &object))
		return false;
	type = llmq_slice_member(object, "type");
	if (object.at == NULL || llmq_slice_equals(type, "text"))
		return true;
	format->kind = LLMQ_FORMAT_JSON;
	if (llmq_slice_equals(type, "json_object"))
		return true;
	if (!llmq_slice_equals(type, "json_schema"))
		return llmq_draft_fail(
			draft, "params.response_format must be of type text, json_object or json_schema.");
	format->kind = LLMQ_FORMAT_SCHEMA;
	format->json_schema = llmq_slice_member(object, "json_schema");
	format->schema = llmq_slice_member(format->json_schema, "schema");
	return llmq_slice_kind(format->schema) == '{' ||
		   llmq_draft_fail(draft, "params.response_format.json_schema needs a schema.");
}
