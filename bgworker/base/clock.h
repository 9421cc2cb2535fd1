/*
 * clock.h
 *		A point in time on both clocks.  Pure code is given one; only hosts read clocks
 *		(machine.h).
 */
#ifndef LLMQ_CLOCK_H
#define LLMQ_CLOCK_H

#include <stdint.h>

/* A time that never comes, or is not known. */
#define LLMQ_NEVER INT64_MAX

typedef struct LlmqTime
{
	int64_t mono_us; /* monotonic: deadlines, delays */
	int64_t wall_us; /* since the Unix epoch: for people, and HTTP-dates */
} LlmqTime;

#endif /* LLMQ_CLOCK_H */
