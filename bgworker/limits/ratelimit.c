/*
 * ratelimit.c
 *		Quotas of providers: how workers draw on them, and how they spend what they drew.
 */
#include "limits/ratelimit.h"

#include <string.h>

#define SECOND_US	  INT64_C(1000000)
#define MINUTE_US	  (60 * SECOND_US)
#define US_PER_NS	  1e-3
#define NS_PER_US	  1000
#define PER_MILLE	  1000.0
#define NO_LIMIT	  INT64_MAX
#define MORE_THAN_ALL INT64_C(1000000000000)

/*
 * A worker whose job waits for many tokens asks every second.  If it does not ask for this
 * long, it has given up.
 */
#define HUNGRY_US (3 * SECOND_US)

/* The shortest wait for the next draw after one that granted nothing. */
#define AGAIN_MIN_US 20000

static int64_t
least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- The shared side ----------------------------------------------------------------- */

/* Returns how long so many of a minute's quota take at our pace. */
static double
span_of(int64_t count, int64_t per_minute)
{
	return (double) count * (double) MINUTE_US * PER_MILLE / LLMQ_LIMIT_PACE / (double) per_minute;
}

/* Corrects a mark that is further ahead than it can have been set: the clock was set back. */
static int64_t
mark_of(int64_t from_us, int64_t reach_us, int64_t now_us)
{
	return most(now_us, least(from_us, now_us + reach_us));
}

static void
draw_requests(LlmqLimit *limit, const LlmqDraw *draw, int64_t now_us, LlmqGrant *grant)
{
	double interval = span_of(1, draw->requests_per_minute);
	int64_t from =
		mark_of(limit->requests_from_us, LLMQ_LIMIT_AHEAD_US + (int64_t) interval + 1, now_us);
	int64_t end = now_us + LLMQ_LIMIT_AHEAD_US;

	if (from < end)
		grant->slots = (int64_t) ((double) (end - from) / interval) + 1;
	grant->from_us = from - now_us;
	grant->interval_ns = (int64_t) (interval / US_PER_NS);
	limit->requests_from_us = from + (int64_t) ((double) grant->slots * interval + 0.5);
	grant->next_us = limit->requests_from_us - now_us;
	if (grant->slots == 0)
		grant->again_us = most(limit->requests_from_us - end, AGAIN_MIN_US);
}

/* Makes the current second the newest; returns where its tokens are counted. */
static int64_t *
turn_to(LlmqLimit *limit, int64_t now_us)
{
	int64_t second = now_us / SECOND_US;

	if (second - limit->second >= LLMQ_LIMIT_SECONDS ||
		limit->second - second >= LLMQ_LIMIT_SECONDS)
	{
		memset(limit->tokens, 0, sizeof(limit->tokens));
		limit->second = second;
	}
	while (limit->second < second)
		limit->tokens[++limit->second % LLMQ_LIMIT_SECONDS] = 0;
	return &limit->tokens[limit->second % LLMQ_LIMIT_SECONDS];
}

/* Returns how many tokens of the last minute's quota are left. */
static int64_t
minute_room(const LlmqLimit *limit, int64_t per_minute)
{
	int64_t sum = 0;

	for (int i = 0; i < LLMQ_LIMIT_SECONDS; i++)
		sum += limit->tokens[i];
	return per_minute - most(sum, 0);
}

/* Returns in how long so many tokens leave the sliding minute. */
static int64_t
forgotten_in(const LlmqLimit *limit, int64_t tokens, int64_t now_us)
{
	int64_t second = limit->second - LLMQ_LIMIT_SECONDS + 1;

	for (; second < limit->second; second++)
	{
		tokens -= limit->tokens[(second + LLMQ_LIMIT_SECONDS) % LLMQ_LIMIT_SECONDS];
		if (tokens <= 0)
			break;
	}
	return (second + LLMQ_LIMIT_SECONDS) * SECOND_US - now_us;
}

/*
 * Applies a charge, the difference between what was used and what was drawn, to the mark and
 * the minute.
 */
static void
settle_charge(LlmqLimit *limit, const LlmqDraw *draw, int64_t now_us)
{
	double span = span_of(draw->charge, draw->tokens_per_minute);
	int64_t from = mark_of(limit->tokens_from_us, MINUTE_US, now_us);

	span = span > MINUTE_US ? MINUTE_US : span < -MINUTE_US ? -MINUTE_US : span;
	*turn_to(limit, now_us) += draw->charge;
	limit->tokens_from_us = mark_of(from + (int64_t) span, MINUTE_US, now_us);
}

static void
draw_tokens(LlmqLimit *limit, const LlmqDraw *draw, int64_t now_us, LlmqGrant *grant)
{
	int64_t end = now_us + LLMQ_LIMIT_AHEAD_US;
	bool stand_back = limit->hungry_until_us > now_us && limit->hungry_worker != draw->worker;
	/* A job that needs more than a minute's quota gets a whole minute to itself. */
	int64_t lump = least(draw->least_tokens, draw->tokens_per_minute);
	int64_t room;
	int64_t paced;

	settle_charge(limit, draw, now_us);
	room = minute_room(limit, draw->tokens_per_minute) - (stand_back ? limit->hungry_tokens : 0);
	paced =
		(int64_t) ((double) (end - limit->tokens_from_us) / span_of(1, draw->tokens_per_minute));
	grant->tokens = most(least(paced, room), 0);
	if (grant->tokens < lump)
		grant->tokens = limit->tokens_from_us < end && room >= lump ? lump : 0;
	if (grant->tokens >= lump && limit->hungry_worker == draw->worker)
		limit->hungry_until_us = 0;
	if (grant->tokens >= lump && grant->tokens > 0)
	{
		grant->tokens = most(grant->tokens, draw->least_tokens);
		limit->tokens_from_us += (int64_t) least(
			(int64_t) span_of(grant->tokens, draw->tokens_per_minute) + 1, LLMQ_LIMIT_AHEAD_US);
		*turn_to(limit, now_us) += grant->tokens;
		return;
	}
	if (!stand_back)
	{
		limit->hungry_tokens = lump;
		limit->hungry_worker = draw->worker;
		limit->hungry_until_us = now_us + HUNGRY_US;
	}
	grant->tokens_in_us = most(limit->tokens_from_us - end, 0);
	if (room < lump)
		grant->tokens_in_us = most(grant->tokens_in_us, forgotten_in(limit, lump - room, now_us));
}

void
llmq_limit_draw(LlmqLimit *limit, const LlmqDraw *draw, int64_t now_us, LlmqGrant *grant)
{
	*grant = (LlmqGrant){0};
	if (draw->requests_per_minute > 0)
		draw_requests(limit, draw, now_us, grant);
	if (draw->tokens_per_minute > 0)
		draw_tokens(limit, draw, now_us, grant);
}

/* ---- The worker's side ---------------------------------------------------------------- */

static int64_t
slot_time(const LlmqQuotaSlice *slice, int64_t number)
{
	return slice->from_us + number * slice->interval_ns / NS_PER_US;
}

/* Drops slots that are used or too old to be used. */
static void
expire(LlmqQuota *quota, int64_t now_us)
{
	for (int i = 0; i < quota->slice_count; i++)
	{
		LlmqQuotaSlice *slice = &quota->slices[i];

		while (slice->used < slice->count &&
			   slot_time(slice, slice->used) < now_us - LLMQ_LIMIT_LATE_US)
			slice->used++;
	}
	while (quota->slice_count > 0 && quota->slices[0].used == quota->slices[0].count)
		memmove(quota->slices, quota->slices + 1,
				sizeof(LlmqQuotaSlice) * (size_t) --quota->slice_count);
}

void
llmq_quota_ask(LlmqQuota *quota, LlmqDraw *draw, int64_t now_us)
{
	draw->charge = quota->charge - quota->tokens;
	draw->least_tokens = most(quota->least_tokens, 1);
	quota->charge = quota->tokens = 0;
	quota->draw_at_us = now_us + LLMQ_LIMIT_DRAW_US;
}

void
llmq_quota_take_in(LlmqQuota *quota, const LlmqGrant *grant, int64_t now_us)
{
	expire(quota, now_us);
	if (grant->slots > 0 && quota->slice_count < LLMQ_SLICES)
		quota->slices[quota->slice_count++] = (LlmqQuotaSlice){.from_us = now_us + grant->from_us,
															   .interval_ns = grant->interval_ns,
															   .count = grant->slots};
	quota->tokens += grant->tokens;
	quota->slot_at_us = now_us + grant->next_us;
	quota->tokens_at_us = now_us + grant->tokens_in_us;
	quota->draw_at_us = most(quota->draw_at_us, now_us + grant->again_us);
}

void
llmq_quota_put_back(LlmqQuota *quota, const LlmqDraw *draw)
{
	quota->charge += draw->charge;
}

/* Returns how many slots in hand may be used by a given time. */
static int64_t
slots_by(LlmqQuota *quota, int64_t when_us, int64_t now_us)
{
	int64_t count = 0;

	expire(quota, now_us);
	for (int i = 0; i < quota->slice_count; i++)
	{
		const LlmqQuotaSlice *slice = &quota->slices[i];
		int64_t last = slice->from_us > when_us
						   ? 0
						   : (when_us - slice->from_us) * NS_PER_US / slice->interval_ns + 1;

		count += most(least(last, slice->count) - slice->used, 0);
	}
	return count;
}

int64_t
llmq_quota_room(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us)
{
	int64_t room = NO_LIMIT;

	if (rates->requests_per_minute > 0)
		room = slots_by(quota, now_us, now_us);
	/* The last call may need more than what is left; then it waits for more. */
	if (rates->tokens_per_minute > 0)
		room = least(
			room, quota->tokens <= 0 ? 0 : (quota->tokens + most(tokens, 1) - 1) / most(tokens, 1));
	return room;
}

bool
llmq_quota_spend(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us)
{
	if (rates->tokens_per_minute > 0 && quota->tokens < tokens)
	{
		quota->least_tokens = tokens;
		return false;
	}
	if (rates->requests_per_minute > 0)
	{
		if (slots_by(quota, now_us, now_us) == 0)
			return false;
		quota->slices[0].used++; /* slices without slots left have been dropped */
	}
	if (rates->tokens_per_minute > 0)
	{
		quota->tokens -= tokens;
		quota->least_tokens = 0;
	}
	return true;
}

/* Returns the first slot in hand, or when a draw may grant one. */
static int64_t
next_slot(LlmqQuota *quota, int64_t now_us)
{
	expire(quota, now_us);
	for (int i = 0; i < quota->slice_count; i++)
	{
		const LlmqQuotaSlice *slice = &quota->slices[i];

		if (slice->used < slice->count)
			return most(slot_time(slice, slice->used), now_us);
	}
	return most(most(quota->slot_at_us, quota->draw_at_us), now_us + 1);
}

int64_t
llmq_quota_when(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us)
{
	int64_t when = now_us;

	if (rates->requests_per_minute > 0)
		when = next_slot(quota, now_us);
	if (rates->tokens_per_minute > 0 && quota->tokens < tokens)
		when = most(when, most(most(quota->draw_at_us, quota->tokens_at_us), now_us + 1));
	return when;
}

void
llmq_quota_correct(LlmqQuota *quota, int64_t more)
{
	quota->charge += more;
}

bool
llmq_quota_is_short(LlmqQuota *quota, const LlmqRates *rates, int64_t calls, int64_t tokens,
					int64_t now_us)
{
	if (calls <= 0)
		return false;
	if (rates->requests_per_minute > 0 && slots_by(quota, NO_LIMIT / NS_PER_US, now_us) < calls)
		return true;
	return rates->tokens_per_minute > 0 &&
		   quota->tokens <
			   most(least(calls, MORE_THAN_ALL / most(tokens, 1)) * tokens, quota->least_tokens);
}
