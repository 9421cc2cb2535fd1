/*
 * trace.h
 *		Passes on the trace that a call belongs to (W3C Trace Context).
 *
 * Pure.  https://www.w3.org/TR/trace-context/#traceparent-header
 */
#ifndef LLMQ_TRACE_H
#define LLMQ_TRACE_H

#include <stdint.h>

#include "base/arena.h"

/* The length of version-trace_id-parent_id-flags in version 00. */
#define LLMQ_TRACEPARENT_LENGTH 55

/*
 * Returns the traceparent of a call made on behalf of parent: it has the same trace and flags,
 * and span, which must not be 0, as the parent of what follows.  parent is a valid traceparent
 * of version 00, as llmq_internal.traceparent writes it.  Returns NULL when parent is NULL or of
 * another length, or when out of memory.
 */
extern const char *llmq_trace_child(LlmqArena *arena, const char *parent, uint64_t span);

#endif /* LLMQ_TRACE_H */
