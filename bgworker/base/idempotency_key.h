/*
 * idempotency_key.h
 *		Writes the deduplication key of a message as the value of a header.
 */
#ifndef LLMQ_IDEMPOTENCY_KEY_H
#define LLMQ_IDEMPOTENCY_KEY_H

#include "base/arena.h"

/*
 * Encodes key, which may be any text.  Printable ASCII stays as it is.  Other bytes, leading and
 * trailing spaces, and a % that two hexadecimal digits follow are percent-encoded, so that
 * different keys stay different.  Returns NULL when out of memory.
 */
extern const char *llmq_idempotency_key_encode(LlmqArena *arena, const char *key);

#endif /* LLMQ_IDEMPOTENCY_KEY_H */
