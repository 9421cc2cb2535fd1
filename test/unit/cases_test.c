/*
 * cases_test.c
 *		Every provider case comes out as it must, however its bytes arrive.
 */
#include "cases.h"

static void
run_file(const char *name)
{
	LlmqArena *arena = llmq_arena_create(CASE_ARENA_BYTES);
	LlmqSliceWalk walk;
	LlmqSlice list;
	LlmqSlice from;
	size_t len;
	char *text = case_read_file(arena, name, &len);

	if (!ok(llmq_slice_parse(text, len, &list), "%s is a file of cases", name))
		return;
	walk = llmq_slice_walk(list);
	while (llmq_slice_next(&walk, &from))
	{
		LlmqBuffer why;
		Case it;

		llmq_buffer_init(&why, 100000);
		case_load(&it, arena, from);
		case_run(&it, CASE_AS_SENT, &why);
		if (why.len == 0)
			case_run(&it, CASE_WHOLE, &why);
		if (why.len == 0)
			case_run(&it, CASE_BYTES, &why);
		if (!ok(why.len == 0, "%s", it.id))
			printf("#%s\n", llmq_buffer_string(&why));
		llmq_buffer_free(&why);
	}
	llmq_arena_destroy(arena);
}

int
main(void)
{
	for (size_t i = 0; i < CASE_FILES; i++)
		run_file(case_files[i]);
	return tap_done();
}
