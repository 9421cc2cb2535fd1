/*
 * clock.h
 *		The time as the engine is given it.
 */
#ifndef LLMQ_CLOCK_H
#define LLMQ_CLOCK_H

#include <stdint.h>

typedef struct LlmqTime
{
	int64_t mono_us; /* monotonic: deadlines, delays */
	int64_t wall_us; /* since the Unix epoch: for people, and HTTP-dates */
} LlmqTime;

#endif /* LLMQ_CLOCK_H */
