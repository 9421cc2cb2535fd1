/*
 * trace.c
 *		Passes on the trace that a call belongs to (W3C Trace Context).
 */
#include "wire/trace.h"

#include <inttypes.h>
#include <string.h>

#define TRACE_LENGTH 35 /* "00-", the trace_id's 32 digits */
#define FLAGS_AT	 53 /* after "-", the parent_id's 16 digits and "-" */

const char *
llmq_trace_child(LlmqArena *arena, const char *parent, uint64_t span)
{
	if (parent == NULL || strlen(parent) != LLMQ_TRACEPARENT_LENGTH)
		return NULL;
	return llmq_arena_printf(arena, "%.*s-%016" PRIx64 "-%s", TRACE_LENGTH, parent, span,
							 parent + FLAGS_AT);
}
