/*
 * provider_ollama_test.c
 *		Requests for Ollama's own chat.
 */
#include "provider_check.h"

#define USER_HI "'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}], 'stream': false"

static const Case bodies[] = {
	{"a prompt is a user's message, and no stream is asked for by name", NULL, NULL,
	 "{" USER_HI "}"},
	{"texts are joined, images stand beside them, developer is system",
	 "[{'role': 'developer', 'content': 'A'}, {'role': 'user', 'content': [{'type': 'text', "
	 "'text': 'a\\n'}, {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,AA=='}}, "
	 "{'type': 'text', 'text': 'b'}, {'type': 'image_url', 'image_url': {'url': "
	 "'data:image/png;base64,BB'}}]}, {'role': 'user', 'content': [{'type': 'text', 'text': "
	 "'c'}]}]",
	 NULL,
	 "{'model': 'm', 'messages': [{'role': 'system', 'content': 'A'}, {'role': 'user', 'content': "
	 "'a\\nb', 'images': ['AA==', 'BB']}, {'role': 'user', 'content': 'c'}], 'stream': false}"},
	{"a call's arguments are an object, an answer has its tool's name",
	 "[{'role': 'assistant', 'content': null, 'tool_calls': [{'id': 'c', 'type': 'function', "
	 "'function': {'name': 'f', 'arguments': '{\\'a\\': 1}'}}]}, {'role': 'tool', 'tool_call_id': "
	 "'c', 'content': '1'}, {'role': 'tool', 'tool_call_id': 'd', 'content': '2'}, {'role': "
	 "'assistant', 'refusal': 'No', 'tool_calls': []}]",
	 NULL,
	 "{'model': 'm', 'messages': [{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'c', "
	 "'function': {'name': 'f', 'arguments': {'a': 1}}}]}, {'role': 'tool', 'content': '1', "
	 "'tool_name': 'f', 'tool_call_id': 'c'}, {'role': 'tool', 'content': '2', 'tool_call_id': "
	 "'d'}, {'role': 'assistant', 'content': 'No'}], 'stream': false}"},
	{"what samples goes to options; what has no other name passes", NULL,
	 "{'temperature': 0.5, 'top_p': 0.9, 'max_tokens': 7, 'stop': ['X'], 'seed': 1, 'num_ctx': "
	 "8192, 'keep_alive': '5m', 'tools': [{'type': 'function', 'function': {'name': 'f'}}], "
	 "'stream_options': {}}",
	 "{" USER_HI ", 'options': {'temperature': 0.5, 'top_p': 0.9, 'num_predict': 7, 'stop': ['X'], "
	 "'seed': 1, 'num_ctx': 8192}, 'keep_alive': '5m', 'tools': [{'type': 'function', 'function': "
	 "{'name': 'f'}}]}"},
	{"options of the user's are merged and win", NULL,
	 "{'options': {'temperature': 0.1, 'num_predict': 3}, 'temperature': 0.5, "
	 "'max_completion_tokens': 7, 'top_k': 2}",
	 "{" USER_HI ", 'options': {'temperature': 0.1, 'num_predict': 3, 'top_k': 2}}"},
	{"num_predict beats max_tokens", NULL, "{'num_predict': 3, 'max_tokens': 7}",
	 "{" USER_HI ", 'options': {'num_predict': 3}}"},
	{"a JSON mode", NULL, "{'response_format': {'type': 'json_object'}}",
	 "{" USER_HI ", 'format': 'json'}"},
	{"a schema", NULL,
	 "{'response_format': {'type': 'json_schema', 'json_schema': {'schema': {'type': 'array'}}}}",
	 "{" USER_HI ", 'format': {'type': 'array'}}"},
	{"a format of Ollama's own wins", NULL,
	 "{'format': {'type': 'object'}, 'response_format': {'type': 'json_object'}}",
	 "{" USER_HI ", 'format': {'type': 'object'}}"},
	{"an effort is think", NULL, "{'reasoning_effort': 'high'}", "{" USER_HI ", 'think': 'high'}"},
	{"the least effort is low", NULL, "{'reasoning_effort': 'minimal'}",
	 "{" USER_HI ", 'think': 'low'}"},
	{"none is false", NULL, "{'reasoning_effort': 'none'}", "{" USER_HI ", 'think': false}"},
	{"think of the user's wins", NULL, "{'think': true, 'reasoning_effort': 'low'}",
	 "{" USER_HI ", 'think': true}"},
};

static const Case refusals[] = {
	{"an image must come along",
	 "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': "
	 "'https://a.test/a.png'}}]}]",
	 NULL, "give it as a data: URL"},
	{"sound cannot be sent",
	 "[{'role': 'user', 'content': [{'type': 'input_audio', 'input_audio': {'data': 'AA', "
	 "'format': 'wav'}}]}]",
	 NULL, "takes text and images only"},
	{"nor files", "[{'role': 'user', 'content': [{'type': 'file', 'file': {'file_id': 'f'}}]}]",
	 NULL, "takes text and images only"},
	{"nor what is not known", "[{'role': 'user', 'content': [{'type': 'video'}]}]", NULL,
	 "takes text and images only"},
	{"arguments must be an object",
	 "[{'role': 'assistant', 'tool_calls': [{'id': 'c', 'function': {'name': 'f', 'arguments': "
	 "'x'}}]}]",
	 NULL, "are not a JSON object"},
	{"options must be an object", NULL, "{'options': 1}", "params.options must be"},
	{"a format must be known", NULL, "{'response_format': {'type': 'xml'}}", "must be of type"},
	{"a role must be known", "[{'role': 'x', 'content': 'y'}]", NULL, "the role must be"},
};

static void
test_stream(void)
{
	static const Case c = {.params = NULL};

	ask_case(LLMQ_API_OLLAMA_CHAT, true, "Be.", &c);
	is_json(request.body,
			"{'model': 'm', 'messages': [{'role': 'system', 'content': 'Be.'}, {'role': 'user', "
			"'content': 'Hi'}], 'stream': true}",
			"submit's system is the first message, and a stream is asked for");
}

int
main(void)
{
	BODIES(LLMQ_API_OLLAMA_CHAT, bodies);
	REFUSALS(LLMQ_API_OLLAMA_CHAT, refusals);
	test_stream();
	llmq_arena_destroy(arena);
	return tap_done();
}
