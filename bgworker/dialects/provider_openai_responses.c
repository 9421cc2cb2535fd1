/*
 * provider_openai_responses.c
 *		Writes requests for OpenAI's Responses: the conversation.
 *
 * The system that submit takes becomes instructions.  Messages become items; a call and its
 * answer are an item each.  A job may give params.input in this form instead of messages.  The
 * params are in provider_responses_params.c.
 * https://platform.openai.com/docs/api-reference/responses/create
 */
#include "dialects/provider_responses.h"

static bool write_body(LlmqDraft *draft);
static bool write_instructions(LlmqDraft *draft);
static bool write_input(LlmqDraft *draft);
static bool write_message(LlmqDraft *draft, const LlmqMessage *message);
static void write_refusal(LlmqDraft *draft, const LlmqMessage *message);
static bool write_call(LlmqDraft *draft, const LlmqToolCall *call);
static bool
write_call_output(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message);
static bool write_content(LlmqDraft *draft, const LlmqMessage *message, LlmqPartWriter write);
static bool write_input_part(LlmqDraft *draft, const LlmqPart *part);
static bool write_output_part(LlmqDraft *draft, const LlmqPart *part);
static void write_text_part(LlmqDraft *draft, const LlmqPart *part, const char *type);
static void write_image(LlmqDraft *draft, const LlmqPart *part);
static void write_file(LlmqDraft *draft, const LlmqPart *part);

const LlmqDialect llmq_dialect_openai_responses = {
	.path = "/responses",
	.auth_header = "Authorization",
	.auth_prefix = "Bearer ",
	.stream_accept = "text/event-stream",
	.has_stream_options = true,
	.reads_input = true,
	.write_body = write_body,
};

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	if (draft->model != NULL)
		llmq_write_member_text(out, "model", draft->model);
	if (!write_instructions(draft) || !write_input(draft) || !llmq_responses_write_params(draft))
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

static bool
write_instructions(LlmqDraft *draft)
{
	if (draft->system == NULL)
		return true;
	if (llmq_param_take(draft, "instructions").at != NULL)
		return llmq_draft_fail(draft, "params.instructions and system cannot both be given.");
	llmq_write_member_text(&draft->body, "instructions", draft->system);
	return true;
}

static bool
write_input(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice input = llmq_param_take(draft, "input");
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;

	if (draft->messages.at == NULL && input.at == NULL)
		return llmq_draft_fail(draft, "The job has neither prompt nor messages.");
	if (draft->messages.at != NULL && input.at != NULL)
		return llmq_draft_fail(draft,
							   "params.input and a prompt or messages cannot both be given.");
	llmq_write_key(out, "input");
	if (input.at != NULL)
	{
		llmq_write_slice(out, input);
		return true;
	}
	llmq_write_open(out, '[');
	while (llmq_message_next(draft, &walk, &message))
		if (!(message.role == LLMQ_ROLE_TOOL ? write_call_output(draft, &walk, &message)
											 : write_message(draft, &message)))
			return false;
	llmq_write_close(out, ']');
	return !walk.failed;
}

static bool
write_message(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	bool assistant = message->role == LLMQ_ROLE_ASSISTANT;
	LlmqPartWriter write = assistant ? write_output_part : write_input_part;

	if (assistant && !llmq_message_has_content(message))
		write_refusal(draft, message);
	if (!assistant || llmq_message_has_content(message))
	{
		llmq_write_open(out, '{');
		llmq_write_member(out, "role", message->role_name);
		llmq_write_key(out, "content");
		if (!write_content(draft, message, write))
			return false;
		llmq_write_close(out, '}');
	}
	return llmq_message_each_call(draft, message, write_call);
}

static void
write_refusal(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;

	if (llmq_slice_kind(message->refusal) != '"')
		return;
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", "assistant");
	llmq_write_key(out, "content");
	llmq_write_open(out, '[');
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "refusal");
	llmq_write_member(out, "refusal", message->refusal);
	llmq_write_close(out, '}');
	llmq_write_close(out, ']');
	llmq_write_close(out, '}');
}

static bool
write_call(LlmqDraft *draft, const LlmqToolCall *call)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice arguments = call->arguments;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", call->custom ? "custom_tool_call" : "function_call");
	llmq_write_member(out, "call_id", call->id);
	llmq_write_member(out, "name", call->name);
	llmq_write_key(out, call->custom ? "input" : "arguments");
	if (llmq_slice_kind(arguments) == '"')
		llmq_write_slice(out, arguments);
	else
		llmq_write_text_len(out, arguments.at, arguments.len);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_call_output(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	LlmqToolCall call;
	bool custom = llmq_message_find_call(draft, walk, message, &call) && call.custom;

	/* The call may also be in an earlier response (previous_response_id). */
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type",
						   custom ? "custom_tool_call_output" : "function_call_output");
	llmq_write_member(out, "call_id", message->tool_call_id);
	llmq_write_key(out, "output");
	if (!write_content(draft, message, write_input_part))
		return false;
	llmq_write_close(out, '}');
	return true;
}

static bool
write_content(LlmqDraft *draft, const LlmqMessage *message, LlmqPartWriter write)
{
	LlmqBuffer *out = &draft->body;

	if (llmq_slice_kind(message->content) == '"')
	{
		llmq_write_slice(out, message->content);
		return true;
	}
	llmq_write_open(out, '[');
	if (!llmq_message_each_part(draft, message, write))
		return false;
	llmq_write_close(out, ']');
	return true;
}

static bool
write_input_part(LlmqDraft *draft, const LlmqPart *part)
{
	switch (part->kind)
	{
		case LLMQ_PART_TEXT:
			write_text_part(draft, part, "input_text");
			break;
		case LLMQ_PART_IMAGE:
			write_image(draft, part);
			break;
		case LLMQ_PART_FILE:
			write_file(draft, part);
			break;
		case LLMQ_PART_AUDIO: /* the same form */
		case LLMQ_PART_REFUSAL:
		case LLMQ_PART_OTHER:
			llmq_write_slice(&draft->body, part->source);
			break;
	}
	return true;
}

static bool
write_output_part(LlmqDraft *draft, const LlmqPart *part)
{
	if (part->kind != LLMQ_PART_TEXT)
		return write_input_part(draft, part);
	write_text_part(draft, part, "output_text");
	return true;
}

static void
write_text_part(LlmqDraft *draft, const LlmqPart *part, const char *type)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", type);
	llmq_write_member(out, "text", part->text);
	llmq_write_close(out, '}');
}

static void
write_image(LlmqDraft *draft, const LlmqPart *part)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice image = llmq_slice_member(part->source, "image_url");
	LlmqSlice detail = llmq_slice_member(image, "detail");

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "input_image");
	llmq_write_member(out, "image_url",
					  llmq_slice_kind(image) == '"' ? image : llmq_slice_member(image, "url"));
	if (llmq_slice_given(detail))
		llmq_write_member(out, "detail", detail);
	llmq_write_close(out, '}');
}

static void
write_file(LlmqDraft *draft, const LlmqPart *part)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "type", "input_file");
	llmq_write_members(out, llmq_slice_member(part->source, "file"));
	llmq_write_close(out, '}');
}
