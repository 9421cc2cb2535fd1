/*
 * provider_anthropic_test.c
 *		Requests for Anthropic's Messages.
 */
#include "provider_check.h"

#define USER_HI "'messages': [{'role': 'user', 'content': 'Hi'}]"

static const Case conversations[] = {
	{"a prompt is a user's message, and the limit that Anthropic wants is there", NULL, NULL,
	 "{'model': 'm', 'max_tokens': 4096, " USER_HI "}"},
	{"system and developer messages go to the top, wherever they stand",
	 "[{'role': 'system', 'content': 'A'}, {'role': 'user', 'content': 'Hi'}, {'role': "
	 "'developer', 'content': [{'type': 'text', 'text': 'B', 'cache_control': {'type': "
	 "'ephemeral'}}]}]",
	 NULL,
	 "{'model': 'm', 'max_tokens': 4096, 'system': [{'type': 'text', 'text': 'A'}, {'type': "
	 "'text', 'text': 'B', 'cache_control': {'type': 'ephemeral'}}], " USER_HI "}"},
	{"an empty system is none",
	 "[{'role': 'system', 'content': ''}, {'role': 'user', 'content': 'Hi'}]", NULL,
	 "{'model': 'm', 'max_tokens': 4096, " USER_HI "}"},
	{"calls become tool_use, answers that follow each other one user's message",
	 "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Let me', 'tool_calls': "
	 "[{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': "
	 "'{\\'x\\': 12345678901234567, \\'s\\': \\'\\\\u00e9\\'}'}}, {'id': 'c2', 'type': 'function', "
	 "'function': {'name': 'g', 'arguments': ''}}]}, {'role': 'tool', 'tool_call_id': 'c1', "
	 "'content': '1'}, {'role': 'tool', 'tool_call_id': 'c2', 'content': [{'type': 'text', "
	 "'text': '2'}]}, {'role': 'user', 'content': 'Go'}]",
	 NULL,
	 "{'model': 'm', 'max_tokens': 4096, 'messages': [{'role': 'user', 'content': 'Hi'}, {'role': "
	 "'assistant', 'content': [{'type': 'text', 'text': 'Let me'}, {'type': 'tool_use', 'id': "
	 "'c1', 'name': 'f', 'input': {'x': 12345678901234567, 's': 'é'}}, {'type': 'tool_use', 'id': "
	 "'c2', 'name': 'g', 'input': {}}]}, {'role': 'user', 'content': [{'type': 'tool_result', "
	 "'tool_use_id': 'c1', 'content': '1'}, {'type': 'tool_result', 'tool_use_id': 'c2', "
	 "'content': [{'type': 'text', 'text': '2'}]}]}, {'role': 'user', 'content': 'Go'}]}"},
	{"a call needs no text, and the last answer may be empty",
	 "[{'role': 'assistant', 'content': null, 'tool_calls': [{'id': 'c', 'type': 'function', "
	 "'function': {'name': 'f', 'arguments': {'a': 1}}}]}, {'role': 'tool', 'tool_call_id': 'c', "
	 "'content': ''}]",
	 NULL,
	 "{'model': 'm', 'max_tokens': 4096, 'messages': [{'role': 'assistant', 'content': [{'type': "
	 "'tool_use', 'id': 'c', 'name': 'f', 'input': {'a': 1}}]}, {'role': 'user', 'content': "
	 "[{'type': 'tool_result', 'tool_use_id': 'c'}]}]}"},
	{"images and files become blocks, by data or by url; blocks of Anthropic's own pass",
	 "[{'role': 'user', 'content': [{'type': 'text', 'text': 'See'}, {'type': 'text', 'text': ''}, "
	 "{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,iVBORw0='}}, {'type': "
	 "'image_url', 'image_url': {'url': 'https://i.test/a.png', 'detail': 'low'}}, {'type': "
	 "'file', 'file': {'filename': 'a.pdf', 'file_data': "
	 "'data:application/pdf;name=a;BASE64,JVBER'}}, {'type': 'file', 'file': {'file_id': 'f1'}, "
	 "'cache_control': {'type': 'ephemeral'}}, {'type': 'thinking', 'thinking': 't'}]}]",
	 NULL,
	 "{'model': 'm', 'max_tokens': 4096, 'messages': [{'role': 'user', 'content': [{'type': "
	 "'text', 'text': 'See'}, {'type': 'image', 'source': {'type': 'base64', 'media_type': "
	 "'image/png', 'data': 'iVBORw0='}}, {'type': 'image', 'source': {'type': 'url', 'url': "
	 "'https://i.test/a.png'}}, {'type': 'document', 'source': {'type': 'base64', 'media_type': "
	 "'application/pdf', 'data': 'JVBER'}, 'title': 'a.pdf'}, {'type': 'document', 'source': "
	 "{'type': 'file', 'file_id': 'f1'}, 'cache_control': {'type': 'ephemeral'}}, {'type': "
	 "'thinking', 'thinking': 't'}]}]}"},
	{"a refusal of the past is text",
	 "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': null, 'refusal': 'No'}, "
	 "{'role': 'assistant', 'content': [{'type': 'refusal', 'refusal': 'Never'}]}]",
	 NULL,
	 "{'model': 'm', 'max_tokens': 4096, 'messages': [{'role': 'user', 'content': 'Hi'}, {'role': "
	 "'assistant', 'content': [{'type': 'text', 'text': 'No'}]}, {'role': 'assistant', 'content': "
	 "[{'type': 'text', 'text': 'Never'}]}]}"},
};

static const Case params[] = {
	{"limits, stops and users have other names; what has none passes", NULL,
	 "{'max_completion_tokens': 9, 'stop': 'X', 'temperature': 0.5, 'top_k': 3, 'user': 'u', "
	 "'thinking': {'type': 'adaptive'}, 'seed': 1, 'stream_options': {}}",
	 "{'model': 'm', 'max_tokens': 9, 'stop_sequences': ['X'], 'temperature': 0.5, 'top_k': 3, "
	 "'metadata': {'user_id': 'u'}, 'thinking': {'type': 'adaptive'}, 'seed': 1, " USER_HI "}"},
	{"Anthropic's own names beat OpenAI's", NULL,
	 "{'max_tokens': 8, 'max_completion_tokens': 9, 'stop': 'X', 'stop_sequences': ['Y', 'Z'], "
	 "'user': 'u', 'metadata': {'user_id': 'v'}, 'system': [{'type': 'text', 'text': 'S'}]}",
	 "{'model': 'm', 'max_tokens': 8, 'stop_sequences': ['Y', 'Z'], 'metadata': {'user_id': 'v'}, "
	 "'system': [{'type': 'text', 'text': 'S'}], " USER_HI "}"},
	{"a param that is null is not given", NULL,
	 "{'max_tokens': null, 'stop': null, 'tools': null, 'tool_choice': null, "
	 "'response_format': null, 'reasoning_effort': null, 'user': null}",
	 "{'model': 'm', 'max_tokens': 4096, " USER_HI "}"},
	{"functions get an input_schema; tools of Anthropic's own pass", NULL,
	 "{'tools': [{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': "
	 "{'type': 'object', 'maximum': 9}, 'strict': true}}, {'type': 'function', 'function': "
	 "{'name': "
	 "'g'}, 'cache_control': {'type': 'ephemeral'}}, {'type': 'web_search_20250305', 'name': "
	 "'web_search'}]}",
	 "{'model': 'm', 'max_tokens': 4096, 'tools': [{'name': 'f', 'description': 'd', 'strict': "
	 "true, 'input_schema': {'type': 'object', 'maximum': 9}}, {'name': 'g', 'input_schema': "
	 "{'type': 'object'}, 'cache_control': {'type': 'ephemeral'}}, {'type': "
	 "'web_search_20250305', 'name': 'web_search'}], " USER_HI "}"},
	{"tool_choice auto", NULL, "{'tool_choice': 'auto'}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'auto'}, " USER_HI "}"},
	{"tool_choice required is any", NULL, "{'tool_choice': 'required'}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'any'}, " USER_HI "}"},
	{"tool_choice none", NULL, "{'tool_choice': 'none', 'parallel_tool_calls': false}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'none'}, " USER_HI "}"},
	{"tool_choice of one function", NULL,
	 "{'tool_choice': {'type': 'function', 'function': {'name': 'f'}}, 'parallel_tool_calls': "
	 "false}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'tool', 'name': 'f', "
	 "'disable_parallel_tool_use': true}, " USER_HI "}"},
	{"tool_choice in Anthropic's form", NULL, "{'tool_choice': {'type': 'tool', 'name': 'f'}}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'tool', 'name': 'f'}, " USER_HI
	 "}"},
	{"one call at a time without a choice", NULL, "{'parallel_tool_calls': false}",
	 "{'model': 'm', 'max_tokens': 4096, 'tool_choice': {'type': 'auto', "
	 "'disable_parallel_tool_use': true}, " USER_HI "}"},
	{"a schema and an effort make output_config", NULL,
	 "{'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', 'strict': true, "
	 "'schema': {'type': 'object'}}}, 'reasoning_effort': 'minimal'}",
	 "{'model': 'm', 'max_tokens': 4096, 'output_config': {'format': {'type': 'json_schema', "
	 "'schema': {'type': 'object'}}, 'effort': 'low'}, " USER_HI "}"},
	{"into one that is there, which wins", NULL,
	 "{'response_format': {'type': 'text'}, 'reasoning_effort': 'high', 'output_config': "
	 "{'effort': "
	 "'max'}}",
	 "{'model': 'm', 'max_tokens': 4096, 'output_config': {'effort': 'max'}, " USER_HI "}"},
	{"no effort is no output_config", NULL, "{'reasoning_effort': 'none'}",
	 "{'model': 'm', 'max_tokens': 4096, " USER_HI "}"},
};

static const Case refusals[] = {
	{"what an assistant said beside a call must be whole",
	 "[{'role': 'assistant', 'content': [{'type': 'image_url'}], 'tool_calls': [{'id': 'c', "
	 "'function': {'name': 'f', 'arguments': '{}'}}]}]",
	 NULL, "needs a url"},
	{"and so must be a tool's answer",
	 "[{'role': 'tool', 'tool_call_id': 'c', 'content': [{'type': 'image_url'}]}]", NULL,
	 "needs a url"},
	{"a JSON mode without a schema cannot be had", NULL,
	 "{'response_format': {'type': 'json_object'}}", "has no response_format json_object"},
	{"nor a format that is not known", NULL, "{'response_format': {'type': 'xml'}}",
	 "must be of type text"},
	{"nor a schema that is not there", NULL, "{'response_format': {'type': 'json_schema'}}",
	 "needs a schema"},
	{"a format must be an object", NULL, "{'response_format': 'json'}", "must be a JSON object"},
	{"metadata must be an object", NULL, "{'metadata': 'x'}", "params.metadata must be"},
	{"output_config must be an object", NULL, "{'output_config': 1}", "params.output_config must"},
	{"tools must be an array", NULL, "{'tools': {}}", "params.tools must be an array"},
	{"of objects", NULL, "{'tools': ['f']}", "contain objects only"},
	{"a function needs a name", NULL, "{'tools': [{'type': 'function', 'function': {}}]}",
	 "a function needs a name"},
	{"a choice must be known", NULL, "{'tool_choice': 'perhaps'}", "params.tool_choice must be"},
	{"a chosen function needs a name", NULL, "{'tool_choice': {'type': 'function'}}",
	 "params.tool_choice must be"},
	{"a system's message alone is no conversation", "[{'role': 'system', 'content': 'A'}]", NULL,
	 "contain system messages only"},
	{"two systems are one too many",
	 "[{'role': 'system', 'content': 'A'}, {'role': 'user', 'content': 'Hi'}]", "{'system': 'B'}",
	 "params.system and another"},
	{"a role must be known", "[{'role': 'critic', 'content': 'x'}]", NULL,
	 "messages[0]: the role must be"},
	{"the message is named by its place",
	 "[{'role': 'user', 'content': 'Hi'}, {'role': 'user', 'content': 3}]", NULL,
	 "messages[1]: content must be"},
	{"a message needs content", "[{'role': 'user'}]", NULL, "messages[0]: it has no content"},
	{"an assistant's too", "[{'role': 'assistant', 'content': null}]", NULL, "has no content"},
	{"a user calls no tools", "[{'role': 'user', 'content': 'x', 'tool_calls': []}]", NULL,
	 "only an assistant has tool_calls"},
	{"calls must be an array", "[{'role': 'assistant', 'tool_calls': {}}]", NULL,
	 "tool_calls must be an array"},
	{"a call needs an id", "[{'role': 'assistant', 'tool_calls': [{'function': {'name': 'f'}}]}]",
	 NULL, "a tool call needs an id"},
	{"arguments must be JSON",
	 "[{'role': 'assistant', 'tool_calls': [{'id': 'c', 'function': {'name': 'f', 'arguments': "
	 "'{oops'}}]}]",
	 NULL, "are not a JSON object"},
	{"and an object",
	 "[{'role': 'assistant', 'tool_calls': [{'id': 'c', 'function': {'name': 'f', 'arguments': "
	 "'[1]'}}]}]",
	 NULL, "are not a JSON object"},
	{"calls of free text are OpenAI's alone",
	 "[{'role': 'assistant', 'tool_calls': [{'id': 'c', 'type': 'custom', 'custom': {'name': 'f', "
	 "'input': 'x'}}]}]",
	 NULL, "no tool calls of type custom"},
	{"the old form of calls is refused",
	 "[{'role': 'assistant', 'function_call': {'name': 'f', 'arguments': ''}}]", NULL,
	 "write it as tool_calls"},
	{"an answer names its call", "[{'role': 'tool', 'content': 'x'}]", NULL,
	 "needs a tool_call_id"},
	{"sound cannot be sent",
	 "[{'role': 'user', 'content': [{'type': 'input_audio', 'input_audio': {'data': 'AA', "
	 "'format': 'wav'}}]}]",
	 NULL, "takes no audio"},
	{"a system is text",
	 "[{'role': 'system', 'content': [{'type': 'image_url', 'image_url': {'url': "
	 "'https://a.test'}}]}, {'role': 'user', 'content': 'Hi'}]",
	 NULL, "a system message can contain text only"},
	{"a part must be an object", "[{'role': 'user', 'content': ['x']}]", NULL,
	 "each part of content"},
	{"a text part needs a text", "[{'role': 'user', 'content': [{'type': 'text'}]}]", NULL,
	 "a text part needs a text"},
	{"a refusal needs one", "[{'role': 'assistant', 'content': [{'type': 'refusal'}]}]", NULL,
	 "a refusal part needs"},
	{"an image needs a url",
	 "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}]", NULL,
	 "needs a url"},
	{"data must be base64",
	 "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': "
	 "'data:image/svg+xml,x'}}]}]",
	 NULL, "must be in base64"},
	{"with a comma",
	 "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'data:;base64'}}]}]",
	 NULL, "must be in base64"},
	{"of a type",
	 "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': "
	 "'data:;base64,AA'}}]}]",
	 NULL, "must name its media type"},
	{"a file needs something", "[{'role': 'user', 'content': [{'type': 'file', 'file': {}}]}]",
	 NULL, "needs file_data or file_id"},
	{"in a data: URL",
	 "[{'role': 'user', 'content': [{'type': 'file', 'file': {'file_data': 'AAAA'}}]}]", NULL,
	 "must be a data: URL"},
};

static void
test_system(void)
{
	static const Case c = {.params = NULL};

	ask_case(LLMQ_API_ANTHROPIC_MESSAGES, true, "Be.", &c);
	is_json(request.body,
			"{'model': 'm', 'system': 'Be.', 'max_tokens': 4096, 'stream': true, " USER_HI "}",
			"submit's system goes to the top, and a stream is asked for");
}

static void
test_many_calls(void)
{
	LlmqTarget target = {.api = LLMQ_API_ANTHROPIC_MESSAGES, .url = "https://a.test"};
	LlmqPrompt prompt = {.model = "m"};
	char *text;
	size_t len = 0;

	start_case();
	text = llmq_arena_alloc(arena, 100000);
	len += (size_t) snprintf(text, 100, "[{\"role\":\"assistant\",\"tool_calls\":[");
	for (int i = 0; i < 257; i++)
		len += (size_t) snprintf(text + len, 100, "%s{\"id\":\"%d\",\"function\":{\"name\":\"f\"}}",
								 i == 0 ? "" : ",", i);
	snprintf(text + len, 100, "]}]");
	prompt.messages = text;
	ok(!ask(&target, &prompt) && strstr(error, "more than 256 tool calls") != NULL,
	   "the number of calls in a message is bounded");
}

int
main(void)
{
	BODIES(LLMQ_API_ANTHROPIC_MESSAGES, conversations);
	BODIES(LLMQ_API_ANTHROPIC_MESSAGES, params);
	REFUSALS(LLMQ_API_ANTHROPIC_MESSAGES, refusals);
	test_system();
	test_many_calls();
	llmq_arena_destroy(arena);
	return tap_done();
}
