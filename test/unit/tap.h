/*
 * tap.h
 *		A TAP producer for C: assertions named as sentences, a plan at the end.
 *
 * One test program includes it once and ends with `return tap_done();`.
 */
#ifndef LLMQ_TAP_H
#define LLMQ_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int tap_count;
static int tap_failures;

/* Prints one result line; returns passed, so that a test may stop early. */
static inline bool __attribute__((format(printf, 2, 3))) ok(bool passed, const char *sentence, ...)
{
	va_list args;

	tap_count++;
	if (!passed)
		tap_failures++;
	printf("%s %d - ", passed ? "ok" : "not ok", tap_count);
	va_start(args, sentence);
	vprintf(sentence, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	return passed;
}

static inline bool
is_int(int64_t got, int64_t expected, const char *sentence)
{
	bool passed = ok(got == expected, "%s", sentence);

	if (!passed)
		printf("#      got: %lld\n# expected: %lld\n", (long long) got, (long long) expected);
	return passed;
}

static inline bool
is_string(const char *got, const char *expected, const char *sentence)
{
	bool same = got == NULL || expected == NULL ? got == expected : strcmp(got, expected) == 0;
	bool passed = ok(same, "%s", sentence);

	if (!passed)
		printf("#      got: %s\n# expected: %s\n", got == NULL ? "NULL" : got,
			   expected == NULL ? "NULL" : expected);
	return passed;
}

static inline int
tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failures == 0 ? 0 : 1;
}

#endif /* LLMQ_TAP_H */
