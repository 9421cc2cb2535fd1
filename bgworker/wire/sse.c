/*
 * sse.c
 *		Splits a streamed body into frames while it arrives, in portions of any size.
 *
 * A line that is complete within one portion is read in place; only the pieces of a split line
 * are copied together.
 */
#include "wire/sse.h"

#include <string.h>

static bool end_line(LlmqSse *sse, const char *bytes, size_t len);
static bool take_line(LlmqSse *sse, const char *line, size_t len, bool whole);
static void take_field(LlmqSse *sse, const char *line, size_t len);
static bool take_event(LlmqSse *sse, bool whole);

void
llmq_sse_init(LlmqSse *sse, bool json_lines, size_t max, LlmqFrameTaker take, void *user)
{
	memset(sse, 0, sizeof(*sse));
	llmq_buffer_init(&sse->line, max);
	/* A data line is kept without its field name and with one LF. */
	llmq_buffer_init(&sse->data, max);
	sse->json_lines = json_lines;
	sse->take = take;
	sse->user = user;
}

void
llmq_sse_free(LlmqSse *sse)
{
	llmq_buffer_free(&sse->line);
	llmq_buffer_free(&sse->data);
}

bool
llmq_sse_failed(const LlmqSse *sse)
{
	return sse->line.failed || sse->data.failed;
}

bool
llmq_sse_feed(LlmqSse *sse, const char *bytes, size_t len)
{
	const char *end = bytes + len;

	if (len > 0 && sse->after_cr && *bytes == '\n')
		bytes++;
	if (len > 0)
		sse->after_cr = false;
	while (bytes < end)
	{
		const char *stop = bytes;

		while (stop < end && *stop != '\n' && *stop != '\r')
			stop++;
		if (stop == end)
			return llmq_buffer_append(&sse->line, bytes, (size_t) (stop - bytes));
		if (!end_line(sse, bytes, (size_t) (stop - bytes)))
			return false;
		bytes = stop + 1;
		if (*stop == '\r' && bytes == end)
			sse->after_cr = true;
		else if (*stop == '\r' && *bytes == '\n')
			bytes++;
	}
	return true;
}

void
llmq_sse_end(LlmqSse *sse)
{
	if (llmq_sse_failed(sse))
		return;
	if (sse->line.len > 0 && !take_line(sse, sse->line.data, sse->line.len, false))
		return;
	if (!sse->json_lines && !sse->data.failed)
		take_event(sse, false);
}

/* Ends a line; its last piece is at bytes. */
static bool
end_line(LlmqSse *sse, const char *bytes, size_t len)
{
	bool more;

	if (sse->line.len == 0 && !sse->json_lines)
		return take_line(sse, bytes, len, true);
	if (!llmq_buffer_append(&sse->line, bytes, len))
		return false;
	more = take_line(sse, sse->line.data, sse->line.len, true);
	llmq_buffer_reset(&sse->line);
	return more;
}

static bool
take_line(LlmqSse *sse, const char *line, size_t len, bool whole)
{
	if (sse->json_lines)
		return len == 0 || sse->take(sse->user, sse->line.data, len, whole);
	if (len == 0)
		return take_event(sse, whole);
	take_field(sse, line, len);
	return !sse->data.failed;
}

/* Adds a line to the event for "data: x", "data:x" and "data"; other fields are not needed. */
static void
take_field(LlmqSse *sse, const char *line, size_t len)
{
	if (len < 4 || memcmp(line, "data", 4) != 0 || (len > 4 && line[4] != ':'))
		return;
	line += len > 4 ? 5 : 4;
	len -= len > 4 ? 5 : 4;
	if (len > 0 && *line == ' ')
	{
		line++;
		len--;
	}
	llmq_buffer_append(&sse->data, line, len);
	llmq_buffer_append_char(&sse->data, '\n');
}

static bool
take_event(LlmqSse *sse, bool whole)
{
	LlmqBuffer *data = &sse->data;
	bool more;

	if (data->len == 0)
		return true;
	data->data[--data->len] = '\0'; /* the last LF is not part of the data */
	more = sse->take(sse->user, data->data, data->len, whole);
	llmq_buffer_reset(data);
	return more;
}
