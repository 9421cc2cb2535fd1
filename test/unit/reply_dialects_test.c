/*
 * reply_dialects_test.c
 *		Reading an answer, in corners that follow from the rules and stand in no case:
 *		choices, shapes, counts, tool calls, and what is special to a dialect.
 */
#include "reply_reads.h"

#define MAX_DEPTH_OPEN "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["

static void
test_choices(void)
{
	READ(CHAT,
		 "{\"choices\":[{\"index\":1,\"message\":{\"content\":\"b\"},\"finish_reason\":\"stop\"},"
		 "{\"index\":0,\"message\":{\"content\":\"\"},\"finish_reason\":\"length\"}]}");
	class_is(&verdict, "none", "the lowest choice that carries something is the answer");
	is_string(verdict.text, "b", "with its text");
	class_is(READ(CHAT, "{\"choices\":[{\"index\":1,\"message\":{},\"finish_reason\":\"stop\"},"
						"{\"index\":0,\"message\":{},\"finish_reason\":\"length\"}]}"),
			 "truncated", "if none does, the reason of the lowest counts");
	READ(CHAT,
		 "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"},"
		 "{\"index\":0,\"message\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}");
	is_string(verdict.text, "a", "choices that share an index are not joined");
	class_is(STREAM(CHAT,
					"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"},"
					"\"finish_reason\":\"stop\"},{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
					.end = LLMQ_END_TIMEOUT),
			 "timeout", "the finish reason of another choice is no marker");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\" \"}", "\"stop\"")), "none",
			 "white space is text");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"\\u0000\"}", "\"stop\"")), "empty_response",
			 "U+0000 is not");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\"}", "\"\"")), "incomplete",
			 "an empty reason is none");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\"}", "7")), "invalid_response",
			 "a reason that is no text is unknown");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\"}", "\"STOP\"")), "invalid_response",
			 "reasons have a case");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\",\"refusal\":\"No.\"}", "\"stop\"")),
			 "refusal", "a refusal beside text is a refusal");
	is_string(verdict.error_message, "No.", "the refusal is the message");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\",\"refusal\":\"\"}", "\"stop\"")), "none",
			 "an empty refusal is none");
	STREAM(CHAT, CHAT_DELTA("{\"content\":\"\\ud83c\"}") CHAT_DELTA("{\"content\":\"\\udf0d\"}")
					 CHAT_END("stop"));
	is_string(verdict.text, "\xF0\x9F\x8C\x8D", "text is cleaned after joining");
	READ(CHAT, "{\"choices\":[],\"choices\":[{\"message\":{\"content\":\"x\",\"content\":\"y\"},"
			   "\"finish_reason\":\"stop\"}]}");
	is_string(verdict.text, "y", "of duplicate keys the last counts");
}

static void
test_shapes(void)
{
	static const char *const wrong[] = {
		"42",
		"[]",
		"null",
		"{}",
		"{\"choices\":null}",
		"{\"choices\":{}}",
		"{\"choices\":\"x\"}",
		"{\"choices\":[1]}",
		"{\"choices\":[{\"message\":\"x\",\"finish_reason\":\"stop\"}]}",
		"{\"choices\":[{\"message\":{\"content\":7},\"finish_reason\":\"stop\"}]}",
		"{\"choices\":[{\"message\":{\"tool_calls\":7},\"finish_reason\":\"stop\"}]}",
		"{\"choices\":[]} x",
		MAX_DEPTH_OPEN};
	static const LlmqApi apis[] = {CHAT, RESPONSES, ANTHROPIC, GEMINI, OLLAMA, EMBED};
	char deep[2000];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		class_is(READ(CHAT, wrong[i]), "invalid_response", wrong[i]);
	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++)
		class_is(READ(apis[i], "{\"foo\":1}"), "invalid_response", llmq_api_name(apis[i]));
	for (int open = 510; open <= 511; open++)
	{
		/* One level is the object itself. */
		snprintf(deep, sizeof(deep), "{\"x\":");
		memset(deep + 5, '[', (size_t) open + 1);
		memset(deep + 5 + open + 1, ']', (size_t) open + 1);
		snprintf(deep + 5 + 2 * (open + 1), 200, ",%s",
				 CHAT_ANSWER("{\"content\":\"a\"}", "\"stop\"") + 1);
		class_is(READ(CHAT, deep), open == 510 ? "none" : "invalid_response",
				 "JSON may be 512 levels deep and no more");
	}
	READ(CHAT,
		 "{\"model\":[],\"usage\":\"x\",\"choices\":[{\"index\":\"x\",\"message\":{\"content\":"
		 "[7,null,{\"type\":9},{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"thinking\",\"text\":"
		 "\"no\"}],\"refusal\":{},\"tool_calls\":[null,{}]},\"finish_reason\":\"stop\"}]}");
	class_is(&verdict, "none", "wrong types beside the answer do no harm");
	is_string(verdict.text, "a", "and the text is read");
}

static void
test_counts(void)
{
	STREAM(CHAT,
		   "data: "
		   "{\"choices\":[],\"usage\":{\"prompt_tokens\":\"7\",\"completion_tokens\":1}}"
		   "\n\n" CHAT_DELTA("{\"content\":\"a\"}") "data: "
													"{\"usage\":{\"prompt_tokens\":null,"
													"\"completion_tokens\":2.0e0}}\n\n" CHAT_END(
														"stop") "data: "
																"{\"usage\":{\"completion_tokens\":"
																"1.5}}\n\n");
	is_int(verdict.input_tokens, 7, "a count stands until another is given, and may be a string");
	is_int(verdict.output_tokens, 2, "a count may be spelled in any way, but is whole");
	is_int(verdict.cached_tokens, -1, "a count that nobody gave is none");
	READ(GEMINI, "{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":"
				 "{\"promptTokenCount\":5,\"toolUsePromptTokenCount\":3,\"candidatesTokenCount\":2,"
				 "\"thoughtsTokenCount\":4}}");
	is_int(verdict.input_tokens, 8, "Gemini's input is two counts");
	is_int(verdict.output_tokens, 6, "and its output");
	READ(ANTHROPIC, "{\"content\":[],\"usage\":{\"input_tokens\":9223372036854775807,"
					"\"cache_read_input_tokens\":1}}");
	is_int(verdict.input_tokens, -1, "a sum beyond bigint is none");
	READ(CHAT, "{\"model\":\"m\",\"usage\":{\"prompt_tokens\":3},\"error\":{\"code\":500}}",
		 .status = 500);
	is_int(verdict.input_tokens, 3, "counts are read whatever the status");
	is_string(llmq_billing_name(verdict.billing), "billed", "and were billed");
}

static void
test_tool_calls(void)
{
	STREAM(CHAT,
		   CHAT_DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\","
					  "\"arguments\":\"{\\\"x\\\"\"}},{\"index\":1,\"id\":\"b\",\"function\":"
					  "{\"name\":\"g\",\"arguments\":\"\"}}]}")
			   CHAT_DELTA("{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}},"
						  "{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]}") CHAT_END("stop"));
	is_string(
		verdict.tool_calls,
		"[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
		"\"{\\\"x\\\":1}\"}},{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\","
		"\"arguments\":\"{}\"}}]",
		"streamed tool calls are assembled by index");
	is_string(verdict.finish_reason, "tool_calls", "a tool call is the finish reason");
	STREAM(CHAT,
		   CHAT_DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\"}}]}")
			   CHAT_DELTA(
				   "{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"g\"}}]}")
				   CHAT_END("tool_calls"));
	is_string(
		verdict.tool_calls,
		"[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
		"{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]",
		"calls that share an index are told apart by their ids");
	STREAM(
		CHAT,
		CHAT_DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\"}}]}")
			CHAT_DELTA(
				"{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"g\"}}]}")
				CHAT_DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"[]\"}}]}")
					CHAT_END("tool_calls"));
	is_string(
		verdict.tool_calls,
		"[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
		"{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"[]\"}}]",
		"and what comes without an id belongs to the last of them");
	READ(CHAT, CHAT_ANSWER("{\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}",
						   "\"function_call\""));
	is_string(
		verdict.tool_calls,
		"[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
		"\"{}\"}}]",
		"a call without an id gets one");
	STREAM(ANTHROPIC,
		   "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":"
		   "\"server_tool_use\",\"id\":\"s\",\"name\":\"web\",\"input\":{}}}\n\n"
		   "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
		   "\"input_json_delta\",\"partial_json\":\"no\"}}\n\n"
		   "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":"
		   "\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n"
		   "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":"
		   "\"input_json_delta\",\"partial_json\":\"{\\\"x\\\":\"}}\n\n"
		   "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":"
		   "\"input_json_delta\",\"partial_json\":\"1}\"}}\n\n"
		   "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n");
	is_string(verdict.tool_calls,
			  "[{\"id\":\"t\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
			  "\"{\\\"x\\\":1}\"}}]",
			  "pieces of a tool's input are joined, a server's tool is not ours");
}

static void
test_whole_tool_calls(void)
{
	READ(GEMINI,
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":"
		 "{\"n\":12345678901234567890,\"x\":0.1}}}]},\"finishReason\":\"STOP\"}]}");
	is_string(
		verdict.tool_calls,
		"[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
		"\"{\\\"n\\\":12345678901234567890,\\\"x\\\":0.1}\"}}]",
		"arguments keep the spelling of their numbers");
	READ(RESPONSES,
		 "{\"status\":\"completed\",\"output\":[{\"type\":\"web_search_call\"},{\"type\":"
		 "\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\",\"input\":\"go\"}]}");
	is_string(verdict.tool_calls,
			  "[{\"id\":\"c\",\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"input\":\"go\"}}]",
			  "a custom tool takes text");
	READ(CHAT,
		 CHAT_ANSWER("{\"content\":\"t\",\"tool_calls\":[{\"id\":\"a\",\"function\":{}}]}",
					 "\"length\""),
		 .options.accept_truncated = true);
	is_string(verdict.tool_calls, NULL, "a call that was cut must not be made");
}

static void
test_dialects(void)
{
	class_is(STREAM(GEMINI, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n"),
			 "content_filter", "a blocked prompt ends a stream");
	is_string(verdict.finish_reason, "content_filter", "and is its finish reason");
	READ(GEMINI, "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true},"
				 "{\"text\":\"a\",\"thought\":false}]},\"finishReason\":\"STOP\"}]}");
	is_string(verdict.text, "a", "thoughts are no text");
	STREAM(RESPONSES,
		   "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n"
		   "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\","
		   "\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":"
		   "\"y\"}]}]}}\n\n");
	is_string(verdict.text, "y", "the final output beats the deltas");
	STREAM(RESPONSES, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n"
					  "data: {\"type\":\"response.completed\"}\n\n");
	is_string(verdict.text, "x", "without a final output the deltas are the text");
	class_is(READ(RESPONSES, "{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":"
							 "\"content_filter\"},\"output\":[]}"),
			 "content_filter", "an incomplete response says why");
	class_is(READ(RESPONSES, "{\"status\":\"incomplete\",\"output\":[]}"), "incomplete",
			 "or does not");
	class_is(READ(RESPONSES, "{\"status\":\"in_progress\",\"output\":[]}"), "invalid_response",
			 "a response in progress is no answer");
	class_is(STREAM(ANTHROPIC, "data: {\"type\":\"message_stop\"}\n\n"), "incomplete",
			 "message_stop alone is no stop reason");
	class_is(READ(OLLAMA, "{\"message\":{\"content\":\"a\"},\"done\":true}"), "incomplete",
			 "done without a reason is incomplete");
	class_is(STREAM(OLLAMA, "{\"message\":{\"content\":\"a\"}}\n{\"done\":true,\"done_reason\":"
							"\"stop\"}"),
			 "none", "a last line without its line end is read if it is whole");
	READ(EMBED,
		 "{\"data\":[{\"index\":1,\"embedding\":[\"3\",4e0]},{\"index\":0,\"embedding\":[1,2.5]}]}",
		 .options.embedding_inputs = 2, .options.embedding_array = true);
	is_string(verdict.embedding, "{{1,2.5},{3,4e0}}", "vectors of an array stand in its order");
	READ(EMBED, "{\"data\":[{\"embedding\":[1]}]}", .options.embedding_inputs = 1,
		 .options.embedding_array = true);
	is_string(verdict.embedding, "{{1}}", "an array of one is two-dimensional");
	READ(EMBED, "{\"data\":[{\"embedding\":[1e-60, -0.0]}]}", .options.embedding_inputs = 1);
	is_string(verdict.embedding, "{0,0}", "a number too small for float4 is zero");
	class_is(READ(EMBED, "{\"data\":[{\"embedding\":[1e39]}]}", .options.embedding_inputs = 1),
			 "invalid_response", "a number beyond float4 is none");
	class_is(READ(EMBED, "{\"data\":[{\"embedding\":[]}]}", .options.embedding_inputs = 1),
			 "invalid_response", "a vector has numbers");
	class_is(READ(EMBED, "{\"data\":[{\"embedding\":[1]},{\"embedding\":[1,2]}]}",
				  .options.embedding_inputs = 2),
			 "invalid_response", "vectors have one length");
	class_is(READ(EMBED,
				  "{\"data\":[{\"index\":0,\"embedding\":[1]},{\"index\":0,\"embedding\":[1]}]}",
				  .options.embedding_inputs = 2),
			 "invalid_response", "an input has one vector");
}

int
main(void)
{
	test_choices();
	test_shapes();
	test_counts();
	test_tool_calls();
	test_whole_tool_calls();
	test_dialects();
	llmq_arena_destroy(arena);
	return tap_done();
}
