/*
 * reply.c
 *		Reads one HTTP answer of a provider: the driver.
 *
 * When a stream was asked for, the body of a 2xx is split into frames as it arrives; any other
 * body is kept, and read as one document at the end.  A stream may turn out to be a document
 * (an error sent as plain JSON), so a body that begins like JSON is kept until the first
 * frame.
 */
#include "dialects/reply_private.h"

#include <string.h>
#include <strings.h>

#include "json/json_text.h"

/* How much is kept of a body that is neither frames nor JSON, for the error message. */
#define EXCERPT_BYTES 4096

/* A frame's brackets, commas and replaced bytes, per byte of the body (see reply_answer.c). */
#define FRAMES_GROWTH 4
#define FRAMES_EXTRA  65536

static const char *const header_names[] = {
	[LLMQ_HEADER_DATE] = "date",
	[LLMQ_HEADER_RETRY_AFTER] = "retry-after",
	[LLMQ_HEADER_RETRY_AFTER_MS] = "retry-after-ms",
	[LLMQ_HEADER_SHOULD_RETRY] = "x-should-retry",
	[LLMQ_HEADER_REMAINING_REQUESTS] = "x-ratelimit-remaining-requests",
	[LLMQ_HEADER_REMAINING_TOKENS] = "x-ratelimit-remaining-tokens",
	[LLMQ_HEADER_RESET_REQUESTS] = "x-ratelimit-reset-requests",
	[LLMQ_HEADER_RESET_TOKENS] = "x-ratelimit-reset-tokens",
	[LLMQ_HEADER_ANTHROPIC_REQUESTS] = "anthropic-ratelimit-requests-remaining",
	[LLMQ_HEADER_ANTHROPIC_REQUESTS_RESET] = "anthropic-ratelimit-requests-reset",
	[LLMQ_HEADER_ANTHROPIC_TOKENS] = "anthropic-ratelimit-tokens-remaining",
	[LLMQ_HEADER_ANTHROPIC_TOKENS_RESET] = "anthropic-ratelimit-tokens-reset",
	[LLMQ_HEADER_ANTHROPIC_INPUT] = "anthropic-ratelimit-input-tokens-remaining",
	[LLMQ_HEADER_ANTHROPIC_INPUT_RESET] = "anthropic-ratelimit-input-tokens-reset",
	[LLMQ_HEADER_ANTHROPIC_OUTPUT] = "anthropic-ratelimit-output-tokens-remaining",
	[LLMQ_HEADER_ANTHROPIC_OUTPUT_RESET] = "anthropic-ratelimit-output-tokens-reset",
	[LLMQ_HEADER_REQUEST_ID] = "x-request-id",
	[LLMQ_HEADER_REQUEST_ID + 1] = "request-id",
	[LLMQ_HEADER_REQUEST_ID + 2] = "apim-request-id",
	[LLMQ_HEADER_REQUEST_ID + 3] = "x-ms-request-id",
	[LLMQ_HEADER_REQUEST_ID + 4] = "x-amzn-requestid",
	[LLMQ_HEADER_REQUEST_ID_LAST] = "cf-ray",
};

static const char byte_order_mark[] = "\xEF\xBB\xBF";

static void take_status(LlmqSink *sink, int status);
static void
take_header(LlmqSink *sink, const char *name, size_t name_len, const char *value, size_t value_len);
static LlmqFeed take_body(LlmqSink *sink, const char *bytes, size_t len);
static const LlmqReplyDialect *dialect_of(LlmqApi api);
static bool is_split(const LlmqReply *reply);
static void feed(LlmqReply *reply, const char *bytes, size_t len);
static void feed_stream(LlmqReply *reply, const char *bytes, size_t len);
static bool take_frame(void *user, char *data, size_t len, bool whole);
static bool refuse_frame(LlmqReply *reply, const char *data, size_t len, bool marked);
static bool read_frame(LlmqReply *reply, LlmqSlice root);
static void read_document(LlmqReply *reply);

LlmqReply *
llmq_reply_create(LlmqArena *arena, const LlmqReplyOptions *options)
{
	LlmqReply *reply = llmq_arena_alloc(arena, sizeof(*reply));
	size_t max = options->max_bytes;

	if (reply == NULL)
		return NULL;
	reply->sink = (LlmqSink){.status = take_status, .header = take_header, .body = take_body};
	reply->options = *options;
	reply->dialect = dialect_of(options->api);
	reply->streamed = options->stream && options->api != LLMQ_API_OPENAI_EMBEDDINGS;
	llmq_answer_init(&reply->answer, arena, &reply->options);
	reply->answer.reasons = reply->dialect->reasons;
	llmq_buffer_init(&reply->body, max);
	llmq_buffer_init(&reply->frames, max * FRAMES_GROWTH + FRAMES_EXTRA);
	llmq_sse_init(&reply->sse, reply->dialect->json_lines, max, take_frame, reply);
	return reply;
}

void
llmq_reply_destroy(LlmqReply *reply)
{
	if (reply == NULL)
		return;
	llmq_answer_clear(&reply->answer);
	llmq_buffer_free(&reply->body);
	llmq_buffer_free(&reply->frames);
	llmq_sse_free(&reply->sse);
}

LlmqSink *
llmq_reply_sink(LlmqReply *reply)
{
	return &reply->sink;
}

void
llmq_reply_status(LlmqReply *reply, int status)
{
	reply->status = status;
	memset(reply->headers, 0, sizeof(reply->headers));
}

void
llmq_reply_header(LlmqReply *reply, const char *name, size_t name_len, const char *value,
				  size_t value_len)
{
	/* A header after the body is a trailer. */
	if (reply->bytes_in > 0)
		return;
	while (value_len > 0 && (*value == ' ' || *value == '\t'))
	{
		value++;
		value_len--;
	}
	while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
		value_len--;
	for (int i = 0; i < LLMQ_HEADERS; i++)
	{
		if (reply->headers[i] != NULL || strlen(header_names[i]) != name_len ||
			strncasecmp(header_names[i], name, name_len) != 0)
			continue;
		reply->headers[i] = llmq_arena_strndup(reply->answer.arena, value, value_len);
		return;
	}
}

LlmqFeed
llmq_reply_body(LlmqReply *reply, const char *bytes, size_t len)
{
	size_t room = reply->options.max_bytes;

	if (reply->done || reply->too_large)
		return reply->done ? LLMQ_FEED_DONE : LLMQ_FEED_TOO_LARGE;
	room = room > reply->bytes_in ? room - reply->bytes_in : 0;
	reply->bytes_in += len;
	feed(reply, bytes, len < room ? len : room);
	if (!reply->done && len > room)
	{
		reply->done = llmq_reply_marker_read(reply);
		reply->too_large = !reply->done;
	}
	if (reply->done)
		return LLMQ_FEED_DONE;
	return reply->too_large ? LLMQ_FEED_TOO_LARGE : LLMQ_FEED_MORE;
}

void
llmq_reply_finish(LlmqReply *reply, LlmqTransferEnd end, const char *detail, int64_t now_us,
				  LlmqVerdict *verdict)
{
	bool document = reply->first == '{' || reply->first == '[';

	if (is_split(reply))
	{
		if (!reply->done && !reply->too_large)
			llmq_sse_end(&reply->sse);
		if (document && !reply->any_frame && !reply->dialect->json_lines)
			read_document(reply);
	}
	else
	{
		read_document(reply);
		/* An error may come as a frame when a stream was asked for. */
		if (reply->document == LLMQ_DOCUMENT_NONE && reply->streamed && reply->body.len > 0 &&
			llmq_sse_feed(&reply->sse, reply->body.data, reply->body.len))
			llmq_sse_end(&reply->sse);
	}
	if (llmq_sse_failed(&reply->sse) || reply->body.failed || reply->frames.failed)
		reply->answer.no_memory = true;
	llmq_reply_judge(reply, end, detail, now_us, verdict);
}

static void
take_status(LlmqSink *sink, int status)
{
	llmq_reply_status((LlmqReply *) sink, status);
}

static void
take_header(LlmqSink *sink, const char *name, size_t name_len, const char *value, size_t value_len)
{
	llmq_reply_header((LlmqReply *) sink, name, name_len, value, value_len);
}

static LlmqFeed
take_body(LlmqSink *sink, const char *bytes, size_t len)
{
	return llmq_reply_body((LlmqReply *) sink, bytes, len);
}

static const LlmqReplyDialect *
dialect_of(LlmqApi api)
{
	switch (api)
	{
		case LLMQ_API_OPENAI_CHAT:
			return &llmq_reply_openai_chat;
		case LLMQ_API_OPENAI_RESPONSES:
			return &llmq_reply_openai_responses;
		case LLMQ_API_ANTHROPIC_MESSAGES:
			return &llmq_reply_anthropic;
		case LLMQ_API_GEMINI:
			return &llmq_reply_gemini;
		case LLMQ_API_OLLAMA_CHAT:
			return &llmq_reply_ollama;
		case LLMQ_API_OPENAI_EMBEDDINGS:
			return &llmq_reply_embeddings;
	}
	return &llmq_reply_openai_chat;
}

/* Returns whether the body is split into frames as it arrives. */
static bool
is_split(const LlmqReply *reply)
{
	return reply->streamed && reply->status >= 200 && reply->status <= 299;
}

/* Takes bytes of the body, and skips a byte order mark at its start, however it is split. */
static void
feed(LlmqReply *reply, const char *bytes, size_t len)
{
	while (len > 0 && reply->bom_seen >= 0)
	{
		int seen = reply->bom_seen;

		if (*bytes != byte_order_mark[seen])
		{
			reply->bom_seen = -1;
			feed_stream(reply, byte_order_mark, (size_t) seen);
			break;
		}
		reply->bom_seen = seen == 2 ? -1 : seen + 1;
		bytes++;
		len--;
	}
	feed_stream(reply, bytes, len);
}

static void
feed_stream(LlmqReply *reply, const char *bytes, size_t len)
{
	size_t kept = len;

	for (size_t i = 0; i < len && reply->first == '\0'; i++)
	{
		if (memchr(" \t\r\n", bytes[i], 4) == NULL)
			reply->first = bytes[i];
	}
	if (!is_split(reply))
	{
		llmq_buffer_append(&reply->body, bytes, len);
		return;
	}
	if (reply->first != '{' && reply->first != '[' && reply->first != '\0')
		kept = reply->body.len < EXCERPT_BYTES ? EXCERPT_BYTES - reply->body.len : 0;
	if (!reply->any_frame)
		llmq_buffer_append(&reply->body, bytes, len < kept ? len : kept);
	if (!llmq_sse_feed(&reply->sse, bytes, len))
		reply->done = true;
}

/* Takes a frame from the splitter; false to stop reading. */
static bool
take_frame(void *user, char *data, size_t len, bool whole)
{
	LlmqReply *reply = user;
	LlmqSlice root;

	len = llmq_json_text_strip(data, len);
	while (len > 0 && memchr(" \t\r\n", *data, 4) != NULL)
	{
		data++;
		len--;
	}
	while (len > 0 && memchr(" \t\r\n", data[len - 1], 4) != NULL)
		len--;
	if (len == 0 || *data == ':')
		return true;
	if (!llmq_slice_parse(data, len, &root))
	{
		bool end = len == 6 && memcmp(data, "[DONE]", 6) == 0;

		if (!whole && !end)
			return true;
		reply->any_frame = true;
		return end ? false : refuse_frame(reply, data, len, llmq_reply_marker_read(reply));
	}
	if (!reply->any_frame)
	{
		reply->any_frame = true;
		/* Unless it is the body that is being split. */
		if (is_split(reply))
			llmq_buffer_free(&reply->body);
	}
	return read_frame(reply, root);
}

/* Handles a malformed frame: it ends the reading, and after the marker nothing else. */
static bool
refuse_frame(LlmqReply *reply, const char *data, size_t len, bool marked)
{
	if (marked)
		return false;
	reply->malformed = true;
	/* The refused frame is kept for the error message. */
	if (is_split(reply))
	{
		llmq_buffer_reset(&reply->body);
		llmq_buffer_append(&reply->body, data, len < EXCERPT_BYTES ? len : EXCERPT_BYTES);
	}
	return false;
}

/* Reads a frame; after the marker only what it adds to the answer counts. */
static bool
read_frame(LlmqReply *reply, LlmqSlice root)
{
	bool marked = llmq_reply_marker_read(reply);
	bool shaped = llmq_slice_kind(root) == '{' && reply->dialect->read(&reply->answer, root, true);

	llmq_buffer_append_char(&reply->frames, reply->frames.len == 0 ? '[' : ',');
	llmq_json_text_jsonb(&reply->frames, root.at, root.len);
	if (!marked && llmq_reply_find_error(reply, root))
		return false;
	if (!shaped)
		return refuse_frame(reply, root.at, root.len, marked);
	return !reply->answer.over;
}

static void
read_document(LlmqReply *reply)
{
	LlmqBuffer *body = &reply->body;
	LlmqSlice *root = &reply->root;

	if (body->len == 0)
		return;
	body->len = llmq_json_text_strip(body->data, body->len);
	if (!llmq_slice_parse(body->data, body->len, root))
		return;
	reply->document = LLMQ_DOCUMENT_SHAPELESS;
	if (llmq_slice_kind(*root) == '{' && reply->dialect->read(&reply->answer, *root, false))
		reply->document = LLMQ_DOCUMENT_READ;
	llmq_reply_find_error(reply, *root);
}
