/*
 * json_text.h
 *		Takes text and numbers out of a provider's JSON, and makes that JSON fit for jsonb.
 *
 * All of it works on slices of the source (json_slice.h), which may hold invalid
 * UTF-8 and escaped surrogates without a partner: both become U+FFFD, but only
 * when a text is complete, since a stream may cut a character or a surrogate
 * pair between two frames.  In between, text is kept as pieces.
 */
#ifndef LLMQ_JSON_TEXT_H
#define LLMQ_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "json/json_slice.h"

/* Removes NUL bytes from len bytes in place; returns the new length. */
extern size_t llmq_json_text_strip(char *bytes, size_t len);

/*
 * Appends what a JSON string stands for as a piece of text, U+0000 left out.  A
 * value that is no string adds nothing.  Pieces may be appended one behind the
 * other; they are not UTF-8 until llmq_json_text_join.
 */
extern bool llmq_json_text_piece(LlmqBuffer *pieces, LlmqSlice string);

/* Appends the text that pieces make up, as valid UTF-8. */
extern bool llmq_json_text_join(LlmqBuffer *out, const LlmqBuffer *pieces);

/*
 * Reads an integer in any spelling ("12", 1.2e1), exactly; a string that spells a
 * number counts too.  False for anything else, a fraction, or what no int64 holds.
 */
extern bool llmq_json_text_integer(LlmqSlice value, int64_t *number);

/*
 * Reads a number, or a string that spells one; infinite if no double holds it.  The
 * number stands in an array or an object: behind it is a byte that ends it.
 */
extern bool llmq_json_text_real(LlmqSlice value, double *number);

/*
 * Appends checked JSON as it stands, with what jsonb would refuse replaced:
 * U+0000 removed, lone surrogates and invalid UTF-8 as U+FFFD, a number beyond
 * numeric as a string.
 */
extern bool llmq_json_text_jsonb(LlmqBuffer *out, const char *json, size_t len);

#endif /* LLMQ_JSON_TEXT_H */
