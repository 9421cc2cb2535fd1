/*
 * job_settle.c
 *		Settles ended deliveries in the database.
 *
 * Answers, which were paid for, are kept until their commit is known.  A batch that fails is
 * tried again: together if the error is transient, or else one by one.
 */
#include "jobs/jobs.h"

#include <string.h>

#include "core/store_columns.h"
#include "jobs/settle.h"
#include "json/json_write.h"

/*
 * After so many failures to settle a delivery, less of it is stored: first the response as a
 * string, then the job as dead, and finally as dead without a record of its attempts, in case
 * that is what cannot be stored.
 */
#define SETTLE_FAILURES_RAW		   2
#define SETTLE_FAILURES_DEAD	   5
#define SETTLE_FAILURES_UNRECORDED 7

#define LOCK_NOT_AVAILABLE "55P03"

/* Returns when the next ended job may be settled; LLMQ_NEVER: there is none. */
int64_t
llmq_jobs_settle_due(const LlmqJobs *jobs)
{
	int64_t due = LLMQ_NEVER;

	for (const LlmqJob *job = jobs->ended.head; job != NULL; job = job->next)
	{
		if (job->settle_at_us < due)
			due = job->settle_at_us;
		if (due <= jobs->core->now.mono_us)
			break;
	}
	return due;
}

void
llmq_jobs_begin_settle(LlmqJobs *jobs)
{
	int most = LLMQ_SETTLE_BATCH_JOBS;
	LlmqBuffer entries;
	LlmqJob *next;

	llmq_buffer_init(&entries, LLMQ_SETTLE_MAX_BYTES);
	llmq_write_open(&entries, '[');
	for (LlmqJob *job = jobs->ended.head; job != NULL; job = next)
	{
		next = job->next;
		if (job->settle_at_us > jobs->core->now.mono_us)
			continue;
		if (job->settle_most > 0 && job->settle_most < most)
			most = job->settle_most;
		if (jobs->settling.count > 0 &&
			(jobs->settling.count >= most || entries.len >= LLMQ_SETTLE_BATCH_BYTES))
			break;
		llmq_settle_append(&entries, job);
		llmq_job_list_remove(&jobs->ended, job);
		llmq_job_list_add(&jobs->settling, job);
	}
	llmq_write_close(&entries, ']');
	llmq_core_begin(jobs->core, LLMQ_OP_SETTLE,
					(const char *[]){jobs->core->worker_id,
									 entries.failed ? "" : llmq_buffer_string(&entries)});
	llmq_buffer_free(&entries);
}

static void
forget_job(LlmqJobs *jobs, LlmqJob *job)
{
	const LlmqQueue *queue = llmq_config_queue(jobs->core->config, job->queue);

	if (queue != NULL && llmq_jobs_state_of(jobs, queue)->in_flight > 0)
		llmq_jobs_state_of(jobs, queue)->in_flight--;
	llmq_job_table_remove(&jobs->table, job);
	llmq_job_destroy(job);
}

/*
 * Notes when a job that was put back is due again, so that this worker need not wait for a
 * poll to find out.
 */
static void
note_redelivery(LlmqJobs *jobs, const LlmqJob *job)
{
	if (job->step.kind == LLMQ_STEP_REDELIVER)
		llmq_core_poll_by(jobs->core, jobs->core->now.mono_us + job->step.delay_us);
}

/* Settles a job later, because somebody has locked it; the others of the batch are settled. */
static void
settle_later(LlmqJobs *jobs, LlmqJob *job)
{
	llmq_job_list_remove(&jobs->settling, job);
	llmq_job_list_add(&jobs->ended, job);
	job->settle_at_us =
		jobs->core->now.mono_us + llmq_core_backoff(jobs->core, job->settle_waits++);
}

/* Counts a delivery that was settled, or that came too late. */
static void
count_delivery(LlmqJobs *jobs, const LlmqJob *job, bool settled)
{
	static const LlmqDeliveryEnd ends[] = {[LLMQ_STEP_SUCCEED] = LLMQ_DELIVERY_SUCCEEDED,
										   [LLMQ_STEP_DIE] = LLMQ_DELIVERY_DEAD,
										   [LLMQ_STEP_REDELIVER] = LLMQ_DELIVERY_RETRY};

	llmq_metric_count_delivery(&jobs->core->metrics,
							   settled ? ends[job->step.kind] : LLMQ_DELIVERY_LATE,
							   job->step.error_class);
}

/* Takes one row of the answer: what became of the delivery of a job. */
static void
take_verdict(LlmqJobs *jobs, const char *job_id, const char *verdict)
{
	LlmqJob *job = jobs->settling.head;
	bool settled = strcmp(verdict, "settled") == 0;

	while (job != NULL && strcmp(job->job_id, job_id) != 0)
		job = job->next;
	if (job == NULL)
		return;
	if (strcmp(verdict, "busy") == 0)
	{
		settle_later(jobs, job);
		return;
	}
	if (!settled)
		llmq_core_log(jobs->core, LLMQ_LOG_INFO, "job %s: this delivery came %s", job_id, verdict);
	count_delivery(jobs, job, settled);
	llmq_job_list_remove(&jobs->settling, job);
	note_redelivery(jobs, job);
	forget_job(jobs, job);
}

/* Completes a batch.  Deliveries without a row in the answer are over too. */
void
llmq_jobs_complete_settle(LlmqJobs *jobs, const LlmqRows *rows)
{
	for (int i = 0; i < rows->row_count; i++)
		take_verdict(jobs, llmq_rows_cell(rows, i, LLMQ_SETTLE_JOB_ID),
					 llmq_rows_cell(rows, i, LLMQ_SETTLE_VERDICT));
	while (jobs->settling.head != NULL)
	{
		LlmqJob *job = jobs->settling.head;

		llmq_job_list_remove(&jobs->settling, job);
		note_redelivery(jobs, job);
		forget_job(jobs, job);
	}
}

/*
 * Handles a batch that was rolled back; the answers are still in hand.  The batch is settled
 * one by one.  A row that keeps failing alone with an error that is not transient is stored
 * with less, and in the end goes dead, alone.  A batch that waited for a lock (somebody's open
 * transaction may hold the key of a message) is halved each time, until the row that waits
 * does so alone.
 */
void
llmq_jobs_fail_settle(LlmqJobs *jobs, const LlmqRows *rows)
{
	int count = jobs->settling.count;
	bool passes = llmq_store_error_passes(rows->sqlstate);

	while (jobs->settling.head != NULL)
	{
		LlmqJob *job = jobs->settling.head;

		llmq_job_list_remove(&jobs->settling, job);
		llmq_job_list_add(&jobs->ended, job);
		if (passes)
		{
			if (strcmp(rows->sqlstate, LOCK_NOT_AVAILABLE) == 0)
				job->settle_most = (count + 1) / 2;
			job->settle_at_us =
				jobs->core->now.mono_us + llmq_core_backoff(jobs->core, job->settle_waits++);
			continue;
		}
		job->settle_most = 1;
		if (count > 1)
			continue; /* at once, one by one */
		job->settle_at_us =
			jobs->core->now.mono_us + llmq_core_backoff(jobs->core, job->settle_failures);
		job->settle_failures++;
		job->raw_response = job->settle_failures >= SETTLE_FAILURES_RAW;
		job->unrecorded = job->settle_failures >= SETTLE_FAILURES_UNRECORDED;
		if (job->settle_failures == SETTLE_FAILURES_DEAD)
			llmq_core_log(jobs->core, LLMQ_LOG_WARNING,
						  "job %s goes dead: the answer could not be stored: %s", job->job_id,
						  rows->error);
		if (job->settle_failures >= SETTLE_FAILURES_DEAD)
		{
			job->step = (LlmqStep){.kind = LLMQ_STEP_DIE, .error_class = LLMQ_ERROR_INTERNAL};
			job->error =
				llmq_arena_printf(job->arena, "the answer could not be stored: %s", rows->error);
		}
	}
}
