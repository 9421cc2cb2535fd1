/*
 * debug_point.h
 *		Named places where a test can stop a process and kill it.
 *
 * Compiled in with -DLLMQ_DEBUG_POINTS alone.  A process that reaches the point
 * which the setting llmq.debug_point names writes its pid to the file
 * llmq_debug_point.<name> in the data directory and stands still, deaf to
 * interrupts, until it is killed or the file is removed.  A file that is there
 * already lets every process pass: one file, one stop.
 */
#ifndef LLMQ_DEBUG_POINT_H
#define LLMQ_DEBUG_POINT_H

#ifdef LLMQ_DEBUG_POINTS
#define LLMQ_DEBUG_POINT(name) llmq_debug_point_reach(name)
#else
#define LLMQ_DEBUG_POINT(name) ((void) 0)
#endif

/* Defines the setting llmq.debug_point. */
extern void llmq_debug_point_define(void);

extern void llmq_debug_point_reach(const char *name);

#endif /* LLMQ_DEBUG_POINT_H */
