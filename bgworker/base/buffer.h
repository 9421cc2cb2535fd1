/*
 * buffer.h
 *		A growing byte string with a maximum size that is given at init.
 *
 * The bytes are always followed by a NUL that is not counted.  An append that would exceed the
 * maximum, or that finds no memory, changes nothing, returns false and leaves `failed` set, so
 * a caller may append many times and check once.
 */
#ifndef LLMQ_BUFFER_H
#define LLMQ_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct LlmqBuffer
{
	char *data;		 /* NULL until the first append */
	size_t len;		 /* bytes in use */
	size_t capacity; /* bytes allocated */
	size_t max;		 /* len never exceeds it */
	bool failed;	 /* an append was refused */
} LlmqBuffer;

/* Prepares an empty buffer that will hold at most max bytes; allocates nothing. */
extern void llmq_buffer_init(LlmqBuffer *buffer, size_t max);

/* Frees the bytes; the buffer is empty and may be used again. */
extern void llmq_buffer_free(LlmqBuffer *buffer);

/* Empties the buffer and keeps its memory. */
extern void llmq_buffer_reset(LlmqBuffer *buffer);

extern bool llmq_buffer_append(LlmqBuffer *buffer, const void *bytes, size_t len);
extern bool llmq_buffer_append_string(LlmqBuffer *buffer, const char *text);
extern bool llmq_buffer_append_char(LlmqBuffer *buffer, char c);
extern bool llmq_buffer_printf(LlmqBuffer *buffer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Drops the first len bytes (all of them if there are fewer). */
extern void llmq_buffer_consume(LlmqBuffer *buffer, size_t len);

/* The bytes as a C string; "" when nothing was ever appended. */
extern const char *llmq_buffer_string(const LlmqBuffer *buffer);

#endif /* LLMQ_BUFFER_H */
