/*
 * reply_shape_test.c
 *		Answers of another shape than their dialect's, with more of everything than any
 *		provider gives, or in need of more memory than there is.
 */
#include <stdlib.h>

#include "base/buffer.h"
#include "reply_reads.h"

#define EVENT(event) "data: " event "\n\n"

/* One more than an answer may have, see reply_answer.c. */
#define MANY_CHOICES 257
#define MANY_CALLS	 1025

static void
test_documents(void)
{
	static const struct
	{
		LlmqApi api;
		const char *body;
		const char *sentence;
	} wrong[] = {
		{RESPONSES, "{\"status\":\"completed\"}", "Responses: a completed answer has an output"},
		{RESPONSES, "{\"status\":\"completed\",\"output\":7}", "which is an array"},
		{RESPONSES, "{\"status\":\"completed\",\"output\":[7]}", "of objects"},
		{RESPONSES, "{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":7}]}",
		 "whose content is an array"},
		{ANTHROPIC, "{\"content\":7,\"stop_reason\":\"end_turn\"}",
		 "Anthropic: content is an array"},
		{ANTHROPIC, "{\"content\":[7],\"stop_reason\":\"end_turn\"}", "of objects"},
		{GEMINI, "{\"candidates\":7}", "Gemini: candidates are an array"},
		{GEMINI, "{\"candidates\":[7]}", "of objects"},
		{GEMINI, "{\"candidates\":[{\"content\":7}]}", "whose content is an object"},
		{GEMINI, "{\"candidates\":[{\"content\":{\"parts\":7}}]}", "whose parts are an array"},
		{GEMINI, "{\"candidates\":[{\"content\":{\"parts\":[7]}}]}", "of objects, too"},
		{GEMINI, "{\"promptFeedback\":{\"blockReason\":\"\"}}",
		 "and an empty reason blocks nothing"},
		{OLLAMA, "{\"done\":true,\"done_reason\":\"stop\"}",
		 "Ollama: a whole answer has a message"},
		{OLLAMA, "{\"message\":{\"content\":7}}", "whose content is a text"},
		{OLLAMA, "{\"message\":{\"tool_calls\":7}}", "whose tool calls are an array"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		class_is(READ(wrong[i].api, wrong[i].body), "invalid_response", wrong[i].sentence);
}

static void
test_frames(void)
{
	class_is(
		STREAM(RESPONSES, EVENT("{\"type\":\"response.completed\",\"response\":{\"output\":7}}")),
		"incomplete", "Responses: what ends with an output that is none is incomplete");
	class_is(STREAM(RESPONSES, EVENT("{\"type\":\"response.output_item.done\",\"item\":7}")),
			 "invalid_response", "an item is an object");
	class_is(STREAM(RESPONSES, EVENT("{\"type\":\"response.refusal.delta\",\"delta\":\"No\"}")
								   EVENT("{\"type\":\"response.refusal.delta\",\"delta\":\".\"}")
									   EVENT("{\"type\":\"response.completed\"}")),
			 "refusal", "a refusal may come in deltas");
	is_string(verdict.error_message, "No.", "and is joined of them");
	class_is(
		STREAM(RESPONSES, EVENT("{\"type\":\"response.incomplete\",\"response\":"
								"{\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}")),
		"truncated", "a last event says by its type alone that it is incomplete");
	class_is(STREAM(ANTHROPIC, EVENT("{\"type\":\"message_start\",\"message\":{\"content\":7}}")),
			 "invalid_response", "Anthropic: a message begins with an array, if with anything");
	class_is(STREAM(ANTHROPIC, EVENT("{\"type\":\"content_block_start\",\"content_block\":7}")),
			 "invalid_response", "a block is an object");
	class_is(STREAM(OLLAMA, "{\"message\":7}\n"), "invalid_response",
			 "Ollama: a message is an object in a frame, too");
	READ(OLLAMA, "{\"message\":{\"content\":\"a\",\"tool_calls\":[{\"function\":7},{}]},"
				 "\"done\":true,\"done_reason\":\"stop\"}");
	ok(verdict.error_class == LLMQ_ERROR_NONE && verdict.tool_calls == NULL,
	   "a call of no function is none");
}

/* What servers make of OpenAI's chat. */
static void
test_chat(void)
{
	STREAM(CHAT, EVENT("{\"choices\":[{\"message\":{\"content\":\"all\"},"
					   "\"finish_reason\":\"stop\"}]}"));
	is_string(verdict.text, "all", "a single frame may hold a whole message");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":[{\"type\":\"refusal\",\"refusal\":\"No.\"}]}",
									"\"stop\"")),
			 "refusal", "a refusal may be a part of the content");
	READ(CHAT, CHAT_ANSWER("{\"tool_calls\":[{\"id\":\"a\",\"type\":\"custom\",\"custom\":"
						   "{\"name\":\"f\",\"input\":\"go\"}}]}",
						   "\"tool_calls\""));
	is_string(verdict.tool_calls,
			  "[{\"id\":\"a\",\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"input\":\"go\"}}]",
			  "a custom tool takes text");
	STREAM(CHAT, EVENT("{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},"
					   "{\"index\":1,\"delta\":{\"content\":\"x\"}}]}")
					 EVENT("{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}},"
						   "{\"index\":1,\"delta\":{\"content\":\"y\"}}]}") CHAT_END("stop"));
	is_string(verdict.text, "ab", "the pieces of two choices may come in turns");
}

/* ---- Bounds ----------------------------------------------------------------------------- */

/* head, then the element so often with commas between, then tail; the caller frees it. */
static char *
repeated(const char *head, const char *element, int times, const char *tail)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, CAP); /* the cap of a body */
	llmq_buffer_append_string(&out, head);
	for (int i = 0; i < times; i++)
		llmq_buffer_printf(&out, "%s%s", i == 0 ? "" : ",", element);
	llmq_buffer_append_string(&out, tail);
	return out.data;
}

static void
check_bound(LlmqApi api, bool stream, const char *head, const char *element, int too_many,
			const char *tail, const char *sentence)
{
	char *most = repeated(head, element, too_many - 1, tail);
	char *more = repeated(head, element, too_many, tail);
	bool taken =
		reads((Sent){.options = {.api = api, .stream = stream}, .body = most})->error_class ==
		LLMQ_ERROR_NONE;

	reads((Sent){.options = {.api = api, .stream = stream}, .body = more});
	ok(taken && verdict.error_class == LLMQ_ERROR_INVALID_RESPONSE, "%s: %d %s and no more",
	   llmq_api_name(api), too_many - 1, sentence);
	free(most);
	free(more);
}

static void
test_bounds(void)
{
	check_bound(CHAT, false, "{\"choices\":[",
				"{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}", MANY_CHOICES, "]}",
				"choices");
	check_bound(GEMINI, false, "{\"candidates\":[",
				"{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}",
				MANY_CHOICES, "]}", "candidates");
	check_bound(CHAT, false,
				"{\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"tool_calls\":[",
				"{\"id\":\"a\",\"function\":{\"name\":\"f\"}}", MANY_CALLS, "]}}]}", "calls");
	check_bound(RESPONSES, false, "{\"status\":\"completed\",\"output\":[",
				"{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\"}", MANY_CALLS, "]}",
				"calls");
	check_bound(ANTHROPIC, false, "{\"stop_reason\":\"tool_use\",\"content\":[",
				"{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}", MANY_CALLS, "]}", "calls");
	check_bound(GEMINI, false,
				"{\"candidates\":[{\"finishReason\":\"STOP\",\"content\":{\"parts\":[",
				"{\"functionCall\":{\"name\":\"f\"}}", MANY_CALLS, "]}}]}", "calls");
	check_bound(OLLAMA, false,
				"{\"done\":true,\"done_reason\":\"stop\",\"message\":{\"tool_calls\":[",
				"{\"function\":{\"name\":\"f\"}}", MANY_CALLS, "]}}", "calls");
}

/* ---- Memory ------------------------------------------------------------------------------ */

static void
check_memory(LlmqApi api, bool stream, const char *body)
{
	bool honest = true;
	bool read = false;
	size_t room;

	/* Whoever has not even the memory for a reply makes no call. */
	for (room = 0; room < CAP && !read; room += 8)
	{
		LlmqReplyOptions options = {.api = api, .stream = stream, .max_bytes = CAP};
		LlmqArena *small = llmq_arena_create(room);
		bool begins = llmq_reply_create(small, &options) != NULL;

		llmq_arena_destroy(small);
		if (!begins)
			continue;
		reads((Sent){.options = options, .body = body, .arena_bytes = room});
		read = verdict.error_class == LLMQ_ERROR_NONE;
		honest = honest && (read || (verdict.error_class == LLMQ_ERROR_INTERNAL &&
									 verdict.text == NULL && verdict.tool_calls == NULL));
	}
	ok(read && honest, "%s: what is read with too little memory is internal, and never half",
	   llmq_api_name(api));
}

static void
test_memory(void)
{
	check_memory(
		CHAT, false,
		"{\"model\":\"m\",\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"content\":"
		"\"a\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\","
		"\"arguments\":\"{}\"}}]}}]}");
	check_memory(RESPONSES, true,
				 EVENT("{\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":"
					   "\"function_call\",\"call_id\":\"a\",\"name\":\"f\"}]}}"));
	check_memory(
		ANTHROPIC, true,
		EVENT("{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":"
			  "\"a\"}}")
			EVENT("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}"));
	check_memory(
		GEMINI, false,
		"{\"candidates\":[{\"finishReason\":\"STOP\",\"content\":{\"parts\":[{\"text\":\"a\"},"
		"{\"functionCall\":{\"name\":\"f\"}}]}}]}");
	check_memory(OLLAMA, false,
				 "{\"done\":true,\"done_reason\":\"stop\",\"message\":{\"content\":\"a\","
				 "\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}");
}

int
main(void)
{
	test_documents();
	test_frames();
	test_chat();
	test_bounds();
	test_memory();
	llmq_arena_destroy(arena);
	return tap_done();
}
