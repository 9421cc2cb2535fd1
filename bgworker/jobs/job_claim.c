/*
 * job_claim.c
 *		Claims: from ready ids in memory to jobs in hand.
 *
 * A job that makes a claim fail is found by claiming the jobs of that claim one by one.  It is
 * then left out for a while, and the others go on without it.
 */
#include "jobs/jobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/store_columns.h"

/* The most jobs in one claim; more would delay the first calls. */
#define CLAIM_MAX_JOBS 100

/* Returns how many more deliveries may be claimed. */
static int
room(const LlmqJobs *jobs)
{
	int calls = jobs->core->options.max_in_flight - jobs->calls;
	int deliveries = jobs->core->options.max_in_flight * LLMQ_JOBS_PER_SLOT - jobs->table.count;

	return calls < deliveries ? calls : deliveries;
}

/* Returns whether something can be claimed now; jobs->chance_us is when something else may be. */
bool
llmq_jobs_may_claim(LlmqJobs *jobs)
{
	jobs->chance_us = LLMQ_NEVER;
	return jobs->core->state == LLMQ_ENGINE_RUNNING && room(jobs) > 0 &&
		   (jobs->suspect_count > 0 || llmq_ready_any(jobs->ready, llmq_jobs_allowance, jobs));
}

void
llmq_jobs_begin_claim(LlmqJobs *jobs)
{
	LlmqBuffer seqs;
	int most = room(jobs);

	if (jobs->suspect_count > 0)
	{
		jobs->claiming[0] = jobs->suspects[--jobs->suspect_count];
		jobs->claiming_count = 1;
	}
	else
		jobs->claiming_count = llmq_ready_take(jobs->ready, jobs->claiming,
											   most < CLAIM_MAX_JOBS ? most : CLAIM_MAX_JOBS,
											   llmq_jobs_allowance, jobs);
	llmq_buffer_init(&seqs, CLAIM_MAX_JOBS * LLMQ_NUMBER_LENGTH);
	for (int i = 0; i < jobs->claiming_count; i++)
		llmq_buffer_printf(&seqs, "%c%" PRId64, i == 0 ? '{' : ',', jobs->claiming[i]);
	llmq_buffer_append_char(&seqs, '}');
	llmq_core_begin(jobs->core, LLMQ_OP_CLAIM,
					(const char *[]){jobs->core->worker_id, llmq_buffer_string(&seqs)});
	llmq_buffer_free(&seqs);
}

static void
take_job(LlmqJobs *jobs, const LlmqRows *rows, int i)
{
	LlmqJobRow row = {.job_id = llmq_rows_cell(rows, i, LLMQ_CLAIM_JOB_ID),
					  .delivery = llmq_rows_cell(rows, i, LLMQ_CLAIM_DELIVERY),
					  .counted = llmq_rows_cell(rows, i, LLMQ_CLAIM_COUNTED),
					  .queue = llmq_rows_cell(rows, i, LLMQ_CLAIM_QUEUE),
					  .prompt = llmq_rows_cell(rows, i, LLMQ_CLAIM_PROMPT),
					  .system = llmq_rows_cell(rows, i, LLMQ_CLAIM_SYSTEM),
					  .messages = llmq_rows_cell(rows, i, LLMQ_CLAIM_MESSAGES),
					  .params = llmq_rows_cell(rows, i, LLMQ_CLAIM_PARAMS),
					  .model = llmq_rows_cell(rows, i, LLMQ_CLAIM_MODEL),
					  .policy = llmq_rows_cell(rows, i, LLMQ_CLAIM_POLICY),
					  .idempotency_keys = llmq_rows_cell(rows, i, LLMQ_CLAIM_IDEMPOTENCY_KEYS),
					  .traceparent = llmq_rows_cell(rows, i, LLMQ_CLAIM_TRACEPARENT)};
	const LlmqQueue *queue = llmq_config_queue(jobs->core->config, row.queue);
	LlmqJob *job =
		queue == NULL ? NULL : llmq_job_create(&row, &queue->policy, jobs->core->now.mono_us);

	if (job == NULL)
	{
		llmq_core_log(jobs->core, LLMQ_LOG_WARNING,
					  "job %s was claimed, cannot be held, and goes back", row.job_id);
		llmq_core_miss_lease(jobs->core);
		return;
	}
	llmq_jobs_state_of(jobs, queue)->in_flight++;
	llmq_job_table_add(&jobs->table, job);
	if (jobs->core->state < LLMQ_ENGINE_DRAINING)
		llmq_jobs_start(jobs, job);
	else
		llmq_jobs_give_back(jobs, job);
}

void
llmq_jobs_complete_claim(LlmqJobs *jobs, const LlmqRows *rows)
{
	jobs->core->heartbeat_shows_work = true;
	for (int i = 0; i < rows->row_count; i++)
	{
		if (llmq_rows_cell(rows, i, LLMQ_CLAIM_SEQ) != NULL)
			llmq_jobs_look_again(jobs, strtoll(llmq_rows_cell(rows, i, LLMQ_CLAIM_SEQ), NULL, 10));
		else
			take_job(jobs, rows, i);
	}
}

/*
 * Handles a claim that was rolled back; the jobs are where they were.  Unless the error is
 * transient, one of them is the cause, which is found by claiming them one by one.
 */
void
llmq_jobs_fail_claim(LlmqJobs *jobs, const LlmqRows *rows)
{
	if (llmq_store_error_passes(rows->sqlstate))
	{
		for (int i = 0; i < jobs->claiming_count; i++)
			llmq_jobs_look_again(jobs, jobs->claiming[i]);
		return;
	}
	jobs->core->store_at_us = 0;
	if (jobs->claiming_count == 1)
	{
		llmq_jobs_hold(jobs, jobs->claiming[0], rows->error);
		return;
	}
	memcpy(jobs->suspects, jobs->claiming, sizeof(*jobs->suspects) * (size_t) jobs->claiming_count);
	jobs->suspect_count = jobs->claiming_count;
}
