/*
 * provider_gemini.c
 *		Writes requests for Gemini's generateContent: the path and the conversation.
 *
 * The text of system and developer messages goes to systemInstruction, in order.  Consecutive
 * tool messages become one content, because Gemini counts them against the calls of the turn
 * before.  Parts that are not OpenAI's pass unchanged.  The params are in
 * provider_gemini_params.c.  https://ai.google.dev/api/generate-content
 */
#include "dialects/provider_gemini.h"

#include <string.h>

static const char *write_path(LlmqDraft *draft);
static bool write_body(LlmqDraft *draft);
static bool write_system(LlmqDraft *draft);
static bool has_system(LlmqDraft *draft);
static bool write_contents(LlmqDraft *draft);
static bool write_message(LlmqDraft *draft, const LlmqMessage *message);
static bool write_function_call(LlmqDraft *draft, const LlmqToolCall *call);
static bool
write_function_response(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message);
static bool write_response_value(LlmqDraft *draft, const LlmqMessage *message);
static void open_content(LlmqDraft *draft, const char *role);
static void close_content(LlmqDraft *draft);
static bool write_part(LlmqDraft *draft, const LlmqPart *part);
static bool write_text_part(LlmqDraft *draft, const LlmqPart *part);
static bool add_text(LlmqDraft *draft, const LlmqPart *part);
static void write_text(LlmqDraft *draft, const char *text);

const LlmqDialect llmq_dialect_gemini = {
	.auth_header = "x-goog-api-key",
	.auth_prefix = "",
	.stream_accept = "text/event-stream",
	.needs_model = true,
	.write_path = write_path,
	.write_body = write_body,
};

/*
 * Writes the path.  A model may be given with its collection; anything else in it stays one
 * path segment.
 */
static const char *
write_path(LlmqDraft *draft)
{
	static const char *const collections[] = {"models/", "tunedModels/"};
	const char *collection = collections[0];
	const char *model = draft->model;
	const char *method =
		draft->target->stream ? "streamGenerateContent?alt=sse" : "generateContent";

	for (size_t i = 0; i < sizeof(collections) / sizeof(collections[0]); i++)
		if (strncmp(model, collections[i], strlen(collections[i])) == 0)
		{
			collection = collections[i];
			model += strlen(collection);
			break;
		}
	model = llmq_draft_percent_encode(draft, model);
	if (model == NULL)
		return NULL;
	return llmq_arena_printf(draft->arena, "/%s%s:%s", collection, model, method);
}

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;

	if (llmq_param_take(draft, "contents").at != NULL)
		return llmq_draft_fail(draft, "params must not contain \"contents\": use messages.");
	llmq_write_open(out, '{');
	if (!write_system(draft) || !write_contents(draft) || !llmq_gemini_write_params(draft))
		return false;
	llmq_param_write_rest(draft);
	llmq_write_close(out, '}');
	return true;
}

static bool
write_system(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;

	if (!has_system(draft))
		return draft->error == NULL;
	if (llmq_param_take(draft, "systemInstruction").at != NULL)
		return llmq_draft_fail(draft,
							   "params.systemInstruction and another system cannot both be given.");
	llmq_write_key(out, "systemInstruction");
	llmq_write_open(out, '{');
	llmq_write_key(out, "parts");
	llmq_write_open(out, '[');
	if (draft->system != NULL)
		write_text(draft, draft->system);
	while (llmq_message_next(draft, &walk, &message))
		if (message.role == LLMQ_ROLE_SYSTEM &&
			!llmq_message_each_part(draft, &message, write_text_part))
			return false;
	close_content(draft);
	return !walk.failed;
}

static bool
has_system(LlmqDraft *draft)
{
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;

	while (llmq_message_next(draft, &walk, &message))
		if (message.role == LLMQ_ROLE_SYSTEM && llmq_message_has_content(&message))
			return true;
	return draft->system != NULL && !walk.failed;
}

static bool
write_contents(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqMessageWalk walk = llmq_message_walk(draft);
	LlmqMessage message;
	bool in_answers = false; /* a content with answers of tools is open */
	bool written = false;

	llmq_write_key(out, "contents");
	llmq_write_open(out, '[');
	while (llmq_message_next(draft, &walk, &message))
	{
		bool answer = message.role == LLMQ_ROLE_TOOL;

		if (message.role == LLMQ_ROLE_SYSTEM)
			continue;
		if (in_answers && !answer)
			close_content(draft);
		if (!in_answers && answer)
			open_content(draft, "user");
		in_answers = answer;
		if (!(answer ? write_function_response(draft, &walk, &message)
					 : write_message(draft, &message)))
			return false;
		written = true;
	}
	if (in_answers)
		close_content(draft);
	llmq_write_close(out, ']');
	if (walk.failed)
		return false;
	return written || llmq_draft_fail(draft, "messages contain system messages only.");
}

static bool
write_message(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqPart refusal = {.kind = LLMQ_PART_REFUSAL, .text = message->refusal};

	open_content(draft, message->role == LLMQ_ROLE_ASSISTANT ? "model" : "user");
	if (llmq_message_has_content(message) && !llmq_message_each_part(draft, message, write_part))
		return false;
	if (!llmq_message_has_content(message) && !write_text_part(draft, &refusal))
		return false;
	if (!llmq_message_each_call(draft, message, write_function_call))
		return false;
	/* Gemini refuses a content without parts, so an empty one gets an empty text. */
	if (draft->body.len > 0 && draft->body.data[draft->body.len - 1] == '[')
		write_text(draft, "");
	close_content(draft);
	return true;
}

static bool
write_function_call(LlmqDraft *draft, const LlmqToolCall *call)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice extra = llmq_slice_member(call->source, "extra_content");
	LlmqSlice signature =
		llmq_slice_member(llmq_slice_member(extra, "google"), "thought_signature");
	LlmqSlice args;

	if (!llmq_tool_call_object(draft, call, &args))
		return false;
	llmq_write_open(out, '{');
	llmq_write_key(out, "functionCall");
	llmq_write_open(out, '{');
	llmq_write_member(out, "name", call->name);
	llmq_write_member(out, "args", args);
	llmq_write_close(out, '}');
	/* Google's OpenAI form has this signature, which newer models require to be sent back, here. */
	if (llmq_slice_kind(signature) == '"')
		llmq_write_member(out, "thoughtSignature", signature);
	llmq_write_close(out, '}');
	return true;
}

/*
 * Writes the answer of a tool.  Gemini matches it to its call by the name of the function,
 * OpenAI by the id of the call.
 */
static bool
write_function_response(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	LlmqToolCall call = {.name = message->name};

	if (llmq_slice_kind(call.name) != '"' && !llmq_message_find_call(draft, walk, message, &call))
		return llmq_draft_fail(
			draft,
			"messages[%d]: its tool_call_id is not among the tool calls of the assistant "
			"message before it, and it has no name: gemini needs the name of the function.",
			draft->message_number);
	llmq_write_open(out, '{');
	llmq_write_key(out, "functionResponse");
	llmq_write_open(out, '{');
	llmq_write_member(out, "name", call.name);
	llmq_write_key(out, "response");
	if (!write_response_value(draft, message))
		return false;
	llmq_write_close(out, '}');
	llmq_write_close(out, '}');
	return true;
}

/*
 * Writes the response, which must be an object: the content if it is one, or else its text
 * under "result".
 */
static bool
write_response_value(LlmqDraft *draft, const LlmqMessage *message)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice object;
	const char *text;
	size_t len;

	if (llmq_slice_kind(message->content) == '"')
	{
		if (!llmq_draft_read_text(draft, message->content, &text, &len))
			return false;
		if (llmq_slice_parse(text, len, &object) && llmq_slice_kind(object) == '{')
		{
			llmq_write_slice(out, object);
			return true;
		}
	}
	llmq_write_open(out, '{');
	llmq_write_key(out, "result");
	llmq_write_string_start(out);
	if (!llmq_message_each_part(draft, message, add_text))
		return false;
	llmq_write_string_end(out);
	llmq_write_close(out, '}');
	return true;
}

static void
open_content(LlmqDraft *draft, const char *role)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", role);
	llmq_write_key(out, "parts");
	llmq_write_open(out, '[');
}

static void
close_content(LlmqDraft *draft)
{
	llmq_write_close(&draft->body, ']');
	llmq_write_close(&draft->body, '}');
}

static bool
write_part(LlmqDraft *draft, const LlmqPart *part)
{
	LlmqBuffer *out = &draft->body;

	switch (part->kind)
	{
		case LLMQ_PART_TEXT:
		case LLMQ_PART_REFUSAL:
			return write_text_part(draft, part);
		case LLMQ_PART_OTHER:
			llmq_write_slice(out, part->source);
			return true;
		case LLMQ_PART_IMAGE:
		case LLMQ_PART_AUDIO:
		case LLMQ_PART_FILE:
			break;
	}
	llmq_write_open(out, '{');
	llmq_write_key(out, part->data != NULL ? "inlineData" : "fileData");
	llmq_write_open(out, '{');
	if (part->data != NULL)
		llmq_part_write_inline(draft, part, "mimeType", "data");
	else
		llmq_write_member(out, "fileUri", part->url.at != NULL ? part->url : part->file_id);
	llmq_write_close(out, '}');
	llmq_write_close(out, '}');
	return true;
}

/* Writes a text, unless it is empty: Gemini refuses parts without data. */
static bool
write_text_part(LlmqDraft *draft, const LlmqPart *part)
{
	LlmqBuffer *out = &draft->body;

	if (part->kind != LLMQ_PART_TEXT && part->kind != LLMQ_PART_REFUSAL)
		return llmq_draft_fail(draft, "messages[%d]: a system message can contain text only.",
							   draft->message_number);
	if (part->text.len <= 2)
		return true;
	llmq_write_open(out, '{');
	llmq_write_member(out, "text", part->text);
	llmq_write_close(out, '}');
	return true;
}

static bool
add_text(LlmqDraft *draft, const LlmqPart *part)
{
	if (part->kind != LLMQ_PART_TEXT)
		return llmq_draft_fail(draft, "messages[%d]: the answer of a tool can contain text only.",
							   draft->message_number);
	llmq_write_string_add_slice(&draft->body, part->text);
	return true;
}

static void
write_text(LlmqDraft *draft, const char *text)
{
	llmq_write_open(&draft->body, '{');
	llmq_write_member_text(&draft->body, "text", text);
	llmq_write_close(&draft->body, '}');
}
