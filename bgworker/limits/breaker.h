/*
 * breaker.h
 *		Circuit breakers: an endpoint that keeps failing is left alone for a while.
 *
 * Pure: times are passed in, in microseconds.  Each worker counts the outcomes of its own calls
 * (LlmqBreaker) and reports when the breaker should open.  The database holds the state for all
 * workers (LlmqBreakerMark): closed, open until a time, or half-open, when one worker may make
 * one call to find out whether the endpoint works again.
 */
#ifndef LLMQ_BREAKER_H
#define LLMQ_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define LLMQ_BREAKER_SECONDS 60

/* The failures of a minute count as a majority only if it has at least so many calls. */
#define LLMQ_BREAKER_MINUTE_MIN 10

/* One worker's count of calls to one endpoint.  All zeros: no calls yet. */
typedef struct LlmqBreaker
{
	int in_a_row; /* failures since the last success */
	int64_t second;
	int calls[LLMQ_BREAKER_SECONDS]; /* in each second, at its number modulo SECONDS */
	int failures[LLMQ_BREAKER_SECONDS];
} LlmqBreaker;

/* Counts the outcome of a call; true if the breaker should open. */
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
	int64_t until_us;  /* OPEN: no probe before; HALF_OPEN: a new one after, if one is lost */
	int64_t opened_us; /* OPEN, HALF_OPEN: since when */
	int64_t turns;	   /* changes of the state: a worker that has seen fewer knows an older state */
} LlmqBreakerMark;

/* What a worker reports about an endpoint, or asks. */
typedef enum LlmqBreakerEvent
{
	LLMQ_BREAKER_NO_EVENT,
	LLMQ_BREAKER_FAILED,	/* too many failures, or the probe failed */
	LLMQ_BREAKER_MAY_PROBE, /* is it time for a probe, by this worker? */
	LLMQ_BREAKER_WORKED		/* the probe succeeded */
} LlmqBreakerEvent;

/* Applies an event; true if the worker may make the one call that is the probe. */
extern bool llmq_breaker_take(LlmqBreakerMark *mark, LlmqBreakerEvent event, int64_t cooldown_us,
							  int64_t now_us);

#endif /* LLMQ_BREAKER_H */
