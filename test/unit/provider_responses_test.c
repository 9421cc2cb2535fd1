/*
 * provider_responses_test.c
 *		Requests for OpenAI's Responses.
 */
#include "provider_check.h"

#define USER_HI "'model': 'm', 'input': [{'role': 'user', 'content': 'Hi'}]"

static const Case bodies[] = {
	{"a prompt is a user's message", NULL, NULL, "{" USER_HI "}"},
	{"messages become items: roles stay, parts, calls and answers have other forms",
	 "[{'role': 'developer', 'content': 'A'}, {'role': 'user', 'content': [{'type': 'text', "
	 "'text': 'See'}, {'type': 'image_url', 'image_url': {'url': 'https://a.test/a.png', 'detail': "
	 "'low'}}, {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,AA=='}}, {'type': "
	 "'file', 'file': {'file_id': 'f1'}}, {'type': 'file', 'file': {'filename': 'a.pdf', "
	 "'file_data': 'data:application/pdf;base64,AA'}}, {'type': 'input_audio', 'input_audio': "
	 "{'data': 'AA', 'format': 'wav'}}, {'type': 'input_text', 'text': 'own'}]}, {'role': "
	 "'assistant', 'content': [{'type': 'text', 'text': 'Let me'}, {'type': 'refusal', 'refusal': "
	 "'no'}], 'tool_calls': [{'id': 'c', 'type': 'function', 'function': {'name': 'f', "
	 "'arguments': '{\\'a\\': 1'}}, {'id': 'd', 'type': 'custom', 'custom': {'name': 'g', 'input': "
	 "'x'}}, {'id': 'e', 'type': 'function', 'function': {'name': 'h', 'arguments': {'b': 2}}}]}, "
	 "{'role': 'tool', 'tool_call_id': 'c', 'content': '1'}, {'role': 'tool', 'tool_call_id': 'd', "
	 "'content': [{'type': 'text', 'text': '2'}]}, {'role': 'assistant', 'content': 'Done'}, "
	 "{'role': 'assistant', 'content': null, 'refusal': 'No'}]",
	 NULL,
	 "{'model': 'm', 'input': [{'role': 'developer', 'content': 'A'}, {'role': 'user', 'content': "
	 "[{'type': 'input_text', 'text': 'See'}, {'type': 'input_image', 'image_url': "
	 "'https://a.test/a.png', 'detail': 'low'}, {'type': 'input_image', 'image_url': "
	 "'data:image/png;base64,AA=='}, {'type': 'input_file', 'file_id': 'f1'}, {'type': "
	 "'input_file', 'filename': 'a.pdf', 'file_data': 'data:application/pdf;base64,AA'}, {'type': "
	 "'input_audio', 'input_audio': {'data': 'AA', 'format': 'wav'}}, {'type': 'input_text', "
	 "'text': 'own'}]}, {'role': 'assistant', 'content': [{'type': 'output_text', 'text': "
	 "'Let me'}, {'type': 'refusal', 'refusal': 'no'}]}, {'type': 'function_call', 'call_id': 'c', "
	 "'name': 'f', 'arguments': '{\\'a\\': 1'}, {'type': 'custom_tool_call', 'call_id': 'd', "
	 "'name': 'g', 'input': 'x'}, {'type': 'function_call', 'call_id': 'e', 'name': 'h', "
	 "'arguments': '{\\'b\\': 2}'}, {'type': 'function_call_output', 'call_id': 'c', 'output': "
	 "'1'}, {'type': 'custom_tool_call_output', 'call_id': 'd', 'output': [{'type': 'input_text', "
	 "'text': '2'}]}, {'role': 'assistant', 'content': 'Done'}, {'role': 'assistant', 'content': "
	 "[{'type': 'refusal', 'refusal': 'No'}]}]}"},
	{"an answer to a call of an earlier response",
	 "[{'role': 'tool', 'tool_call_id': 'c', 'content': '1'}]", "{'previous_response_id': 'r'}",
	 "{'model': 'm', 'previous_response_id': 'r', 'input': [{'type': 'function_call_output', "
	 "'call_id': 'c', 'output': '1'}]}"},
	{"limits, formats and efforts have other names; what has none passes", NULL,
	 "{'max_tokens': 7, 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', "
	 "'strict': true, 'schema': {'type': 'object'}}}, 'reasoning_effort': 'low', 'verbosity': "
	 "'low', 'temperature': 0.5, 'metadata': {'a': 'b'}, 'seed': 3}",
	 "{" USER_HI ", 'max_output_tokens': 7, 'text': {'verbosity': 'low', 'format': {'type': "
	 "'json_schema', 'name': 'n', 'strict': true, 'schema': {'type': 'object'}}}, 'reasoning': "
	 "{'effort': 'low'}, 'temperature': 0.5, 'metadata': {'a': 'b'}, 'seed': 3}"},
	{"a JSON mode", NULL, "{'response_format': {'type': 'json_object'}}",
	 "{" USER_HI ", 'text': {'format': {'type': 'json_object'}}}"},
	{"a format of text needs no words", NULL, "{'response_format': {'type': 'text'}}",
	 "{" USER_HI "}"},
	{"params in the form of Responses are merged and win", NULL,
	 "{'max_output_tokens': 1, 'max_tokens': 2, 'max_completion_tokens': 3, 'text': {'format': "
	 "{'type': 'text'}}, 'response_format': {'type': 'json_object'}, 'reasoning': {'effort': "
	 "'high', 'summary': 'auto'}, 'reasoning_effort': 'low', 'store': false, 'instructions': 'I'}",
	 "{" USER_HI ", 'max_output_tokens': 1, 'text': {'format': {'type': 'text'}}, 'reasoning': "
	 "{'effort': 'high', 'summary': 'auto'}, 'store': false, 'instructions': 'I'}"},
	{"tools are flat, and as strict as they were", NULL,
	 "{'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': "
	 "'object'}}}, "
	 "{'type': 'function', 'function': {'name': 'g', 'strict': true}}, {'type': 'custom', "
	 "'custom': {'name': 'h'}}, {'type': 'web_search'}, {'type': 'function', 'name': 'own'}], "
	 "'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}",
	 "{" USER_HI ", 'tools': [{'type': 'function', 'name': 'f', 'parameters': {'type': 'object'}, "
	 "'strict': false}, {'type': 'function', 'name': 'g', 'strict': true}, {'type': 'custom', "
	 "'name': 'h'}, {'type': 'web_search'}, {'type': 'function', 'name': 'own'}], 'tool_choice': "
	 "{'type': 'function', 'name': 'f'}}"},
	{"a choice in words stays", NULL, "{'tool_choice': 'required', 'parallel_tool_calls': false}",
	 "{" USER_HI ", 'tool_choice': 'required', 'parallel_tool_calls': false}"},
	{"a choice of a custom tool is flat", NULL,
	 "{'tool_choice': {'type': 'custom', 'custom': {'name': 'h'}}}",
	 "{" USER_HI ", 'tool_choice': {'type': 'custom', 'name': 'h'}}"},
	{"a choice among some is flat", NULL,
	 "{'tool_choice': {'type': 'allowed_tools', 'allowed_tools': {'mode': 'auto', 'tools': "
	 "[{'type': 'function', 'function': {'name': 'f'}}, {'type': 'web_search'}]}}}",
	 "{" USER_HI ", 'tool_choice': {'type': 'allowed_tools', 'mode': 'auto', 'tools': [{'type': "
	 "'function', 'name': 'f'}, {'type': 'web_search'}]}}"},
};

static const Case refusals[] = {
	{"input and a prompt are one too many", NULL, "{'input': 'Hi'}", "params.input and a prompt"},
	{"a tool's answer must be whole",
	 "[{'role': 'tool', 'tool_call_id': 'c', 'content': [{'type': 'image_url'}]}]", NULL,
	 "needs a url"},
	{"text must be an object", NULL, "{'text': 'x'}", "params.text must be"},
	{"reasoning must be an object", NULL, "{'reasoning': 'x'}", "params.reasoning must be"},
	{"tools must be an array", NULL, "{'tools': 'x'}", "params.tools must be"},
	{"a call must be whole", "[{'role': 'assistant', 'tool_calls': [{}]}]", NULL,
	 "a tool call needs an id"},
	{"a role must be known", "[{'role': 'x', 'content': 'y'}]", NULL, "the role must be"},
};

static void
test_system(void)
{
	static const Case streamed = {.params = "{'stream_options': {'include_obfuscation': false}}"};
	static const Case twice = {.params = "{'instructions': 'I'}"};

	ask_case(LLMQ_API_OPENAI_RESPONSES, true, "Be.", &streamed);
	is_json(request.body,
			"{" USER_HI ", 'instructions': 'Be.', 'stream': true, 'stream_options': "
			"{'include_obfuscation': false}}",
			"submit's system becomes instructions, and a stream is asked for");
	ok(!ask_case(LLMQ_API_OPENAI_RESPONSES, false, "Be.", &twice) &&
		   strstr(error, "params.instructions and system") != NULL,
	   "two of them are one too many");
}

static void
test_input(void)
{
	LlmqTarget target = {.api = LLMQ_API_OPENAI_RESPONSES, .url = "https://a.test"};
	LlmqPrompt prompt = {.model = "m"};

	start_case();
	prompt.params = quoted("{'input': [{'type': 'item_reference', 'id': 'i'}]}");
	is_json(ask(&target, &prompt) ? request.body : NULL,
			"{'model': 'm', 'input': [{'type': 'item_reference', 'id': 'i'}]}",
			"input in the form of Responses takes the place of messages");
	prompt.params = NULL;
	ok(!ask(&target, &prompt) && strstr(error, "neither prompt nor messages") != NULL,
	   "something must be said");
}

int
main(void)
{
	BODIES(LLMQ_API_OPENAI_RESPONSES, bodies);
	REFUSALS(LLMQ_API_OPENAI_RESPONSES, refusals);
	test_system();
	test_input();
	llmq_arena_destroy(arena);
	return tap_done();
}
