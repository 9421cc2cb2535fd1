/*
 * json_text.h
 *		Extracts text and numbers from a provider's JSON, and makes that JSON acceptable to
 *		jsonb.
 *
 * Everything here works on slices of the source (json_slice.h), which may contain invalid
 * UTF-8 and lone surrogates in escapes.  Both become U+FFFD, but only when a text is complete,
 * since a stream may split a character or a surrogate pair between two frames.  Until then,
 * text is kept as pieces.
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
 * Appends the text of a JSON string as a piece, without U+0000.  A value that is not a string
 * adds nothing.  Pieces may be appended one after the other; they are valid UTF-8 only after
 * llmq_json_text_join.
 */
extern bool llmq_json_text_piece(LlmqBuffer *pieces, LlmqSlice string);

/* Appends the text that pieces make up, as valid UTF-8. */
extern bool llmq_json_text_join(LlmqBuffer *out, const LlmqBuffer *pieces);

/*
 * Reads an integer exactly, in any spelling ("12", 1.2e1); a string that spells a number
 * counts too.  Returns false for anything else, for a fraction, and for a number that does not
 * fit into an int64.
 */
extern bool llmq_json_text_integer(LlmqSlice value, int64_t *number);

/*
 * Reads a number, or a string that spells one; the result is infinite if it does not fit into
 * a double.  The number must be inside an array or an object, so that a byte follows that ends
 * it.
 */
extern bool llmq_json_text_real(LlmqSlice value, double *number);

/*
 * Appends checked JSON, and changes only what jsonb would refuse: it removes U+0000, replaces
 * lone surrogates and invalid UTF-8 by U+FFFD, and writes a number beyond the range of numeric
 * as a string.
 */
extern bool llmq_json_text_jsonb(LlmqBuffer *out, const char *json, size_t len);

#endif /* LLMQ_JSON_TEXT_H */
