/*
 * json_text_test.c
 *		What providers write as JSON becomes text, numbers and jsonb that can be stored.
 */
#include <math.h>

#include "json/json_text.h"
#include "tap.h"

#define REPLACED "\xEF\xBF\xBD"

static LlmqSlice
slice_of(const char *json)
{
	LlmqSlice slice = {NULL, 0};

	llmq_slice_parse(json, strlen(json), &slice);
	return slice;
}

/* Joins up to three JSON strings, as a stream would bring them. */
static void
text_is(const char *a, const char *b, const char *c, const char *expected, const char *sentence)
{
	LlmqBuffer pieces;
	LlmqBuffer out;

	llmq_buffer_init(&pieces, 1000);
	llmq_buffer_init(&out, 1000);
	llmq_json_text_piece(&pieces, slice_of(a));
	llmq_json_text_piece(&pieces, slice_of(b));
	llmq_json_text_piece(&pieces, slice_of(c));
	llmq_json_text_join(&out, &pieces);
	is_string(llmq_buffer_string(&out), expected, sentence);
	llmq_buffer_free(&pieces);
	llmq_buffer_free(&out);
}

static void
test_text(void)
{
	text_is("\"a\"", "\"b\"", "\"c\"", "abc", "pieces are joined");
	text_is("null", "42", "{}", "", "what is no string adds nothing");
	text_is("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u0041\\u00e9\\u20AC\\ud83c\\udf0d\"", "\"\"",
			"\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8D", "escapes are undone");
	text_is("\"a\\u0000b\"", "\"\\\\u0000\"", "\"\\\\\\u0000.\"", "ab\\u0000\\.",
			"U+0000 goes, its escaped look-alike stays");
	text_is("\"\\udc00a\\ud83d\"", "\"b\\ude00\\ud83d\"", "\"\\ud83d\"",
			REPLACED "a" REPLACED "b" REPLACED REPLACED REPLACED, "lone surrogates are replaced");
	text_is("\"\\ud83c\"", "\"\\udf0d\"", "\"!\"", "\xF0\x9F\x8C\x8D!",
			"a surrogate pair cut by frames is one character");
	text_is("\"\xF0\x9F\"", "\"\x8C\"", "\"\x8D\"", "\xF0\x9F\x8C\x8D",
			"a character cut by frames is one character");
	text_is("\"\xFF\xFF\xA0\x80\"", "\"\xE2\x82\"", "\"x\"",
			REPLACED REPLACED REPLACED REPLACED REPLACED "x", "invalid bytes are replaced");
}

static void
integer_is(const char *json, int64_t expected)
{
	int64_t number = -999;

	if (!llmq_json_text_integer(slice_of(json), &number))
		number = -999;
	ok(number == expected, "%.40s is the integer %lld", json, (long long) expected);
}

static void
test_integers(void)
{
	integer_is("0", 0);
	integer_is("-0", 0);
	integer_is("-0.00", 0);
	integer_is("0e999999999999", 0);
	integer_is("12", 12);
	integer_is("-5", -5);
	integer_is("12.0", 12);
	integer_is("1.2e1", 12);
	integer_is("1200E-2", 12);
	integer_is("0.0012e4", 12);
	integer_is("9223372036854775807", INT64_MAX);
	integer_is("9223372036854775807.000", INT64_MAX);
	integer_is("922337203685477580.7e1", INT64_MAX);
	integer_is("9223372036854775808", -999);
	integer_is("18446744073709551615", -999);
	integer_is("1e18", INT64_C(1000000000000000000));
	integer_is("1e19", -999);
	integer_is("1e999999999999999999999", -999);
	integer_is("1.5", -999);
	integer_is("0.5", -999);
	integer_is("1e-999999999999999999999", -999);
	integer_is("\"12\"", 12);
	integer_is("\"1.2e1\"", 12);
	integer_is("\"\"", -999);
	integer_is("\"-\"", -999);
	integer_is("\"1.\"", -999);
	integer_is("\".5\"", -999);
	integer_is("\"1e\"", -999);
	integer_is("\"12 apples\"", -999);
	integer_is("\"0x10\"", -999);
	integer_is("true", -999);
	integer_is("null", -999);
	integer_is("[1]", -999);
}

static void
test_reals(void)
{
	double number = 0;

	ok(llmq_json_text_real(slice_of("-2.5e-1"), &number) && number == -0.25, "a real is read");
	ok(llmq_json_text_real(slice_of("\"2.5\""), &number) && number == 2.5,
	   "a spelled real is read");
	ok(llmq_json_text_real(slice_of("1e400"), &number) && isinf(number),
	   "a real beyond double is infinite");
	ok(!llmq_json_text_real(slice_of("\"inf\""), &number), "a word is no number");
	ok(!llmq_json_text_real(slice_of("null"), &number), "null is no number");
}

static void
jsonb_is(const char *json, const char *expected, const char *sentence)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, 1000000);
	llmq_json_text_jsonb(&out, json, strlen(json));
	is_string(llmq_buffer_string(&out), expected, sentence);
	llmq_buffer_free(&out);
}

static void
test_jsonb(void)
{
	jsonb_is("{ \"a\" : [1, -2.50, 1e3, true, null] }", "{ \"a\" : [1, -2.50, 1e3, true, null] }",
			 "good JSON passes byte for byte");
	jsonb_is("\"a\\u0000b \\ud83d \\ude00\\ud83d\"", "\"ab " REPLACED " " REPLACED REPLACED "\"",
			 "U+0000 and lone surrogates do not reach jsonb");
	jsonb_is("\"\\ud83c\\udf0d \\ud83c\\u0000\\udf0d\"", "\"\\ud83c\\udf0d \\ud83c\\udf0d\"",
			 "surrogate pairs pass, also around a U+0000");
	jsonb_is("\"\\\\u0000 \\\\\\u0000\\\"\"", "\"\\\\u0000 \\\\\\\"\"",
			 "an escaped backslash begins no escape");
	jsonb_is("\"m\xE1n\"", "\"m" REPLACED "n\"", "invalid UTF-8 does not reach jsonb");
	jsonb_is("[1e131071,1e131072,-1e999999]", "[1e131071,\"1e131072\",\"-1e999999\"]",
			 "numbers of more than 131072 digits become strings");
	jsonb_is("[1e-16383,1.0e-16383,1e-99999999999999999999]",
			 "[1e-16383,\"1.0e-16383\",\"1e-99999999999999999999\"]",
			 "numbers of more than 16383 decimals become strings");
	jsonb_is("-7", "-7", "a bare number passes");
}

static void
test_limits(void)
{
	char bytes[] = {'a', 0, 0, 'b', 0, 'c', 0};
	LlmqBuffer out;

	is_int((int64_t) llmq_json_text_strip(bytes, sizeof(bytes)), 3, "NUL bytes are removed");
	ok(memcmp(bytes, "abc", 3) == 0, "the other bytes move together");
	is_int((int64_t) llmq_json_text_strip(bytes, 3), 3, "bytes without NUL stay");
	llmq_buffer_init(&out, 4);
	ok(!llmq_json_text_jsonb(&out, "\"abcdef\"", 8), "a full buffer is told");
	ok(!llmq_json_text_piece(&out, slice_of("\"a\"")), "a failed buffer stays failed");
	llmq_buffer_free(&out);
}

int
main(void)
{
	test_text();
	test_integers();
	test_reals();
	test_jsonb();
	test_limits();
	return tap_done();
}
