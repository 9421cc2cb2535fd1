/*
 * send_verdict.c
 *		Makes what receivers say fit to be stored.
 */
#include "messages/send_verdict.h"

#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

/* Room for what cleaning, hiding and masking add to the longest text. */
#define WORDS_MAX_BYTES ((size_t) 1 << 20)

const char *
llmq_send_verdict_message(LlmqArena *arena, const char *sentence, const char *words, size_t len,
						  const char *secret)
{
	LlmqBuffer clean;
	LlmqBuffer hidden;
	LlmqBuffer masked;
	const char *text;
	const char *message = NULL;

	llmq_buffer_init(&clean, WORDS_MAX_BYTES);
	llmq_buffer_init(&hidden, WORDS_MAX_BYTES);
	llmq_buffer_init(&masked, WORDS_MAX_BYTES);
	llmq_text_clean(&clean, words, len);
	llmq_text_hide(&hidden, llmq_buffer_string(&clean), clean.len, secret);
	llmq_text_mask(&masked, llmq_buffer_string(&hidden), hidden.len);
	text = llmq_buffer_string(&masked);
	if (!clean.failed && !hidden.failed && !masked.failed)
		message =
			llmq_arena_printf(arena, "%s%s%.*s", sentence, masked.len > 0 ? ": " : "",
							  (int) llmq_text_cut(text, masked.len, LLMQ_SEND_MESSAGE_MAX), text);
	llmq_buffer_free(&clean);
	llmq_buffer_free(&hidden);
	llmq_buffer_free(&masked);
	return message;
}

const char *
llmq_message_outcome_name(LlmqMessageOutcome outcome)
{
	static const char *const names[LLMQ_MESSAGE_OUTCOMES] = {[LLMQ_MESSAGE_SENT] = "sent",
															 [LLMQ_MESSAGE_RETRY] = "retry",
															 [LLMQ_MESSAGE_DEAD] = "dead",
															 [LLMQ_MESSAGE_RETURN] = "return"};

	return names[outcome];
}
