/*
 * jobs_state.h
 *		The state of the client for jobs: jobs in hand, ready ids, and what it has learned
 *		about endpoints and queues.
 */
#ifndef LLMQ_JOBS_STATE_H
#define LLMQ_JOBS_STATE_H

#include "base/heap.h"
#include "core/core.h"
#include "jobs/job_table.h"
#include "jobs/ready.h"
#include "limits/endpoint_limits.h"

/*
 * How far llmq.ready was read.  Transactions take a seq and commit later, in any order, so new
 * rows can appear between base and tip, but not at or below base.  A sweep reads from base
 * again.  If all transactions older than candidate_xid had ended when a sweep began, base may
 * rise to candidate, which was the tip when candidate_xid was the next transaction id.  (A
 * transaction takes its id before its seqs, because it writes the job row first.)
 */
typedef struct LlmqPosition
{
	int64_t base;
	int64_t tip;
	int64_t candidate;
	int64_t candidate_xid; /* 0: no candidate */
	bool sweeping;		   /* a sweep has begun and has not ended */
	int64_t sweep_at;	   /* how far it has come */
	int64_t sweep_xid;	   /* the oldest transaction that was running when it began */
	int64_t sweep_cost_us; /* time spent in its polls; those that failed do not count */
	int64_t sweep_next_us; /* no sweep begins before this, which limits their cost */
} LlmqPosition;

/*
 * A ready job that cannot be claimed because of the job itself, and is left out until a given
 * time.
 */
typedef struct LlmqHeld
{
	int64_t seq;
	int64_t until_us;
} LlmqHeld;

#define LLMQ_HELD_MAX 64

/* What is known about a queue. */
typedef struct LlmqQueueState
{
	int in_flight;			/* deliveries of this worker */
	int64_t reported_depth; /* one more than llmq.queue_depth shows; 0: it shows nothing yet */
} LlmqQueueState;

/* What is known about the endpoints and queues of a configuration, by their numbers. */
typedef struct LlmqLearned
{
	LlmqEndpointLimits *endpoints;
	LlmqQueueState *queues;
} LlmqLearned;

typedef struct LlmqJobs
{
	LlmqCore *core;
	LlmqLearned learned;
	LlmqReady *ready;
	LlmqJobTable table;	  /* all that are in hand */
	LlmqHeap waiting;	  /* those between attempts */
	LlmqJobList ended;	  /* those whose delivery is over, oldest first */
	LlmqJobList settling; /* the batch under way */
	int calls;			  /* network calls under way */
	int workers;		  /* how many share the limits of queues and endpoints */
	int rank;			  /* the position of this one among them, from 0 */

	/* Looking. */
	LlmqPosition position;
	bool more;					  /* the last poll did not return everything */
	bool polling_sweep;			  /* the poll under way is part of a sweep */
	int64_t sweep_due_us;		  /* when a sweep is wanted; LLMQ_NEVER: none is */
	LlmqHeld held[LLMQ_HELD_MAX]; /* the oldest first */
	int held_count;

	/* Claiming. */
	int64_t chance_us; /* when a ready job that cannot run now may be able to */
	int64_t *claiming; /* the seqs in the claim under way */
	int claiming_count;
	int64_t *suspects; /* one of them made a claim fail, so they are claimed one by one */
	int suspect_count;
} LlmqJobs;

static inline LlmqEndpointLimits *
llmq_jobs_limits_of(const LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	return &jobs->learned.endpoints[endpoint->number];
}

static inline LlmqQueueState *
llmq_jobs_state_of(const LlmqJobs *jobs, const LlmqQueue *queue)
{
	return &jobs->learned.queues[queue->number];
}

#endif /* LLMQ_JOBS_STATE_H */
