/*
 * retry.c
 *		When to try again: backoff with full jitter, and the retry hints of providers.
 *
 * Retry hints are computed in whole numbers only.  A fraction is rounded up, so a delay is
 * never shorter than was asked for.  Nothing can overflow, since a value above
 * LLMQ_RETRY_HINT_BELIEVED_US is refused while it is read.
 *
 * The reader of HTTP-dates is our own: curl_getdate is in libcurl, which base/ must not
 * include, and strptime depends on the locale.
 */
#include "base/retry.h"

#include <string.h>

#define US_PER_MS	  INT64_C(1000)
#define US_PER_SECOND INT64_C(1000000)

/* This many digits of a fraction are computed with; later ones only round up. */
#define FRACTION_DIGITS 9

/* A position in a text that need not be NUL-ended. */
typedef struct Scan
{
	const char *at;
	const char *end;
} Scan;

typedef struct Date
{
	int year;
	int month; /* 1..12 */
	int day;
	int hour;
	int minute;
	int second;
} Date;

static const char *const short_days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", NULL};
static const char *const long_days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
										"Friday", "Saturday", "Sunday",	   NULL};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
									 "Aug", "Sep", "Oct", "Nov", "Dec", NULL};

/*
 * The forms of RFC 9110, section 5.6.7.  a, A: name of the day; d: its number, in two digits;
 * e: its number, padded with a space; b: month; Y, y: year in four or two digits; H, M, S:
 * time.  Other characters stand for themselves.
 */
static const char *const date_forms[] = {
	"a, d b Y H:M:S GMT",
	"A, d-b-y H:M:S GMT",
	"a b e H:M:S Y",
};

/* RFC 3339, up to whole seconds; m: number of the month. */
static const char timestamp_form[] = "Y-m-dTH:M:S";

#define TIMESTAMP_LENGTH 19

static Scan trimmed(const char *text, size_t len);
static bool read_amount(Scan *scan, int64_t *whole, int64_t *fraction);
static bool in_units(int64_t whole, int64_t fraction, int64_t unit_us, int64_t *us);
static bool whole_ms(int64_t exact_us, int64_t *us);
static bool read_unit(Scan *scan, int64_t *unit_us);
static bool read_date(Scan scan, const char *form, Date *date);
static bool read_date_field(Scan *scan, char field, Date *date);
static bool is_valid_date(const Date *date);
static int64_t days_since_epoch(int year, int month, int day);

void
llmq_random_seed(LlmqRandom *random, uint64_t seed)
{
	/* One step of splitmix64, so that neighbouring seeds begin far apart. */
	seed += UINT64_C(0x9E3779B97F4A7C15);
	seed = (seed ^ (seed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	seed = (seed ^ (seed >> 27)) * UINT64_C(0x94D049BB133111EB);
	seed ^= seed >> 31;
	random->state = seed != 0 ? seed : 1;
}

int64_t
llmq_random_upto(LlmqRandom *random, int64_t max)
{
	uint64_t count;
	uint64_t fair;
	uint64_t value;

	if (max <= 0)
		return 0;
	count = (uint64_t) max + 1;
	fair = UINT64_MAX - UINT64_MAX % count;
	do
		value = llmq_random_bits(random);
	while (value >= fair);
	return (int64_t) (value % count);
}

int64_t
llmq_retry_backoff(LlmqRandom *random, int64_t base_us, int64_t cap_us, int failures)
{
	int64_t ceiling = base_us < cap_us ? base_us : cap_us;

	for (int i = 0; i < failures && ceiling > 0 && ceiling < cap_us; i++)
		ceiling = ceiling > cap_us / 2 ? cap_us : ceiling * 2;
	return llmq_random_upto(random, ceiling);
}

bool
llmq_retry_parse_number(const char *text, size_t len, int64_t unit_us, int64_t *us)
{
	Scan scan = trimmed(text, len);
	int64_t whole;
	int64_t fraction;
	int64_t exact;

	return read_amount(&scan, &whole, &fraction) && scan.at == scan.end &&
		   in_units(whole, fraction, unit_us, &exact) && whole_ms(exact, us);
}

bool
llmq_retry_parse_duration(const char *text, size_t len, int64_t *us)
{
	Scan scan = trimmed(text, len);
	int64_t total = 0;

	if (scan.at == scan.end)
		return false;
	while (scan.at < scan.end)
	{
		int64_t whole;
		int64_t fraction;
		int64_t unit_us;
		int64_t part;

		if (!read_amount(&scan, &whole, &fraction) || !read_unit(&scan, &unit_us) ||
			!in_units(whole, fraction, unit_us, &part))
			return false;
		total += part;
		if (total > LLMQ_RETRY_HINT_BELIEVED_US)
			return false;
	}
	return whole_ms(total, us);
}

static bool
parse_date(Scan scan, const char *form, int64_t *us)
{
	Date date;

	memset(&date, 0, sizeof(date));
	if (!read_date(scan, form, &date) || !is_valid_date(&date))
		return false;
	*us = (days_since_epoch(date.year, date.month, date.day) * 86400 + date.hour * 3600 +
		   date.minute * 60 + date.second) *
		  US_PER_SECOND;
	return true;
}

bool
llmq_retry_parse_http_date(const char *text, size_t len, int64_t *us)
{
	for (size_t i = 0; i < sizeof(date_forms) / sizeof(date_forms[0]); i++)
	{
		if (parse_date(trimmed(text, len), date_forms[i], us))
			return true;
	}
	return false;
}

bool
llmq_retry_parse_timestamp(const char *text, size_t len, int64_t *us)
{
	Scan scan = trimmed(text, len);
	size_t given = (size_t) (scan.end - scan.at);

	if (given <= TIMESTAMP_LENGTH || scan.end[-1] != 'Z')
		return false;
	scan.end = scan.at + TIMESTAMP_LENGTH;
	return parse_date(scan, timestamp_form, us);
}

bool
llmq_retry_parse_after(const char *after, const char *date, int64_t now_us, int64_t *us)
{
	int64_t then;

	if (after == NULL)
		return false;
	if (llmq_retry_parse_number(after, strlen(after), US_PER_SECOND, us))
		return true;
	if (!llmq_retry_parse_http_date(after, strlen(after), &then))
		return false;
	if (date != NULL)
		llmq_retry_parse_http_date(date, strlen(date), &now_us);
	if (then < now_us || then - now_us > LLMQ_RETRY_HINT_BELIEVED_US)
		return false;
	*us = (then - now_us + US_PER_MS - 1) / US_PER_MS * US_PER_MS;
	return true;
}

/*
 * Returns the next number of xorshift64* (Vigna, "An experimental exploration of Marsaglia's
 * xorshift generators").  The generator is our own so that a seed gives the same numbers with
 * every libc.
 */
uint64_t
llmq_random_bits(LlmqRandom *random)
{
	uint64_t x = random->state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	random->state = x;
	return x * UINT64_C(0x2545F4914F6CDD1D);
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static Scan
trimmed(const char *text, size_t len)
{
	Scan scan = {text, text + len};

	while (scan.at < scan.end && is_blank(*scan.at))
		scan.at++;
	while (scan.at < scan.end && is_blank(scan.end[-1]))
		scan.end--;
	return scan;
}

/* Reads digits[.digits]; fraction is in units of 10^-FRACTION_DIGITS, rounded up. */
static bool
read_amount(Scan *scan, int64_t *whole, int64_t *fraction)
{
	int digits = 0;
	bool more = false;

	*whole = 0;
	*fraction = 0;
	if (scan->at == scan->end || !is_digit(*scan->at))
		return false;
	for (; scan->at < scan->end && is_digit(*scan->at); scan->at++)
	{
		if (*whole <= LLMQ_RETRY_HINT_BELIEVED_US)
			*whole = *whole * 10 + (*scan->at - '0');
	}
	if (scan->at == scan->end || *scan->at != '.')
		return true;
	scan->at++;
	if (scan->at == scan->end || !is_digit(*scan->at))
		return false;
	for (; scan->at < scan->end && is_digit(*scan->at); scan->at++, digits++)
	{
		if (digits < FRACTION_DIGITS)
			*fraction = *fraction * 10 + (*scan->at - '0');
		else if (*scan->at != '0')
			more = true;
	}
	for (; digits < FRACTION_DIGITS; digits++)
		*fraction *= 10;
	*fraction += more ? 1 : 0;
	return true;
}

/* An hour in microseconds times 10^FRACTION_DIGITS is 3.6e18, which an int64 holds. */
static bool
in_units(int64_t whole, int64_t fraction, int64_t unit_us, int64_t *us)
{
	const int64_t one = INT64_C(1000000000);

	if (unit_us <= 0 || unit_us > 3600 * US_PER_SECOND ||
		whole > LLMQ_RETRY_HINT_BELIEVED_US / unit_us)
		return false;
	*us = whole * unit_us + (fraction * unit_us + one - 1) / one;
	return *us <= LLMQ_RETRY_HINT_BELIEVED_US;
}

static bool
whole_ms(int64_t exact_us, int64_t *us)
{
	*us = (exact_us + US_PER_MS - 1) / US_PER_MS * US_PER_MS;
	return true;
}

static bool
read_unit(Scan *scan, int64_t *unit_us)
{
	if (scan->at == scan->end)
		return false;
	switch (*scan->at++)
	{
		case 'h':
			*unit_us = 3600 * US_PER_SECOND;
			return true;
		case 's':
			*unit_us = US_PER_SECOND;
			return true;
		case 'm':
			*unit_us = 60 * US_PER_SECOND;
			if (scan->at < scan->end && *scan->at == 's')
			{
				*unit_us = US_PER_MS;
				scan->at++;
			}
			return true;
		default:
			return false;
	}
}

static bool
read_date(Scan scan, const char *form, Date *date)
{
	for (; *form != '\0'; form++)
	{
		/* The letters of GMT stand for themselves, M among them. */
		if (strcmp(form, "GMT") == 0)
			return scan.end - scan.at == 3 && memcmp(scan.at, "GMT", 3) == 0;
		if (!read_date_field(&scan, *form, date))
			return false;
	}
	return scan.at == scan.end;
}

static bool
read_digits(Scan *scan, int count, int *value)
{
	*value = 0;
	for (int i = 0; i < count; i++, scan->at++)
	{
		if (scan->at == scan->end || !is_digit(*scan->at))
			return false;
		*value = *value * 10 + (*scan->at - '0');
	}
	return true;
}

static bool
read_name(Scan *scan, const char *const *names, int *number)
{
	for (int i = 0; names[i] != NULL; i++)
	{
		size_t len = strlen(names[i]);

		if ((size_t) (scan->end - scan->at) >= len && memcmp(scan->at, names[i], len) == 0)
		{
			scan->at += len;
			*number = i + 1;
			return true;
		}
	}
	return false;
}

/*
 * Reads a year of two digits.  RFC 9110 says that one more than 50 years ahead is in the past.
 * Without a clock we draw the line at 1970, which makes no difference for a delay: neither
 * reading would be believed.
 */
static bool
read_short_year(Scan *scan, int *year)
{
	if (!read_digits(scan, 2, year))
		return false;
	*year += *year < 70 ? 2000 : 1900;
	return true;
}

static bool
read_date_field(Scan *scan, char field, Date *date)
{
	int ignored;

	switch (field)
	{
		case 'a':
			return read_name(scan, short_days, &ignored);
		case 'A':
			return read_name(scan, long_days, &ignored);
		case 'b':
			return read_name(scan, months, &date->month);
		case 'e':
			if (scan->at < scan->end && *scan->at == ' ')
			{
				scan->at++;
				return read_digits(scan, 1, &date->day);
			}
			return read_digits(scan, 2, &date->day);
		case 'd':
			return read_digits(scan, 2, &date->day);
		case 'm':
			return read_digits(scan, 2, &date->month);
		case 'Y':
			return read_digits(scan, 4, &date->year);
		case 'y':
			return read_short_year(scan, &date->year);
		case 'H':
			return read_digits(scan, 2, &date->hour);
		case 'M':
			return read_digits(scan, 2, &date->minute);
		case 'S':
			return read_digits(scan, 2, &date->second);
		default:
			return scan->at < scan->end && *scan->at++ == field;
	}
}

/* Checks a date.  A leap second is valid and counts as the second after it. */
static bool
is_valid_date(const Date *date)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (date->year % 4 == 0 && date->year % 100 != 0) || date->year % 400 == 0;
	int last;

	if (date->month < 1 || date->month > 12)
		return false;
	last = days[date->month - 1] + (date->month == 2 && leap ? 1 : 0);
	return date->day >= 1 && date->day <= last && date->hour <= 23 && date->minute <= 59 &&
		   date->second <= 60;
}

/*
 * Returns the days since 1970-01-01 in the Gregorian calendar.  Years begin in March here, so
 * that February is last.
 */
static int64_t
days_since_epoch(int year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * 146097 + day_of_era - 719468;
}
