/*
 * text.h
 *		Makes bytes from outside into text that may be stored and shown.
 *
 * PostgreSQL refuses text that contains U+0000 or is not valid UTF-8, and by then the answer
 * has been paid for.  So everything that came over the network goes through here (or through
 * json_text.h) first.
 */
#ifndef LLMQ_TEXT_H
#define LLMQ_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* U+FFFD, which replaces bytes that are not a character. */
#define LLMQ_TEXT_REPLACEMENT "\xEF\xBF\xBD"

/*
 * Returns the length of the character at bytes, 1..4.  If there is none, returns the negated
 * length of what one U+FFFD replaces: the longest beginning of a character (Unicode, 3.9,
 * "maximal subpart").  len is at least 1.
 */
extern int llmq_text_character(const char *bytes, size_t len);

/* Appends bytes to out with U+0000 removed and invalid UTF-8 replaced; false if out refused. */
extern bool llmq_text_clean(LlmqBuffer *out, const char *bytes, size_t len);

/* Returns the longest length up to max that does not cut a character; text is valid UTF-8. */
extern size_t llmq_text_cut(const char *text, size_t len, size_t max);

/*
 * Appends text, with everything that looks like a secret replaced by "***": keys with one of
 * the usual prefixes, and what follows "Bearer", "key=" and the like.  Providers repeat keys,
 * masked or not, in their errors.
 */
extern bool llmq_text_mask(LlmqBuffer *out, const char *text, size_t len);

/*
 * Appends text, with each occurrence of the secret replaced by "***", and also its beginning
 * where the text was cut inside it.  A secret of less than 4 bytes is not hidden.
 */
extern bool llmq_text_hide(LlmqBuffer *out, const char *text, size_t len, const char *secret);

/* Returns whether text contains words, ignoring case (ASCII). */
extern bool llmq_text_contains(const char *text, const char *words);

#endif /* LLMQ_TEXT_H */
