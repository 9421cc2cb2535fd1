/*
 * buffer.c
 *		A growing byte string with a maximum size that is given at init.
 *
 * Capacity doubles, so that appending n bytes one by one costs O(n).  It is our own because
 * libc has none, and PostgreSQL's StringInfo throws an error where this one sets `failed`.
 */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256

static bool reserve(LlmqBuffer *buffer, size_t more);

void
llmq_buffer_init(LlmqBuffer *buffer, size_t max)
{
	memset(buffer, 0, sizeof(*buffer));
	buffer->max = max;
}

void
llmq_buffer_free(LlmqBuffer *buffer)
{
	free(buffer->data);
	llmq_buffer_init(buffer, buffer->max);
}

void
llmq_buffer_reset(LlmqBuffer *buffer)
{
	buffer->len = 0;
	buffer->failed = false;
	if (buffer->data != NULL)
		buffer->data[0] = '\0';
}

bool
llmq_buffer_append(LlmqBuffer *buffer, const void *bytes, size_t len)
{
	if (!reserve(buffer, len))
		return false;
	if (len > 0)
		memcpy(buffer->data + buffer->len, bytes, len);
	buffer->len += len;
	buffer->data[buffer->len] = '\0';
	return true;
}

bool
llmq_buffer_append_string(LlmqBuffer *buffer, const char *text)
{
	return llmq_buffer_append(buffer, text, strlen(text));
}

bool
llmq_buffer_append_char(LlmqBuffer *buffer, char c)
{
	return llmq_buffer_append(buffer, &c, 1);
}

bool
llmq_buffer_printf(LlmqBuffer *buffer, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0 || !reserve(buffer, (size_t) len))
		return false;
	va_start(args, format);
	vsnprintf(buffer->data + buffer->len, (size_t) len + 1, format, args);
	va_end(args);
	buffer->len += (size_t) len;
	return true;
}

void
llmq_buffer_consume(LlmqBuffer *buffer, size_t len)
{
	if (len > buffer->len)
		len = buffer->len;
	if (len == 0)
		return;
	memmove(buffer->data, buffer->data + len, buffer->len - len + 1);
	buffer->len -= len;
}

const char *
llmq_buffer_string(const LlmqBuffer *buffer)
{
	return buffer->data == NULL ? "" : buffer->data;
}

/* Makes room for more bytes and the NUL behind them. */
static bool
reserve(LlmqBuffer *buffer, size_t more)
{
	size_t capacity = buffer->capacity == 0 ? FIRST_CAPACITY : buffer->capacity;
	char *data;

	if (buffer->failed || more > buffer->max - buffer->len)
	{
		buffer->failed = true;
		return false;
	}
	while (capacity < buffer->len + more + 1)
		capacity *= 2;
	if (capacity == buffer->capacity)
		return true;
	data = realloc(buffer->data, capacity);
	if (data == NULL)
	{
		buffer->failed = true;
		return false;
	}
	buffer->data = data;
	buffer->capacity = capacity;
	return true;
}
