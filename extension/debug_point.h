/*
 * debug_point.h
 *		Named places where a test can stop a process and kill it.
 *
 * Compiled in with -DLLMQ_DEBUG_POINTS alone.  A test arms a point by the file
 * llmq_debug_point.<name> in the data directory.  The first process to come by
 * takes the file away, writes its pid to llmq_debug_point.<name>.reached and
 * stands still, deaf to interrupts, until it is killed or that file is removed.
 * So one arming stops one process once, and nothing has to be reloaded.
 */
#ifndef LLMQ_DEBUG_POINT_H
#define LLMQ_DEBUG_POINT_H

#ifdef LLMQ_DEBUG_POINTS
#define LLMQ_DEBUG_POINT(...) llmq_debug_point_reach(__VA_ARGS__)
#else
#define LLMQ_DEBUG_POINT(...) ((void) 0)
#endif

/* The name is printf's format and its values. */
extern void llmq_debug_point_reach(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* LLMQ_DEBUG_POINT_H */
