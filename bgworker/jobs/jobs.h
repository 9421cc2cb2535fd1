/*
 * jobs.h
 *		The client for jobs: sends prompts to models, and brings back the answers.
 *
 *		job_endpoint.c	which endpoint a job is for, and whether it can be called now
 *		job_limits.c	what a call takes from an endpoint's limits, and teaches of them
 *		job_draw.c		drawing of quotas, and telling of breakers
 *		job_call.c		from a claimed job to a network call and back
 *		job_look.c		how ready jobs are found
 *		job_claim.c		claims
 *		job_settle.c	ended deliveries on their way into the database
 *		job_report.c	what is said of endpoints in trouble, and of the depth of queues
 *		jobs.c			the client as a whole
 */
#ifndef LLMQ_JOBS_H
#define LLMQ_JOBS_H

#include <jansson.h>

#include "base/buffer.h"
#include "jobs/jobs_state.h"

/* The endpoint that was chosen for a job. */
typedef struct LlmqEndpointChoice
{
	const LlmqEndpoint
		*endpoint;		   /* may be called at when_us; NULL: none can be called before when_us */
	int64_t when_us;	   /* LLMQ_NEVER: unknown */
	LlmqObstacle obstacle; /* what prevents a call until then */
} LlmqEndpointChoice;

/* job_endpoint.c */
extern void
llmq_jobs_note_secret(LlmqJobs *jobs, const LlmqEndpoint *endpoint, bool found, const char *reason);
extern bool llmq_jobs_has_secret(LlmqJobs *jobs, const LlmqEndpoint *endpoint);
extern int64_t llmq_jobs_tokens(const LlmqJobs *jobs, const LlmqEndpoint *endpoint, LlmqJob *job);
extern LlmqEndpointChoice llmq_jobs_choose(LlmqJobs *jobs, LlmqJob *job);
extern int llmq_jobs_allowance(void *jobs, const char *queue);

/* job_limits.c */
extern void llmq_jobs_await_quota(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpointChoice *choice);
extern void llmq_jobs_await_no_more(LlmqJobs *jobs, LlmqJob *job);
extern void llmq_jobs_enter(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint);
extern void
llmq_jobs_leave(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint, bool called);
extern void llmq_jobs_note_call(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint);
extern bool llmq_jobs_fall_back(LlmqJobs *jobs, LlmqJob *job);
extern void llmq_jobs_close_breaker(LlmqEndpointLimits *limits);

/* job_draw.c */
extern int64_t llmq_jobs_draw_due(const LlmqJobs *jobs);
extern void llmq_jobs_begin_draw(LlmqJobs *jobs);
extern void llmq_jobs_complete_draw(LlmqJobs *jobs, const LlmqRows *rows);
extern void llmq_jobs_fail_draw(LlmqJobs *jobs);
/* Takes what a full poll says about breakers: those that are not closed, by endpoint. */
extern void llmq_jobs_take_breakers(LlmqJobs *jobs, const json_t *breakers);

/* job_call.c */
extern void llmq_jobs_start(LlmqJobs *jobs, LlmqJob *job);
extern int64_t llmq_jobs_start_time(LlmqJobs *jobs);
extern void llmq_jobs_start_due(LlmqJobs *jobs);
extern void llmq_jobs_interrupt(LlmqJobs *jobs, LlmqJob *job);
extern void llmq_jobs_give_back(LlmqJobs *jobs, LlmqJob *job);

/* job_look.c */
/* Returns when a poll for ready jobs is needed; LLMQ_NEVER: none is. */
extern int64_t llmq_jobs_look_due(const LlmqJobs *jobs);
/* Returns the position above which a poll that begins now reads llmq.ready. */
extern int64_t llmq_jobs_begin_look(LlmqJobs *jobs, bool full);
/*
 * Takes the rows of a poll except its control row; false if there was not enough memory for
 * all of them.
 */
extern bool llmq_jobs_complete_look(LlmqJobs *jobs, const LlmqRows *rows);
/* Takes what the control row says about the look; `room` says that all rows were taken. */
extern void llmq_jobs_end_look(LlmqJobs *jobs, const json_t *control, bool room);
extern void llmq_jobs_look_again(LlmqJobs *jobs, int64_t seq);
extern void llmq_jobs_hold(LlmqJobs *jobs, int64_t seq, const char *error);
/* Forgets what is known of llmq.ready, because the session is a new one. */
extern void llmq_jobs_forget_ready(LlmqJobs *jobs);
extern bool llmq_jobs_serves(const LlmqJobs *jobs, const char *queue);

/* job_claim.c */
extern bool llmq_jobs_may_claim(LlmqJobs *jobs);
extern void llmq_jobs_begin_claim(LlmqJobs *jobs);
extern void llmq_jobs_complete_claim(LlmqJobs *jobs, const LlmqRows *rows);
extern void llmq_jobs_fail_claim(LlmqJobs *jobs, const LlmqRows *rows);

/* job_settle.c */
extern int64_t llmq_jobs_settle_due(const LlmqJobs *jobs);
extern void llmq_jobs_begin_settle(LlmqJobs *jobs);
extern void llmq_jobs_complete_settle(LlmqJobs *jobs, const LlmqRows *rows);
extern void llmq_jobs_fail_settle(LlmqJobs *jobs, const LlmqRows *rows);

/* job_report.c */
/*
 * Writes the members endpoints and depths into an open object; false if there is nothing to
 * report.
 */
extern bool llmq_jobs_write_report(LlmqJobs *jobs, LlmqBuffer *report);
/* Makes everything be reported again, because the poll with the report has failed. */
extern void llmq_jobs_repeat_report(LlmqJobs *jobs);
/*
 * Returns when a full poll is due only to report values that others read; LLMQ_NEVER if there
 * are none.
 */
extern int64_t llmq_jobs_report_due(const LlmqJobs *jobs);

/* jobs.c */
/* Prepares for so many calls at once; false when out of memory. */
extern bool llmq_jobs_init(LlmqJobs *jobs, LlmqCore *core, int slots);
extern void llmq_jobs_free(LlmqJobs *jobs);
/*
 * Collects what is known about the endpoints and queues of a new configuration; false when out
 * of memory.
 */
extern bool
llmq_jobs_carry_over(const LlmqJobs *jobs, const LlmqConfig *fresh, LlmqLearned *learned);
/* Puts that configuration into force, and takes ownership of `learned`. */
extern void llmq_jobs_take_config(LlmqJobs *jobs, LlmqLearned learned);
extern void llmq_learned_free(LlmqLearned *learned);
/* Stops claiming, and gives back the jobs that wait for their next attempt. */
extern void llmq_jobs_drain(LlmqJobs *jobs);
/* Does the same, and ends calls. */
extern void llmq_jobs_stop(LlmqJobs *jobs);
/* Returns whether no ready job is known that could be claimed. */
extern bool llmq_jobs_are_done(LlmqJobs *jobs);
/* Writes the ids of the jobs in hand as an array literal. */
extern void llmq_jobs_list_ids(const LlmqJobs *jobs, LlmqBuffer *ids);
/* Returns the age of the oldest job in hand; 0 if there is none. */
extern int64_t llmq_jobs_oldest_us(const LlmqJobs *jobs);

#endif /* LLMQ_JOBS_H */
