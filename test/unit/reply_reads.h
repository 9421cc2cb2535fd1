/*
 * reply_reads.h
 *		Reads one answer that a test writes down, and keeps its verdict.
 */
#ifndef LLMQ_REPLY_READS_H
#define LLMQ_REPLY_READS_H

#include "dialects/reply.h"
#include "tap.h"

#define ARENA_BYTES ((size_t) 64 * 1024 * 1024)
#define CAP			100000

/* Thu, 15 Jan 2026 10:00:00 GMT */
#define NOW_US (INT64_C(1768471200) * 1000000)

#define CHAT	  LLMQ_API_OPENAI_CHAT
#define RESPONSES LLMQ_API_OPENAI_RESPONSES
#define ANTHROPIC LLMQ_API_ANTHROPIC_MESSAGES
#define GEMINI	  LLMQ_API_GEMINI
#define OLLAMA	  LLMQ_API_OLLAMA_CHAT
#define EMBED	  LLMQ_API_OPENAI_EMBEDDINGS

#define CHAT_ANSWER(message, reason) \
	"{\"choices\":[{\"message\":" message ",\"finish_reason\":" reason "}]}"
#define CHAT_DELTA(delta) "data: {\"choices\":[{\"index\":0,\"delta\":" delta "}]}\n\n"
#define CHAT_END(reason) \
	"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}\n\n"

typedef struct Sent
{
	LlmqReplyOptions options;
	int status;			 /* 200 if 0 */
	const char *headers; /* "name: value\n" for each */
	const char *body;
	LlmqTransferEnd end;
	const char *detail;
	size_t arena_bytes;
} Sent;

static LlmqArena *arena;
static LlmqVerdict verdict;

static inline void
send_headers(LlmqReply *reply, const char *headers)
{
	while (headers != NULL && *headers != '\0')
	{
		const char *colon = strchr(headers, ':');
		const char *end = strchr(headers, '\n');

		llmq_reply_header(reply, headers, (size_t) (colon - headers), colon + 1,
						  (size_t) (end - colon - 1));
		headers = end + 1;
	}
}

/* Reads an answer; the verdict stands until the next one. */
static inline const LlmqVerdict *
reads(Sent sent)
{
	size_t len = sent.body != NULL ? strlen(sent.body) : 0;
	LlmqTransferEnd end = sent.end;
	LlmqReply *reply;

	llmq_arena_destroy(arena);
	arena = llmq_arena_create(sent.arena_bytes != 0 ? sent.arena_bytes : ARENA_BYTES);
	if (sent.options.max_bytes == 0)
		sent.options.max_bytes = CAP;
	reply = llmq_reply_create(arena, &sent.options);
	if (sent.end != LLMQ_END_NOT_SENT && sent.end != LLMQ_END_NO_RESPONSE)
	{
		llmq_reply_status(reply, sent.status != 0 ? sent.status : 200);
		send_headers(reply, sent.headers);
		if (llmq_reply_body(reply, sent.body, len) != LLMQ_FEED_MORE)
			end = LLMQ_END_STOPPED;
	}
	llmq_reply_finish(reply, end, sent.detail, NOW_US, &verdict);
	llmq_reply_destroy(reply);
	return &verdict;
}

#define READ(api_, body_, ...) reads((Sent){.options.api = (api_), .body = (body_), __VA_ARGS__})
#define STREAM(api_, body_, ...) \
	reads((Sent){.options.api = (api_), .options.stream = true, .body = (body_), __VA_ARGS__})

static inline void
class_is(const LlmqVerdict *got, const char *expected, const char *sentence)
{
	const char *class = llmq_error_name(got->error_class);

	is_string(class != NULL ? class : "none", expected, sentence);
}

#endif /* LLMQ_REPLY_READS_H */
