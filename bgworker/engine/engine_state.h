/*
 * engine_state.h
 *		All that an engine knows.  Private to the engine, as engine_private.h is.
 */
#ifndef LLMQ_ENGINE_STATE_H
#define LLMQ_ENGINE_STATE_H

#include "core/config.h"
#include "engine/engine.h"
#include "base/heap.h"
#include "jobs/job_table.h"
#include "core/metric.h"
#include "jobs/ready.h"
#include "relay/relay_state.h"
#include "transfer/transfer.h"

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

#endif /* LLMQ_ENGINE_STATE_H */
