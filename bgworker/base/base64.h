/*
 * base64.h
 *		Base64 with the usual alphabet (RFC 4648, 4).  Pure.
 */
#ifndef LLMQ_BASE64_H
#define LLMQ_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Characters that len bytes become, and the most bytes that len characters stand for. */
#define LLMQ_BASE64_ENCODED(len) (((len) + 2) / 3 * 4)
#define LLMQ_BASE64_DECODED(len) (((len) + 3) / 4 * 3)

/* Writes LLMQ_BASE64_ENCODED(len) characters, padded, and no NUL. */
extern void llmq_base64_encode(char *out, const void *bytes, size_t len);

/*
 * Decodes len characters into out; sets *out_len.  Padding may be left out, and
 * nothing else: false for any other character, a length that cannot be, or bits
 * that stand for no byte.
 */
extern bool llmq_base64_decode(unsigned char *out, size_t *out_len, const char *text, size_t len);

#endif /* LLMQ_BASE64_H */
