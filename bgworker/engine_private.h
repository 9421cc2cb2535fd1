/*
 * engine_private.h
 *		What the engine's files share; nobody else includes it.
 *
 *		engine.c		create, dispatch, timeout
 *		engine_call.c	from a claimed job to a network call and back
 *		engine_endpoint.c	which endpoint a job is for, and whether it can be called now
 *		engine_limits.c	quotas and breakers: what is drawn, spent and told
 *		engine_store.c	which store operation is next, and what came of it
 *		engine_poll.c	looking for work and for changed configuration
 *		engine_report.c	what the worker says of itself with a poll
 *		engine_settle.c	ended deliveries on their way into the database
 *		engine_metric.c	what is counted, on its way to those who watch
 *		engine_leave.c	draining, stopping, and claims of unknown end
 *		relay*.c		the same for outbox messages, see relay.h
 */
#ifndef LLMQ_ENGINE_PRIVATE_H
#define LLMQ_ENGINE_PRIVATE_H

#include <jansson.h>

#include "buffer.h"
#include "config.h"
#include "engine.h"
#include "heap.h"
#include "job.h"
#include "metric.h"
#include "ready.h"
#include "relay.h"
#include "transfer.h"

/* Ended deliveries that wait to be settled, oldest first. */
typedef struct LlmqJobList
{
	LlmqJob *head;
	LlmqJob *tail;
	int count;
} LlmqJobList;

/*
 * Where llmq.ready has been read to.  Transactions take a seq and commit later,
 * in any order: at or below base nothing new can appear, between base and tip it
 * can.  A sweep reads from base again; one that no transaction older than
 * candidate_xid has outlived lets base rise to candidate, which was the tip when
 * candidate_xid was the next transaction id.  (A transaction takes its id before
 * its seqs: it writes the job row first.)
 */
typedef struct LlmqPosition
{
	int64_t base;
	int64_t tip;
	int64_t candidate;
	int64_t candidate_xid; /* 0: no candidate */
	bool sweeping;		   /* a sweep has begun and has not reached the end */
	int64_t sweep_at;	   /* it has come to here */
	int64_t sweep_xid;	   /* the oldest transaction that ran when it began */
	int64_t sweep_cost_us; /* time spent in its polls; those that failed do not count */
	int64_t sweep_next_us; /* no sweep begins before; its cost is bounded by that */
} LlmqPosition;

/* A ready job that cannot be claimed for a reason of its own, left alone until then. */
typedef struct LlmqHeld
{
	int64_t seq;
	int64_t until_us;
} LlmqHeld;

#define LLMQ_HELD_MAX 64

/* For metrics_told: nothing yet, so that llmq.metric soon has a new session. */
#define LLMQ_METRICS_UNTOLD UINT64_MAX

/* Long enough for any number in decimal. */
#define LLMQ_NUMBER_LENGTH 24
#define LLMQ_NEVER		   INT64_MAX

struct LlmqEngine
{
	LlmqEngineOptions options;
	LlmqEngineState state;
	LlmqStore *store;
	LlmqTransferPool *transfers;
	LlmqRandom random;
	LlmqTime now;
	int64_t clock_offset_us; /* wall clock less monotonic, as last seen */
	int64_t clock_set_us;	 /* when that last jumped; LLMQ_NEVER: not yet */

	LlmqConfig *config;
	char config_hash[40];
	LlmqReady *ready;
	LlmqJobTable jobs;
	LlmqHeap waiting; /* jobs between attempts */
	LlmqJobList ended;
	LlmqRelay relay;
	LlmqMetrics metrics;
	uint64_t metrics_told; /* the count of changes that llmq.metric has, or will have */

	char worker_id[24];
	LlmqPosition position;
	int workers;			 /* how many share the limits of queues and endpoints */
	int rank;				 /* this one's place among them, from 0 */
	bool woken;				 /* a poll is wanted now */
	bool more;				 /* the last poll did not see all */
	int64_t full_poll_at_us; /* the next poll that looks at everything */
	int64_t sweep_due_us;	 /* a sweep is wanted then; LLMQ_NEVER: none is */
	int64_t last_full_poll_us;
	int64_t last_heartbeat_us;
	bool heartbeat_shows_work; /* the last one said in_flight > 0 */
	int64_t hello_at_us;
	int hello_failures;
	int64_t store_at_us; /* after a failure: nothing before this */
	int store_failures;
	char last_store_error[LLMQ_STORE_ERROR_MAX]; /* logged once, not each second */

	bool operating; /* an operation is under way */
	LlmqOperation operation;
	int64_t began_us;
	LlmqJobList settling; /* the batch under way */
	int64_t chance_us;	  /* when a ready job that cannot be called now may be */
	int64_t *claiming;	  /* the seqs under way */
	int claiming_count;
	int64_t *suspects; /* one of them has spoiled a claim: to be claimed one by one */
	int suspect_count;
	LlmqHeld held[LLMQ_HELD_MAX]; /* the oldest first */
	int held_count;
	int64_t prune_at_us;	 /* retention is due */
	int64_t reconcile_at_us; /* leases that are not known are given back then; LLMQ_NEVER */
	bool reconcile_again;	 /* and once more later */
	bool drain_unsaid;		 /* the database does not know yet that this worker drains */
	bool reports;			 /* the report being written says something */
	bool polling_sweep;		 /* the poll under way is part of a sweep */
	int64_t poll_began_us;
};

/* engine_call.c */
extern void llmq_engine_start_job(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_start_due(LlmqEngine *engine);
extern void llmq_engine_collect(LlmqEngine *engine);
extern void llmq_engine_interrupt(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_give_back(LlmqEngine *engine, LlmqJob *job);

/* Where a job goes now. */
typedef struct LlmqChoice
{
	LlmqEndpoint *endpoint; /* to be called, at when_us; NULL: none can be, before when_us */
	int64_t when_us;		/* LLMQ_NEVER: nobody knows */
	LlmqObstacle obstacle;	/* what is in the way until then */
} LlmqChoice;

/* engine_endpoint.c */
extern void
llmq_engine_note_secret(LlmqEngine *engine, LlmqEndpoint *endpoint, bool found, const char *reason);
extern bool llmq_engine_has_secret(LlmqEngine *engine, LlmqEndpoint *endpoint);
extern int64_t llmq_engine_tokens(const LlmqEndpoint *endpoint, LlmqJob *job);
extern LlmqChoice llmq_engine_choose(LlmqEngine *engine, LlmqJob *job);
extern int llmq_engine_allowance(void *engine, const char *queue);

/* engine_limits.c */
extern void llmq_engine_await_quota(LlmqEngine *engine, LlmqJob *job, const LlmqChoice *choice);
extern void llmq_engine_await_no_more(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_enter(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
extern void
llmq_engine_leave(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint, bool called);
extern void llmq_engine_note_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
extern bool llmq_engine_fall_back(LlmqEngine *engine, LlmqJob *job);
extern int64_t llmq_engine_draw_due(const LlmqEngine *engine);
extern void llmq_engine_begin_draw(LlmqEngine *engine);
extern void llmq_engine_complete_draw(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_draw(LlmqEngine *engine);
extern void llmq_engine_take_breakers(LlmqEngine *engine, const json_t *breakers);

/* engine_poll.c */
extern int64_t llmq_engine_poll_due(const LlmqEngine *engine);
extern bool llmq_engine_poll_is_overdue(const LlmqEngine *engine);
extern void llmq_engine_begin_poll(LlmqEngine *engine);
extern void llmq_engine_complete_poll(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_look_again(LlmqEngine *engine, int64_t seq);
extern void llmq_engine_hold(LlmqEngine *engine, int64_t seq, const char *error);
extern void llmq_engine_release_held(LlmqEngine *engine, int64_t now_us);
extern bool llmq_engine_serves(const LlmqEngine *engine, const char *queue);

/* engine_report.c */
extern void llmq_engine_watch_clock(LlmqEngine *engine);
extern bool llmq_engine_write_report(LlmqEngine *engine, LlmqBuffer *report);
extern void llmq_engine_repeat_report(LlmqEngine *engine);
extern void llmq_engine_note_pruned(LlmqEngine *engine, int64_t jobs);
extern int64_t llmq_engine_report_due(const LlmqEngine *engine);

/* engine_leave.c */
extern bool llmq_engine_may_say_goodbye(const LlmqEngine *engine);
extern void llmq_engine_doubt_claim(LlmqEngine *engine);
/* Something was claimed that this worker does not hold: its lease goes back soon. */
extern void llmq_engine_miss_lease(LlmqEngine *engine);
extern void llmq_engine_begin_reconcile(LlmqEngine *engine);
extern void llmq_engine_complete_reconcile(LlmqEngine *engine);

/* engine_metric.c */
extern void llmq_engine_count_call(LlmqEngine *engine, const LlmqJob *job);
extern bool llmq_engine_has_metrics(const LlmqEngine *engine);
extern bool llmq_engine_tell_metrics(LlmqEngine *engine, LlmqBuffer *json);

/* engine_settle.c */
extern int64_t llmq_engine_settle_due(const LlmqEngine *engine);
extern void llmq_engine_begin_settle(LlmqEngine *engine);
extern void llmq_engine_complete_settle(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_settle(LlmqEngine *engine, const LlmqRows *rows);

/* engine_store.c */
extern int llmq_engine_in_hand(const LlmqEngine *engine);
extern int64_t llmq_engine_backoff(LlmqEngine *engine, int failures);
extern void
llmq_engine_begin(LlmqEngine *engine, LlmqOperation operation, const char *const *params);
extern void llmq_engine_start_again(LlmqEngine *engine);
extern void llmq_engine_run_store(LlmqEngine *engine);
extern int64_t llmq_engine_store_due(LlmqEngine *engine);

/* engine.c */
extern void llmq_engine_log(LlmqEngine *engine, LlmqLogLevel level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
extern void llmq_job_list_add(LlmqJobList *list, LlmqJob *job);
extern void llmq_job_list_remove(LlmqJobList *list, LlmqJob *job);
extern int llmq_engine_room(const LlmqEngine *engine);

#endif /* LLMQ_ENGINE_PRIVATE_H */
