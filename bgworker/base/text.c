/*
 * text.c
 *		Makes bytes from outside into text that may be stored and shown.
 *
 * Clean bytes are copied in runs; only bytes that must change are handled one by one.
 *
 * Reading UTF-8 is our own because PostgreSQL's functions need its headers, and libc's depend
 * on the locale.
 */
#include "base/text.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define LENGTH_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Shorter words after a prefix ("sk-2") are names, not keys. */
#define SECRET_MIN 6

/* Something shorter would be found in texts that have nothing to do with it. */
#define SECRET_MIN_LENGTH 4

/* The characters that a key or a masked key may contain, besides letters and digits. */
#define SECRET_MARKS "-_.*+/=~%"

/* The characters that may stand between a word like "api_key" and the secret. */
#define SECRET_GAP " \t:=\"'"

/* A secret begins with one of these prefixes, which are shown. */
static const char *const beginnings[] = {"sk-",	 "sk_", "pk-",	"rk-",	  "gsk_",  "xai-",
										 "AIza", "hf_", "ghp_", "nvapi-", "pplx-", "key-"};

/* A secret follows one of these words, with a mark in between where one is needed. */
static const struct
{
	const char *word;
	bool needs_mark; /* a colon or an equals sign must come between */
} leads[] = {
	{"bearer", false},	  {"api key", true},  {"api_key", true},	   {"api-key", true},
	{"apikey", true},	  {"key=", false},	  {"token=", false},	   {"secret=", false},
	{"password=", false}, {"passwd=", false}, {"authorization", true},
};

static int sequence_length(unsigned char lead, unsigned char *low, unsigned char *high);
static size_t secret_at(const char *text, size_t len, size_t at, size_t *shown);
static size_t secret_behind(const char *text, size_t len, size_t at, bool needs_mark);
static size_t word_length(const char *text, size_t len, size_t at);

int
llmq_text_character(const char *bytes, size_t len)
{
	const unsigned char *at = (const unsigned char *) bytes;
	unsigned char low;
	unsigned char high;
	int length = sequence_length(at[0], &low, &high);

	if (length == 0)
		return -1;
	for (int i = 1; i < length; i++)
	{
		if ((size_t) i >= len || at[i] < low || at[i] > high)
			return -i;
		low = 0x80;
		high = 0xBF;
	}
	return length;
}

bool
llmq_text_clean(LlmqBuffer *out, const char *bytes, size_t len)
{
	size_t start = 0;
	size_t at = 0;

	while (at < len)
	{
		int length;

		if ((signed char) bytes[at] > 0)
		{
			at++;
			continue;
		}
		length = bytes[at] == '\0' ? -1 : llmq_text_character(bytes + at, len - at);
		if (length > 0)
		{
			at += (size_t) length;
			continue;
		}
		llmq_buffer_append(out, bytes + start, at - start);
		if (bytes[at] != '\0')
			llmq_buffer_append_string(out, LLMQ_TEXT_REPLACEMENT);
		at += (size_t) -length;
		start = at;
	}
	return llmq_buffer_append(out, bytes + start, at - start);
}

size_t
llmq_text_cut(const char *text, size_t len, size_t max)
{
	if (len <= max)
		return len;
	while (max > 0 && ((unsigned char) text[max] & 0xC0) == 0x80)
		max--;
	return max;
}

bool
llmq_text_mask(LlmqBuffer *out, const char *text, size_t len)
{
	size_t start = 0;
	size_t at = 0;

	while (at < len)
	{
		size_t shown = 0;
		size_t secret = secret_at(text, len, at, &shown);

		if (secret == 0)
		{
			at++;
			continue;
		}
		llmq_buffer_append(out, text + start, at + shown - start);
		llmq_buffer_append_string(out, "***");
		at += shown + secret;
		start = at;
	}
	return llmq_buffer_append(out, text + start, len - start);
}

bool
llmq_text_hide(LlmqBuffer *out, const char *text, size_t len, const char *secret)
{
	size_t secret_len = secret == NULL ? 0 : strlen(secret);
	size_t start = 0;
	size_t at = 0;

	while (secret_len >= SECRET_MIN_LENGTH && at + SECRET_MIN_LENGTH <= len)
	{
		size_t here = len - at < secret_len ? len - at : secret_len;

		if (memcmp(text + at, secret, here) != 0)
		{
			at++;
			continue;
		}
		llmq_buffer_append(out, text + start, at - start);
		llmq_buffer_append_string(out, "***");
		at += here;
		start = at;
	}
	return llmq_buffer_append(out, text + start, len - start);
}

bool
llmq_text_contains(const char *text, const char *words)
{
	size_t len = strlen(words);
	size_t text_len = strlen(text);

	for (size_t at = 0; at + len <= text_len; at++)
	{
		/* A cheap first check: upper and lower case differ in one bit.  The comparison decides. */
		if ((text[at] | 0x20) == (words[0] | 0x20) && strncasecmp(text + at, words, len) == 0)
			return true;
	}
	return false;
}

/*
 * Returns the length that a lead byte announces, and the range of the byte after it (Unicode,
 * table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF); 0 if it is not a lead
 * byte.
 */
static int
sequence_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xBF;
	if (lead < 0x80)
		return 1;
	if (lead < 0xC2 || lead > 0xF4)
		return 0;
	if (lead < 0xE0)
		return 2;
	if (lead < 0xF0)
	{
		if (lead == 0xE0)
			*low = 0xA0;
		else if (lead == 0xED)
			*high = 0x9F;
		return 3;
	}
	if (lead == 0xF0)
		*low = 0x90;
	else if (lead == 0xF4)
		*high = 0x8F;
	return 4;
}

static bool
is_word_character(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool
starts_with(const char *text, size_t len, const char *word)
{
	size_t word_len = strlen(word);

	return len >= word_len && strncasecmp(text, word, word_len) == 0;
}

/*
 * Returns the length of the secret in the word that begins at `at`, after *shown bytes that
 * are shown; 0 if there is none.
 */
static size_t
secret_at(const char *text, size_t len, size_t at, size_t *shown)
{
	if (!is_word_character(text[at]) || (at > 0 && is_word_character(text[at - 1])))
		return 0;
	for (size_t i = 0; i < LENGTH_OF(beginnings); i++)
	{
		if (!starts_with(text + at, len - at, beginnings[i]))
			continue;
		*shown = strlen(beginnings[i]);
		if (word_length(text, len, at + *shown) >= SECRET_MIN)
			return word_length(text, len, at + *shown);
	}
	for (size_t i = 0; i < LENGTH_OF(leads); i++)
	{
		size_t word_len = strlen(leads[i].word);

		if (!starts_with(text + at, len - at, leads[i].word))
			continue;
		*shown = secret_behind(text, len, at + word_len, leads[i].needs_mark) - at;
		if (*shown > 0 && word_length(text, len, at + *shown) >= SECRET_MIN)
			return word_length(text, len, at + *shown);
	}
	return 0;
}

/*
 * Returns where the secret begins after a lead that ends at `at`; the end of the text if a
 * needed mark is missing.
 */
static size_t
secret_behind(const char *text, size_t len, size_t at, bool needs_mark)
{
	bool marked = !needs_mark;

	while (at < len && text[at] != '\0' && strchr(SECRET_GAP, text[at]) != NULL)
	{
		marked = marked || text[at] == ':' || text[at] == '=';
		at++;
	}
	if (marked && starts_with(text + at, len - at, "Bearer "))
		at += strlen("Bearer ");
	return marked ? at : len;
}

static size_t
word_length(const char *text, size_t len, size_t at)
{
	size_t start = at;

	while (at < len && text[at] != '\0' &&
		   (is_word_character(text[at]) || strchr(SECRET_MARKS, text[at]) != NULL))
		at++;
	return at - start;
}
