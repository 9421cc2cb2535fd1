/*
 * buffer_test.c
 *		The bounded buffer and the arena keep their maximum.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "tap.h"

static void
test_buffer(void)
{
	LlmqBuffer buffer;

	llmq_buffer_init(&buffer, 10);
	is_string(llmq_buffer_string(&buffer), "",
			  "a buffer is the empty string before the first append");
	llmq_buffer_consume(&buffer, 1);
	is_int((int64_t) buffer.len, 0, "and nothing can be consumed of it");
	ok(llmq_buffer_append_string(&buffer, "12345"), "an append below the maximum is taken");
	ok(llmq_buffer_printf(&buffer, "%d", 67890), "a buffer can be filled to its maximum");
	ok(!llmq_buffer_append_char(&buffer, 'x'), "an append beyond the maximum is refused");
	is_string(llmq_buffer_string(&buffer), "1234567890", "a refused append changes nothing");
	ok(buffer.failed, "a refused append is remembered");
	llmq_buffer_consume(&buffer, 4);
	is_string(llmq_buffer_string(&buffer), "567890", "consume drops the first bytes");
	llmq_buffer_consume(&buffer, 100);
	is_int((int64_t) buffer.len, 0, "consume of more than there is empties the buffer");
	llmq_buffer_free(&buffer);
}

static void
test_arena(void)
{
	LlmqArena *arena = llmq_arena_create(20000);
	char *large = llmq_arena_alloc(arena, 10000);

	ok(large != NULL && large[9999] == 0, "an arena gives zeroed memory larger than a block");
	is_string(llmq_arena_printf(arena, "%s-%d", "a", 1), "a-1", "an arena formats");
	ok(llmq_arena_strdup(arena, NULL) == NULL && !llmq_arena_failed(arena),
	   "copying no string gives no string and is no failure");
	ok(llmq_arena_alloc(arena, 15000) == NULL, "an arena refuses what passes its maximum");
	ok(llmq_arena_failed(arena), "an arena remembers that it refused");
	llmq_arena_destroy(arena);
}

int
main(void)
{
	test_buffer();
	test_arena();
	return tap_done();
}
