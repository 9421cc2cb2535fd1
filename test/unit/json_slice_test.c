/*
 * json_slice_test.c
 *		JSON read in place and written without a tree.
 */
#include "json/json_slice.h"
#include "json/json_write.h"

#include <stdlib.h>

#include "tap.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Parses a copy without a NUL behind it, so that the sanitizer sees a step too far. */
static bool
parses(const char *text, size_t len)
{
	char *copy = malloc(len == 0 ? 1 : len);
	LlmqSlice value;
	bool parsed;

	memcpy(copy, text, len);
	parsed = llmq_slice_parse(copy, len, &value);
	free(copy);
	return parsed;
}

static void
test_check(void)
{
	static const char *const good[] = {
		"null",
		" true ",
		"false",
		"0",
		"-0",
		"10",
		"-1.5e+10",
		"1E-2",
		"12345678901234567890",
		"1e999",
		"\"\"",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\"",
		"[]",
		"[ ]",
		"{}",
		"\t{\n} ",
		"[1,[2,[3]],{}]",
		"{\"a\":1,\"a\":[null],\"\":{\"b\":\"c\"}}",
	};

	for (size_t i = 0; i < COUNT_OF(good); i++)
		ok(parses(good[i], strlen(good[i])), "this is JSON (%zu)", i);
}

static void
test_check_refuses(void)
{
	static const char *const bad[] = {
		"",
		" ",
		"nul",
		"nulls",
		"True",
		"01",
		"1.",
		".5",
		"+1",
		"-",
		"1e",
		"1e+",
		"0x1",
		"NaN",
		"\"",
		"\"a",
		"\"\\",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"a\nb\"",
		"'a'",
		"[",
		"[1",
		"[1,",
		"[1,]",
		"[,1]",
		"[1 2]",
		"[1]]",
		"]",
		"{",
		"{\"a\"",
		"{\"a\":",
		"{\"a\":1",
		"{\"a\":1,",
		"{\"a\":1,}",
		"{\"a\"}",
		"{a:1}",
		"{1:1}",
		"{\"a\":1 \"b\":2}",
		"{\"a\":1]",
		"[1}",
		"{\"a\",1}",
		"[1:2]",
		"1 2",
		"// x\n1",
	};

	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ok(!parses(bad[i], strlen(bad[i])), "this is not (%zu)", i);
	ok(!parses("[1\0]", 4), "a NUL byte is not");
}

static void
test_depth(void)
{
	char text[2 * LLMQ_JSON_MAX_DEPTH + 2];

	memset(text, '[', LLMQ_JSON_MAX_DEPTH + 1);
	memset(text + LLMQ_JSON_MAX_DEPTH + 1, ']', LLMQ_JSON_MAX_DEPTH + 1);
	ok(parses(text + 1, sizeof(text) - 2), "the deepest that is allowed");
	ok(!parses(text, sizeof(text)), "one deeper is refused");
}

static LlmqSlice
slice(const char *text)
{
	LlmqSlice value = {NULL, 0};

	llmq_slice_parse(text, strlen(text), &value);
	return value;
}

static void
test_walk(void)
{
	LlmqSlice object = slice(" { \"a\" : [1, \"],\\\"\", {\"x\": \"}\"}] , \"b\\u0061\":null,"
							 "\"c\":\"\\\\\", \"a\": -1.0 } ");
	LlmqSlice array = slice("[ [1,2] ,{\"k\":[3]}, \"\\\"\" , 4 ]");
	LlmqSliceWalk walk = llmq_slice_walk(array);
	LlmqSlice element;
	const char *const kinds = "[{\"0";

	is_int(llmq_slice_kind(llmq_slice_member(object, "a")), '0',
		   "of two members the last is found");
	ok(llmq_slice_member(object, "ba").at != NULL, "a name may hold escapes");
	ok(!llmq_slice_given(llmq_slice_member(object, "ba")), "null is not given");
	ok(llmq_slice_equals(llmq_slice_member(object, "c"), "\\"), "a backslash ends no string");
	ok(llmq_slice_member(object, "x").at == NULL, "members of members are not found");
	ok(llmq_slice_member(array, "x").at == NULL, "arrays have no members");
	is_int((int64_t) llmq_slice_count(array), 4, "elements are counted");
	is_int((int64_t) llmq_slice_count(slice("[ ]")), 0, "also none");
	is_int((int64_t) llmq_slice_count(slice("3")), 0, "of what has none");
	for (int i = 0; i < 4; i++)
		ok(llmq_slice_next(&walk, &element) && llmq_slice_kind(element) == kinds[i],
		   "element %d is of its kind", i);
	ok(!llmq_slice_next(&walk, &element), "and then the array is over");
}

static void
test_no_slice(void)
{
	LlmqSlice none = {NULL, 0};
	LlmqSliceWalk walk = llmq_slice_walk(none);
	LlmqSlice element;

	is_int(llmq_slice_kind(none), 0, "no value has no kind");
	ok(!llmq_slice_given(none), "is not given");
	ok(!llmq_slice_equals(none, ""), "equals nothing");
	ok(llmq_slice_member(none, "a").at == NULL, "has no members");
	ok(!llmq_slice_next(&walk, &element), "and no elements");
}

static void
test_equals(void)
{
	ok(llmq_slice_equals(slice("\"abc\""), "abc"), "equal words are equal");
	ok(!llmq_slice_equals(slice("\"abc\""), "ab"), "longer ones are not");
	ok(!llmq_slice_equals(slice("\"ab\""), "abc"), "nor shorter ones");
	ok(llmq_slice_equals(slice("\"\\u0061\\u00e9\\ud83d\\ude00\\n\""), "aé😀\n"),
	   "escapes are read");
	ok(!llmq_slice_equals(slice("\"a\\u0000\""), "a"), "also that of NUL");
	ok(!llmq_slice_equals(slice("1"), "1"), "a number is no word");
}

static void
test_decode(void)
{
	LlmqArena *arena = llmq_arena_create(1000);
	size_t len;

	is_string(llmq_slice_decode(arena, slice("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t é \\u20AC\""), &len),
			  "a\"\\/\b\f\n\r\t é €", "escapes are decoded");
	is_string(llmq_slice_decode(arena, slice("\"\\ud83d\\ude00\""), &len), "😀",
			  "a pair of surrogates is one character");
	is_string(llmq_slice_decode(arena, slice("\"\\ud83dx\\ude00\\ud83d\\u0041\\ud83d\""), &len),
			  "\uFFFDx\uFFFD\uFFFDA\uFFFD", "a lone one is replaced");
	llmq_slice_decode(arena, slice("\"a\\u0000b\""), &len);
	is_int((int64_t) len, 3, "NUL is a byte like any other");
	is_string(llmq_slice_decode(arena, slice("\"\""), &len), "", "the empty string");
	llmq_arena_destroy(arena);
	arena = llmq_arena_create(2);
	ok(llmq_slice_decode(arena, slice("\"abcdef\""), &len) == NULL, "memory may be out");
	llmq_arena_destroy(arena);
}

static void
test_write(void)
{
	LlmqBuffer out;

	llmq_buffer_init(&out, 1000);
	llmq_write_open(&out, '{');
	llmq_write_member_text(&out, "a", "{\"é\x7f\x1f");
	llmq_write_member(&out, "b", slice(" [ 1 , { \"x y\" : \" \\\\\" } ] "));
	llmq_write_members(&out, slice("{ \"c\" : 1.0, \"d\":null }"));
	llmq_write_key(&out, "e");
	llmq_write_string_start(&out);
	llmq_write_string_add(&out, "\0[", 2);
	llmq_write_string_add_slice(&out, slice("\"\\u00e9,\""));
	llmq_write_string_add_slice(&out, slice("1"));
	llmq_write_string_end(&out);
	llmq_write_key(&out, "f");
	llmq_write_open(&out, '[');
	llmq_write_raw(&out, "true");
	llmq_write_text_len(&out, "xyz", 2);
	llmq_write_open(&out, '{');
	llmq_write_close(&out, '}');
	llmq_write_close(&out, ']');
	llmq_write_close(&out, '}');
	is_string(llmq_buffer_string(&out),
			  "{\"a\":\"{\\\"é\x7f\\u001f\",\"b\":[1,{\"x y\":\" \\\\\"}],\"c\":1.0,\"d\":null,"
			  "\"e\":\"\\u0000[\\u00e9,\",\"f\":[true,\"xy\",{}]}",
			  "commas, escapes and white space are as they should be");
	ok(!out.failed, "and nothing was lost");
	llmq_buffer_free(&out);
}

static void
test_plain_length(void)
{
	static const char special[] = "\"\\\x1f\n";
	char text[40];
	bool right = true;

	for (size_t len = 0; len < sizeof(text); len++)
		for (size_t place = 0; place <= len; place++)
			for (size_t i = 0; special[i] != '\0'; i++)
			{
				memset(text, (int) (unsigned char) "a \x7f\x80\xff!#[]"[place % 9], sizeof(text));
				if (place < len)
					text[place] = special[i];
				right = right && llmq_slice_plain_length(text, len) == place;
			}
	ok(right, "the first special byte is found at every place, by words and by bytes");
}

static void
test_drop(void)
{
	LlmqBuffer out;
	size_t start;

	llmq_buffer_init(&out, 100);
	llmq_write_open(&out, '{');
	start = out.len;
	llmq_write_key(&out, "a");
	llmq_write_open(&out, '{');
	llmq_write_close_or_drop(&out, '}', start);
	is_string(llmq_buffer_string(&out), "{", "an object that stayed empty is taken back");
	llmq_write_key(&out, "b");
	llmq_write_open(&out, '[');
	llmq_write_raw(&out, "1");
	llmq_write_close_or_drop(&out, ']', start);
	is_string(llmq_buffer_string(&out), "{\"b\":[1]", "one that did not is closed");
	llmq_buffer_free(&out);
}

int
main(void)
{
	test_check();
	test_check_refuses();
	test_depth();
	test_walk();
	test_no_slice();
	test_equals();
	test_decode();
	test_write();
	test_plain_length();
	test_drop();
	return tap_done();
}
