/*
 * idempotency_key.c
 *		Writes the deduplication key of a message as the value of a header.
 *
 * The encoding is our own because curl_easy_escape, which base/ must not include, would also
 * encode printable ASCII and so change most keys.
 */
#include "base/idempotency_key.h"

#include <stdbool.h>
#include <string.h>

static bool
is_hex(char c)
{
	return c != '\0' && strchr("0123456789abcdefABCDEF", c) != NULL;
}

const char *
llmq_idempotency_key_encode(LlmqArena *arena, const char *key)
{
	static const char hex[] = "0123456789ABCDEF";
	char *encoded = llmq_arena_alloc(arena, strlen(key) * 3 + 1);
	char *to = encoded;

	if (encoded == NULL)
		return NULL;
	for (const char *at = key; *at != '\0'; at++)
	{
		unsigned char c = (unsigned char) *at;
		bool kept = c > ' ' && c <= '~';

		if (c == ' ')
			kept = at > key && at[1] != '\0';
		else if (c == '%')
			kept = !is_hex(at[1]) || !is_hex(at[2]);
		if (kept)
		{
			*to++ = *at;
			continue;
		}
		*to++ = '%';
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	return encoded;
}
