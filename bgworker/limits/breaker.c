/*
 * breaker.c
 *		Circuit breakers: an endpoint that keeps failing is left alone for a while.
 */
#include "limits/breaker.h"

#include <string.h>

#define SECOND_US INT64_C(1000000)

/* If a probe has no outcome by then, its worker was lost. */
#define PROBE_MAX_US (60 * SECOND_US)

/* Returns where the current second is counted, and clears the seconds that are a minute old. */
static int
turn_to(LlmqBreaker *breaker, int64_t now_us)
{
	int64_t second = now_us / SECOND_US;

	if (second - breaker->second >= LLMQ_BREAKER_SECONDS)
	{
		memset(breaker->calls, 0, sizeof(breaker->calls));
		memset(breaker->failures, 0, sizeof(breaker->failures));
		breaker->second = second;
	}
	while (breaker->second < second)
	{
		int at = (int) (++breaker->second % LLMQ_BREAKER_SECONDS);

		breaker->calls[at] = breaker->failures[at] = 0;
	}
	return (int) (second % LLMQ_BREAKER_SECONDS);
}

bool
llmq_breaker_note(LlmqBreaker *breaker, bool failed, int limit, int64_t now_us)
{
	int at = turn_to(breaker, now_us);
	int calls = 0;
	int failures = 0;

	breaker->calls[at]++;
	breaker->failures[at] += failed;
	breaker->in_a_row = failed ? breaker->in_a_row + 1 : 0;
	if (!failed)
		return false;
	if (breaker->in_a_row >= limit)
		return true;
	for (int i = 0; i < LLMQ_BREAKER_SECONDS; i++)
	{
		calls += breaker->calls[i];
		failures += breaker->failures[i];
	}
	return calls >= LLMQ_BREAKER_MINUTE_MIN && failures >= limit && failures * 2 > calls;
}

void
llmq_breaker_clear(LlmqBreaker *breaker)
{
	memset(breaker, 0, sizeof(*breaker));
}

static void
turn(LlmqBreakerMark *mark, LlmqBreakerState state, int64_t until_us)
{
	mark->state = state;
	mark->until_us = until_us;
	mark->turns++;
}

bool
llmq_breaker_take(LlmqBreakerMark *mark, LlmqBreakerEvent event, int64_t cooldown_us,
				  int64_t now_us)
{
	switch (event)
	{
		case LLMQ_BREAKER_NO_EVENT:
			break;
		case LLMQ_BREAKER_FAILED:
			/* Calls that were under way when the breaker opened bring nothing new. */
			if (mark->state == LLMQ_BREAKER_OPEN && mark->until_us > now_us)
				break;
			if (mark->state == LLMQ_BREAKER_CLOSED)
				mark->opened_us = now_us;
			turn(mark, LLMQ_BREAKER_OPEN, now_us + cooldown_us);
			break;
		case LLMQ_BREAKER_WORKED:
			if (mark->state != LLMQ_BREAKER_CLOSED)
				turn(mark, LLMQ_BREAKER_CLOSED, 0);
			break;
		case LLMQ_BREAKER_MAY_PROBE:
			if (mark->state == LLMQ_BREAKER_CLOSED || mark->until_us > now_us)
				break;
			turn(mark, LLMQ_BREAKER_HALF_OPEN, now_us + PROBE_MAX_US);
			return true;
	}
	return false;
}
