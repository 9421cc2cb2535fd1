/*
 * reply_test.c
 *		Reading an answer, in corners that follow from the rules and stand in no case:
 *		errors, ends, headers, options, and what is stored.
 */
#include "reply_reads.h"

static void
test_error_objects(void)
{
	class_is(READ(CHAT, "[{\"error\":{\"code\":\"insufficient_quota\"}}]"), "quota_exhausted",
			 "an error in an array of one is an error");
	class_is(READ(CHAT, "[{\"error\":{}},{\"error\":{}}]"), "invalid_response",
			 "an array of two errors is no answer");
	class_is(READ(CHAT, "{\"error\":{}}"), "invalid_response", "an empty error object is an error");
	class_is(READ(CHAT, "{\"error\":\"\",\"choices\":[{\"message\":{\"content\":\"a\"},"
						"\"finish_reason\":\"stop\"}]}"),
			 "none", "an empty error string is none");
	class_is(READ(CHAT, "{\"error\":false,\"choices\":[{\"message\":{\"content\":\"a\"},"
						"\"finish_reason\":\"stop\"}]}"),
			 "none", "an error that is neither object nor string is none");
	class_is(READ(CHAT, "{\"object\":\"error\",\"code\":\"429\",\"message\":\"m\"}"),
			 "rate_limited", "a numeric string is a number");
	class_is(READ(CHAT, "{\"error\":\"gone\",\"status\":404}"), "not_found",
			 "the status beside the error counts");
	class_is(READ(CHAT, "{\"error\":{\"code\":\"invalid_request_error\",\"type\":\"API_ERROR\"}}"),
			 "server_error", "a bad_request name counts only alone, and names have no case");
	class_is(READ(CHAT, "{\"error\":{\"code\":302}}"), "invalid_response",
			 "only numbers from 400 on are a status");
	class_is(READ(CHAT, "{\"error\":{\"message\":\"The PROMPT is too long\"}}"), "context_length",
			 "context phrases count in a 2xx");
	class_is(READ(CHAT,
				  "{\"error\":{\"code\":\"unknown\",\"innererror\":{\"code\":"
				  "\"ResponsibleAIPolicyViolation\"}}}",
				  .status = 400),
			 "content_filter", "innererror.code is a name");
	is_string(llmq_billing_name(verdict.billing), "unknown",
			  "a filtered prompt may have been charged for");
	class_is(
		READ(GEMINI,
			 "{\"error\":{\"status\":\"RESOURCE_EXHAUSTED\",\"details\":[{\"violations\":"
			 "[{\"quotaId\":\"RequestsPerMinute\"},{\"quotaId\":\"RequestsPerDayPerModel\"}]}]}}",
			 .status = 429),
		"quota_exhausted", "a quota id per day is a quota");
	class_is(READ(CHAT, "{\"error\":{\"message\":\"m\",\"code\":402}}", .status = 400),
			 "quota_exhausted", "the number 402 is a quota");
	class_is(READ(CHAT, "{\"error\":{\"code\":\"insufficient_quota\"}}", .status = 500),
			 "server_error", "an error object does not turn a 5xx");
	class_is(READ(CHAT, "{\"error\":{\"code\":\"model_not_found\"}}", .status = 422), "not_found",
			 "a 4xx of its own kind is turned by a name");
	class_is(READ(CHAT, "{\"error\":{\"type\":\"rate_limit_error\"}}", .status = 400),
			 "bad_request", "a bad request is not turned by other names");
	class_is(
		READ(RESPONSES, "{\"status\":\"failed\",\"error\":{\"code\":\"invalid_base64_image\"}}"),
		"bad_request", "an image that cannot be read is a bad request");
	class_is(READ(RESPONSES,
				  "{\"status\":\"failed\",\"error\":{\"code\":\"failed_to_download_image\"}}"),
			 "server_error", "an image that cannot be fetched is worth a retry");
	class_is(STREAM(RESPONSES, "data: {\"type\":\"response.failed\",\"response\":{\"error\":"
							   "{\"code\":\"rate_limit_exceeded\"}}}\n\n"),
			 "rate_limited", "the error of a failed response is an error");
}

static void
test_errors_in_streams(void)
{
	const char *bare = CHAT_DELTA("{\"content\":\"a\"}") "data: {\"error\":{\"message\":\"m\","
														 "\"type\":\"invalid_request_error\"}}\n\n";

	class_is(STREAM(CHAT, bare), "invalid_response",
			 "a request that was answered in part was not invalid");
	class_is(STREAM(CHAT, strstr(bare + 1, "data:")), "bad_request",
			 "before any text the same is a bad request");
	class_is(STREAM(CHAT,
					CHAT_DELTA("{\"content\":\"a\"}") "data: {\"error\":{\"code\":400,"
													  "\"type\":\"invalid_request_error\"}}\n\n"),
			 "bad_request", "with a code it is not bare");
	class_is(STREAM(CHAT, CHAT_DELTA("{\"content\":\"a\"}")
							  CHAT_END("stop") "data: {\"error\":{\"code\":500}}\n\n"),
			 "none", "an error behind the finish reason takes nothing back");
	class_is(STREAM(CHAT, CHAT_DELTA("{\"content\":\"a\"}") CHAT_END("stop") "data: {oops\n\n"),
			 "none", "nor does a malformed frame");
	class_is(STREAM(CHAT, "data: {\"error\":{\"code\":500}}\n\n", .end = LLMQ_END_RESET),
			 "server_error", "an error frame beats a reset");
	class_is(STREAM(CHAT, "{\"error\":{\"code\":500}}", .end = LLMQ_END_RESET), "interrupted",
			 "an error document does not");
	class_is(STREAM(CHAT, "data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n", .status = 400),
			 "quota_exhausted", "an error frame in a 4xx is an error object");
	class_is(STREAM(CHAT, "data: {\"error\":{\"code\":\"insufficient_quota\"}}", .status = 400),
			 "quota_exhausted", "though the line that ends it is missing");
	class_is(STREAM(CHAT,
					"data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n"
					"data: {\"error\":{\"code\":\"model_not_found\"}}\n\n",
					.status = 400),
			 "quota_exhausted", "of two the first counts");
	class_is(STREAM(OLLAMA, "{\n \"error\": {\"code\": \"insufficient_quota\"}\n}", .status = 429),
			 "quota_exhausted", "an error document in a 4xx need not be one line");
}

static void
test_ends(void)
{
	const char *whole = CHAT_DELTA("{\"content\":\"Hi\"}") CHAT_END("stop");

	class_is(STREAM(CHAT, whole, .end = LLMQ_END_TIMEOUT), "none", "a marker beats the clock");
	class_is(STREAM(CHAT, whole, .end = LLMQ_END_INTERRUPTED), "none", "a marker beats a drain");
	class_is(STREAM(CHAT, whole, .end = LLMQ_END_BAD_ENCODING), "none",
			 "a marker beats a broken encoding");
	class_is(STREAM(CHAT, whole, .options.max_bytes = strlen(whole) - 1), "too_large",
			 "a body over the cap before the marker is too large");
	is_string(verdict.text, NULL, "and has no text");
	class_is(STREAM(CHAT,
					CHAT_DELTA("{\"content\":\"Hi\"}") CHAT_END("stop") ": a long comment\n\n",
					.options.max_bytes = strlen(whole) + 5),
			 "none", "a body over the cap behind the marker is not");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"a\"}", "\"stop\""), .end = LLMQ_END_TIMEOUT),
			 "timeout", "a document has no marker");
	class_is(READ(CHAT, "", .status = 500, .end = LLMQ_END_TIMEOUT), "server_error",
			 "a status that is not 2xx beats the clock");
	class_is(READ(CHAT, "{\"error\":{\"code\":\"insuff", .status = 429, .end = LLMQ_END_RESET),
			 "rate_limited", "a cut body changes nothing in a status that is not 2xx");
	class_is(READ(CHAT, "0123456789", .status = 503, .options.max_bytes = 5), "overloaded",
			 "nor does an oversized one");
	class_is(
		STREAM(CHAT, CHAT_DELTA("{\"content\":\"a\"}") "data: {oops\n\n", .end = LLMQ_END_RESET),
		"invalid_response", "a malformed frame beats a reset");
	class_is(STREAM(CHAT, CHAT_DELTA("{\"content\":\"a\"}") "data: {oops", .end = LLMQ_END_RESET),
			 "interrupted", "a cut frame was not read");
	class_is(STREAM(CHAT,
					CHAT_DELTA("{\"content\":\"a\"}") "data: {\"choices\":[{\"index\":0,"
													  "\"finish_reason\":\"stop\"}]}",
					.end = LLMQ_END_SHORT),
			 "none", "a last frame without its line end is read if it is whole");
	class_is(READ(CHAT, "{\"choices\":", .end = LLMQ_END_STOPPED), "interrupted",
			 "what we ended before there was enough was not answered");
	class_is(READ(CHAT, NULL, .end = LLMQ_END_NO_RESPONSE), "interrupted",
			 "no response: interrupted");
	class_is(READ(CHAT, NULL, .end = LLMQ_END_NOT_SENT, .detail = "no route"), "connection",
			 "not sent: connection");
	is_string(verdict.error_message, "no route", "the transfer's words are kept");
	is_int(verdict.http_status, 0, "without a status line there is no status");
	class_is(READ(CHAT, "", .end = LLMQ_END_HEADERS_LARGE), "too_large",
			 "large headers: too large");
	class_is(STREAM(CHAT, "<html>login</html>"), "invalid_response", "HTML is no stream");
	class_is(STREAM(OLLAMA, "<html>login</html>"), "invalid_response", "nor lines of JSON");
	class_is(STREAM(CHAT, ""), "incomplete", "an empty stream is incomplete");
	class_is(STREAM(CHAT, "\n\nhello\n\n"), "incomplete", "text without frames is incomplete");
	class_is(STREAM(CHAT, "  " CHAT_ANSWER("{\"content\":\"a\"}", "\"stop\"")), "none",
			 "one JSON document answers a request for a stream");
	is_string(verdict.text, "a", "with its text");
	class_is(STREAM(CHAT, "data: 42\n\n"), "invalid_response", "a frame is an object");
}

static void
test_headers(void)
{
	READ(CHAT, "{}", .status = 400,
		 .headers = "X-Should-Retry: TRUE\nRetry-After: 3\nretry-after: 9\n");
	is_string(llmq_outcome_name(verdict.outcome), "retry", "x-should-retry true turns the outcome");
	is_int(verdict.retry_after_us, 3000000, "of a repeated header the first counts");
	READ(CHAT, "{}", .status = 503, .headers = "x-should-retry: false\nretry-after: 9\n");
	is_string(llmq_outcome_name(verdict.outcome), "permanent", "and false");
	is_int(verdict.retry_after_us, -1, "a permanent outcome has no delay");
	READ(CHAT, "{}", .status = 402, .headers = "x-should-retry: true\n");
	is_string(llmq_outcome_name(verdict.outcome), "permanent", "but not that of a quota");
	READ(CHAT, "{}", .status = 400, .headers = "x-should-retry: perhaps\n");
	is_string(llmq_outcome_name(verdict.outcome), "permanent", "nor does another word turn it");
	READ(CHAT, "{}", .headers = "x-should-retry: false\n");
	is_string(llmq_outcome_name(verdict.outcome), "retry", "nor that of a 2xx");
	READ(CHAT, "{}", .status = 429, .headers = "Retry-After: Thu, 15 Jan 2026 10:00:07 GMT\n");
	is_int(verdict.retry_after_us, 7000000, "without a Date a date is relative to our clock");
	READ(CHAT, "{}", .status = 429,
		 .headers = "Retry-After: soon\nx-ratelimit-remaining-tokens: 0\n"
					"x-ratelimit-reset-tokens: 3s\nx-ratelimit-remaining-requests: 0\n"
					"x-ratelimit-reset-requests: 250ms\n");
	is_int(verdict.retry_after_us, 3000000,
		   "the longest reset counts when Retry-After is unreadable");
	READ(CHAT, "{}", .status = 429,
		 .headers = "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 250ms\n"
					"x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 4s\n");
	is_int(verdict.retry_after_us, 4000000, "be it that of tokens or of requests");
	READ(GEMINI,
		 "{\"error\":{\"details\":[{\"@type\":\"x/google.rpc.RetryInfo\",\"retryDelay\":7}]}}",
		 .status = 500, .headers = "retry-after-ms: -1\n");
	is_int(verdict.retry_after_us, 7000000, "RetryInfo counts when the headers say nothing");
	READ(CHAT, "", .status = 500, .headers = "request-id: b\nX-Request-Id: a\xFF\n");
	is_string(verdict.request_id, "a\xEF\xBF\xBD", "the request's id is kept, clean");
}

/* What successes say of limits, in calls like the one that they answer. */
static void
test_left(void)
{
	const char *chat =
		"{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],"
		"\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":50}}";
	const char *claude = "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],"
						 "\"stop_reason\":\"end_turn\","
						 "\"usage\":{\"input_tokens\":100,\"output_tokens\":49}}";

	READ(CHAT, chat);
	is_int(verdict.left_calls, -1, "an answer without limits says nothing of them");
	READ(CHAT, chat,
		 .headers = "x-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s\n"
					"x-ratelimit-remaining-tokens: 3000\nx-ratelimit-reset-tokens: 6m0s\n");
	is_int(verdict.left_calls, 20, "OpenAI: 3,000 tokens are twenty calls of 150");
	is_int(verdict.left_for_us, 360000000, "for the time until that limit is whole again");
	READ(CHAT, chat,
		 .headers = "x-ratelimit-remaining-requests: 5\nx-ratelimit-reset-requests: 1m\n"
					"x-ratelimit-remaining-tokens: 3000\nx-ratelimit-reset-tokens: 20ms\n");
	is_int(verdict.left_calls, 5, "of several limits the one that makes slowest counts");
	READ(ANTHROPIC, claude,
		 .headers = "anthropic-ratelimit-requests-remaining: 3\n"
					"anthropic-ratelimit-requests-reset: 2026-01-15T10:00:30Z\n");
	is_int(verdict.left_calls, 3, "Anthropic: three calls are left");
	is_int(verdict.left_for_us, 30000000, "until a time");
	READ(ANTHROPIC, claude,
		 .headers = "Date: Thu, 15 Jan 2026 10:00:20 GMT\n"
					"anthropic-ratelimit-output-tokens-remaining: 200\n"
					"anthropic-ratelimit-output-tokens-reset: 2026-01-15T10:00:30Z\n"
					"anthropic-ratelimit-input-tokens-remaining: 90000\n"
					"anthropic-ratelimit-input-tokens-reset: 2026-01-15T10:00:30Z\n");
	is_int(verdict.left_calls, 4, "tokens of answers, and of what is sent, are limits, too");
	is_int(verdict.left_for_us, 10000000, "and the time is that of the answer's own clock");
	READ(CHAT, chat,
		 .headers = "x-ratelimit-remaining-requests: few\nx-ratelimit-reset-requests: soon\n");
	is_int(verdict.left_calls, -1, "what cannot be read says nothing");
	READ(CHAT, chat,
		 .headers = "x-ratelimit-remaining-requests: 9\nx-ratelimit-reset-requests: soon\n");
	is_int(verdict.left_calls, -1, "nor does what is left, if nobody can tell for how long");
	READ(CHAT, chat, .headers = "x-ratelimit-remaining-requests: 9\n");
	is_int(verdict.left_calls, -1, "or does");
}

static void
test_interim(void)
{
	LlmqReplyOptions options = {.api = CHAT, .max_bytes = CAP};
	LlmqReply *reply;

	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
	reply = llmq_reply_create(arena, &options);
	llmq_reply_status(reply, 103);
	llmq_reply_header(reply, "Retry-After", 11, "99", 2);
	llmq_reply_status(reply, 429);
	llmq_reply_finish(reply, LLMQ_END_COMPLETE, NULL, NOW_US, &verdict);
	llmq_reply_destroy(reply);
	is_int(verdict.retry_after_us, -1, "headers of an interim answer are forgotten");
	is_int(verdict.http_status, 429, "and its status");
}

static void
test_options(void)
{
	const char *cut = CHAT_ANSWER("{\"content\":\"The\"}", "\"length\"");
	const char *json = CHAT_ANSWER("{\"content\":\" {\\\"a\\\": 1e999999}\\n\"}", "\"stop\"");

	class_is(READ(CHAT, cut, .options.accept_truncated = true), "none",
			 "a truncated answer may be accepted");
	is_string(verdict.finish_reason, "length", "and says that it is");
	is_string(verdict.text, "The", "with its text");
	class_is(READ(CHAT, CHAT_ANSWER("{}", "\"length\""), .options.accept_truncated = true),
			 "truncated", "without text there is nothing to accept");
	class_is(READ(CHAT, json, .options.require_json = true), "none", "JSON is accepted");
	is_string(verdict.json, "{\"a\": \"1e999999\"}", "and made fit for jsonb");
	is_string(verdict.text, " {\"a\": 1e999999}\n", "while the text stays as it is");
	class_is(READ(CHAT, CHAT_ANSWER("{\"content\":\"```json\"}", "\"stop\""),
				  .options.require_json = true),
			 "invalid_response", "text that is no JSON is refused");
	is_string(verdict.text, NULL, "and not kept");
	class_is(READ(CHAT, cut, .options.accept_truncated = true, .options.require_json = true),
			 "truncated", "a truncated text that is no JSON stays truncated");
	class_is(READ(CHAT,
				  CHAT_ANSWER("{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}", "\"stop\""),
				  .options.require_json = true),
			 "none", "a tool call needs no JSON text");
}

static void
test_stored(void)
{
	char message[3000];
	size_t len;

	STREAM(CHAT, CHAT_DELTA("{\"content\":\"a\\u0000\"}") CHAT_END("stop") "data: [DONE]\n\n");
	is_string(verdict.response,
			  "[{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]},"
			  "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}]",
			  "the response of a stream is the array of its frames, clean");
	READ(CHAT, "  {\"n\":1e999999,\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":"
			   "\"stop\"}]}\n");
	ok(strstr(verdict.response, "{\"n\":\"1e999999\"") == verdict.response,
	   "the response of a document is its bytes, as jsonb takes them");
	READ(CHAT, "{\"error\":{\"message\":\"Bad key sk-test********0000\\u0000\"}}", .status = 401);
	is_string(verdict.error_message, "Bad key sk-***", "no key reaches the message");
	READ(CHAT, "<h1>\n  Bad \xFF gateway</h1>", .status = 502);
	is_string(verdict.error_message, "HTTP 502: <h1> Bad \xEF\xBF\xBD gateway</h1>",
			  "a page is shown in one line");
	len = (size_t) snprintf(message, sizeof(message), "{\"error\":\"a");
	for (int i = 0; i < 600; i++, len += 3)
		memcpy(message + len, "\xE2\x82\xAC", 4);
	memcpy(message + len, "\"}", 3);
	READ(CHAT, message, .status = 400);
	is_int((int64_t) strlen(verdict.error_message), 1000, "a message is cut at a character");
	READ(CHAT, CHAT_ANSWER("{\"content\":\"a\"}", "\"stop\""), .arena_bytes = 3000);
	class_is(&verdict, "none", "a small answer needs little memory");
	READ(CHAT, message, .status = 400, .arena_bytes = 3000);
	class_is(&verdict, "internal", "out of memory is internal");
	is_string(llmq_outcome_name(verdict.outcome), "permanent", "and final");
}

static void
test_feed(void)
{
	LlmqReplyOptions options = {.api = ANTHROPIC, .stream = true, .max_bytes = CAP};
	const char *stop =
		"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
	const char *over = "data: {\"type\":\"message_stop\"}\n\n";
	LlmqReply *reply;

	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
	reply = llmq_reply_create(arena, &options);
	llmq_reply_status(reply, 200);
	is_int(llmq_reply_body(reply, stop, strlen(stop)), LLMQ_FEED_MORE,
		   "behind the stop reason the usage may follow");
	is_int(llmq_reply_body(reply, over, strlen(over)), LLMQ_FEED_DONE,
		   "behind the end nothing does");
	is_int(llmq_reply_body(reply, "x", 1), LLMQ_FEED_DONE, "and nothing more is taken");
	llmq_reply_finish(reply, LLMQ_END_STOPPED, NULL, NOW_US, &verdict);
	is_int((int64_t) verdict.bytes_in, (int64_t) (strlen(stop) + strlen(over)),
		   "what was read is counted");
	llmq_reply_destroy(reply);
	llmq_reply_destroy(NULL);
}

int
main(void)
{
	test_error_objects();
	test_errors_in_streams();
	test_ends();
	test_headers();
	test_left();
	test_interim();
	test_options();
	test_stored();
	test_feed();
	llmq_arena_destroy(arena);
	return tap_done();
}
