/*
 * debug_point.h
 *		Named points where a test can stop a process and kill it.
 *
 * They are compiled in only with -DLLMQ_DEBUG_POINTS.  A test arms a point with the file
 * llmq_debug_point.<name> in the data directory.  The first process that comes by removes the
 * file, writes its pid to llmq_debug_point.<name>.reached and stops, without handling
 * interrupts, until it is killed or that file is removed.  So one file stops one process once,
 * and nothing has to be reloaded.
 */
#ifndef LLMQ_DEBUG_POINT_H
#define LLMQ_DEBUG_POINT_H

#ifdef LLMQ_DEBUG_POINTS
#define LLMQ_DEBUG_POINT(...) llmq_debug_point_reach(__VA_ARGS__)
#else
#define LLMQ_DEBUG_POINT(...) ((void) 0)
#endif

/* Stops here if the point is armed; the arguments are those of printf and give its name. */
extern void llmq_debug_point_reach(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* LLMQ_DEBUG_POINT_H */
