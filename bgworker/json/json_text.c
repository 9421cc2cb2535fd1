/*
 * json_text.c
 *		Extracts text and numbers from a provider's JSON, and makes that JSON acceptable to
 *		jsonb.
 *
 * In pieces of text, a lone escaped surrogate is kept as the byte FF and two more in 80..BF.
 * FF is never part of UTF-8.  An FF in the source becomes FE, which is invalid too and is
 * replaced in the same way.
 */
#include "json/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define SURROGATE_MARK 0xFF

/* The range of numeric: digits before and after the decimal point (PostgreSQL, "Numeric Types"). */
#define NUMERIC_DIGITS_BEFORE 131072
#define NUMERIC_DIGITS_BEHIND 16383

/* No int64 has more digits. */
#define INT64_DIGITS 19

/* Exponents are counted up to here.  Beyond, every other limit has been exceeded long since. */
#define EXPONENT_MAX 100000000

/* A parsed number: digits times ten to the power of exponent. */
typedef struct Decimal
{
	bool negative;
	const char *digits; /* from the first that is not zero; they may contain a point */
	int64_t count;		/* of digits, without the point; 0: the number is zero */
	int64_t exponent;	/* of the last digit */
} Decimal;

static void append_raw(LlmqBuffer *pieces, const char *bytes, size_t len);
static const char *append_escape(LlmqBuffer *pieces, const char *at, const char *end);
static uint32_t hex4(const char *at);
static bool put_character(LlmqBuffer *out, uint32_t code);
static size_t join_surrogate(LlmqBuffer *out, const unsigned char *at, size_t len);
static bool read_decimal(const char *at, const char *end, Decimal *decimal);
static const char *read_exponent(const char *at, const char *end, int64_t *exponent);
static unsigned next_digit(Decimal *decimal);
static bool spelled_number(LlmqSlice value, Decimal *decimal);
static const char *copy_string(LlmqBuffer *out, const char *at, const char *end);
static const char *copy_escape(LlmqBuffer *out, const char *at, const char *end);
static const char *copy_number(LlmqBuffer *out, const char *at, const char *end);

size_t
llmq_json_text_strip(char *bytes, size_t len)
{
	char *nul = len > 0 ? memchr(bytes, '\0', len) : NULL;
	size_t kept;

	if (nul == NULL)
		return len;
	kept = (size_t) (nul - bytes);
	for (size_t at = kept; at < len; at++)
	{
		if (bytes[at] != '\0')
			bytes[kept++] = bytes[at];
	}
	return kept;
}

bool
llmq_json_text_piece(LlmqBuffer *pieces, LlmqSlice string)
{
	const char *at;
	const char *end;

	if (llmq_slice_kind(string) != '"')
		return !pieces->failed;
	at = string.at + 1;
	end = string.at + string.len - 1;
	while (at < end)
	{
		const char *escape = memchr(at, '\\', (size_t) (end - at));
		const char *stop = escape != NULL ? escape : end;

		append_raw(pieces, at, (size_t) (stop - at));
		at = stop < end ? append_escape(pieces, stop, end) : end;
	}
	return !pieces->failed;
}

bool
llmq_json_text_join(LlmqBuffer *out, const LlmqBuffer *pieces)
{
	const char *at = pieces->data;
	size_t len = pieces->len;

	while (len > 0)
	{
		const char *mark = memchr(at, SURROGATE_MARK, len);
		size_t run = mark != NULL ? (size_t) (mark - at) : len;

		if (run == 0)
			run = join_surrogate(out, (const unsigned char *) at, len);
		else
			llmq_text_clean(out, at, run);
		at += run;
		len -= run;
	}
	return !out->failed;
}

bool
llmq_json_text_integer(LlmqSlice value, int64_t *number)
{
	Decimal decimal;
	uint64_t sum = 0;
	int64_t places;

	if (!spelled_number(value, &decimal))
		return false;
	places = decimal.count > 0 ? decimal.count + decimal.exponent : 0;
	if (decimal.count > 0 && (places <= 0 || places > INT64_DIGITS))
		return false;
	for (int64_t place = 0; place < places; place++)
	{
		unsigned digit = place < decimal.count ? next_digit(&decimal) : 0;

		if (sum > ((uint64_t) INT64_MAX - digit) / 10)
			return false;
		sum = sum * 10 + digit;
	}
	for (int64_t place = places; place < decimal.count; place++)
	{
		if (next_digit(&decimal) != 0)
			return false;
	}
	*number = decimal.negative ? -(int64_t) sum : (int64_t) sum;
	return true;
}

bool
llmq_json_text_real(LlmqSlice value, double *number)
{
	Decimal decimal;

	if (!spelled_number(value, &decimal))
		return false;
	/* strtod stops at the byte after the number, which cannot belong to one. */
	*number = strtod(*value.at == '"' ? value.at + 1 : value.at, NULL);
	return true;
}

bool
llmq_json_text_jsonb(LlmqBuffer *out, const char *json, size_t len)
{
	const char *end = json + len;

	while (json < end && !out->failed)
	{
		const char *start = json;

		while (json < end && *json != '"' && *json != '-' && (*json < '0' || *json > '9'))
			json++;
		llmq_buffer_append(out, start, (size_t) (json - start));
		if (json < end)
			json = *json == '"' ? copy_string(out, json, end) : copy_number(out, json, end);
	}
	return !out->failed;
}

/* Appends bytes of a string unchanged; they contain no NUL and no escape. */
static void
append_raw(LlmqBuffer *pieces, const char *bytes, size_t len)
{
	while (len > 0)
	{
		const char *mark = memchr(bytes, SURROGATE_MARK, len);
		size_t run = mark != NULL ? (size_t) (mark - bytes) : len;

		llmq_buffer_append(pieces, bytes, run);
		if (mark == NULL)
			return;
		llmq_buffer_append_char(pieces, (char) 0xFE);
		bytes += run + 1;
		len -= run + 1;
	}
}

static bool
is_high(uint32_t code)
{
	return code >= 0xD800 && code < 0xDC00;
}

static bool
is_low(uint32_t code)
{
	return code >= 0xDC00 && code < 0xE000;
}

/* Appends what the escape at `at` stands for; returns the byte after it. */
static const char *
append_escape(LlmqBuffer *pieces, const char *at, const char *end)
{
	static const char letters[] = "bfnrt";
	static const char meanings[] = "\b\f\n\r\t";
	const char *letter;
	uint32_t code;

	if (end - at < 2)
		return end;
	if (at[1] != 'u')
	{
		letter = strchr(letters, at[1]);
		llmq_buffer_append_char(pieces, letter != NULL ? meanings[letter - letters] : at[1]);
		return at + 2;
	}
	if (end - at < 6)
		return end;
	code = hex4(at + 2);
	if (is_high(code) || is_low(code))
	{
		char mark[3] = {(char) SURROGATE_MARK, (char) (0x80 | (code >> 6 & 0x1F)),
						(char) (0x80 | (code & 0x3F))};

		llmq_buffer_append(pieces, mark, sizeof(mark));
	}
	else if (code != 0)
		put_character(pieces, code);
	return at + 6;
}

/* Reads four hexadecimal digits, which were checked before. */
static uint32_t
hex4(const char *at)
{
	uint32_t code = 0;

	for (int i = 0; i < 4; i++)
		code = code << 4 | (uint32_t) (at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
	return code;
}

static bool
put_character(LlmqBuffer *out, uint32_t code)
{
	char bytes[4];
	size_t len;

	if (code < 0x80)
		return llmq_buffer_append_char(out, (char) code);
	len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = len - 1; i > 0; i--, code >>= 6)
		bytes[i] = (char) (0x80 | (code & 0x3F));
	bytes[0] = (char) ((0xF00 >> len & 0xF0) | code);
	return llmq_buffer_append(out, bytes, len);
}

/* Returns the surrogate that a mark stands for. */
static uint32_t
marked_surrogate(const unsigned char *at)
{
	return 0xD800 | (uint32_t) (at[1] & 0x1F) << 6 | (uint32_t) (at[2] & 0x3F);
}

/*
 * Appends the character of a marked pair, or U+FFFD for a lone surrogate; returns how many
 * bytes of the pieces it used.
 */
static size_t
join_surrogate(LlmqBuffer *out, const unsigned char *at, size_t len)
{
	uint32_t high;
	uint32_t low;

	if (len < 3)
		return len;
	high = marked_surrogate(at);
	low = len >= 6 && at[3] == SURROGATE_MARK ? marked_surrogate(at + 3) : 0;
	if (is_high(high) && is_low(low))
	{
		put_character(out, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
		return 6;
	}
	llmq_buffer_append_string(out, LLMQ_TEXT_REPLACEMENT);
	return 3;
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Parses [-]digits[.digits][e[+-]digits], which must fill at..end. */
static bool
read_decimal(const char *at, const char *end, Decimal *decimal)
{
	int64_t behind = 0;
	bool point = false;
	bool any = false;

	memset(decimal, 0, sizeof(*decimal));
	decimal->negative = at < end && *at == '-';
	at += decimal->negative ? 1 : 0;
	for (; at < end && (is_digit(*at) || (*at == '.' && any && !point)); at++)
	{
		any = any || *at != '.';
		behind += point ? 1 : 0;
		point = point || *at == '.';
		if (decimal->count > 0 ? *at != '.' : is_digit(*at) && *at != '0')
		{
			decimal->digits = decimal->count == 0 ? at : decimal->digits;
			decimal->count++;
		}
	}
	if (!any || at[-1] == '.')
		return false;
	at = read_exponent(at, end, &decimal->exponent);
	decimal->exponent -= behind;
	return at == end;
}

/* Reads an exponent if there is one; returns where it ends, or NULL if it has no digits. */
static const char *
read_exponent(const char *at, const char *end, int64_t *exponent)
{
	bool negative = false;

	if (at == end || (*at | 0x20) != 'e')
		return at;
	if (++at < end && (*at == '+' || *at == '-'))
		negative = *at++ == '-';
	if (at == end)
		return NULL;
	for (; at < end && is_digit(*at); at++)
	{
		if (*exponent < EXPONENT_MAX)
			*exponent = *exponent * 10 + (*at - '0');
	}
	if (negative)
		*exponent = -*exponent;
	return at;
}

static unsigned
next_digit(Decimal *decimal)
{
	if (*decimal->digits == '.')
		decimal->digits++;
	return (unsigned) (*decimal->digits++ - '0');
}

/* Reads a number, or a string that spells one. */
static bool
spelled_number(LlmqSlice value, Decimal *decimal)
{
	char kind = llmq_slice_kind(value);

	if (kind == '"')
		return read_decimal(value.at + 1, value.at + value.len - 1, decimal);
	return kind == '0' && read_decimal(value.at, value.at + value.len, decimal);
}

/* Copies the string that begins at `at`; returns the byte after it. */
static const char *
copy_string(LlmqBuffer *out, const char *at, const char *end)
{
	llmq_buffer_append_char(out, *at++);
	while (at < end && *at != '"')
	{
		const char *start = at;

		while (at < end && *at != '"' && *at != '\\')
			at++;
		llmq_text_clean(out, start, (size_t) (at - start));
		if (at < end && *at == '\\')
			at = copy_escape(out, at, end);
	}
	llmq_buffer_append_char(out, '"');
	return at < end ? at + 1 : end;
}

static bool
is_unicode_escape(const char *at, const char *end)
{
	return end - at >= 6 && at[0] == '\\' && at[1] == 'u';
}

static const char *
copy_escape(LlmqBuffer *out, const char *at, const char *end)
{
	const char *next = at + 6;
	uint32_t code;

	if (!is_unicode_escape(at, end))
	{
		size_t len = end - at < 2 ? (size_t) (end - at) : 2;

		llmq_buffer_append(out, at, len);
		return at + len;
	}
	code = hex4(at + 2);
	if (code == 0)
		return next;
	if (!is_high(code) && !is_low(code))
	{
		llmq_buffer_append(out, at, 6);
		return next;
	}
	/* U+0000 is removed, so what was on both sides of it becomes adjacent. */
	while (is_unicode_escape(next, end) && hex4(next + 2) == 0)
		next += 6;
	if (is_high(code) && is_unicode_escape(next, end) && is_low(hex4(next + 2)))
	{
		llmq_buffer_append(out, at, 6);
		llmq_buffer_append(out, next, 6);
		return next + 6;
	}
	llmq_buffer_append_string(out, LLMQ_TEXT_REPLACEMENT);
	return next;
}

/* Copies a number, as a string if numeric would refuse it; returns the byte after it. */
static const char *
copy_number(LlmqBuffer *out, const char *at, const char *end)
{
	const char *stop = at + 1;
	Decimal decimal;
	bool fits;

	while (stop < end && (is_digit(*stop) || memchr("+-.eE", *stop, 5) != NULL))
		stop++;
	fits = read_decimal(at, stop, &decimal) && decimal.exponent >= -NUMERIC_DIGITS_BEHIND &&
		   decimal.exponent <= NUMERIC_DIGITS_BEFORE &&
		   decimal.count + decimal.exponent <= NUMERIC_DIGITS_BEFORE;
	if (!fits)
		llmq_buffer_append_char(out, '"');
	llmq_buffer_append(out, at, (size_t) (stop - at));
	if (!fits)
		llmq_buffer_append_char(out, '"');
	return stop;
}
