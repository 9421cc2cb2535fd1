/*
 * ratelimit.h
 *		Quotas of providers: what workers draw of them, and how they spend it.
 *
 * Pure: times are given, in microseconds.  There are two sides.
 *
 * The database holds one LlmqLimit an endpoint.  A worker that has calls to make
 * draws from it, at most once a second: it gets slots, the times at which calls may
 * start, and tokens.  Slots lie one behind the other over all workers, so that the
 * calls of all together are as evenly spaced as those of one.  Nothing is ever handed
 * out twice: a worker that dies with a slice wastes it.
 *
 * The worker holds an LlmqQuota an endpoint: the slots and tokens that it drew and has
 * not spent.  A slot that was not used within a second expires; tokens go back.
 *
 * What a provider counts, and when its minute begins, is its own business: a fixed
 * minute, a sliding one, or a bucket that refills.  Requests evenly spaced at a little
 * less than the quota satisfy all of them.  So do tokens, while calls are small; for
 * those that are not, what was drawn in each second of the last minute is remembered
 * too, so that no minute, wherever it begins, sees more than the quota.
 */
#ifndef LLMQ_RATELIMIT_H
#define LLMQ_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Of a quota so many thousandths are used: the rest pays for slots used late and for jitter. */
#define LLMQ_LIMIT_PACE 978

/* Slots are given this far ahead: a worker draws each second and must not run dry. */
#define LLMQ_LIMIT_AHEAD_US 1500000

/* A worker draws from an endpoint this often at most. */
#define LLMQ_LIMIT_DRAW_US 1000000

/* A slot can be used this late; later it is wasted. */
#define LLMQ_LIMIT_LATE_US 1000000

/* Seconds whose tokens are remembered: a minute, the one under way, and one that may pass until
 * use. */
#define LLMQ_LIMIT_SECONDS 62

/* The shared side: numbers only, so that a row can hold it as an array. */
typedef struct LlmqLimit
{
	int64_t requests_from_us; /* the first slot that is not given away */
	int64_t tokens_from_us;	  /* tokens are given away up to here */
	int64_t hungry_tokens;	  /* a job waits for so many at once: others leave them to it... */
	int64_t hungry_worker;	  /* ...that of this worker... */
	int64_t hungry_until_us;  /* ...as long as it keeps asking */
	int64_t second;			  /* the newest of those below, since the epoch of the clock */
	int64_t tokens[LLMQ_LIMIT_SECONDS]; /* drawn in a second, at its number modulo SECONDS */
} LlmqLimit;

typedef struct LlmqDraw
{
	int64_t worker;
	int64_t requests_per_minute; /* 0: no limit, likewise below */
	int64_t tokens_per_minute;
	int64_t least_tokens; /* what the job needs that comes first */
	int64_t charge;		  /* tokens used beyond what was drawn; negative: given back */
} LlmqDraw;

typedef struct LlmqGrant
{
	int64_t slots;		 /* so many calls... */
	int64_t from_us;	 /* ...the first so long from now... */
	int64_t interval_ns; /* ...and so far apart */
	int64_t next_us;	 /* how far away the first slot is that was not given */
	int64_t tokens;
	int64_t tokens_in_us; /* none: when there may be enough */
	int64_t again_us;	  /* asking again is of no use before */
} LlmqGrant;

/* Draws all that there is for the next moment. */
extern void
llmq_limit_draw(LlmqLimit *limit, const LlmqDraw *draw, int64_t now_us, LlmqGrant *grant);

/* Slots of one draw. */
typedef struct LlmqQuotaSlice
{
	int64_t from_us;
	int64_t interval_ns;
	int64_t count;
	int64_t used; /* or expired */
} LlmqQuotaSlice;

/* Draws overlap by half a second: two slices are alive, and one more for a clock that limps. */
#define LLMQ_SLICES 3

/* The worker's side.  All zero is one that has drawn nothing. */
typedef struct LlmqQuota
{
	LlmqQuotaSlice slices[LLMQ_SLICES]; /* the oldest first */
	int slice_count;
	int64_t tokens;		  /* may be spent */
	int64_t charge;		  /* for the next draw */
	int64_t least_tokens; /* for the next draw */
	int64_t draw_at_us;	  /* no draw before */
	int64_t slot_at_us;	  /* when there may be a slot beyond those in hand */
	int64_t tokens_at_us; /* when there may be tokens enough */
} LlmqQuota;

/* What an endpoint has of limits. */
typedef struct LlmqRates
{
	int64_t requests_per_minute; /* 0: no limit, likewise below */
	int64_t tokens_per_minute;
} LlmqRates;

/* Writes down a draw: what goes back with it is not to be spent any more. */
extern void llmq_quota_ask(LlmqQuota *quota, LlmqDraw *draw, int64_t now_us);

/* Takes in what a draw has brought. */
extern void llmq_quota_take_in(LlmqQuota *quota, const LlmqGrant *grant, int64_t now_us);

/* The draw has failed: what was asked with it is to be asked again. */
extern void llmq_quota_put_back(LlmqQuota *quota, const LlmqDraw *draw);

/* How many calls of about so many tokens may start now. */
extern int64_t
llmq_quota_room(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/*
 * Starts a call: takes a slot and tokens.  False: not now; what it needs is noted for
 * the next draw.
 */
extern bool
llmq_quota_spend(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/* When a call of so many tokens may start, as far as is known: later, if it cannot now. */
extern int64_t
llmq_quota_when(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/* A call has used other than what it took: so many tokens more, or fewer. */
extern void llmq_quota_correct(LlmqQuota *quota, int64_t more);

/* Whether calls, of about so many tokens each, want more than is in hand. */
extern bool llmq_quota_is_short(LlmqQuota *quota, const LlmqRates *rates, int64_t calls,
								int64_t tokens, int64_t now_us);

#endif /* LLMQ_RATELIMIT_H */
