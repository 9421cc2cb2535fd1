/*
 * reply_fuzz.c
 *		The reader of one dialect's answers (FUZZ_API names it), plain and streamed.
 *
 * Input: a byte of flags, one that says how the transfer ended, one that says how
 * to cut, a status, header lines up to a NUL, the body.
 */
#include "dialects/reply.h"
#include "base/retry.h"
#include "fuzz.h"

#define BODY_CAP ((size_t) 1024 * 1024)
#define NOW_US	 (INT64_C(1768471200) * 1000000)

static const int statuses[] = {200, 200, 200, 200, 200, 400, 429, 500, 529, 302, 204, 0};
static const LlmqTransferEnd ends[] = {
	LLMQ_END_COMPLETE, LLMQ_END_COMPLETE,	 LLMQ_END_COMPLETE,		 LLMQ_END_SHORT,
	LLMQ_END_RESET,	   LLMQ_END_TIMEOUT,	 LLMQ_END_BAD_ENCODING,	 LLMQ_END_NO_RESPONSE,
	LLMQ_END_NOT_SENT, LLMQ_END_INTERRUPTED, LLMQ_END_HEADERS_LARGE,
};

static void
feed_headers(LlmqReply *reply, const char *lines, size_t len)
{
	const char *end = lines + len;

	while (lines < end)
	{
		const char *line_end = memchr(lines, '\n', (size_t) (end - lines));
		const char *colon;

		line_end = line_end != NULL ? line_end : end;
		colon = memchr(lines, ':', (size_t) (line_end - lines));
		if (colon != NULL)
			llmq_reply_header(reply, lines, (size_t) (colon - lines), colon + 1,
							  (size_t) (line_end - colon - 1));
		lines = line_end + (line_end < end);
	}
}

/* Plays one transfer, the body in portions of 1 to most bytes. */
static void
play(LlmqArena *arena, const LlmqReplyOptions *options, int status, const char *lines,
	 size_t lines_len, FuzzInput body, size_t most, LlmqTransferEnd end, LlmqVerdict *verdict)
{
	LlmqReply *reply = llmq_reply_create(arena, options);
	LlmqFeed feed = LLMQ_FEED_MORE;
	size_t size = 0;

	claim(reply != NULL, "a reply can be made");
	if (status != 0)
	{
		llmq_reply_status(reply, status);
		feed_headers(reply, lines, lines_len);
	}
	while (status != 0 && feed == LLMQ_FEED_MORE && body.left > 0)
	{
		char *portion;

		size = size % most + 1;
		if (size > body.left)
			size = body.left;
		portion = fuzz_copy(body.at, size);
		feed = llmq_reply_body(reply, portion, size);
		free(portion);
		body.at += size;
		body.left -= size;
	}
	llmq_reply_finish(reply, feed != LLMQ_FEED_MORE ? LLMQ_END_STOPPED : end, "a detail", NOW_US,
					  verdict);
	llmq_reply_destroy(reply);
}

static void
claim_verdict(const LlmqVerdict *verdict, const LlmqReplyOptions *options)
{
	bool success = verdict->outcome == LLMQ_OUTCOME_SUCCESS;

	claim(success == (verdict->error_class == LLMQ_ERROR_NONE),
		  "a success has no class, all else has");
	claim(verdict->outcome == LLMQ_OUTCOME_RETRY || verdict->retry_after_us == -1,
		  "only a retry has a retry hint");
	claim(verdict->retry_after_us >= -1 && verdict->retry_after_us <= LLMQ_RETRY_HINT_BELIEVED_US,
		  "a retry hint is within bounds");
	claim(verdict->input_tokens >= -1 && verdict->output_tokens >= -1 &&
			  verdict->cached_tokens >= -1,
		  "a count is none or not negative");
	claim(verdict->text == NULL || verdict->text[0] != '\0', "no text is empty");
	claim(!success || verdict->response != NULL, "an answer has its response");
	claim(!success || !options->require_json || verdict->text == NULL || verdict->json != NULL,
		  "where JSON is required there is some");
	claim(verdict->error_message == NULL ||
			  strlen(verdict->error_message) <= LLMQ_ERROR_MESSAGE_MAX,
		  "an error message is not too long");
	claim_text(verdict->text, "text is text");
	claim_text(verdict->embedding, "an embedding is text");
	claim_text(verdict->finish_reason, "a finish reason is text");
	claim_text(verdict->model, "a model is text");
	claim_text(verdict->error_message, "an error message is text");
	claim_text(verdict->request_id, "a request id is text");
	claim_jsonb(verdict->json, "json is JSON");
	claim_jsonb(verdict->tool_calls, "tool calls are JSON");
	claim_jsonb(verdict->response, "a response is JSON");
}

static bool
is_same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void
claim_same(const LlmqVerdict *a, const LlmqVerdict *b)
{
	claim(a->outcome == b->outcome && a->error_class == b->error_class && a->billing == b->billing,
		  "portions make no difference to the outcome");
	claim(a->retry_after_us == b->retry_after_us && a->exhausted_us == b->exhausted_us,
		  "nor to the retry hint");
	claim(a->input_tokens == b->input_tokens && a->output_tokens == b->output_tokens &&
			  a->cached_tokens == b->cached_tokens,
		  "nor to the counts");
	claim(is_same(a->text, b->text) && is_same(a->json, b->json), "nor to the text");
	claim(is_same(a->tool_calls, b->tool_calls), "nor to the tool calls");
	claim(is_same(a->embedding, b->embedding), "nor to the vectors");
	claim(is_same(a->finish_reason, b->finish_reason) && is_same(a->model, b->model),
		  "nor to the finish reason and the model");
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	FuzzInput input = {(const char *) bytes, len};
	uint8_t flags = fuzz_byte(&input);
	LlmqTransferEnd end = ends[fuzz_byte(&input) % (sizeof(ends) / sizeof(ends[0]))];
	size_t most = fuzz_byte(&input) % 64 + 1;
	int status = statuses[fuzz_byte(&input) % (sizeof(statuses) / sizeof(statuses[0]))];
	LlmqReplyOptions options = {.stream = (flags & 1) != 0,
								.accept_truncated = (flags & 2) != 0,
								.require_json = (flags & 4) != 0,
								.embedding_inputs = 1 + (flags >> 3 & 1),
								.embedding_array = (flags & 8) != 0,
								.embedding_dimensions = (flags & 16) != 0 ? 3 : 0,
								.max_bytes = BODY_CAP};
	LlmqArena *arena = llmq_arena_create(FUZZ_ARENA_BYTES);
	LlmqVerdict whole;
	LlmqVerdict cut;
	size_t lines_len;
	char *lines = fuzz_word(&input, &lines_len);

	claim(llmq_api_find(FUZZ_API, &options.api), "the dialect is known");
	play(arena, &options, status, lines, lines_len, input, input.left + 1, end, &whole);
	claim_verdict(&whole, &options);
	play(arena, &options, status, lines, lines_len, input, most, end, &cut);
	claim_same(&whole, &cut);
	llmq_arena_destroy(arena);
	free(lines);
	return 0;
}
