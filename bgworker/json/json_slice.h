/*
 * json_slice.h
 *		Reads JSON in place: a value is a slice of the source text.
 *
 * The user's JSON must reach a provider unchanged, but a tree of doubles and 64-bit integers,
 * as jansson builds, would change 12345678901234567890 and refuse 1e999.  This is why the
 * reader is our own: it checks the source once and cuts it into slices.  A number is never
 * converted, and a value that nobody looks into is copied byte by byte.
 *
 * All functions except llmq_slice_parse take slices of checked text only.  A slice that does
 * not exist has `at` NULL, and every question about it is answered with "no".
 */
#ifndef LLMQ_JSON_SLICE_H
#define LLMQ_JSON_SLICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

/* JSON nested deeper than this is refused; in an answer it is an invalid_response. */
#define LLMQ_JSON_MAX_DEPTH 512

typedef struct LlmqSlice
{
	const char *at; /* first byte of the value; NULL if there is none */
	size_t len;		/* up to its last byte, without white space around it */
} LlmqSlice;

/* The position of a walk over an array or an object. */
typedef struct LlmqSliceWalk
{
	const char *at;
	const char *end;
} LlmqSliceWalk;

/*
 * Checks that text holds one JSON value, nested at most LLMQ_JSON_MAX_DEPTH deep,
 * and sets *value to it.
 */
extern bool llmq_slice_parse(const char *text, size_t len, LlmqSlice *value);

/*
 * Returns the kind of a value as its first byte: { [ " 0 (a number) t f n, or '\0' if there is
 * no value.
 */
extern char llmq_slice_kind(LlmqSlice value);

/* Returns whether there is a value other than null. */
extern bool llmq_slice_given(LlmqSlice value);

/* Returns whether the value is a string equal to text. */
extern bool llmq_slice_equals(LlmqSlice value, const char *text);

/* Starts a walk over an object or an array.  Other values have no elements. */
extern LlmqSliceWalk llmq_slice_walk(LlmqSlice container);

/* Takes the next element of an array; false at its end. */
extern bool llmq_slice_next(LlmqSliceWalk *walk, LlmqSlice *element);

/* Takes the next member of an object; false at its end.  key is a string with its quotes. */
extern bool llmq_slice_next_member(LlmqSliceWalk *walk, LlmqSlice *key, LlmqSlice *value);

/* Finds a member of an object; the last one counts if there are several of that name. */
extern LlmqSlice llmq_slice_member(LlmqSlice object, const char *name);

/* Counts the elements of an array. */
extern size_t llmq_slice_count(LlmqSlice array);

/*
 * Decodes a string into the arena, *len bytes long and NUL-terminated.  A \u0000 becomes a NUL
 * byte, a lone surrogate becomes U+FFFD.  Returns NULL when out of memory.
 */
extern char *llmq_slice_decode(LlmqArena *arena, LlmqSlice string, size_t *len);

/* Counts the bytes before the first quote, backslash or control character; len if there is none. */
extern size_t llmq_slice_plain_length(const char *text, size_t len);

#endif /* LLMQ_JSON_SLICE_H */
