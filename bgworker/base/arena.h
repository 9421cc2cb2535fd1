/*
 * arena.h
 *		Memory that is freed all at once.
 *
 * Everything that belongs to one job in the engine lives in that job's arena.  Only the whole
 * arena is freed, never a piece of it.  An arena has a maximum size; when that is reached, or
 * malloc fails, allocation returns NULL and `failed` stays set, so a caller may build a whole
 * value and check once at the end.
 */
#ifndef LLMQ_ARENA_H
#define LLMQ_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct LlmqArena LlmqArena;

/* Creates an arena that holds at most max_bytes; NULL when out of memory. */
extern LlmqArena *llmq_arena_create(size_t max_bytes);

/* Frees the arena and all that was allocated from it; NULL is ignored. */
extern void llmq_arena_destroy(LlmqArena *arena);

/* Returns size zeroed bytes aligned for any type, or NULL (and sets failed). */
extern void *llmq_arena_alloc(LlmqArena *arena, size_t size);

/* Copies a string; NULL gives NULL without failure. */
extern char *llmq_arena_strdup(LlmqArena *arena, const char *text);

/* Copies len bytes and ends them with a NUL. */
extern char *llmq_arena_strndup(LlmqArena *arena, const char *text, size_t len);

/* Formats into the arena. */
extern char *
llmq_arena_printf(LlmqArena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns whether any allocation has failed since the arena was created. */
extern bool llmq_arena_failed(const LlmqArena *arena);

#endif /* LLMQ_ARENA_H */
