/*
 * provider_openai_chat.c
 *		Writes requests for OpenAI's chat completions, and compatible APIs (vLLM, llama.cpp,
 *		OpenRouter, Ollama's /v1, Azure).
 *
 * The arguments of submit are already in this form, so everything passes unchanged, including
 * the additional params of compatible servers.
 * https://platform.openai.com/docs/api-reference/chat/create
 */
#include "dialects/provider_private.h"

static bool write_body(LlmqDraft *draft);
static void write_messages(LlmqDraft *draft);

const LlmqDialect llmq_dialect_openai_chat = {
	.path = "/chat/completions",
	.auth_header = "Authorization",
	.auth_prefix = "Bearer ",
	.stream_accept = "text/event-stream",
	.has_stream_options = true,
	.write_body = write_body,
};

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice stream_options = llmq_param_take(draft, "stream_options");

	llmq_write_open(out, '{');
	if (draft->model != NULL)
		llmq_write_member_text(out, "model", draft->model);
	write_messages(draft);
	llmq_param_write_rest(draft);
	if (draft->target->stream)
	{
		llmq_write_key(out, "stream");
		llmq_write_raw(out, "true");
		llmq_write_key(out, "stream_options");
		/* Without this a streamed answer does not report its usage. */
		if (stream_options.at == NULL)
			llmq_write_raw(out, "{\"include_usage\":true}");
		else
			llmq_write_slice(out, stream_options);
	}
	llmq_write_close(out, '}');
	return true;
}

static void
write_messages(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSliceWalk walk = llmq_slice_walk(draft->messages);
	LlmqSlice message;

	llmq_write_key(out, "messages");
	llmq_write_open(out, '[');
	if (draft->system != NULL)
	{
		llmq_write_open(out, '{');
		llmq_write_member_text(out, "role", "system");
		llmq_write_member_text(out, "content", draft->system);
		llmq_write_close(out, '}');
	}
	while (llmq_slice_next(&walk, &message))
		llmq_write_slice(out, message);
	llmq_write_close(out, ']');
}
