/*
 * provider_draft.c
 *		What the writers of all dialects need from a draft.
 */
#include "dialects/provider_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERROR_MAX_BYTES 512

bool
llmq_draft_fail(LlmqDraft *draft, const char *format, ...)
{
	char text[ERROR_MAX_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	draft->error = llmq_arena_strdup(draft->arena, text);
	return false;
}

bool
llmq_draft_read_text(LlmqDraft *draft, LlmqSlice string, const char **text, size_t *len)
{
	*text = string.at + 1;
	*len = string.len - 2;
	if (memchr(*text, '\\', *len) == NULL)
		return true;
	*text = llmq_slice_decode(draft->arena, string, len);
	return *text != NULL;
}

const char *
llmq_draft_percent_encode(LlmqDraft *draft, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	static const char unreserved[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	char *encoded = llmq_arena_alloc(draft->arena, strlen(text) * 3 + 1);
	char *to = encoded;

	if (encoded == NULL)
		return NULL;
	for (; *text != '\0'; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (strchr(unreserved, c) != NULL)
		{
			*to++ = (char) c;
			continue;
		}
		*to++ = '%';
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	return encoded;
}
