/*
 * provider_gemini_test.c
 *		Requests for Gemini's generateContent.
 */
#include "provider_check.h"

#define USER_HI "'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}]"

#define CALL "{'id': 'c', 'function': {'name': 'f', 'arguments': '{\\'a\\': 1}'}}"

static const Case conversations[] = {
	{"a prompt is a user's content", NULL, NULL, "{" USER_HI "}"},
	{"system and developer messages become systemInstruction",
	 "[{'role': 'system', 'content': 'A'}, {'role': 'user', 'content': 'Hi'}, {'role': "
	 "'developer', 'content': [{'type': 'text', 'text': 'B'}, {'type': 'text', 'text': ''}]}]",
	 NULL, "{'systemInstruction': {'parts': [{'text': 'A'}, {'text': 'B'}]}, " USER_HI "}"},
	{"calls and answers: by name, as objects, those of a turn together",
	 "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Let me', 'tool_calls': "
	 "[" CALL ", {'id': 'd', 'function': {'name': 'g', 'arguments': ''}, 'extra_content': "
	 "{'google': {'thought_signature': 'sig'}}}]}, {'role': 'tool', 'tool_call_id': 'd', "
	 "'content': '{\\'ok\\': 12345678901234567}'}, {'role': 'tool', 'tool_call_id': 'c', "
	 "'content': '[1]'}, {'role': 'tool', 'tool_call_id': 'x', 'name': 'h', 'content': [{'type': "
	 "'text', 'text': '2'}, {'type': 'text', 'text': '3'}]}, {'role': 'assistant', 'content': "
	 "''}]",
	 NULL,
	 "{'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}, {'role': 'model', 'parts': "
	 "[{'text': 'Let me'}, {'functionCall': {'name': 'f', 'args': {'a': 1}}}, {'functionCall': "
	 "{'name': 'g', 'args': {}}, 'thoughtSignature': 'sig'}]}, {'role': 'user', 'parts': "
	 "[{'functionResponse': {'name': 'g', 'response': {'ok': 12345678901234567}}}, "
	 "{'functionResponse': {'name': 'f', 'response': {'result': '[1]'}}}, {'functionResponse': "
	 "{'name': 'h', 'response': {'result': '23'}}}]}, {'role': 'model', 'parts': [{'text': "
	 "''}]}]}"},
	{"answers at the end are closed too",
	 "[{'role': 'assistant', 'tool_calls': [" CALL "]}, {'role': 'tool', 'tool_call_id': 'c', "
	 "'content': 'x'}]",
	 NULL,
	 "{'contents': [{'role': 'model', 'parts': [{'functionCall': {'name': 'f', 'args': {'a': "
	 "1}}}]}, "
	 "{'role': 'user', 'parts': [{'functionResponse': {'name': 'f', 'response': {'result': "
	 "'x'}}}]}]}"},
	{"images, sound and files, inline or by address; parts of Gemini's own pass",
	 "[{'role': 'user', 'content': [{'type': 'text', 'text': 'See'}, {'type': 'image_url', "
	 "'image_url': {'url': 'data:image/png;base64,AA=='}}, {'type': 'image_url', 'image_url': "
	 "'gs://b/a.png'}, {'type': 'input_audio', 'input_audio': {'data': 'BB', 'format': 'mp3'}}, "
	 "{'type': 'file', 'file': {'file_data': 'data:application/pdf;base64,CC'}}, {'type': 'file', "
	 "'file': {'file_id': 'https://g.test/files/1'}}, {'videoMetadata': {'fps': 1}, 'fileData': "
	 "{'fileUri': 'u'}}]}]",
	 NULL,
	 "{'contents': [{'role': 'user', 'parts': [{'text': 'See'}, {'inlineData': {'mimeType': "
	 "'image/png', 'data': 'AA=='}}, {'fileData': {'fileUri': 'gs://b/a.png'}}, {'inlineData': "
	 "{'mimeType': 'audio/mp3', 'data': 'BB'}}, {'inlineData': {'mimeType': 'application/pdf', "
	 "'data': 'CC'}}, {'fileData': {'fileUri': 'https://g.test/files/1'}}, {'videoMetadata': "
	 "{'fps': 1}, 'fileData': {'fileUri': 'u'}}]}]}"},
	{"a refusal of the past is text",
	 "[{'role': 'assistant', 'refusal': 'No'}, {'role': 'user', 'content': 'Hi'}]", NULL,
	 "{'contents': [{'role': 'model', 'parts': [{'text': 'No'}]}, {'role': 'user', 'parts': "
	 "[{'text': 'Hi'}]}]}"},
};

static const Case params[] = {
	{"what samples goes to generationConfig under Gemini's names; what has none passes", NULL,
	 "{'temperature': 0.5, 'top_p': 0.9, 'top_k': 3, 'max_tokens': 7, 'stop': 'X', 'seed': 1, 'n': "
	 "2, 'presence_penalty': 1, 'frequency_penalty': 2, 'logprobs': true, 'top_logprobs': 4, "
	 "'safetySettings': [], 'labels': {'a': 'b'}, 'stream_options': {}}",
	 "{" USER_HI ", 'generationConfig': {'temperature': 0.5, 'topP': 0.9, 'topK': 3, "
	 "'maxOutputTokens': 7, 'stopSequences': ['X'], 'seed': 1, 'candidateCount': 2, "
	 "'presencePenalty': 1, 'frequencyPenalty': 2, 'responseLogprobs': true, 'logprobs': 4}, "
	 "'safetySettings': [], 'labels': {'a': 'b'}}"},
	{"a generationConfig of the user's is merged and wins", NULL,
	 "{'generationConfig': {'temperature': 0.1, 'stopSequences': ['Y'], 'maxOutputTokens': 1, "
	 "'responseMimeType': 'text/x.enum', 'thinkingConfig': {'thinkingBudget': 5}}, 'temperature': "
	 "0.5, 'stop': ['X'], 'max_completion_tokens': 9, 'seed': 2, 'reasoning_effort': 'high', "
	 "'response_format': {'type': 'json_object'}}",
	 "{" USER_HI ", 'generationConfig': {'temperature': 0.1, 'stopSequences': ['Y'], "
	 "'maxOutputTokens': 1, 'responseMimeType': 'text/x.enum', 'thinkingConfig': "
	 "{'thinkingBudget': 5}, 'seed': 2}}"},
	{"a JSON mode", NULL, "{'response_format': {'type': 'json_object'}}",
	 "{" USER_HI ", 'generationConfig': {'responseMimeType': 'application/json'}}"},
	{"a schema as it is", NULL,
	 "{'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', 'schema': {'type': "
	 "'object', 'additionalProperties': false}}}}",
	 "{" USER_HI ", 'generationConfig': {'responseMimeType': 'application/json', "
	 "'responseJsonSchema': {'type': 'object', 'additionalProperties': false}}}"},
	{"an effort is a level", NULL, "{'reasoning_effort': 'low'}",
	 "{" USER_HI ", 'generationConfig': {'thinkingConfig': {'thinkingLevel': 'low'}}}"},
	{"no effort is no budget", NULL, "{'reasoning_effort': 'none'}",
	 "{" USER_HI ", 'generationConfig': {'thinkingConfig': {'thinkingBudget': 0}}}"},
	{"functions share one tool; tools of Gemini's own pass", NULL,
	 "{'tools': [{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': "
	 "{'type': 'object'}, 'strict': true}}, {'googleSearch': {}}, {'type': 'function', "
	 "'function': {'name': 'g'}}], 'tool_choice': 'required'}",
	 "{" USER_HI ", 'tools': [{'googleSearch': {}}, {'functionDeclarations': [{'name': 'f', "
	 "'description': 'd', 'parametersJsonSchema': {'type': 'object'}}, {'name': 'g'}]}], "
	 "'toolConfig': {'functionCallingConfig': {'mode': 'ANY'}}}"},
	{"tool_choice auto", NULL, "{'tool_choice': 'auto'}",
	 "{" USER_HI ", 'toolConfig': {'functionCallingConfig': {'mode': 'AUTO'}}}"},
	{"tool_choice none", NULL, "{'tool_choice': 'none'}",
	 "{" USER_HI ", 'toolConfig': {'functionCallingConfig': {'mode': 'NONE'}}}"},
	{"tool_choice of one function, into a toolConfig that is there", NULL,
	 "{'tool_choice': {'type': 'function', 'function': {'name': 'f'}}, 'toolConfig': "
	 "{'retrievalConfig': {}}}",
	 "{" USER_HI ", 'toolConfig': {'retrievalConfig': {}, 'functionCallingConfig': {'mode': 'ANY', "
	 "'allowedFunctionNames': ['f']}}}"},
	{"a toolConfig of the user's wins", NULL,
	 "{'tool_choice': 'auto', 'toolConfig': {'functionCallingConfig': {'mode': 'VALIDATED'}}}",
	 "{" USER_HI ", 'toolConfig': {'functionCallingConfig': {'mode': 'VALIDATED'}}}"},
	{"a systemInstruction of the user's passes", NULL, "{'systemInstruction': {'parts': []}}",
	 "{" USER_HI ", 'systemInstruction': {'parts': []}}"},
};

static const Case refusals[] = {
	{"contents are messages", NULL, "{'contents': []}", "use messages"},
	{"a format must be known", NULL, "{'response_format': {'type': 'xml'}}", "must be of type"},
	{"tools must be an array", NULL, "{'tools': 'x'}", "params.tools must be"},
	{"sound needs its data",
	 "[{'role': 'user', 'content': [{'type': 'input_audio', 'input_audio': {'format': 'wav'}}]}]",
	 NULL, "needs data and format"},
	{"two systems are one too many",
	 "[{'role': 'system', 'content': 'A'}, {'role': 'user', 'content': 'Hi'}]",
	 "{'systemInstruction': {}}", "params.systemInstruction and another"},
	{"a system's message alone is no conversation", "[{'role': 'system', 'content': 'A'}]", NULL,
	 "contain system messages only"},
	{"a system is text",
	 "[{'role': 'system', 'content': [{'type': 'image_url', 'image_url': {'url': 'u'}}]}]", NULL,
	 "contain text only"},
	{"an answer without its call has no name",
	 "[{'role': 'user', 'content': 'Hi'}, {'role': 'tool', 'tool_call_id': 'c', 'content': 'x'}]",
	 NULL, "messages[1]: its tool_call_id is not among"},
	{"an answer is text",
	 "[{'role': 'tool', 'tool_call_id': 'c', 'name': 'f', 'content': [{'type': 'image_url', "
	 "'image_url': {'url': 'u'}}]}]",
	 NULL, "the answer of a tool can contain text only"},
	{"generationConfig must be an object", NULL, "{'generationConfig': []}",
	 "params.generationConfig must be"},
	{"toolConfig must be an object", NULL, "{'toolConfig': []}", "params.toolConfig must be"},
	{"an effort must be known", NULL, "{'reasoning_effort': 'heroic'}",
	 "params.reasoning_effort must be"},
	{"a choice must be known", NULL, "{'tool_choice': 'perhaps'}", "params.tool_choice must be"},
};

static void
test_budget(void)
{
	LlmqTarget target = {.api = LLMQ_API_GEMINI, .url = "https://a.test"};
	LlmqPrompt prompt = {.model = "gemini-2.5-flash", .prompt = "Hi", .system = "Be."};

	start_case();
	prompt.params = quoted("{'reasoning_effort': 'high'}");
	is_json(ask(&target, &prompt) ? request.body : NULL,
			"{'systemInstruction': {'parts': [{'text': 'Be.'}]}, " USER_HI ", 'generationConfig': "
			"{'thinkingConfig': {'thinkingBudget': 24576}}}",
			"models that count thinking in tokens get a budget; submit's system an instruction");
}

int
main(void)
{
	BODIES(LLMQ_API_GEMINI, conversations);
	BODIES(LLMQ_API_GEMINI, params);
	REFUSALS(LLMQ_API_GEMINI, refusals);
	test_budget();
	llmq_arena_destroy(arena);
	return tap_done();
}
