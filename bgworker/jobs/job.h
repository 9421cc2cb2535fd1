/*
 * job.h
 *		A claimed job in the engine.
 *
 * A job is created from a row of llmq.worker_claim and lives until its delivery is settled.
 * What belongs to it is in its arena.  What belongs to one network call is in the call's own
 * arena, which is freed with the call unless it contains the answer.
 */
#ifndef LLMQ_JOB_H
#define LLMQ_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/caller.h"
#include "core/config.h"
#include "jobs/delivery.h"
#include "base/heap.h"
#include "dialects/provider.h"
#include "dialects/reply.h"
#include "transfer/transfer.h"

#define LLMQ_UUID_LENGTH 36

/*
 * Deliveries in hand for each call slot; those without a call wait for their next attempt or
 * to be settled.
 */
#define LLMQ_JOBS_PER_SLOT 2

typedef enum LlmqJobState
{
	LLMQ_JOB_WAITING, /* for its next attempt; in the engine's heap */
	LLMQ_JOB_CALLING, /* a transfer is under way */
	LLMQ_JOB_ENDED	  /* its delivery is over and waits to be settled */
} LlmqJobState;

/* A network call that was made: a row of llmq.attempt. */
typedef struct LlmqAttempt
{
	struct LlmqAttempt *next;
	const char *endpoint;
	const char *traceparent; /* the one that was sent, or NULL */
	int64_t started_wall_us;
	int64_t duration_us;
	LlmqVerdict verdict; /* its short strings are copies; text and other long ones are NULL */
} LlmqAttempt;

/* An endpoint that a delivery no longer calls. */
typedef struct LlmqSpent
{
	struct LlmqSpent *next;
	const char *endpoint;
} LlmqSpent;

/* The network call under way. */
typedef struct LlmqCall
{
	LlmqArena *arena;
	LlmqHttpRequest request;
	LlmqReply *reply;
	LlmqTransfer *transfer;
	const char *endpoint;
	const char *traceparent; /* or NULL */
	int64_t started_us;
	int64_t started_wall_us;
} LlmqCall;

typedef struct LlmqJob
{
	LlmqCaller caller;
	struct LlmqJob *previous; /* in the list of ended jobs */
	struct LlmqJob *next;
	struct LlmqJob *next_in_bucket;
	LlmqArena *arena;
	char job_id[LLMQ_UUID_LENGTH + 1];
	int delivery_number;
	const char *queue;
	const char *idempotency_keys; /* JSON object: endpoint name to key, or NULL */
	const char *traceparent;	  /* of the submitter, or NULL */
	LlmqPolicy policy;
	LlmqPrompt prompt;

	LlmqJobState state;
	LlmqSpent *spent;	  /* endpoints that this delivery no longer calls */
	const char *endpoint; /* the one that was called last, or is waited for */
	bool awaits_quota;	  /* WAITING: for the quota of endpoint */
	bool probing;		  /* CALLING: the call is the probe of the endpoint's breaker */
	int probes;			  /* calls that were probes */
	int64_t estimated;	  /* tokens, uncorrected; 0: not estimated yet */
	LlmqApi estimated_for;
	int64_t tokens_taken; /* CALLING: from the quota */
	LlmqHeapNode timer;	  /* WAITING: key is when the next attempt may start */
	LlmqDelivery delivery;
	LlmqCall call; /* CALLING */
	LlmqAttempt *attempts;
	LlmqAttempt *last_attempt;

	LlmqStep step;			 /* ENDED: how */
	LlmqVerdict verdict;	 /* of the last attempt; strings in answer_arena or arena */
	const char *error;		 /* ENDED: the text for error_message, or NULL */
	LlmqArena *answer_arena; /* contains an answer that is to be stored */

	/* Settling that failed. */
	int settle_failures;
	int settle_waits; /* how often somebody had locked it */
	int64_t settle_at_us;
	int settle_most;   /* the largest batch that it is settled in; 0: any */
	bool raw_response; /* store the response as a string */
	bool unrecorded;   /* leave the attempts out */
} LlmqJob;

/* The columns of a claimed job, as the store returns them. */
typedef struct LlmqJobRow
{
	const char *job_id;
	const char *delivery;
	const char *counted;
	const char *queue;
	const char *prompt;
	const char *system;
	const char *messages;
	const char *params;
	const char *model;
	const char *policy;
	const char *idempotency_keys;
	const char *traceparent;
} LlmqJobRow;

/* Creates a job; queue_policy is the policy of its queue.  NULL when out of memory. */
extern LlmqJob *
llmq_job_create(const LlmqJobRow *row, const LlmqPolicy *queue_policy, int64_t now_us);
extern void llmq_job_destroy(LlmqJob *job);

/* Frees a call that has ended; keep_answer moves its arena to the job. */
extern void llmq_job_end_call(LlmqJob *job, bool keep_answer);

/* Records the call under way as an attempt with this verdict. */
extern bool llmq_job_add_attempt(LlmqJob *job, const LlmqVerdict *verdict, int64_t now_us);

#endif /* LLMQ_JOB_H */
