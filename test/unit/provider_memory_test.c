/*
 * provider_memory_test.c
 *		Requests that need more memory than there is, in every dialect.
 */
#include "provider_check.h"

/* Has something of everything that is copied on its way, with escapes, so that it is. */
static const char messages[] =
	"[{'role': 'system', 'content': 'Be\\n'}, {'role': 'user', 'content': [{'type': 'text', "
	"'text': 'a\\n'}, {'type': 'image_url', 'image_url': {'url': "
	"'data:image\\/png;base64,AA=='}}]}, "
	"{'role': 'assistant', 'content': [{'type': 'text', 'text': 'b'}], 'tool_calls': [{'id': 'c', "
	"'type': 'function', 'function': {'name': 'f', 'arguments': '{\\'a\\': 1}'}}]}, {'role': "
	"'tool', "
	"'tool_call_id': 'c', 'content': '{\\'b\\': 2}'}, {'role': 'assistant', 'refusal': 'No\\n'}]";

static const char sound[] =
	"[{'role': 'user', 'content': [{'type': 'input_audio', 'input_audio': {'data': 'AA\\/A', "
	"'format': 'w\\u0061v'}}, {'type': 'file', 'file': {'filename': 'f', 'file_data': "
	"'data:text\\/plain;base64,AAAA'}}]}]";

static const char params[] =
	"{'temperature': 0.5, 'max_tokens': 7, 'stop': ['X'], 'tools': [{'type': 'function', "
	"'function': {'name': 'f', 'description': 'd'}}], 'response_format': {'type': 'json_schema', "
	"'json_schema': {'name': 's', 'schema': {'type': 'object'}}}}";

/* JSON with ' for ", of which those behind a \ stay escaped. */
static void
check_memory(LlmqApi api, const char *source, const char *given, const char *sentence)
{
	LlmqArena *texts = llmq_arena_create(ARENA_BYTES);
	LlmqPrompt prompt = {.model = "a/m",
						 .system = api == LLMQ_API_OPENAI_EMBEDDINGS ? NULL : "Be brief."};
	LlmqTarget target = {.api = api,
						 .url = "https://example.test/v1",
						 .credential = "s",
						 .headers = "{\"X-A\":\"\\u0062\",\"X-Key\":\"${credential}\"}",
						 .idempotency_header = "Idempotency-Key",
						 .idempotency_key = "k",
						 .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
						 .stream = true};
	bool clean = true;
	bool written = false;
	size_t room;

	llmq_arena_destroy(arena);
	arena = texts;
	prompt.params = quoted(given);
	prompt.messages = quoted(source);
	if (source == NULL)
		prompt.prompt = "Hi";
	for (room = 0; room < 20000 && !written; room += 4)
	{
		LlmqArena *small = llmq_arena_create(room);

		written = llmq_provider_request(small, &target, &prompt, &request, &error);
		clean = clean && (written || (error != NULL && error[0] != '\0'));
		llmq_arena_destroy(small);
	}
	ok(written && clean && room > 100, "%s: %s", llmq_api_name(api), sentence);
	if (!written)
		printf("# %s\n", error);
}

int
main(void)
{
	static const LlmqApi chats[] = {LLMQ_API_OPENAI_CHAT, LLMQ_API_OPENAI_RESPONSES,
									LLMQ_API_ANTHROPIC_MESSAGES, LLMQ_API_GEMINI,
									LLMQ_API_OLLAMA_CHAT};

	for (size_t i = 0; i < COUNT_OF(chats); i++)
	{
		check_memory(chats[i], messages, params,
					 "too little memory gives an error, enough the request");
		check_memory(chats[i], NULL, NULL, "a prompt alone, too");
	}
	check_memory(LLMQ_API_OPENAI_CHAT, sound, NULL, "sound and a file, too");
	check_memory(LLMQ_API_GEMINI, sound, NULL, "sound and a file, too");
	check_memory(LLMQ_API_OPENAI_EMBEDDINGS, NULL, "{'dimensions': 4}", "a text to embed, too");
	llmq_arena_destroy(arena);
	return tap_done();
}
