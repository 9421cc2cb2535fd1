/*
 * fuzz.h
 *		What the fuzz targets share: input in parts, and claims about what came out.
 *
 * A target claims more than that nothing crashes: that text is text, JSON is
 * JSON, and that portions make no difference.
 */
#ifndef LLMQ_FUZZ_H
#define LLMQ_FUZZ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_ARENA_BYTES ((size_t) 64 * 1024 * 1024)

extern int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Ends the program when a claim does not hold; the fuzzer then keeps the input. */
static inline void
claim(bool holds, const char *sentence)
{
	if (holds)
		return;
	fprintf(stderr, "claim: %s\n", sentence);
	abort();
}

/* What is left of an input. */
typedef struct FuzzInput
{
	const char *at;
	size_t left;
} FuzzInput;

/* The next byte, 0 behind the end. */
static inline uint8_t
fuzz_byte(FuzzInput *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return (uint8_t) *input->at++;
}

/* The bytes up to the next NUL (which is passed over), NUL-ended, in a block of their own. */
static inline char *
fuzz_word(FuzzInput *input, size_t *len)
{
	const char *end = memchr(input->at, '\0', input->left);
	char *word;

	*len = end != NULL ? (size_t) (end - input->at) : input->left;
	word = malloc(*len + 1);
	memcpy(word, input->at, *len);
	word[*len] = '\0';
	input->at += *len + (end != NULL);
	input->left -= *len + (end != NULL);
	return word;
}

/* An exact copy, so that reading behind it is seen; never NULL. */
static inline char *
fuzz_copy(const char *bytes, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);

	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

/* Tells whether text is UTF-8, by the table of Unicode 3.9 and not by our own code. */
static inline bool
is_utf8(const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *) text;
	const unsigned char *end = at + len;

	while (at < end)
	{
		size_t more = at[0] < 0x80 ? 0 : at[0] < 0xE0 ? 1 : at[0] < 0xF0 ? 2 : 3;

		if (at[0] == 0 || (at[0] >= 0x80 && at[0] < 0xC2) || at[0] > 0xF4 ||
			more >= (size_t) (end - at))
			return false;
		for (size_t i = 1; i <= more; i++)
		{
			if ((at[i] & 0xC0) != 0x80)
				return false;
		}
		if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
			(at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F))
			return false;
		at += more + 1;
	}
	return true;
}

/* Claims that PostgreSQL takes this as text; NULL is no text. */
static inline void
claim_text(const char *text, const char *sentence)
{
	claim(text == NULL || is_utf8(text, strlen(text)), sentence);
}

/* Claims that text is JSON that jsonb takes, as far as another reader of JSON can tell. */
static inline void
claim_jsonb(const char *text, const char *sentence)
{
	json_error_t error;
	json_t *value;

	claim_text(text, sentence);
	if (text == NULL)
		return;
	value = json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);
	claim(value != NULL || json_error_code(&error) == json_error_numeric_overflow, sentence);
	json_decref(value);
}

#endif /* LLMQ_FUZZ_H */
