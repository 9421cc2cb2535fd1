/*
 * provider_test.c
 *		Requests: url, headers, secrets, and chat completions in OpenAI's form.
 */
#include "provider_check.h"

static const LlmqPrompt hello = {.prompt = "Hi", .model = "m"};

static void
test_urls(void)
{
	static const struct
	{
		LlmqApi api;
		bool stream;
		const char *base;
		const char *model;
		const char *url;
	} cases[] = {
		{LLMQ_API_OPENAI_CHAT, false, "https://a.test/v1", "m",
		 "https://a.test/v1/chat/completions"},
		{LLMQ_API_OPENAI_CHAT, true, "https://a.test/v1/", "m",
		 "https://a.test/v1/chat/completions"},
		{LLMQ_API_OPENAI_CHAT, false, "HTTP://a.test", "m", "HTTP://a.test/chat/completions"},
		{LLMQ_API_OPENAI_CHAT, false, "https://a.test/openai/deployments/d?api-version=2024-10-21",
		 "m", "https://a.test/openai/deployments/d/chat/completions?api-version=2024-10-21"},
		{LLMQ_API_OPENAI_CHAT, false, "https://a.test/v1//?x=1", "m",
		 "https://a.test/v1/chat/completions?x=1"},
		{LLMQ_API_OPENAI_CHAT, false, "https://a.test/v1?", "m",
		 "https://a.test/v1/chat/completions"},
		{LLMQ_API_OPENAI_RESPONSES, false, "https://a.test/v1", "m", "https://a.test/v1/responses"},
		{LLMQ_API_ANTHROPIC_MESSAGES, false, "https://a.test/v1", "m",
		 "https://a.test/v1/messages"},
		{LLMQ_API_OLLAMA_CHAT, false, "http://a.test:11434", "m", "http://a.test:11434/api/chat"},
		{LLMQ_API_OPENAI_EMBEDDINGS, false, "https://a.test/v1", "m",
		 "https://a.test/v1/embeddings"},
		{LLMQ_API_GEMINI, false, "https://a.test/v1beta", "gemini-2.5-flash",
		 "https://a.test/v1beta/models/gemini-2.5-flash:generateContent"},
		{LLMQ_API_GEMINI, true, "https://a.test/v1beta/", "models/g",
		 "https://a.test/v1beta/models/g:streamGenerateContent?alt=sse"},
		{LLMQ_API_GEMINI, true, "https://a.test/v1beta?k=v", "g",
		 "https://a.test/v1beta/models/g:streamGenerateContent?alt=sse&k=v"},
		{LLMQ_API_GEMINI, false, "https://a.test/v1beta?k=v", "g",
		 "https://a.test/v1beta/models/g:generateContent?k=v"},
		{LLMQ_API_GEMINI, false, "https://a.test/v1beta", "tunedModels/t",
		 "https://a.test/v1beta/tunedModels/t:generateContent"},
		{LLMQ_API_GEMINI, false, "https://a.test/v1beta", "../x?y#z é",
		 "https://a.test/v1beta/models/..%2Fx%3Fy%23z%20%C3%A9:generateContent"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
	{
		LlmqTarget target = {.api = cases[i].api, .url = cases[i].base, .stream = cases[i].stream};
		LlmqPrompt prompt = {.prompt = "Hi", .model = cases[i].model};

		start_case();
		is_string(ask(&target, &prompt) ? request.url : error, cases[i].url,
				  "the dialect's path follows the base, before its query");
	}
}

static void
test_bad_urls(void)
{
	static const char *const urls[] = {
		NULL,
		"",
		"ftp://a.test",
		"a.test/v1",
		"https://a.test/v1#x",
		"https://a.test/v 1",
		"https://a.test/v1\r\nX: y",
		"https://a.test/\t",
	};

	for (size_t i = 0; i < COUNT_OF(urls); i++)
	{
		LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT, .url = urls[i]};

		start_case();
		ok(!ask(&target, &hello) && strstr(error, "url must") != NULL,
		   "a url that is none is refused (%zu)", i);
	}
}

/* Returns the whole header line of that name; NULL if there is none, "twice" if there are two. */
static const char *
header(const char *name)
{
	const char *found = NULL;

	for (int i = 0; i < request.header_count; i++)
		if (strncmp(request.headers[i], name, strlen(name)) == 0 &&
			request.headers[i][strlen(name)] == ':')
			found = found == NULL ? request.headers[i] : "twice";
	return found;
}

static void
test_own_headers(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT,
						 .url = "https://a.test",
						 .credential = "s3cret",
						 .idempotency_header = "Idempotency-Key",
						 .idempotency_key = "k-1"};

	start_case();
	ok(ask(&target, &hello), "a plain request is written");
	is_string(header("Content-Type"), "Content-Type: application/json", "the body is JSON");
	is_string(header("Accept"), "Accept: application/json", "a plain answer is JSON");
	is_string(header("Authorization"), "Authorization: Bearer s3cret", "OpenAI takes a bearer");
	is_string(header("Idempotency-Key"), "Idempotency-Key: k-1", "the idempotency key is sent");
	is_int(request.header_count, 4, "nothing else is sent");

	target.stream = true;
	ask(&target, &hello);
	is_string(header("Accept"), "Accept: text/event-stream", "a stream is asked for by Accept too");

	target.api = LLMQ_API_ANTHROPIC_MESSAGES;
	ask(&target, &hello);
	is_string(header("x-api-key"), "x-api-key: s3cret", "Anthropic takes x-api-key");
	is_string(header("anthropic-version"), "anthropic-version: 2023-06-01",
			  "Anthropic wants a version");
	is_string(header("Authorization"), NULL, "and no bearer");

	target.api = LLMQ_API_GEMINI;
	ask(&target, &hello);
	is_string(header("x-goog-api-key"), "x-goog-api-key: s3cret", "Gemini takes x-goog-api-key");

	target.api = LLMQ_API_OLLAMA_CHAT;
	ask(&target, &hello);
	is_string(header("Authorization"), "Authorization: Bearer s3cret", "Ollama takes a bearer");
	is_string(header("Accept"), "Accept: application/x-ndjson", "Ollama streams lines of JSON");

	target.credential = NULL;
	ask(&target, &hello);
	is_string(header("Authorization"), NULL, "without a secret no authentication is sent");
	target.credential = "";
	ask(&target, &hello);
	is_string(header("Authorization"), NULL, "nor with an empty one");
	target.idempotency_key = NULL;
	ask(&target, &hello);
	is_string(header("Idempotency-Key"), NULL, "without a key no idempotency header is sent");
}

static void
test_user_headers(void)
{
	LlmqTarget target = {
		.api = LLMQ_API_ANTHROPIC_MESSAGES, .url = "https://a.test", .credential = "s3cret"};

	start_case();
	target.headers = quoted("{'ACCEPT': '*/*', 'Anthropic-Version': '2024-01-01', 'x-a': '1', "
							"'X-A': '2', 'anthropic-beta': 'a,b'}");
	ok(ask(&target, &hello), "the user's headers are taken");
	is_string(header("ACCEPT"), "ACCEPT: */*", "the user's header stands");
	is_string(header("Accept"), NULL, "and replaces ours of that name in any case");
	is_string(header("Anthropic-Version"), "Anthropic-Version: 2024-01-01",
			  "a dialect's version too");
	is_string(header("anthropic-version"), NULL, "of which one is sent");
	is_string(header("X-A"), "X-A: 2", "of two the later stands");
	is_string(header("x-a"), NULL, "alone");
	is_string(header("x-api-key"), "x-api-key: s3cret", "authentication stays");

	target.headers =
		quoted("{'api-key': '${credential}', 'x-two': 'a ${credential}:${credential}'}");
	ok(ask(&target, &hello), "a header may ask for the secret");
	is_string(header("api-key"), "api-key: s3cret", "the mark becomes the secret");
	is_string(header("x-two"), "x-two: a s3cret:s3cret", "every one of them");
	is_string(header("x-api-key"), NULL, "and the dialect's own authentication is left out");

	target.headers = quoted("{'X-Api-Key': 'mine'}");
	ask(&target, &hello);
	is_string(header("X-Api-Key"), "X-Api-Key: mine", "a user's own key replaces the secret's");
	is_string(header("x-api-key"), NULL, "in any case");

	target.headers = "null";
	ok(ask(&target, &hello), "headers that are null are none");
	target.headers = "{}";
	ok(ask(&target, &hello), "an empty object too");
}

/* Asks with a credential and headers, and checks that it is refused without showing the secret. */
static void
refuse_headers(const char *headers, const char *credential, const char *words)
{
	LlmqTarget target = {
		.api = LLMQ_API_OPENAI_CHAT, .url = "https://a.test", .credential = credential};
	bool written;

	start_case();
	target.headers = quoted(headers);
	written = ask(&target, &hello);
	ok(!written && strstr(error, words) != NULL, "refused: %s", words);
	ok(!written && strstr(error, "s3cret") == NULL, "and the secret is not told");
}

static void
test_bad_headers(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT, .url = "https://a.test"};

	refuse_headers(NULL, "s3cret\r\nX: y", "secret contains a control character");
	refuse_headers(NULL, "s3cret\n", "secret contains a control character");
	refuse_headers("{'x': '${credential}'}", "s3cret\r", "secret contains a control character");
	refuse_headers("{'x': '${credential}'}", NULL, "asks for ${credential}");
	refuse_headers("{'x': 's3cret\\r\\nY: z'}", "c", "header x contains a control character");
	refuse_headers("{'x': 's3cret\\u0000'}", "c", "header x contains a control character");
	refuse_headers("{'x': 's3cret\\u000a'}", "c", "header x contains a control character");
	refuse_headers("{'x': 1}", "s3cret", "header x must be a string");
	refuse_headers("{'x': null}", "s3cret", "header x must be a string");
	refuse_headers("{'': 's3cret'}", "s3cret", "name that HTTP does not allow");
	refuse_headers("{'a b': 's3cret'}", "s3cret", "name that HTTP does not allow");
	refuse_headers("{'a:b': 's3cret'}", "s3cret", "name that HTTP does not allow");
	refuse_headers("{'a\\r\\nb': 's3cret'}", "s3cret", "name that HTTP does not allow");
	refuse_headers("{'a\\u0000b': 's3cret'}", "s3cret", "name that HTTP does not allow");
	refuse_headers("{'content-length': '1'}", "s3cret", "must not set the header");
	refuse_headers("{'Transfer-Encoding': 'chunked'}", "s3cret", "must not set the header");
	refuse_headers("['s3cret']", "s3cret", "headers must be a JSON object");
	refuse_headers("{'x': 's3cret'", "s3cret", "headers are not JSON");

	start_case();
	target.idempotency_header = "Idempotency Key";
	target.idempotency_key = "k";
	ok(!ask(&target, &hello), "an idempotency header must have a name");
	target.idempotency_header = "Idempotency-Key";
	target.idempotency_key = "k\nX: y";
	ok(!ask(&target, &hello), "and a key on one line");
}

static void
test_chat(void)
{
	static const Case cases[] = {
		{"a prompt is a user's message", NULL, NULL,
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}"},
		{"params stand beside the messages as they are", NULL,
		 "{'temperature': 0.2, 'top_k': null, 'x': {'y': [1, {}]}, 'stop': 'a', 'max_tokens': 5}",
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}], 'temperature': 0.2, "
		 "'top_k': null, 'x': {'y': [1, {}]}, 'stop': 'a', 'max_tokens': 5}"},
		{"messages pass as they are, also of forms that nobody here knows",
		 "[{'role': 'critic', 'content': [{'type': 'video_url', 'video_url': {'url': 'u'}}]}, "
		 "{'role': 'assistant', 'content': null, 'function_call': {'name': 'f'}}]",
		 "{'tools': [], 'tool_choice': 'auto'}",
		 "{'model': 'm', 'messages': [{'role': 'critic', 'content': [{'type': 'video_url', "
		 "'video_url': {'url': 'u'}}]}, {'role': 'assistant', 'content': null, "
		 "'function_call': {'name': 'f'}}], 'tools': [], 'tool_choice': 'auto'}"},
		{"stream_options are left out where there is no stream", NULL,
		 "{'stream_options': {'include_usage': true}}",
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}"},
		{"params may be null", NULL, "null",
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}"},
	};
	static const Case streamed[] = {
		{"a stream is asked for, with its usage", NULL, NULL,
		 "{'model': 'm', 'messages': [{'role': 'system', 'content': 'Be.'}, {'role': 'user', "
		 "'content': 'Hi'}], 'stream': true, 'stream_options': {'include_usage': true}}"},
		{"stream_options of the user's stand", NULL, "{'stream_options': {'x': 1}}",
		 "{'model': 'm', 'messages': [{'role': 'system', 'content': 'Be.'}, {'role': 'user', "
		 "'content': 'Hi'}], 'stream': true, 'stream_options': {'x': 1}}"},
	};

	BODIES(LLMQ_API_OPENAI_CHAT, cases);
	for (size_t i = 0; i < COUNT_OF(streamed); i++)
	{
		bool written = ask_case(LLMQ_API_OPENAI_CHAT, true, "Be.", &streamed[i]);

		is_json(written ? request.body : NULL, streamed[i].expected, streamed[i].sentence);
	}
}

static void
test_lossless(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT, .url = "https://a.test"};
	LlmqPrompt prompt = {.prompt = "\"\\\b\f\n\r\t\x01 é 漢 😀"};

	start_case();
	prompt.params = quoted("{'a': 12345678901234567890, 'b' : 1e999, 'c': 0.10, 'd': -0.0,\n"
						   "\t'e': [ 1 , 'x  y\\' z', true ], '\\u00e9': '\\u0041 é'}");
	ok(ask(&target, &prompt), "numbers that fit no C type are written");
	is_string(request.body,
			  "{\"messages\":[{\"role\":\"user\",\"content\":"
			  "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001 é 漢 😀\"}],"
			  "\"a\":12345678901234567890,\"b\":1e999,\"c\":0.10,\"d\":-0.0,"
			  "\"e\":[1,\"x  y\\\" z\",true],\"\\u00e9\":\"\\u0041 é\"}",
			  "as they stand, compact, text in UTF-8, and without a model if there is none");
	is_int((int64_t) request.body_len, (int64_t) strlen(request.body), "the length is the body's");
}

static void
test_no_params(void)
{
	static const Case cases[] = {
		{"params without a member say nothing", NULL, "{}",
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}"},
		{"nor does null", NULL, "null",
		 "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}"},
	};

	BODIES(LLMQ_API_OPENAI_CHAT, cases);
}

static void
test_refusals(void)
{
	static const Case cases[] = {
		{"params must be an object", NULL, "[1]", "params must be a JSON object"},
		{"params must be JSON", NULL, "{'a': }", "params is not JSON"},
		{"stream is not for params", NULL, "{'stream': true}", "must not contain \"stream\""},
		{"nor is model", NULL, "{'model': 'x'}", "must not contain \"model\""},
		{"nor are messages", NULL, "{'messages': []}", "must not contain \"messages\""},
		{"messages must be JSON", "[", NULL, "messages is not JSON"},
		{"messages must be an array", "{'role': 'user'}", NULL, "messages must be a JSON array"},
		{"of one message at least", "[]", NULL, "at least one message"},
		{"a message must be an object", "['Hi']", NULL, "an object with a role"},
		{"with a role", "[{'content': 'Hi'}]", NULL, "an object with a role"},
	};
	LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT, .url = "https://a.test"};
	LlmqPrompt prompt = {.prompt = "Hi", .messages = "[{\"role\":\"user\",\"content\":\"Ho\"}]"};

	REFUSALS(LLMQ_API_OPENAI_CHAT, cases);
	start_case();
	ok(!ask(&target, &prompt) && strstr(error, "cannot both") != NULL,
	   "prompt and messages cannot both be given");
	prompt.prompt = prompt.messages = NULL;
	ok(!ask(&target, &prompt) && strstr(error, "neither prompt nor messages") != NULL,
	   "one of them must be");
	target.api = (LlmqApi) 99;
	ok(!ask(&target, &hello), "an unknown api is refused");
}

static void
test_models(void)
{
	static const LlmqApi free_of_it[] = {LLMQ_API_OPENAI_CHAT, LLMQ_API_OPENAI_RESPONSES,
										 LLMQ_API_OPENAI_EMBEDDINGS};
	static const LlmqApi in_need[] = {LLMQ_API_ANTHROPIC_MESSAGES, LLMQ_API_GEMINI,
									  LLMQ_API_OLLAMA_CHAT};
	LlmqTarget target = {.url = "https://a.test"};
	LlmqPrompt prompt = {.prompt = "Hi"};

	start_case();
	for (int i = 0; i < 3; i++)
	{
		target.api = free_of_it[i];
		ok(ask(&target, &prompt) && strstr(request.body, "\"model\"") == NULL,
		   "%s can do without a model", llmq_api_name(target.api));
		target.api = in_need[i];
		ok(!ask(&target, &prompt) && strstr(error, "needs a model") != NULL, "%s cannot",
		   llmq_api_name(target.api));
	}
}

static void
test_memory(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_CHAT, .url = "https://a.test", .credential = "s"};
	bool clean = true;
	bool written = false;
	size_t room;

	llmq_arena_destroy(arena);
	for (room = 0; room < 2000 && !written; room++)
	{
		arena = llmq_arena_create(room);
		written = ask(&target, &hello);
		clean = clean && (written || (error != NULL && error[0] != '\0'));
		llmq_arena_destroy(arena);
	}
	arena = NULL;
	ok(clean && room > 100, "an arena that is too small gives an error, whatever its size");
	ok(written, "and one that is large enough a request");
}

int
main(void)
{
	test_urls();
	test_bad_urls();
	test_own_headers();
	test_user_headers();
	test_bad_headers();
	test_chat();
	test_lossless();
	test_no_params();
	test_refusals();
	test_models();
	test_memory();
	llmq_arena_destroy(arena);
	return tap_done();
}
