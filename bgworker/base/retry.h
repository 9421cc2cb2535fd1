/*
 * retry.h
 *		When to try again: backoff with full jitter, and the retry hints of providers.
 *
 * Pure.  Times are in microseconds.  Randomness is passed in, so that a test with a fixed seed
 * sees the same delays again.
 */
#ifndef LLMQ_RETRY_H
#define LLMQ_RETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A retry hint above this is not believed (ten years, as in test/cases). */
#define LLMQ_RETRY_HINT_BELIEVED_US (INT64_C(315360000) * 1000000)

/*
 * The longest wait: a believed hint above a day counts as a day.  Below that it is never
 * shortened.
 */
#define LLMQ_RETRY_HINT_WAIT_MAX_US (INT64_C(86400) * 1000000)

/* A small generator (xorshift64*), one for each engine; seed 0 is replaced. */
typedef struct LlmqRandom
{
	uint64_t state;
} LlmqRandom;

extern void llmq_random_seed(LlmqRandom *random, uint64_t seed);

/* Returns 64 random bits that are not all zero. */
extern uint64_t llmq_random_bits(LlmqRandom *random);

/* Returns a number that is uniform in [0, max]; 0 when max <= 0. */
extern int64_t llmq_random_upto(LlmqRandom *random, int64_t max);

/*
 * Returns a delay with full jitter: uniform in [0, min(cap, base * 2^failures)], failures from
 * 0.  https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
extern int64_t
llmq_retry_backoff(LlmqRandom *random, int64_t base_us, int64_t cap_us, int failures);

/*
 * Reads "digits[.digits]" with optional spaces around it, without sign and exponent.  1 stands
 * for unit_us; the result is rounded up to whole milliseconds.  Returns false, and leaves *us,
 * for anything else and for values above LLMQ_RETRY_HINT_BELIEVED_US.
 */
extern bool llmq_retry_parse_number(const char *text, size_t len, int64_t unit_us, int64_t *us);

/*
 * Reads a duration in h, m, s, ms ("1h31m30.5s", "250ms") in the same way.  It needs at least
 * one unit.
 */
extern bool llmq_retry_parse_duration(const char *text, size_t len, int64_t *us);

/*
 * Reads an HTTP-date in any of its three forms (RFC 9110, section 5.6.7) into microseconds
 * since the Unix epoch.
 */
extern bool llmq_retry_parse_http_date(const char *text, size_t len, int64_t *us);

/* Reads a time of RFC 3339 in UTC in the same way; fractions of a second are ignored. */
extern bool llmq_retry_parse_timestamp(const char *text, size_t len, int64_t *us);

/*
 * Reads a Retry-After (RFC 9110, section 10.2.3) into a duration.  It is a number of seconds,
 * or a date, which is taken relative to the date of the answer, or to now_us (wall clock since
 * the epoch) when the answer has none.  Headers that were not sent are NULL.
 */
extern bool
llmq_retry_parse_after(const char *after, const char *date, int64_t now_us, int64_t *us);

#endif /* LLMQ_RETRY_H */
