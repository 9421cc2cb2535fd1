/*
 * breaker.h
 *		Circuit breakers: an endpoint that keeps failing is left alone for a while.
 *
 * Pure: times are given, in microseconds.  A worker counts what its own calls came to
 * (LlmqBreaker) and says when it is enough.  The database holds what all of them go by
 * (LlmqBreakerMark): closed, open until a time, or half-open, when one worker may make
 * one call to see whether the endpoint is well again.
 */
#ifndef LLMQ_BREAKER_H
#define LLMQ_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define LLMQ_BREAKER_SECONDS 60

/* A minute with fewer calls has no majority. */
#define LLMQ_BREAKER_MINUTE_MIN 10

/* One worker's count of calls to one endpoint.  All zero is one without calls. */
typedef struct LlmqBreaker
{
	int in_a_row; /* failures since the last success */
	int64_t second;
	int calls[LLMQ_BREAKER_SECONDS]; /* in a second, at its number modulo SECONDS */
	int failures[LLMQ_BREAKER_SECONDS];
} LlmqBreaker;

/* Notes what a call came to; true if that is a reason to open. */
extern bool llmq_breaker_note(LlmqBreaker *breaker, bool failed, int limit, int64_t now_us);

/* Forgets all calls. */
extern void llmq_breaker_clear(LlmqBreaker *breaker);

typedef enum LlmqBreakerState
{
	LLMQ_BREAKER_CLOSED,
	LLMQ_BREAKER_OPEN,
	LLMQ_BREAKER_HALF_OPEN /* a probe is under way */
} LlmqBreakerState;

/* The shared side: numbers only, so that a row can hold it as an array. */
typedef struct LlmqBreakerMark
{
	int64_t state;
	int64_t until_us; /* OPEN: no probe before; HALF_OPEN: another probe after, if none came back */
	int64_t opened_us; /* OPEN, HALF_OPEN: since when */
	int64_t turns;	   /* of the state: who has seen fewer knows an older one */
} LlmqBreakerMark;

/* What a worker reports of an endpoint, or asks. */
typedef enum LlmqBreakerEvent
{
	LLMQ_BREAKER_NO_EVENT,
	LLMQ_BREAKER_FAILED,	/* too many failures, or the probe was one */
	LLMQ_BREAKER_MAY_PROBE, /* is it time for a probe, by this worker? */
	LLMQ_BREAKER_WORKED		/* the probe did */
} LlmqBreakerEvent;

/* Takes in an event; true if the worker may make the one call that is the probe. */
extern bool llmq_breaker_take(LlmqBreakerMark *mark, LlmqBreakerEvent event, int64_t cooldown_us,
							  int64_t now_us);

#endif /* LLMQ_BREAKER_H */
