/*
 * idempotency_key.h
 *		The deduplication key of a message as the value of a header.
 */
#ifndef LLMQ_IDEMPOTENCY_KEY_H
#define LLMQ_IDEMPOTENCY_KEY_H

#include "base/arena.h"

/*
 * Encodes key, any text: what is printable ASCII stays as it is.  Other bytes,
 * spaces at an end, and a % that two hexadecimal digits follow are
 * percent-encoded, so that no two keys become one.  NULL when memory is out.
 */
extern const char *llmq_idempotency_key_encode(LlmqArena *arena, const char *key);

#endif /* LLMQ_IDEMPOTENCY_KEY_H */
