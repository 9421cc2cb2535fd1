/*
 * text.h
 *		Makes bytes from strangers into text that may be stored and shown.
 *
 * PostgreSQL refuses text that holds U+0000 or is not UTF-8, and refuses it when
 * the answer has been paid for; so whatever came over the network goes through
 * here (or through json_text.h) first.
 */
#ifndef LLMQ_TEXT_H
#define LLMQ_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* U+FFFD, what stands for bytes that are no character. */
#define LLMQ_TEXT_REPLACEMENT "\xEF\xBF\xBD"

/*
 * Length of the character at bytes, 1..4.  If there is none, the length as a
 * negative number of what one U+FFFD stands for: the longest beginning of a
 * character (Unicode, 3.9, "maximal subpart").  len is at least 1.
 */
extern int llmq_text_character(const char *bytes, size_t len);

/* Appends bytes to out with U+0000 removed and invalid UTF-8 replaced; false if out refused. */
extern bool llmq_text_clean(LlmqBuffer *out, const char *bytes, size_t len);

/* The longest length up to max that ends at a character; text is valid UTF-8. */
extern size_t llmq_text_cut(const char *text, size_t len, size_t max);

/*
 * Appends text with what looks like a secret replaced by "***": keys by their
 * usual beginnings, and what follows "Bearer", "key=" and the like.  Providers
 * repeat keys, masked or not, in their errors.
 */
extern bool llmq_text_mask(LlmqBuffer *out, const char *text, size_t len);

/*
 * Appends text with each secret in it replaced by "***", and the beginning of
 * one where the text was cut in it.  A secret of less than 4 bytes hides nothing.
 */
extern bool llmq_text_hide(LlmqBuffer *out, const char *text, size_t len, const char *secret);

/* Tells whether text contains words, compared without case (ASCII). */
extern bool llmq_text_contains(const char *text, const char *words);

#endif /* LLMQ_TEXT_H */
