/*
 * hmac.h
 *		HMAC-SHA256 for the engine, which has no cryptography of its own: each host supplies
 *		PostgreSQL's, in server/hmac.c and program/hmac_program.c.
 */
#ifndef LLMQ_HMAC_H
#define LLMQ_HMAC_H

#include <stdbool.h>
#include <stddef.h>

/* Computes HMAC-SHA256 of data; false when out of memory.  Must not throw. */
typedef bool (*LlmqHmacSha256)(const void *key, size_t key_len, const void *data, size_t data_len,
							   unsigned char mac[32]);

/* The host's implementation; must be called outside transactions. */
extern bool llmq_hmac_sha256(const void *key, size_t key_len, const void *data, size_t data_len,
							 unsigned char mac[32]);

#endif /* LLMQ_HMAC_H */
