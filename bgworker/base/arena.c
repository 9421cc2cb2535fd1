/*
 * arena.c
 *		Memory that is freed all at once.
 *
 * A list of malloc'd blocks, newest first.  An allocation is taken from the newest block, or
 * gets a block of its own when it is large.  It is our own because PostgreSQL's memory contexts
 * belong to the server, and the engine runs without one.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job with a short prompt fits into one block. */
#define BLOCK_BYTES 4096

typedef struct Block
{
	struct Block *next;
	size_t size;
	size_t used;
	max_align_t data[];
} Block;

struct LlmqArena
{
	Block *blocks;
	size_t max_bytes;
	size_t used;
	bool failed;
};

static void *fail(LlmqArena *arena);
static Block *add_block(LlmqArena *arena, size_t size);

LlmqArena *
llmq_arena_create(size_t max_bytes)
{
	LlmqArena *arena = calloc(1, sizeof(*arena));

	if (arena != NULL)
		arena->max_bytes = max_bytes;
	return arena;
}

void
llmq_arena_destroy(LlmqArena *arena)
{
	if (arena == NULL)
		return;
	while (arena->blocks != NULL)
	{
		Block *next = arena->blocks->next;

		free(arena->blocks);
		arena->blocks = next;
	}
	free(arena);
}

void *
llmq_arena_alloc(LlmqArena *arena, size_t size)
{
	const size_t align = sizeof(max_align_t);
	Block *block = arena->blocks;
	void *result;

	if (size > arena->max_bytes - arena->used)
		return fail(arena);
	size = (size + align - 1) / align * align;
	if (block == NULL || block->size - block->used < size)
		block = add_block(arena, size);
	if (block == NULL)
		return fail(arena);
	result = (char *) block->data + block->used;
	block->used += size;
	arena->used = arena->used + size > arena->max_bytes ? arena->max_bytes : arena->used + size;
	memset(result, 0, size);
	return result;
}

char *
llmq_arena_strdup(LlmqArena *arena, const char *text)
{
	return text == NULL ? NULL : llmq_arena_strndup(arena, text, strlen(text));
}

char *
llmq_arena_strndup(LlmqArena *arena, const char *text, size_t len)
{
	char *copy = len == SIZE_MAX ? fail(arena) : llmq_arena_alloc(arena, len + 1);

	if (copy != NULL && len > 0)
		memcpy(copy, text, len);
	return copy;
}

char *
llmq_arena_printf(LlmqArena *arena, const char *format, ...)
{
	va_list args;
	char *text;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0)
		return fail(arena);
	text = llmq_arena_alloc(arena, (size_t) len + 1);
	if (text == NULL)
		return NULL;
	va_start(args, format);
	vsnprintf(text, (size_t) len + 1, format, args);
	va_end(args);
	return text;
}

bool
llmq_arena_failed(const LlmqArena *arena)
{
	return arena->failed;
}

static void *
fail(LlmqArena *arena)
{
	arena->failed = true;
	return NULL;
}

static Block *
add_block(LlmqArena *arena, size_t size)
{
	size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
	Block *block = malloc(offsetof(Block, data) + room);

	if (block == NULL)
		return NULL;
	block->size = room;
	block->used = 0;

	/*
	 * A block made for one large allocation goes second, so that the rest of the newest stays
	 * in use.
	 */
	if (room == size && arena->blocks != NULL)
	{
		block->next = arena->blocks->next;
		arena->blocks->next = block;
	}
	else
	{
		block->next = arena->blocks;
		arena->blocks = block;
	}
	return block;
}
