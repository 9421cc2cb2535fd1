/*
 * provider_ollama.c
 *		Writes requests for Ollama's own chat (/api/chat; its /v1 is openai_chat).
 *
 * The content of a message is one text, with the images next to it.  The arguments of a call
 * are an object, and sampling params go into options.  What the job gives in Ollama's own form
 * (options, format, think) is kept, and takes precedence over the same in OpenAI's form.  The
 * texts of one message are joined without a separator, as in answers.
 * https://github.com/ollama/ollama/blob/main/docs/api.md
 */
#include "dialects/provider_message.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool write_body(LlmqDraft *draft);
static bool write_messages(LlmqDraft *draft);
static bool
write_message(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message);
static bool write_content(LlmqDraft *draft, const LlmqMessage *message);
static bool add_text(LlmqDraft *draft, const LlmqPart *part);
static bool write_image(LlmqDraft *draft, const LlmqPart *part);
static bool write_tool_call(LlmqDraft *draft, const LlmqToolCall *call);
static void
write_tool_name(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message);
static bool write_options(LlmqDraft *draft);
static bool write_format(LlmqDraft *draft);
static void write_think(LlmqDraft *draft);

const LlmqDialect llmq_dialect_ollama = {
	.path = "/api/chat",
	.auth_header = "Authorization",
	.auth_prefix = "Bearer ",
	.stream_accept = "application/x-ndjson",
	.needs_model = true,
	.write_body = write_body,
};

/*
 * Params that move into options.  Ollama ignores them at the top level, so nobody wants them
 * there.
 */
static const LlmqRename renames[] = {
	{"temperature", "temperature"},
	{"top_p", "top_p"},
	{"top_k", "top_k"},
	{"min_p", "min_p"},
	{"typical_p", "typical_p"},
	{"seed", "seed"},
	{"stop", "stop"},
	{"num_ctx", "num_ctx"},
	{"num_keep", "num_keep"},
	{"repeat_last_n", "repeat_last_n"},
	{"repeat_penalty", "repeat_penalty"},
	{"presence_penalty", "presence_penalty"},
	{"frequency_penalty", "frequency_penalty"},
};

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "model", draft->model);
	if (!write_messages(draft) || !write_options(draft) || !write_format(draft))
		return false;
	write_think(draft);
	llmq_param_write_rest(draft);
	/* Always written, because Ollama streams unless stream is false. */
	llmq_write_key(out, "stream");
	llmq_write_raw(out, draft->target->stream ? "true" : "false");
	llmq_write_close(out, '}');
	return true;
}

static bool
write_messages(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;

	llmq_write_key(out, "messages");
	llmq_write_open(out, '[');
	if (draft->system != NULL)
	{
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "role", "system");
		llmq_write_member_text(out, "content", draft->system);
		llmq_write_close(out, '}');
	}
	while (llmq_message_next(draft, &walk, &message))
		if (!write_message(draft, &walk, &message))
			return false;
	llmq_write_close(out, ']');
	return !walk.failed;
}

static bool
write_message(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message)
{
	static const char *const names[] = {
		[LLMQ_ROLE_SYSTEM] = "system",
		[LLMQ_ROLE_USER] = "user",
		[LLMQ_ROLE_ASSISTANT] = "assistant",
		[LLMQ_ROLE_TOOL] = "tool",
	};
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", names[message->role]);
	if (!write_content(draft, message))
		return false;
	if (llmq_slice_count(message->tool_calls) > 0)
	{
		llmq_write_key(out, "tool_calls");
		llmq_write_open(out, '[');
		if (!llmq_message_each_call(draft, message, write_tool_call))
			return false;
		llmq_write_close(out, ']');
	}
	if (message->role == LLMQ_ROLE_TOOL)
		write_tool_name(draft, walk, message);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_content(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	size_t start;

	llmq_write_key(out, "content");
	llmq_write_string_start(out);
	if (message->content.at == NULL)
		llmq_write_string_add_slice(out, message->refusal);
	else if (!llmq_message_each_part(draft, message, add_text))
		return false;
	llmq_write_string_end(out);
	if (llmq_slice_kind(message->content) != '[')
		return true;
	start = out->len;
	llmq_write_key(out, "images");
	llmq_write_open(out, '[');
	if (!llmq_message_each_part(draft, message, write_image))
		return false;
	llmq_write_close_or_drop(out, ']', start);
	return true;
}

static bool
add_text(LlmqDraft *draft, const LlmqPart *part)
{
	switch (part->kind)
	{
		case LLMQ_PART_TEXT:
		case LLMQ_PART_REFUSAL:
			llmq_write_string_add_slice(&draft->body, part->text);
			return true;
		case LLMQ_PART_IMAGE:
			return true; /* written next to the content */
		case LLMQ_PART_AUDIO:
		case LLMQ_PART_FILE:
		case LLMQ_PART_OTHER:
			break;
	}
	return llmq_draft_fail(draft, "messages[%d]: ollama_chat takes text and images only.",
						   draft->message_number);
}

static bool
write_image(LlmqDraft *draft, const LlmqPart *part)
{
	if (part->kind != LLMQ_PART_IMAGE)
		return true;
	if (part->data == NULL)
		return llmq_draft_fail(
			draft, "messages[%d]: ollama_chat does not fetch images: give it as a data: URL.",
			draft->message_number);
	llmq_write_text_len(&draft->body, part->data, part->data_len);
	return true;
}

static bool
write_tool_call(LlmqDraft *draft, const LlmqToolCall *call)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice arguments;

	if (!llmq_tool_call_object(draft, call, &arguments))
		return false;
	llmq_write_open(out, '{');
	llmq_write_member(out, "id", call->id);
	llmq_write_key(out, "function");
	llmq_write_open(out, '{');
	llmq_write_member(out, "name", call->name);
	llmq_write_member(out, "arguments", arguments);
	llmq_write_close(out, '}');
	llmq_write_close(out, '}');
	return true;
}

/*
 * Writes the name of the tool.  Older servers match an answer by that name, newer ones also by
 * the id of the call.
 */
static void
write_tool_name(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message)
{
	LlmqToolCall call = {.name = message->name};

	if (llmq_slice_kind(call.name) == '"' || llmq_message_find_call(draft, walk, message, &call))
		llmq_write_member(&draft->body, "tool_name", call.name);
	llmq_write_member(&draft->body, "tool_call_id", message->tool_call_id);
}

static bool
write_options(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice limit = llmq_param_take_either(draft, "max_tokens", "max_completion_tokens");
	LlmqSlice predict = llmq_param_take(draft, "num_predict");
	LlmqSlice own;
	size_t start = out->len;

	if (predict.at == NULL)
		predict = limit;
	if (!llmq_param_take_object(draft, "options", &own))
		return false;
	llmq_write_key(out, "options");
	llmq_write_open(out, '{');
	llmq_write_members(out, own);
	llmq_param_write_renamed(draft, own, renames, COUNT_OF(renames));
	if (predict.at != NULL && llmq_slice_member(own, "num_predict").at == NULL)
		llmq_write_member(out, "num_predict", predict);
	llmq_write_close_or_drop(out, '}', start);
	return true;
}

static bool
write_format(LlmqDraft *draft)
{
	LlmqFormat format;
	LlmqSlice own = llmq_param_take(draft, "format");

	if (!llmq_param_take_format(draft, &format))
		return false;
	if (own.at != NULL)
		llmq_write_member(&draft->body, "format", own);
	else if (format.kind == LLMQ_FORMAT_SCHEMA)
		llmq_write_member(&draft->body, "format", format.schema);
	else if (format.kind == LLMQ_FORMAT_JSON)
		llmq_write_member_text(&draft->body, "format", "json");
	return true;
}

/* Writes think.  Ollama has low, medium and high, and false for none. */
static void
write_think(LlmqDraft *draft)
{
	LlmqSlice own = llmq_param_take(draft, "think");
	LlmqSlice effort = llmq_param_take(draft, "reasoning_effort");

	if (own.at == NULL && llmq_slice_equals(effort, "none"))
		own = (LlmqSlice){"false", 5};
	else if (own.at == NULL && llmq_slice_equals(effort, "minimal"))
		own = (LlmqSlice){"\"low\"", 5};
	else if (own.at == NULL)
		own = effort;
	if (own.at != NULL)
		llmq_write_member(&draft->body, "think", own);
}
