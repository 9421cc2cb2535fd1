/*
 * ratelimit.h
 *		Quotas of providers: how workers draw on them, and how they spend what they drew.
 *
 * Pure: times are passed in, in microseconds.  There are two sides.
 *
 * The database holds one LlmqLimit for each endpoint.  A worker that has calls to make draws
 * from it, at most once a second: it gets slots, which are the times at which calls may start,
 * and tokens.  The slots of all workers follow one another, so that all calls together are as
 * evenly spaced as those of one worker.  Nothing is ever handed out twice: what a worker has
 * drawn is wasted if it dies.
 *
 * The worker holds one LlmqQuota for each endpoint: the slots and tokens that it has drawn and
 * not yet spent.  A slot that is not used within a second expires; tokens are given back.
 *
 * Providers count in different ways: by fixed minutes, by a sliding minute, or with a token
 * bucket.  Requests that are evenly spaced at a little less than the quota satisfy all of them.
 * So do tokens, as long as calls are small.  For larger calls, what was drawn in each second of
 * the last minute is remembered too, so that no minute, wherever it begins, exceeds the quota.
 */
#ifndef LLMQ_RATELIMIT_H
#define LLMQ_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* How many thousandths of a quota are used; the rest allows for slots used late and for jitter. */
#define LLMQ_LIMIT_PACE 978

/* Slots are given this far ahead, so that a worker that draws once a second never runs out. */
#define LLMQ_LIMIT_AHEAD_US 1500000

/* A worker draws from an endpoint this often at most. */
#define LLMQ_LIMIT_DRAW_US 1000000

/* A slot can be used this late; later it is wasted. */
#define LLMQ_LIMIT_LATE_US 1000000

/*
 * Seconds whose tokens are remembered: a minute, the current second, and one second that may
 * pass before tokens are used.
 */
#define LLMQ_LIMIT_SECONDS 62

/* The shared side: numbers only, so that a row can hold it as an array. */
typedef struct LlmqLimit
{
	int64_t requests_from_us; /* the first slot that was not given out */
	int64_t tokens_from_us;	  /* tokens were given out up to here */
	int64_t hungry_tokens;	  /* a job waits for so many at once, and others leave them to it... */
	int64_t hungry_worker;	  /* ...a job of this worker... */
	int64_t hungry_until_us;  /* ...as long as it keeps asking */
	int64_t second;			  /* the newest of those below, counted from the clock's epoch */
	int64_t tokens[LLMQ_LIMIT_SECONDS]; /* drawn in each second, at its number modulo SECONDS */
} LlmqLimit;

typedef struct LlmqDraw
{
	int64_t worker;
	int64_t requests_per_minute; /* 0: no limit, likewise below */
	int64_t tokens_per_minute;
	int64_t least_tokens; /* what the first job in line needs */
	int64_t charge;		  /* tokens used beyond what was drawn; negative: given back */
} LlmqDraw;

typedef struct LlmqGrant
{
	int64_t slots;		 /* so many calls... */
	int64_t from_us;	 /* ...the first of them in so many microseconds... */
	int64_t interval_ns; /* ...and so far apart */
	int64_t next_us;	 /* in how long the first slot is that was not given out */
	int64_t tokens;
	int64_t tokens_in_us; /* if there were none: in how long there may be enough */
	int64_t again_us;	  /* in how long it makes sense to ask again */
} LlmqGrant;

/* Draws everything that is available up to LLMQ_LIMIT_AHEAD_US. */
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

/* Draws overlap by half a second, so two slices are in use; one more allows for an uneven clock. */
#define LLMQ_SLICES 3

/* The worker's side.  All zeros: nothing was drawn yet. */
typedef struct LlmqQuota
{
	LlmqQuotaSlice slices[LLMQ_SLICES]; /* the oldest first */
	int slice_count;
	int64_t tokens;		  /* may be spent */
	int64_t charge;		  /* for the next draw */
	int64_t least_tokens; /* for the next draw */
	int64_t draw_at_us;	  /* no draw before this */
	int64_t slot_at_us;	  /* when there may be a slot beyond those in hand */
	int64_t tokens_at_us; /* when there may be enough tokens */
} LlmqQuota;

/* The limits of an endpoint. */
typedef struct LlmqRates
{
	int64_t requests_per_minute; /* 0: no limit, likewise below */
	int64_t tokens_per_minute;
} LlmqRates;

/* Prepares a draw.  What is given back with it can no longer be spent. */
extern void llmq_quota_ask(LlmqQuota *quota, LlmqDraw *draw, int64_t now_us);

/* Adds what a draw has granted. */
extern void llmq_quota_take_in(LlmqQuota *quota, const LlmqGrant *grant, int64_t now_us);

/* Undoes a draw that failed, so that the next one asks for the same. */
extern void llmq_quota_put_back(LlmqQuota *quota, const LlmqDraw *draw);

/* Returns how many calls of about so many tokens may start now. */
extern int64_t
llmq_quota_room(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/*
 * Takes a slot and tokens for a call that starts now.  Returns false if there are too few, and
 * notes what the call needs for the next draw.
 */
extern bool
llmq_quota_spend(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/*
 * Returns when a call of so many tokens may start, as far as is known; in the future, if not
 * now.
 */
extern int64_t
llmq_quota_when(LlmqQuota *quota, const LlmqRates *rates, int64_t tokens, int64_t now_us);

/* Corrects for a call that used so many more tokens than it took, or fewer if negative. */
extern void llmq_quota_correct(LlmqQuota *quota, int64_t more);

/* Returns whether so many calls, of about so many tokens each, need more than is in hand. */
extern bool llmq_quota_is_short(LlmqQuota *quota, const LlmqRates *rates, int64_t calls,
								int64_t tokens, int64_t now_us);

#endif /* LLMQ_RATELIMIT_H */
