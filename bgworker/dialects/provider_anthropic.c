/*
 * provider_anthropic.c
 *		Writes requests for Anthropic's Messages: the conversation.
 *
 * The text of all system and developer messages goes to the top level, in order.  Consecutive
 * tool messages become one user message, since Anthropic expects all results of a turn in the
 * next one.  Parts that are not OpenAI's (thinking, document, image blocks) pass unchanged.  The
 * params are in provider_anthropic_params.c.  https://docs.anthropic.com/en/api/messages
 */
#include "dialects/provider_anthropic.h"

static bool write_body(LlmqDraft *draft);
static bool write_system(LlmqDraft *draft);
static bool write_system_blocks(LlmqDraft *draft);
static bool write_messages(LlmqDraft *draft);
static void open_results(LlmqBuffer *out);
static void close_results(LlmqBuffer *out);
static bool write_message(LlmqDraft *draft, const LlmqMessage *message);
static bool write_assistant(LlmqDraft *draft, const LlmqMessage *message);
static bool write_tool_use(LlmqDraft *draft, const LlmqToolCall *call);
static bool write_tool_result(LlmqDraft *draft, const LlmqMessage *message);
static bool write_content(LlmqDraft *draft, const LlmqMessage *message);
static bool write_part(LlmqDraft *draft, const LlmqPart *part);
static bool write_text_block(LlmqDraft *draft, const LlmqPart *part);
static bool write_media(LlmqDraft *draft, const LlmqPart *part, const char *type);

const LlmqDialect llmq_dialect_anthropic = {
	.path = "/messages",
	.auth_header = "x-api-key",
	.auth_prefix = "",
	.extra_header = "anthropic-version",
	.extra_value = "2023-06-01",
	.stream_accept = "text/event-stream",
	.needs_model = true,
	.write_body = write_body,
};

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "model", draft->model);
	if (!write_system(draft) || !write_messages(draft) || !llmq_anthropic_write_params(draft))
		return false;
	llmq_param_write_rest(draft);
	if (draft->target->stream)
	{
		llmq_write_key(out, "stream");
		llmq_write_raw(out, "true");
	}
	llmq_write_close(out, '}');
	return true;
}

/*
 * Writes the system as a string when only submit gave one, and as blocks when messages contain
 * one too.
 */
static bool
write_system(LlmqDraft *draft)
{
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;
	bool in_messages = false;

	while (!in_messages && llmq_message_next(draft, &walk, &message))
		in_messages = message.role == LLMQ_ROLE_SYSTEM && llmq_message_has_content(&message);
	if (walk.failed)
		return false;
	if (!in_messages && draft->system == NULL)
		return true;
	if (llmq_param_take(draft, "system").at != NULL)
		return llmq_draft_fail(draft, "params.system and another system cannot both be given.");
	llmq_write_key(&draft->body, "system");
	if (in_messages)
		return write_system_blocks(draft);
	llmq_write_text(&draft->body, draft->system);
	return true;
}

static bool
write_system_blocks(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;

	llmq_write_open(out, '[');
	if (draft->system != NULL)
	{
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "type", "text");
		llmq_write_member_text(out, "text", draft->system);
		llmq_write_close(out, '}');
	}
	while (llmq_message_next(draft, &walk, &message))
		if (message.role == LLMQ_ROLE_SYSTEM &&
			!llmq_message_each_part(draft, &message, write_text_block))
			return false;
	llmq_write_close(out, ']');
	return !walk.failed;
}

static bool
write_messages(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;
	bool in_results = false; /* a user message with tool results is open */
	int written = 0;

	llmq_write_key(out, "messages");
	llmq_write_open(out, '[');
	while (llmq_message_next(draft, &walk, &message))
	{
		bool result = message.role == LLMQ_ROLE_TOOL;

		if (message.role == LLMQ_ROLE_SYSTEM)
			continue;
		if (in_results && !result)
			close_results(out);
		if (!in_results && result)
			open_results(out);
		in_results = result;
		if (!(result ? write_tool_result(draft, &message) : write_message(draft, &message)))
			return false;
		written++;
	}
	if (in_results)
		close_results(out);
	llmq_write_close(out, ']');
	if (walk.failed)
		return false;
	return written > 0 || llmq_draft_fail(draft, "messages contain system messages only.");
}

static void
open_results(LlmqBuffer *out)
{
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", "user");
	llmq_write_key(out, "content");
	llmq_write_open(out, '[');
}

static void
close_results(LlmqBuffer *out)
{
	llmq_write_close(out, ']');
	llmq_write_close(out, '}');
}

static bool
write_message(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	bool assistant = message->role == LLMQ_ROLE_ASSISTANT;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", assistant ? "assistant" : "user");
	llmq_write_key(out, "content");
	if (!(assistant ? write_assistant(draft, message) : write_content(draft, message)))
		return false;
	llmq_write_close(out, '}');
	return true;
}

static bool
write_assistant(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	LlmqPart refusal = {.kind = LLMQ_PART_REFUSAL, .text = message->refusal};

	if (llmq_slice_count(message->tool_calls) == 0 && llmq_message_has_content(message))
		return write_content(draft, message);
	llmq_write_open(out, '[');
	if (llmq_message_has_content(message) && !llmq_message_each_part(draft, message, write_part))
		return false;
	if (!llmq_message_has_content(message) && !write_text_block(draft, &refusal))
		return false;
	if (!llmq_message_each_call(draft, message, write_tool_use))
		return false;
	llmq_write_close(out, ']');
	return true;
}

static bool
write_tool_use(LlmqDraft *draft, const LlmqToolCall *call)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice input;

	if (!llmq_tool_call_object(draft, call, &input))
		return false;
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "tool_use");
	llmq_write_member(out, "id", call->id);
	llmq_write_member(out, "name", call->name);
	llmq_write_member(out, "input", input);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_tool_result(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "tool_result");
	llmq_write_member(out, "tool_use_id", message->tool_call_id);
	if (llmq_message_has_content(message))
	{
		llmq_write_key(out, "content");
		if (!write_content(draft, message))
			return false;
	}
	llmq_write_close(out, '}');
	return true;
}

static bool
write_content(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;

	if (llmq_slice_kind(message->content) == '"')
	{
		llmq_write_slice(out, message->content);
		return true;
	}
	llmq_write_open(out, '[');
	if (!llmq_message_each_part(draft, message, write_part))
		return false;
	llmq_write_close(out, ']');
	return true;
}

static bool
write_part(LlmqDraft *draft, const LlmqPart *part)
{
	switch (part->kind)
	{
		case LLMQ_PART_TEXT:
		case LLMQ_PART_REFUSAL:
			return write_text_block(draft, part);
		case LLMQ_PART_IMAGE:
			return write_media(draft, part, "image");
		case LLMQ_PART_FILE:
			return write_media(draft, part, "document");
		case LLMQ_PART_AUDIO:
			return llmq_draft_fail(draft, "messages[%d]: anthropic_messages takes no audio.",
								   draft->message_number);
		case LLMQ_PART_OTHER:
			break;
	}
	llmq_write_slice(&draft->body, part->source);
	return true;
}

/* Writes a text, unless it is empty: Anthropic refuses empty blocks. */
static bool
write_text_block(LlmqDraft *draft, const LlmqPart *part)
{
	LlmqBuffer *out = &draft->body;

	if (part->kind == LLMQ_PART_OTHER || part->kind == LLMQ_PART_IMAGE ||
		part->kind == LLMQ_PART_AUDIO || part->kind == LLMQ_PART_FILE)
		return llmq_draft_fail(draft, "messages[%d]: a system message can contain text only.",
							   draft->message_number);
	if (part->text.len <= 2)
		return true;
	if (part->kind == LLMQ_PART_TEXT && part->source.at != NULL)
	{
		/* The form is the same, and may contain cache_control. */
		llmq_write_slice(out, part->source);
		return true;
	}
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "text");
	llmq_write_member(out, "text", part->text);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_media(LlmqDraft *draft, const LlmqPart *part, const char *type)
{
	LlmqBuffer *out = &draft->body;
	bool inline_data = part->data != NULL;
	const char *source = inline_data ? "base64" : part->url.at != NULL ? "url" : "file";
	LlmqSlice cache_control = llmq_slice_member(part->source, "cache_control");

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", type);
	llmq_write_key(out, "source");
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", source);
	if (inline_data)
		llmq_part_write_inline(draft, part, "media_type", "data");
	else if (part->url.at != NULL)
		llmq_write_member(out, "url", part->url);
	else
		llmq_write_member(out, "file_id", part->file_id);
	llmq_write_close(out, '}');
	if (llmq_slice_kind(part->filename) == '"')
		llmq_write_member(out, "title", part->filename);
	if (cache_control.at != NULL)
		llmq_write_member(out, "cache_control", cache_control);
	llmq_write_close(out, '}');
	return true;
}
