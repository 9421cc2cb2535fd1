/*
 * trace_test.c
 *		A call's traceparent stays in its trace.
 */
#include "wire/trace.h"
#include "tap.h"

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-"

int
main(void)
{
	LlmqArena *arena = llmq_arena_create(4096);

	is_string(llmq_trace_child(arena, TRACE "00f067aa0ba902b7-01", UINT64_C(0x123456789abcdef)),
			  TRACE "0123456789abcdef-01",
			  "a child has the trace and the flags, and a span of its own");
	is_string(llmq_trace_child(arena, TRACE "00f067aa0ba902b7-00", 1), TRACE "0000000000000001-00",
			  "a span has all its digits");
	is_string(llmq_trace_child(arena, NULL, 1), NULL, "without a parent there is no child");
	is_string(llmq_trace_child(arena, TRACE "00f067aa0ba902b7-01-x", 1), NULL,
			  "nor with one of another length");
	llmq_arena_destroy(arena);
	return tap_done();
}
