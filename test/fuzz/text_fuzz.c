/*
 * text_fuzz.c
 *		The cleaner of text: what comes out is text, and clean text stays as it is.
 */
#include "base/text.h"
#include "fuzz.h"

#define OUT_MAX ((size_t) 16 * 1024 * 1024)

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	char *copy = fuzz_copy((const char *) bytes, len);
	LlmqBuffer clean;
	LlmqBuffer again;
	LlmqBuffer masked;
	const char *text;

	llmq_buffer_init(&clean, OUT_MAX);
	llmq_buffer_init(&again, OUT_MAX);
	llmq_buffer_init(&masked, OUT_MAX);
	claim(llmq_text_clean(&clean, copy, len), "there is room for what is cleaned");
	text = llmq_buffer_string(&clean);
	claim(is_utf8(text, clean.len), "cleaned text is UTF-8 without NUL");
	claim(!is_utf8(copy, len) || (clean.len == len && memcmp(text, copy, len) == 0),
		  "clean text stays as it is");
	llmq_text_clean(&again, text, clean.len);
	claim(again.len == clean.len && memcmp(llmq_buffer_string(&again), text, clean.len) == 0,
		  "what was cleaned is clean");
	for (size_t max = 0; max <= clean.len && max < 64; max++)
	{
		size_t cut = llmq_text_cut(text, clean.len, max);

		claim(cut <= max && max - cut < 4, "a cut is as long as it may be");
		claim(is_utf8(text, cut), "a cut ends at a character");
	}
	claim(llmq_text_mask(&masked, text, clean.len), "there is room for what is masked");
	claim(is_utf8(llmq_buffer_string(&masked), masked.len), "masked text is text");
	llmq_text_contains(text, "bearer");
	llmq_buffer_free(&clean);
	llmq_buffer_free(&again);
	llmq_buffer_free(&masked);
	free(copy);
	return 0;
}
