/*
 * base64.h
 *		Base64 with the usual alphabet (RFC 4648, section 4).  Pure.
 */
#ifndef LLMQ_BASE64_H
#define LLMQ_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* How many characters len bytes become, and how many bytes len characters stand for at most. */
#define LLMQ_BASE64_ENCODED(len) (((len) + 2) / 3 * 4)
#define LLMQ_BASE64_DECODED(len) (((len) + 3) / 4 * 3)

/* Writes LLMQ_BASE64_ENCODED(len) characters, padded, and no NUL. */
extern void llmq_base64_encode(char *out, const void *bytes, size_t len);

/*
 * Decodes len characters into out and sets *out_len.  Only the padding may be left out.  Returns
 * false for characters outside the alphabet, an impossible length, or leftover bits that are
 * not zero.
 */
extern bool llmq_base64_decode(unsigned char *out, size_t *out_len, const char *text, size_t len);

#endif /* LLMQ_BASE64_H */
