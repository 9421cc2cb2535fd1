/*
 * base64.c
 *		Base64 with the usual alphabet.
 *
 * It is our own because libc has none, PostgreSQL's needs its headers, and libcurl does not
 * export the one that it has.
 */
#include "base/base64.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void
llmq_base64_encode(char *out, const void *bytes, size_t len)
{
	const unsigned char *in = bytes;

	for (; len > 0; in += 3)
	{
		size_t taken = len < 3 ? len : 3;
		uint32_t bits = (uint32_t) in[0] << 16;

		if (taken > 1)
			bits |= (uint32_t) in[1] << 8;
		if (taken > 2)
			bits |= in[2];
		*out++ = alphabet[bits >> 18];
		*out++ = alphabet[bits >> 12 & 63];
		*out++ = taken > 1 ? alphabet[bits >> 6 & 63] : '=';
		*out++ = taken > 2 ? alphabet[bits & 63] : '=';
		len -= taken;
	}
}

bool
llmq_base64_decode(unsigned char *out, size_t *out_len, const char *text, size_t len)
{
	uint32_t bits = 0;
	int held = 0; /* bits that do not make a byte yet */

	*out_len = 0;
	if (len % 4 == 0 && len > 0 && text[len - 1] == '=')
		len -= text[len - 2] == '=' ? 2 : 1;
	if (len % 4 == 1)
		return false;
	for (size_t i = 0; i < len; i++)
	{
		const char *found = text[i] != '\0' ? strchr(alphabet, text[i]) : NULL;

		if (found == NULL)
			return false;
		bits = bits << 6 | (uint32_t) (found - alphabet);
		held += 6;
		if (held < 8)
			continue;
		held -= 8;
		out[(*out_len)++] = (unsigned char) (bits >> held);
		bits &= (1u << held) - 1;
	}
	return bits == 0;
}
