/*
 * hmac.h
 *		HMAC-SHA256 as PostgreSQL has it, for the engine: hmac.c in the server, hmac_program.c
 *outside.
 */
#ifndef LLMQ_HMAC_H
#define LLMQ_HMAC_H

#include <stdbool.h>
#include <stddef.h>

/* An LlmqHmacSha256 (webhook.h); to be called outside transactions.  Does not throw. */
extern bool llmq_hmac_sha256(const void *key, size_t key_len, const void *data, size_t data_len,
							 unsigned char mac[32]);

#endif /* LLMQ_HMAC_H */
