/*
 * retry_test.c
 *		Backoff is spread evenly, wishes are read exactly or not at all.
 */
#include "base/retry.h"
#include "tap.h"

#define DRAWS 20000

static const int64_t second_us = INT64_C(1000000);

static void
number_is(const char *text, int64_t unit_us, int64_t expected)
{
	int64_t us = -1;
	bool read = llmq_retry_parse_number(text, strlen(text), unit_us, &us);

	ok((read ? us : -1) == expected, "the number '%.40s' is %lld us", text, (long long) expected);
}

static void
duration_is(const char *text, int64_t expected)
{
	int64_t us = -1;
	bool read = llmq_retry_parse_duration(text, strlen(text), &us);

	ok((read ? us : -1) == expected, "the duration '%.40s' is %lld us", text, (long long) expected);
}

static void
date_is(const char *text, int64_t expected_seconds)
{
	int64_t us = -1;
	bool read = llmq_retry_parse_http_date(text, strlen(text), &us);

	ok(read ? us == expected_seconds * second_us : expected_seconds == -1,
	   "the date '%.40s' is %lld s", text, (long long) expected_seconds);
}

static void
test_random(void)
{
	LlmqRandom a;
	LlmqRandom b;
	bool same = true;
	bool inside = true;

	llmq_random_seed(&a, 7);
	llmq_random_seed(&b, 7);
	for (int i = 0; i < 1000; i++)
	{
		int64_t value = llmq_random_upto(&a, 9);

		same = same && value == llmq_random_upto(&b, 9);
		inside = inside && value >= 0 && value <= 9;
	}
	ok(same, "equal seeds give equal draws");
	ok(inside, "no draw leaves its range");
	llmq_random_seed(&a, 0);
	ok(llmq_random_upto(&a, INT64_MAX) != llmq_random_upto(&a, INT64_MAX),
	   "seed zero is no fixed point");
	is_int(llmq_random_upto(&a, 0), 0, "nothing is drawn from an empty range");
	is_int(llmq_random_upto(&a, -5), 0, "nothing is drawn from a negative range");
}

/* Counts draws in ten equal parts of [0, ceiling]; returns chi-squared (9 degrees of freedom). */
static double
chi_squared(int64_t base_us, int64_t cap_us, int failures, int64_t ceiling)
{
	LlmqRandom random;
	int parts[10] = {0};
	double sum = 0;

	llmq_random_seed(&random, 42);
	for (int i = 0; i < DRAWS; i++)
	{
		int64_t delay = llmq_retry_backoff(&random, base_us, cap_us, failures);

		if (delay < 0 || delay > ceiling)
			return 1e9;
		parts[delay == ceiling ? 9 : delay * 10 / ceiling]++;
	}
	for (int i = 0; i < 10; i++)
		sum += (parts[i] - DRAWS / 10.0) * (parts[i] - DRAWS / 10.0) / (DRAWS / 10.0);
	return sum;
}

static void
test_backoff(void)
{
	LlmqRandom random;

	/* 27.9 is passed by one fair sample in a thousand. */
	ok(chi_squared(500000, 8000000, 0, 500000) < 27.9, "the first delay is even up to the base");
	ok(chi_squared(500000, 8000000, 3, 4000000) < 27.9,
	   "the delay after three failures is even up to eight times the base");
	ok(chi_squared(500000, 8000000, 4, 8000000) < 27.9, "the delay reaches the cap");
	ok(chi_squared(500000, 8000000, 2000000000, 8000000) < 27.9,
	   "the delay stays at the cap whatever the failures");
	ok(chi_squared(9000000, 8000000, 0, 8000000) < 27.9, "a base above the cap is the cap");
	llmq_random_seed(&random, 1);
	is_int(llmq_retry_backoff(&random, 0, 8000000, 5), 0, "no base gives no delay");
	ok(llmq_retry_backoff(&random, INT64_MAX / 2, INT64_MAX, 60) >= 0,
	   "a vast base is no overflow");
}

static void
test_numbers(void)
{
	number_is("20", second_us, 20 * second_us);
	number_is("0", second_us, 0);
	number_is("  5\t", second_us, 5 * second_us);
	number_is("1.5", second_us, 1500000);
	number_is("1250.5", 1000, 1251000);
	number_is("0.0000000000001", second_us, 1000);
	number_is("1.0000000000000", second_us, second_us);
	number_is("315360000", second_us, LLMQ_RETRY_HINT_BELIEVED_US);
	number_is("315360000.0001", second_us, -1);
	number_is("315360001", second_us, -1);
	number_is("99999999999999999999999999999999", second_us, -1);
	number_is("", second_us, -1);
	number_is("   ", second_us, -1);
	number_is("-3", second_us, -1);
	number_is("+3", second_us, -1);
	number_is("1e3", second_us, -1);
	number_is("0x10", second_us, -1);
	number_is("5.", second_us, -1);
	number_is(".5", second_us, -1);
	number_is("1.2.3", second_us, -1);
	number_is("1 2", second_us, -1);
	number_is("120, 60", second_us, -1);
	number_is("5s", second_us, -1);
	number_is("NaN", second_us, -1);
}

static void
test_durations(void)
{
	duration_is("6m0s", 360 * second_us);
	duration_is("1h31m30.5s", 5490500000);
	duration_is("250ms", 250000);
	duration_is("45.837906927s", 45838000);
	duration_is("1m0.1ms", 60001000);
	duration_is("2h", 7200 * second_us);
	duration_is(" 7s ", 7 * second_us);
	duration_is("87600h", LLMQ_RETRY_HINT_BELIEVED_US);
	duration_is("87600h1ms", -1);
	duration_is("87600h87600h87600h", -1);
	duration_is("", -1);
	duration_is("7", -1);
	duration_is("s", -1);
	duration_is("7x", -1);
	duration_is("7us", -1);
	duration_is("-7s", -1);
	duration_is("1m 5s", -1);
	duration_is("1m5", -1);
	duration_is("1d", -1);
	duration_is("7S", -1);
}

static void
test_dates(void)
{
	int64_t us;

	date_is("Thu, 01 Jan 1970 00:00:00 GMT", 0);
	date_is("Sun, 06 Nov 1994 08:49:37 GMT", 784111777);
	date_is("Sunday, 06-Nov-94 08:49:37 GMT", 784111777);
	date_is("Sun Nov  6 08:49:37 1994", 784111777);
	date_is("Sat Nov 26 08:49:37 1994", 785839777);
	date_is("Thu, 29 Feb 2024 00:00:00 GMT", 1709164800);
	date_is("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799);
	date_is("  Thu, 15 Jan 2026 10:00:30 GMT ", 1768471230);
	date_is("Thursday, 15-Jan-26 10:00:30 GMT", 1768471230);
	date_is("Sat, 31 Dec 2016 23:59:60 GMT", 1483228800);
	date_is("Thu, 30 Feb 2026 00:00:00 GMT", -1);
	date_is("Sun, 29 Feb 2100 00:00:00 GMT", -1);
	date_is("Thu, 00 Jan 2026 00:00:00 GMT", -1);
	date_is("Thu, 15 Jan 2026 24:00:00 GMT", -1);
	date_is("Thu, 15 Jan 2026 10:60:00 GMT", -1);
	date_is("Thu, 15 Jan 2026 10:00:61 GMT", -1);
	date_is("Thu, 15 Jan 2026 10:00:30", -1);
	date_is("Thu, 15 Jan 2026 10:00:30 UTC", -1);
	date_is("Thu, 15 Jan 2026 10:00:30 GMT+1", -1);
	date_is("Thu, 5 Jan 2026 10:00:30 GMT", -1);
	date_is("15 Jan 2026 10:00:30 GMT", -1);
	date_is("2026-01-15T10:00:30Z", -1);
	date_is("", -1);
	date_is("Thu,", -1);
	date_is("Sunday, 06-Nov-", -1);
	date_is("Sunday, 06-Nov-9x 08:49:37 GMT", -1);
	ok(llmq_retry_parse_timestamp("2026-12-01T00:00:00Z", 20, &us) && us == 1796083200 * second_us,
	   "a year has twelve months");
	ok(!llmq_retry_parse_timestamp("2026-13-01T00:00:00Z", 20, &us), "and no more");
	ok(!llmq_retry_parse_timestamp("2026-00-01T00:00:00Z", 20, &us), "nor fewer than one");
}

int
main(void)
{
	test_random();
	test_backoff();
	test_numbers();
	test_durations();
	test_dates();
	return tap_done();
}
