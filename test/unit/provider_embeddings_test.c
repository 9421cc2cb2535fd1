/*
 * provider_embeddings_test.c
 *		Requests for embeddings, and what the reader of the answer is told of them.
 */
#include "base/buffer.h"
#include "provider_check.h"

static void
check_input(const char *prompt_text, const char *params, const char *body, int inputs, bool array,
			int dimensions, const char *sentence)
{
	LlmqTarget target = {
		.api = LLMQ_API_OPENAI_EMBEDDINGS, .url = "https://a.test", .stream = true};
	LlmqPrompt prompt = {.model = "m", .prompt = prompt_text};
	bool written;

	start_case();
	prompt.params = quoted(params);
	written = ask(&target, &prompt);
	is_json(written ? request.body : NULL, body, sentence);
	is_int(request.embedding_inputs, inputs, "the number of inputs is told");
	ok(request.embedding_array == array, "and whether they were an array");
	is_int(request.embedding_dimensions, dimensions, "and the dimensions");
}

static void
test_inputs(void)
{
	check_input("Hi", NULL, "{'model': 'm', 'input': 'Hi', 'encoding_format': 'float'}", 1, false,
				0, "a prompt is the input");
	check_input(NULL, "{'input': 'Hi', 'user': 'u'}",
				"{'model': 'm', 'input': 'Hi', 'user': 'u', 'encoding_format': 'float'}", 1, false,
				0, "a text in params is the input");
	check_input(NULL, "{'input': ['a', 'b, [c]', '\\\\\\''], 'dimensions': 256}",
				"{'model': 'm', 'input': ['a', 'b, [c]', '\\\\\\''], 'dimensions': 256, "
				"'encoding_format': 'float'}",
				3, true, 256, "an array of texts is as many inputs");
	check_input(NULL, "{'input': ['a']}",
				"{'model': 'm', 'input': ['a'], 'encoding_format': 'float'}", 1, true, 0,
				"also an array of one");
	check_input(NULL, "{'input': [1, 2, 3]}",
				"{'model': 'm', 'input': [1, 2, 3], 'encoding_format': 'float'}", 1, true, 0,
				"tokens are one input");
	check_input(NULL, "{'input': [[1, 2], [3]], 'encoding_format': 'base64'}",
				"{'model': 'm', 'input': [[1, 2], [3]], 'encoding_format': 'float'}", 2, true, 0,
				"arrays of tokens are one each, and the answer is numbers in any case");
	check_input("Hi", "{'input': null, 'dimensions': null, 'stream_options': {}}",
				"{'model': 'm', 'input': 'Hi', 'encoding_format': 'float'}", 1, false, 0,
				"what is null is not given");
}

static const Case refusals[] = {
	{"prompt and input are one too many", NULL, "{'input': 'x'}", "cannot both be given"},
	{"messages are for chats", "[{'role': 'user', 'content': 'Hi'}]", NULL,
	 "not messages or system"},
	{"dimensions must be positive", NULL, "{'dimensions': 0}", "params.dimensions must be"},
	{"and whole", NULL, "{'dimensions': 1.5}", "params.dimensions must be"},
	{"not negative", NULL, "{'dimensions': -1}", "params.dimensions must be"},
	{"a number", NULL, "{'dimensions': '3'}", "params.dimensions must be"},
	{"and not beyond reason", NULL, "{'dimensions': 99999999999999999999}",
	 "params.dimensions must be"},
};

static void
test_refusals(void)
{
	static const struct
	{
		const char *params;
		const char *words;
	} cases[] = {
		{NULL, "needs a prompt or params.input"},
		{"{'input': []}", "not empty"},
		{"{'input': {}}", "must be a text"},
		{"{'input': 1}", "must be a text"},
		{"{'input': ['a', 1]}", "must contain texts only"},
		{"{'input': [null]}", "must contain texts only"},
	};
	LlmqTarget target = {.api = LLMQ_API_OPENAI_EMBEDDINGS, .url = "https://a.test"};

	REFUSALS(LLMQ_API_OPENAI_EMBEDDINGS, refusals);
	for (size_t i = 0; i < COUNT_OF(cases); i++)
	{
		LlmqPrompt prompt = {.model = "m"};

		start_case();
		prompt.params = quoted(cases[i].params);
		ok(!ask(&target, &prompt) && strstr(error, cases[i].words) != NULL,
		   "an input that is none is refused: %s", cases[i].words);
	}
}

static void
test_most(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_EMBEDDINGS, .url = "https://a.test"};
	LlmqPrompt prompt = {.model = "m"};
	LlmqBuffer params;

	start_case();
	llmq_buffer_init(&params, 3000000);
	llmq_buffer_append_string(&params, "{\"input\":[1");
	for (int i = 0; i < 1000000; i++)
		llmq_buffer_append_string(&params, ",1");
	llmq_buffer_append_string(&params, "]}");
	prompt.params = llmq_buffer_string(&params);
	ok(!ask(&target, &prompt) && strstr(error, "more than 1000000") != NULL,
	   "an input of a million tokens and one is refused");
	llmq_buffer_free(&params);
}

static void
test_system(void)
{
	static const Case c = {.params = NULL};

	ok(!ask_case(LLMQ_API_OPENAI_EMBEDDINGS, false, "Be.", &c) &&
		   strstr(error, "not messages or system") != NULL,
	   "a system has no place");
}

int
main(void)
{
	test_inputs();
	test_refusals();
	test_most();
	test_system();
	llmq_arena_destroy(arena);
	return tap_done();
}
