/*
 * ratelimit_test.c
 *		Workers that draw from one limit, against providers that count by clocks of their
 *		own, over hours of virtual time.
 */
#include "limits/ratelimit.h"

#include <stdlib.h>

#include "limits/estimate.h"
#include "base/retry.h"
#include "tap.h"

#define MS		INT64_C(1000)
#define S		INT64_C(1000000)
#define MINUTE	(60 * S)
#define HOUR	(60 * MINUTE)
#define WORKERS 3
#define FLIGHT	8192 /* calls on their way, a power of two */
#define HISTORY 262144

/* How a provider enforces a quota. */
typedef enum Clock
{
	FIXED_MINUTE,
	SLIDING_MINUTE,
	BUCKET /* of a minute's quota, refilled evenly */
} Clock;

typedef struct Call
{
	int64_t arrives_us;
	int64_t answered_us;
	int64_t tokens;	   /* as the provider counts */
	int64_t taken;	   /* as the worker had it */
	int64_t estimated; /* uncorrected */
	int worker;
	bool arrived;
} Call;

typedef struct Counter
{
	int64_t quota;
	int64_t used; /* in the minute, or missing in the bucket */
	int64_t since_us;
	int64_t total;
} Counter;

typedef struct World
{
	LlmqRates rates;
	Clock clock;
	int workers;
	double wrong;		/* what calls really use, as a factor of the estimate */
	int64_t small;		/* tokens of most calls... */
	int64_t large;		/* ...and of one in twenty, or 0 */
	int64_t latency_us; /* of an answer */
	LlmqLimit limit;
	LlmqQuota quota[WORKERS];
	LlmqEstimator estimator[WORKERS];
	int64_t next_size[WORKERS];
	int64_t clock_skew[WORKERS]; /* worker's clocks have nothing to do with the database's */
	bool dead[WORKERS];
	LlmqRandom random;
	Counter requests;
	Counter tokens;
	Call calls[FLIGHT];
	int64_t first_call;
	int64_t next_call;
	Call history[HISTORY]; /* of what was let in, for the sliding minute */
	int64_t history_first;
	int64_t history_next;
	int64_t refused;
	int64_t made;
	int64_t draws;
} World;

static World world;

/* Some minute of some year, not at its beginning. */
static const int64_t begin = 500000 * HOUR + 17 * S;

static void
forget_minute(Counter *counter, int64_t now_us, bool tokens)
{
	if (world.clock == FIXED_MINUTE && now_us / MINUTE != counter->since_us / MINUTE)
	{
		counter->used = 0;
		counter->since_us = now_us;
	}
	if (world.clock == BUCKET)
	{
		int64_t refill = (now_us - counter->since_us) * counter->quota / MINUTE;

		counter->used = counter->used > refill ? counter->used - refill : 0;
		counter->since_us += refill * MINUTE / (counter->quota > 0 ? counter->quota : 1);
	}
}

/* Whether the provider lets a call in that arrives now. */
static bool
admit(Call *call, int64_t now_us)
{
	while (world.clock == SLIDING_MINUTE && world.history_first < world.history_next &&
		   world.history[world.history_first % HISTORY].arrives_us <= now_us - MINUTE)
	{
		world.requests.used--;
		world.tokens.used -= world.history[world.history_first++ % HISTORY].tokens;
	}
	forget_minute(&world.requests, now_us, false);
	forget_minute(&world.tokens, now_us, true);
	if ((world.requests.quota > 0 && world.requests.used + 1 > world.requests.quota) ||
		(world.tokens.quota > 0 && world.tokens.used + call->tokens > world.tokens.quota))
		return false;
	world.requests.used++;
	world.tokens.used += call->tokens;
	world.requests.total++;
	world.tokens.total += call->tokens;
	call->arrives_us = now_us;
	world.history[world.history_next++ % HISTORY] = *call;
	return true;
}

static void
run_network(int64_t now_us)
{
	for (int64_t i = world.first_call; i < world.next_call; i++)
	{
		Call *call = &world.calls[i % FLIGHT];

		if (!call->arrived && call->arrives_us <= now_us)
		{
			call->arrived = true;
			if (!admit(call, now_us))
			{
				world.refused++;
				llmq_quota_correct(&world.quota[call->worker], -call->taken);
				call->taken = -1;
			}
		}
	}
	while (world.first_call < world.next_call &&
		   world.calls[world.first_call % FLIGHT].answered_us <= now_us)
	{
		Call *call = &world.calls[world.first_call++ % FLIGHT];

		if (call->taken < 0)
			continue;
		llmq_estimator_note(&world.estimator[call->worker], call->estimated, call->tokens);
		llmq_quota_correct(&world.quota[call->worker], call->tokens - call->taken);
	}
}

static void
choose_size(int worker)
{
	bool large = world.large > 0 && llmq_random_upto(&world.random, 19) == 0;

	world.next_size[worker] = large ? world.large : world.small;
}

static void
start_call(int worker, int64_t taken, int64_t now_us)
{
	int64_t estimated = world.next_size[worker];

	world.calls[world.next_call++ % FLIGHT] =
		(Call){.arrives_us = now_us + llmq_random_upto(&world.random, 80 * MS),
			   .answered_us = now_us + world.latency_us,
			   .tokens = (int64_t) ((double) estimated * world.wrong),
			   .taken = taken,
			   .estimated = estimated,
			   .worker = worker};
	world.made++;
	choose_size(worker);
}

static void
draw(int worker, int64_t now_us)
{
	LlmqDraw draw = {.worker = worker + 1,
					 .requests_per_minute = world.rates.requests_per_minute,
					 .tokens_per_minute = world.rates.tokens_per_minute};
	LlmqGrant grant;
	int64_t own_us = now_us + world.clock_skew[worker];

	llmq_quota_ask(&world.quota[worker], &draw, own_us);
	llmq_limit_draw(&world.limit, &draw, now_us, &grant);
	/* The answer of the database takes a moment, not always the same. */
	llmq_quota_take_in(&world.quota[worker], &grant,
					   own_us + llmq_random_upto(&world.random, 5 * MS));
	world.draws++;
}

static void
run_worker(int worker, int64_t now_us)
{
	LlmqQuota *quota = &world.quota[worker];
	int64_t own_us = now_us + world.clock_skew[worker];
	int64_t tokens = llmq_estimator_correct(&world.estimator[worker], world.next_size[worker]);

	if (own_us >= quota->draw_at_us &&
		llmq_quota_is_short(quota, &world.rates, 1000000, tokens, own_us))
		draw(worker, now_us);
	while (llmq_quota_room(quota, &world.rates, tokens, own_us) > 0 &&
		   world.next_call - world.first_call < FLIGHT - 1 &&
		   llmq_quota_spend(quota, &world.rates, tokens, own_us))
	{
		start_call(worker, tokens, now_us);
		tokens = llmq_estimator_correct(&world.estimator[worker], world.next_size[worker]);
	}
}

static void
build(int workers, Clock clock, int64_t requests, int64_t tokens)
{
	memset(&world, 0, sizeof(world));
	llmq_random_seed(&world.random, 7);
	world.rates = (LlmqRates){requests, tokens};
	world.requests.quota = requests;
	world.tokens.quota = tokens;
	world.workers = workers;
	world.clock = clock;
	world.requests.since_us = world.tokens.since_us = begin;
	world.wrong = 1;
	world.small = 100;
	world.latency_us = 2 * S;
	for (int i = 0; i < WORKERS; i++)
	{
		world.clock_skew[i] = i * 12345678 + 999;
		choose_size(i);
	}
}

/* Full load from begin on. */
static void
run_from(int64_t from_us, int64_t span_us)
{
	for (int64_t now = from_us; now < from_us + span_us; now += 5 * MS)
	{
		run_network(now);
		for (int i = 0; i < world.workers; i++)
			if (!world.dead[i])
				run_worker(i, now);
	}
}

static void
forget_figures(void)
{
	world.requests.total = world.tokens.total = world.refused = world.made = world.draws = 0;
}

static void
judge(const char *name, const Counter *counter, int64_t span_us)
{
	double used = (double) counter->total / ((double) counter->quota * (double) span_us / MINUTE);

	ok(world.refused * 100 < world.made, "%s: fewer than 1 %% are refused (%ld of %ld)", name,
	   (long) world.refused, (long) world.made);
	ok(used >= 0.95, "%s: at least 95 %% of the quota is used (%.1f)", name, used * 100);
	ok(world.draws <= (span_us / S + 1) * world.workers, "%s: at most a draw a second and worker",
	   name);
}

static void
test_requests(void)
{
	static const char *const names[] = {"a fixed minute", "a sliding minute", "a bucket"};
	static const int64_t quotas[] = {12, 60, 600, 6000};
	char name[100];

	for (int clock = FIXED_MINUTE; clock <= BUCKET; clock++)
		for (int workers = 1; workers <= WORKERS; workers += 2)
			for (size_t i = 0; i < sizeof(quotas) / sizeof(quotas[0]); i++)
			{
				build(workers, clock, quotas[i], 0);
				run_from(begin, MINUTE);
				snprintf(name, sizeof(name), "%ld requests in %s, %d workers", (long) quotas[i],
						 names[clock], workers);
				judge(name, &world.requests, MINUTE);
			}
	build(WORKERS, SLIDING_MINUTE, 600, 0);
	run_from(begin, 3 * HOUR);
	judge("three hours of 600 requests in a sliding minute", &world.requests, 3 * HOUR);
}

static void
test_tokens(void)
{
	static const double wrongs[] = {1, 0.5, 1.5, 2};
	char name[100];

	for (int workers = 1; workers <= WORKERS; workers += 2)
		for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
		{
			build(workers, SLIDING_MINUTE, 0, 90000);
			world.wrong = wrongs[i];
			run_from(begin, MINUTE);
			forget_figures();
			run_from(begin + MINUTE, HOUR);
			snprintf(name, sizeof(name), "tokens wrong by %.1f, after a minute, %d workers",
					 wrongs[i], workers);
			judge(name, &world.tokens, HOUR);
		}
	build(WORKERS, SLIDING_MINUTE, 0, 100000);
	world.large = 10000;
	run_from(begin, HOUR);
	ok(world.refused * 100 < world.made,
	   "large calls among small ones: fewer than 1 %% are refused (%ld of %ld)",
	   (long) world.refused, (long) world.made);
	ok(world.tokens.total > 100000 * 60 * 80 / 100, "and four fifths of the quota are used (%.1f)",
	   (double) world.tokens.total / 60000);
	build(2, BUCKET, 300, 1000);
	world.tokens.quota = 0;
	world.small = world.next_size[0] = world.next_size[1] = 5000;
	run_from(begin, HOUR);
	ok(world.made >= 10 && world.made <= 60,
	   "a call of more than a minute's quota is made when "
	   "a minute is empty (%ld in an hour)",
	   (long) world.made);
}

/* What calls really use changes at once, to half or twice what it was known to be. */
static void
test_change(void)
{
	static const double changes[][2] = {{1, 2}, {2, 1}, {1, 0.5}, {0.5, 1}};
	static const char *const clocks[] = {"fixed", "sliding", "bucket"};
	char name[100];

	for (int workers = 1; workers <= WORKERS; workers += 2)
		for (int clock = FIXED_MINUTE; clock <= BUCKET; clock++)
			for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
			{
				build(workers, clock, 0, 90000);
				world.wrong = changes[i][0];
				run_from(begin, 10 * MINUTE);
				world.wrong = changes[i][1];
				forget_figures();
				run_from(begin + 10 * MINUTE, MINUTE);
				snprintf(name, sizeof(name),
						 "the minute in which %.1f becomes %.1f, %s, %d workers", changes[i][0],
						 changes[i][1], clocks[clock], workers);
				judge(name, &world.tokens, MINUTE);
				forget_figures();
				run_from(begin + 11 * MINUTE, 10 * MINUTE);
				judge("and the ten after it", &world.tokens, 10 * MINUTE);
			}
}

static void
test_both(void)
{
	build(WORKERS, FIXED_MINUTE, 600, 1000000);
	run_from(begin, 10 * MINUTE);
	judge("requests the scarcer of the two", &world.requests, 10 * MINUTE);
	build(WORKERS, FIXED_MINUTE, 60000, 60000);
	run_from(begin, 10 * MINUTE);
	judge("tokens the scarcer of the two", &world.tokens, 10 * MINUTE);
}

static void
test_crash(void)
{
	build(WORKERS, SLIDING_MINUTE, 600, 0);
	for (int i = 0; i < 600; i++)
	{
		/* One of them dies and is replaced, again and again. */
		memset(&world.quota[i % WORKERS], 0, sizeof(LlmqQuota));
		run_from(begin + i * S, S);
	}
	is_int(world.refused, 0,
		   "a worker that dies each second wastes its slices, and exceeds nothing");
	ok(world.made > 0, "others go on");
	build(2, SLIDING_MINUTE, 600, 0);
	run_from(begin, MINUTE);
	world.dead[0] = true;
	world.made = 0;
	run_from(begin + MINUTE, MINUTE);
	ok(world.made >= 570, "what one does not draw the other does (%ld)", (long) world.made);
}

static void
test_idle(void)
{
	LlmqQuota quota = {0};
	LlmqRates rates = {.requests_per_minute = 6000};
	LlmqLimit limit = {0};
	LlmqGrant grant;
	LlmqDraw draw = {.worker = 1, .requests_per_minute = 6000};

	ok(!llmq_quota_is_short(&quota, &rates, 0, 1, begin), "nobody who has nothing to call draws");
	ok(!llmq_quota_spend(&quota, &rates, 1, begin), "without a slot no call starts");
	llmq_quota_ask(&quota, &draw, begin);
	llmq_limit_draw(&limit, &draw, begin, &grant);
	llmq_quota_take_in(&quota, &grant, begin);
	is_int(llmq_quota_room(&quota, &rates, 1, begin), 1, "the first slot is at once");
	ok(llmq_quota_spend(&quota, &rates, 1, begin), "and can be used");
	ok(!llmq_quota_spend(&quota, &rates, 1, begin), "the second is not");
	is_int(llmq_quota_when(&quota, &rates, 1, begin), begin + grant.interval_ns / 1000,
		   "but after an interval");
	is_int(llmq_quota_room(&quota, &rates, 1, begin + 10 * S), 0, "what was not used expires");
	limit.requests_from_us = begin + HOUR;
	llmq_limit_draw(&limit, &draw, begin, &grant);
	llmq_limit_draw(&limit, &draw, begin + 2 * S, &grant);
	ok(grant.slots > 0,
	   "a clock that was set back by an hour stops nobody for longer than seconds");
}

static void
test_slots(void)
{
	LlmqQuota quota = {0};
	LlmqRates rates = {.requests_per_minute = 6000};
	LlmqGrant grant = {.slots = 2, .interval_ns = 1};
	LlmqDraw draw = {0};
	int spent = 0;

	llmq_quota_take_in(&quota, &grant, begin);
	llmq_quota_take_in(&quota, &grant, begin);
	while (llmq_quota_spend(&quota, &rates, 1, begin + MS))
		spent++;
	is_int(spent, 4, "slots of two draws can be spent after each other");
	llmq_quota_correct(&quota, 50);
	llmq_quota_ask(&quota, &draw, begin);
	is_int(draw.charge, 50, "what was used too much goes back with a draw");
	llmq_quota_put_back(&quota, &draw);
	llmq_quota_ask(&quota, &draw, begin + HOUR);
	is_int(draw.charge, 50, "with the next one, if that failed");
	grant = (LlmqGrant){.again_us = 5 * S};
	llmq_quota_take_in(&quota, &grant, begin + HOUR);
	is_int(quota.draw_at_us, begin + HOUR + 5 * S,
		   "where nothing was left the next draw waits until there may be something");
	grant = (LlmqGrant){.again_us = MS};
	llmq_quota_take_in(&quota, &grant, begin + HOUR);
	is_int(quota.draw_at_us, begin + HOUR + 5 * S, "but no draw comes sooner than it was to");
}

int
main(void)
{
	test_requests();
	test_tokens();
	test_change();
	test_both();
	test_crash();
	test_idle();
	test_slots();
	return tap_done();
}
