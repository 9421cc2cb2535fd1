/*
 * text_test.c
 *		Text from strangers becomes valid UTF-8 without keys in it.
 */
#include "base/text.h"
#include "tap.h"

#define BYTES(text) text, sizeof(text) - 1

static void
clean_is(const char *bytes, size_t len, const char *expected, const char *sentence)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, 1000);
	llmq_text_clean(&out, bytes, len);
	is_string(llmq_buffer_string(&out), expected, sentence);
	llmq_buffer_free(&out);
}

static void
mask_is(const char *text, const char *expected)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, 1000);
	llmq_text_mask(&out, text, strlen(text));
	is_string(llmq_buffer_string(&out), expected, text);
	llmq_buffer_free(&out);
}

static void
hide_is(const char *text, const char *secret, const char *expected, const char *name)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, 1000);
	llmq_text_hide(&out, text, strlen(text), secret);
	is_string(llmq_buffer_string(&out), expected, name);
	llmq_buffer_free(&out);
}

static void
test_hide(void)
{
	hide_is("you sent open sesame, sesame", "sesame", "you sent open ***, ***",
			"a secret is hidden wherever it stands");
	hide_is("sesamesesame", "sesame", "******", "twice in a row");
	hide_is("you sent sesa", "sesame", "you sent ***", "the beginning of one that was cut");
	hide_is("you sent ses", "sesame", "you sent ses", "three letters of one give nothing away");
	hide_is("sesamo", "sesame", "sesamo", "what is not the secret stays");
	hide_is("abcabc", "abc", "abcabc", "what is too short for a secret hides nothing");
	hide_is("", "sesame", "", "nothing stays nothing");
	hide_is("sesame", NULL, "sesame", "without a secret all stays");
}

static void
test_clean(void)
{
	clean_is(BYTES(""), "", "nothing stays nothing");
	clean_is(BYTES("Gr\xC3\xBC\xC3\x9F"
				   "e \xE2\x82\xAC \xF0\x9F\x8C\x8D"),
			 "Gr\xC3\xBC\xC3\x9F"
			 "e \xE2\x82\xAC \xF0\x9F\x8C\x8D",
			 "valid UTF-8 passes unchanged");
	clean_is(BYTES("a\0b\0"), "ab", "U+0000 is removed");
	clean_is(BYTES("m\xE1ntre"), "m\xEF\xBF\xBDntre", "a Latin-1 byte is replaced");
	clean_is(BYTES("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD",
			 "bytes that never occur are replaced singly");
	clean_is(BYTES("\xE2\x82"), "\xEF\xBF\xBD", "a character cut at the end is one replacement");
	clean_is(BYTES("\xF0\x9F\x8C"
				   "A"),
			 "\xEF\xBF\xBD"
			 "A",
			 "a character cut by another is one replacement");
	clean_is(BYTES("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD", "overlong forms are not characters");
	clean_is(BYTES("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
			 "surrogates are not characters");
	clean_is(BYTES("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
			 "nothing lies above U+10FFFF");
	clean_is(BYTES("\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80"),
			 "\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80",
			 "the last code points beside the gaps pass");
	clean_is(BYTES("\xE0\xA0\x80\xE0\x9F\x80"), "\xE0\xA0\x80\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
			 "three bytes that two could have been are no character");
}

static void
test_bounds(void)
{
	const char *text = "a\xE2\x82\xAC"
					   "b";
	LlmqBuffer out;

	is_int((int64_t) llmq_text_cut(text, 5, 10), 5, "a short text is not cut");
	is_int((int64_t) llmq_text_cut(text, 5, 4), 4, "a cut after a character stays");
	is_int((int64_t) llmq_text_cut(text, 5, 3), 1, "a cut within a character moves before it");
	is_int((int64_t) llmq_text_cut(text, 5, 0), 0, "a cut at nothing is nothing");
	is_int(llmq_text_character("ab", 2), 1, "a letter is a character of one byte");
	llmq_buffer_init(&out, 3);
	ok(!llmq_text_clean(&out, "abcdef", 6), "a full buffer is told");
	llmq_buffer_free(&out);
	ok(llmq_text_contains("The Prompt is too long.", "prompt IS too"),
	   "words are found without case");
	ok(!llmq_text_contains("short", "a longer one"), "longer words are not found");
}

static void
test_mask(void)
{
	mask_is("Incorrect key provided: sk-te********0000.", "Incorrect key provided: sk-***");
	mask_is("key 'sk-proj-abcdefgh' is wrong", "key 'sk-***' is wrong");
	mask_is("Authorization: Bearer abcdefghij, sorry", "Authorization: Bearer ***, sorry");
	mask_is("bearer abcdefghij", "bearer ***");
	mask_is("https://x/?key=AbCdEf012345&a=1", "https://x/?key=***&a=1");
	mask_is("Invalid API key: mysecret1", "Invalid API key: ***");
	mask_is("{\"api_key\":\"mysecret1\"}", "{\"api_key\":\"***\"}");
	mask_is("AIzaSyTEST0000 refused", "AIza*** refused");
	mask_is("a task-oriented, risk-free sk-2 model", "a task-oriented, risk-free sk-2 model");
	mask_is("the API key is missing", "the API key is missing");
	mask_is("bearer of news", "bearer of news");
	mask_is("", "");
}

int
main(void)
{
	test_clean();
	test_hide();
	test_bounds();
	test_mask();
	return tap_done();
}
