/*
 * json_write.c
 *		Writes compact JSON into a buffer, without a tree.
 */
#include "json/json_write.h"

#include <inttypes.h>
#include <string.h>

static void separate(LlmqBuffer *out);
static void add_escaped(LlmqBuffer *out, unsigned char c);
static size_t token_run(const char *p, const char *end);

void
llmq_write_open(LlmqBuffer *out, char bracket)
{
	separate(out);
	llmq_buffer_append_char(out, bracket);
}

void
llmq_write_close(LlmqBuffer *out, char bracket)
{
	llmq_buffer_append_char(out, bracket);
}

void
llmq_write_close_or_drop(LlmqBuffer *out, char bracket, size_t start)
{
	char last = out->len == 0 ? '\0' : out->data[out->len - 1];

	if (last != '{' && last != '[')
	{
		llmq_write_close(out, bracket);
		return;
	}
	out->len = start;
	out->data[start] = '\0';
}

void
llmq_write_key(LlmqBuffer *out, const char *name)
{
	separate(out);
	llmq_buffer_append_char(out, '"');
	llmq_buffer_append_string(out, name);
	llmq_buffer_append(out, "\":", 2);
}

void
llmq_write_name(LlmqBuffer *out, const char *name)
{
	llmq_write_text(out, name);
	llmq_buffer_append_char(out, ':');
}

void
llmq_write_raw(LlmqBuffer *out, const char *json)
{
	separate(out);
	llmq_buffer_append_string(out, json);
}

void
llmq_write_int(LlmqBuffer *out, int64_t value)
{
	separate(out);
	llmq_buffer_printf(out, "%" PRId64, value);
}

void
llmq_write_text(LlmqBuffer *out, const char *text)
{
	llmq_write_text_len(out, text, strlen(text));
}

void
llmq_write_text_len(LlmqBuffer *out, const char *text, size_t len)
{
	llmq_write_string_start(out);
	llmq_write_string_add(out, text, len);
	llmq_write_string_end(out);
}

void
llmq_write_slice(LlmqBuffer *out, LlmqSlice value)
{
	const char *p = value.at;
	const char *end = value.at + value.len;

	separate(out);
	while (p < end)
	{
		size_t run = token_run(p, end);

		llmq_buffer_append(out, p, run);
		p += run;
		while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
			p++;
	}
}

void
llmq_write_member(LlmqBuffer *out, const char *name, LlmqSlice value)
{
	llmq_write_key(out, name);
	llmq_write_slice(out, value);
}

void
llmq_write_member_text(LlmqBuffer *out, const char *name, const char *text)
{
	llmq_write_key(out, name);
	llmq_write_text(out, text);
}

void
llmq_write_member_int(LlmqBuffer *out, const char *name, int64_t value)
{
	llmq_write_key(out, name);
	llmq_write_int(out, value);
}

void
llmq_write_member_bool(LlmqBuffer *out, const char *name, bool value)
{
	llmq_write_key(out, name);
	llmq_write_raw(out, value ? "true" : "false");
}

void
llmq_write_pair(LlmqBuffer *out, LlmqSlice key, LlmqSlice value)
{
	llmq_write_slice(out, key);
	llmq_buffer_append_char(out, ':');
	llmq_write_slice(out, value);
}

void
llmq_write_members(LlmqBuffer *out, LlmqSlice object)
{
	LlmqSliceWalk walk = llmq_slice_walk(object);
	LlmqSlice key;
	LlmqSlice value;

	if (llmq_slice_kind(object) != '{')
		return;
	while (llmq_slice_next_member(&walk, &key, &value))
		llmq_write_pair(out, key, value);
}

void
llmq_write_string_start(LlmqBuffer *out)
{
	separate(out);
	llmq_buffer_append_char(out, '"');
}

void
llmq_write_string_add(LlmqBuffer *out, const char *text, size_t len)
{
	while (len > 0)
	{
		size_t plain = llmq_slice_plain_length(text, len);

		llmq_buffer_append(out, text, plain);
		text += plain;
		len -= plain;
		if (len == 0)
			return;
		add_escaped(out, (unsigned char) *text);
		text++;
		len--;
	}
}

void
llmq_write_string_add_slice(LlmqBuffer *out, LlmqSlice string)
{
	if (llmq_slice_kind(string) == '"')
		llmq_buffer_append(out, string.at + 1, string.len - 2);
}

void
llmq_write_string_end(LlmqBuffer *out)
{
	llmq_buffer_append_char(out, '"');
}

/* Sets a comma unless the last byte opens a container or ends a name. */
static void
separate(LlmqBuffer *out)
{
	char last = out->len == 0 ? '{' : out->data[out->len - 1];

	if (last != '{' && last != '[' && last != ':')
		llmq_buffer_append_char(out, ',');
}

static void
add_escaped(LlmqBuffer *out, unsigned char c)
{
	static const char plain[] = "\"\\\b\f\n\r\t";
	static const char letters[] = "\"\\bfnrt";
	const char *found = c == '\0' ? NULL : strchr(plain, c);

	if (found == NULL)
	{
		llmq_buffer_printf(out, "\\u%04x", c);
		return;
	}
	llmq_buffer_append_char(out, '\\');
	llmq_buffer_append_char(out, letters[found - plain]);
}

/* Counts the bytes up to the next white space that is outside strings. */
static size_t
token_run(const char *p, const char *end)
{
	bool in_string = false;
	const char *start = p;

	for (; p < end; p++)
	{
		if (in_string)
			p += llmq_slice_plain_length(p, (size_t) (end - p));
		if (p < end && *p == '"')
			in_string = !in_string;
		else if (in_string)
			p++; /* skip the escaped character */
		else if (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
			break;
	}
	/* Checked text has a byte after each backslash; cut text ends here. */
	return (size_t) ((p < end ? p : end) - start);
}
