/*
 * json_slice.c
 *		Reads JSON in place: a value is a slice of the source text.
 *
 * The walk trusts that the text was checked, so it looks for quotes and brackets only.  It
 * still never passes the end that it was given.
 */
#include "json/json_slice.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT_CHARACTER 0xFFFD

/* Repeats a byte in all eight places of a 64-bit word. */
#define EIGHT(byte) (UINT64_C(0x0101010101010101) * (byte))

static const char *skip_space(const char *p, const char *end);
static const char *skip_string(const char *p, const char *end);
static const char *skip_value(const char *p, const char *end);
static size_t decode_escape(const char **p, const char *end, char out[4]);
static uint32_t decode_hex4(const char **p, const char *end);
static size_t put_utf8(uint32_t code, char out[4]);

char
llmq_slice_kind(LlmqSlice value)
{
	if (value.at == NULL)
		return 0;
	return *value.at == '-' || (*value.at >= '0' && *value.at <= '9') ? '0' : *value.at;
}

bool
llmq_slice_given(LlmqSlice value)
{
	return value.at != NULL && *value.at != 'n';
}

bool
llmq_slice_equals(LlmqSlice value, const char *text)
{
	const char *p;
	const char *end;
	size_t text_len = strlen(text);

	if (llmq_slice_kind(value) != '"')
		return false;
	p = value.at + 1;
	end = value.at + value.len - 1;
	while (p < end)
	{
		char piece[4] = {*p};
		size_t len = 1;

		if (*p == '\\')
			len = decode_escape(&p, end, piece);
		else
			p++;
		if (len > text_len || memcmp(piece, text, len) != 0)
			return false;
		text += len;
		text_len -= len;
	}
	return text_len == 0;
}

LlmqSliceWalk
llmq_slice_walk(LlmqSlice container)
{
	char kind = llmq_slice_kind(container);

	if (kind != '{' && kind != '[')
		return (LlmqSliceWalk){NULL, NULL};
	return (LlmqSliceWalk){container.at + 1, container.at + container.len - 1};
}

bool
llmq_slice_next(LlmqSliceWalk *walk, LlmqSlice *element)
{
	const char *p = walk->at;

	if (p != NULL)
		p = skip_space(p, walk->end);
	if (p == NULL || p >= walk->end)
		return false;
	element->at = p;
	p = skip_value(p, walk->end);
	element->len = (size_t) (p - element->at);
	p = skip_space(p, walk->end);
	walk->at = p < walk->end ? p + 1 : p; /* past the comma or colon */
	return true;
}

bool
llmq_slice_next_member(LlmqSliceWalk *walk, LlmqSlice *key, LlmqSlice *value)
{
	return llmq_slice_next(walk, key) && llmq_slice_next(walk, value);
}

LlmqSlice
llmq_slice_member(LlmqSlice object, const char *name)
{
	LlmqSlice found = {NULL, 0};
	LlmqSliceWalk walk = {NULL, NULL};
	LlmqSlice key;
	LlmqSlice value;

	if (llmq_slice_kind(object) == '{')
		walk = llmq_slice_walk(object);
	while (llmq_slice_next_member(&walk, &key, &value))
		if (llmq_slice_equals(key, name))
			found = value;
	return found;
}

size_t
llmq_slice_count(LlmqSlice array)
{
	LlmqSliceWalk walk = llmq_slice_walk(array);
	LlmqSlice element;
	size_t count = 0;

	while (llmq_slice_next(&walk, &element))
		count++;
	return count;
}

char *
llmq_slice_decode(LlmqArena *arena, LlmqSlice string, size_t *len)
{
	const char *p = string.at + 1;
	const char *end = string.at + string.len - 1;
	char *text = llmq_arena_alloc(arena, string.len);
	char *to = text;

	*len = 0;
	if (text == NULL)
		return NULL;
	while (p < end)
	{
		char piece[4];
		size_t piece_len;
		const char *escape = memchr(p, '\\', (size_t) (end - p));
		const char *stop = escape == NULL ? end : escape;

		memcpy(to, p, (size_t) (stop - p));
		to += stop - p;
		p = stop;
		if (p == end)
			break;
		/* No escape is shorter than the bytes that it stands for. */
		piece_len = decode_escape(&p, end, piece);
		memcpy(to, piece, piece_len);
		to += piece_len;
	}
	*len = (size_t) (to - text);
	return text;
}

/*
 * Works on eight bytes at a time, because an image in base64 is megabytes of plain characters,
 * and the worker's loop waits meanwhile.  (x - n) & ~x sets the top bit of each byte below n.  A
 * borrow can only set a bit above such a byte, and those are looked at again.
 */
size_t
llmq_slice_plain_length(const char *text, size_t len)
{
	size_t i = 0;

	for (; len - i >= sizeof(uint64_t); i += sizeof(uint64_t))
	{
		uint64_t word;
		uint64_t quote;
		uint64_t backslash;

		memcpy(&word, text + i, sizeof(word));
		quote = word ^ EIGHT('"');
		backslash = word ^ EIGHT('\\');
		if ((((word - EIGHT(0x20)) & ~word) | ((quote - EIGHT(1)) & ~quote) |
			 ((backslash - EIGHT(1)) & ~backslash)) &
			EIGHT(0x80))
			break;
	}
	while (i < len && (unsigned char) text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
		i++;
	return i;
}

static const char *
skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
		p++;
	return p;
}

/* Returns the byte after the closing quote; p points to the opening one. */
static const char *
skip_string(const char *p, const char *end)
{
	const char *start = ++p;

	while (p < end)
	{
		const char *quote = memchr(p, '"', (size_t) (end - p));
		size_t backslashes = 0;

		if (quote == NULL)
			return end;
		while (quote - backslashes > start && quote[-1 - (ptrdiff_t) backslashes] == '\\')
			backslashes++;
		p = quote + 1;
		if (backslashes % 2 == 0)
			return p;
	}
	return end;
}

static const char *
skip_value(const char *p, const char *end)
{
	size_t depth = 0;

	while (p < end)
	{
		char c = *p;

		if (c == '"')
		{
			p = skip_string(p, end);
			if (depth == 0)
				return p;
			continue;
		}
		if (depth == 0 && strchr(",:]} \t\n\r", c) != NULL)
			return p;
		p++;
		if (c == '{' || c == '[')
			depth++;
		else if ((c == '}' || c == ']') && --depth == 0)
			return p;
	}
	return end;
}

/* Decodes the escape at *p, moves *p past it, and returns how many bytes it stands for. */
static size_t
decode_escape(const char **p, const char *end, char out[4])
{
	static const char letters[] = "bfnrt";
	static const char meanings[] = "\b\f\n\r\t";
	char c = end - *p > 1 ? (*p)[1] : '\\';
	const char *letter = strchr(letters, c);
	uint32_t code;

	*p += end - *p > 1 ? 2 : 1;
	if (c != 'u')
	{
		out[0] = letter != NULL && c != '\0' ? meanings[letter - letters] : c;
		return 1;
	}
	code = decode_hex4(p, end);
	if (code >= 0xD800 && code < 0xDC00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u')
	{
		const char *next = *p + 2;
		uint32_t low = decode_hex4(&next, end);

		if (low >= 0xDC00 && low < 0xE000)
		{
			*p = next;
			return put_utf8(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), out);
		}
	}
	return put_utf8(code >= 0xD800 && code < 0xE000 ? REPLACEMENT_CHARACTER : code, out);
}

static uint32_t
decode_hex4(const char **p, const char *end)
{
	uint32_t code = 0;

	for (int i = 0; i < 4 && *p < end; i++, (*p)++)
	{
		char c = **p;

		code = code << 4 | (uint32_t) (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return code;
}

static size_t
put_utf8(uint32_t code, char out[4])
{
	if (code < 0x80)
	{
		out[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		out[0] = (char) (0xC0 | code >> 6);
		out[1] = (char) (0x80 | (code & 0x3F));
		return 2;
	}
	if (code < 0x10000)
	{
		out[0] = (char) (0xE0 | code >> 12);
		out[1] = (char) (0x80 | (code >> 6 & 0x3F));
		out[2] = (char) (0x80 | (code & 0x3F));
		return 3;
	}
	out[0] = (char) (0xF0 | code >> 18);
	out[1] = (char) (0x80 | (code >> 12 & 0x3F));
	out[2] = (char) (0x80 | (code >> 6 & 0x3F));
	out[3] = (char) (0x80 | (code & 0x3F));
	return 4;
}
