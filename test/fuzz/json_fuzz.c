/*
 * json_fuzz.c
 *		Checked JSON: what passes is JSON for another reader too, every string of it
 *		becomes text, every number is read, and the whole becomes jsonb.
 */
#include <math.h>

#include "json/json_text.h"
#include "fuzz.h"

#define OUT_MAX ((size_t) 64 * 1024 * 1024)

static void walk(LlmqArena *arena, LlmqSlice value, int depth);

static void
read_string(LlmqArena *arena, LlmqSlice value)
{
	LlmqBuffer pieces;
	LlmqBuffer text;
	size_t len;

	llmq_buffer_init(&pieces, OUT_MAX);
	llmq_buffer_init(&text, OUT_MAX);
	claim(llmq_json_text_piece(&pieces, value), "there is room for a piece");
	claim(llmq_json_text_join(&text, &pieces), "there is room for a text");
	claim(is_utf8(llmq_buffer_string(&text), text.len), "a string becomes text");
	llmq_slice_decode(arena, value, &len);
	llmq_buffer_free(&pieces);
	llmq_buffer_free(&text);
}

static void
read_scalar(LlmqArena *arena, LlmqSlice value)
{
	int64_t integer;
	double real;

	if (llmq_slice_kind(value) == '"')
		read_string(arena, value);
	if (llmq_json_text_integer(value, &integer))
	{
		claim(llmq_json_text_real(value, &real), "an integer is a number");
		claim(fabs(real - (double) integer) <= fabs(real) * 1e-9, "and the same one");
	}
	llmq_json_text_real(value, &real);
}

static void
walk(LlmqArena *arena, LlmqSlice value, int depth)
{
	char kind = llmq_slice_kind(value);
	LlmqSliceWalk at;
	LlmqSlice key;
	LlmqSlice element;
	size_t count = 0;

	claim(depth <= LLMQ_JSON_MAX_DEPTH, "nothing is deeper than the limit");
	if (kind != '{' && kind != '[')
	{
		/* A number that is the whole text has nothing behind it that ends it. */
		if (kind == '"' || depth > 0)
			read_scalar(arena, value);
		return;
	}
	at = llmq_slice_walk(value);
	if (kind == '{')
	{
		while (llmq_slice_next_member(&at, &key, &element))
		{
			read_string(arena, key);
			walk(arena, element, depth + 1);
		}
		llmq_slice_member(value, "error");
		return;
	}
	for (; llmq_slice_next(&at, &element); count++)
		walk(arena, element, depth + 1);
	claim(llmq_slice_count(value) == count, "an array is counted as it is walked");
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	char *copy = fuzz_copy((const char *) bytes, len);
	LlmqArena *arena = llmq_arena_create(FUZZ_ARENA_BYTES);
	LlmqSlice value;

	len = llmq_json_text_strip(copy, len);
	if (llmq_slice_parse(copy, len, &value))
	{
		LlmqBuffer jsonb;

		llmq_buffer_init(&jsonb, OUT_MAX);
		claim(llmq_json_text_jsonb(&jsonb, value.at, value.len), "there is room for jsonb");
		claim_jsonb(llmq_buffer_string(&jsonb), "checked JSON becomes jsonb");
		llmq_buffer_free(&jsonb);
		walk(arena, value, 0);
	}
	else
	{
		json_t *other = is_utf8(copy, len) ? json_loadb(copy, len, JSON_DECODE_ANY, NULL) : NULL;

		/* jansson allows a depth of 2048. */
		claim(other == NULL || memchr(copy, '[', len) != NULL || memchr(copy, '{', len) != NULL,
			  "a scalar that another reader takes passes here");
		json_decref(other);
	}
	llmq_arena_destroy(arena);
	free(copy);
	return 0;
}
