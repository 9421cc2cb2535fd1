/*
 * job_look.c
 *		How ready jobs are found: position and sweep.
 *
 * A look is part of every poll: it reads llmq.ready above the tip or, as part of a sweep,
 * above an earlier position, where transactions that committed late may have left jobs.
 */
#include "jobs/jobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/store_columns.h"

/* Sweeps begin at least this far apart, and take no more than a tenth of the time. */
#define SWEEP_PAUSE_US	   100000
#define SWEEP_PAUSE_FACTOR 10

/* How long a job that cannot be claimed is left out. */
#define HOLD_US 60000000

/*
 * A poll that took longer than this has waited for a lock, which is no reason to sweep less
 * often.
 */
#define SWEEP_POLL_MAX_US 100000

static void release_held(LlmqJobs *jobs, int64_t now_us);

/*
 * Returns whether there are enough ready ids in memory for a while, so that looking for more
 * can wait.
 */
static bool
has_plenty(const LlmqJobs *jobs)
{
	return llmq_ready_count(jobs->ready) > 2 * (size_t) jobs->core->options.max_in_flight + 1000;
}

/* Returns when the wanted sweep may begin. */
static int64_t
sweep_due(const LlmqJobs *jobs)
{
	return jobs->sweep_due_us > jobs->position.sweep_next_us ? jobs->sweep_due_us
															 : jobs->position.sweep_next_us;
}

/* Decides whether the poll that begins now is part of a sweep, and begins one if necessary. */
static bool
sweeps(LlmqJobs *jobs, bool full)
{
	LlmqPosition *position = &jobs->position;
	int64_t now = jobs->core->now.mono_us;

	/* A long sweep takes turns with looks above the tip. */
	if (position->sweeping)
		return !(jobs->polling_sweep && jobs->core->woken);
	if (now < position->sweep_next_us || !(full || jobs->core->woken || now >= jobs->sweep_due_us))
	{
		if (jobs->core->woken && jobs->sweep_due_us == LLMQ_NEVER)
			jobs->sweep_due_us = position->sweep_next_us;
		return false;
	}
	position->sweeping = true;
	position->sweep_at = position->base;
	position->sweep_xid = 0;
	position->sweep_cost_us = 0;
	jobs->sweep_due_us = LLMQ_NEVER;
	return true;
}

int64_t
llmq_jobs_look_due(const LlmqJobs *jobs)
{
	if (jobs->position.sweeping || (jobs->more && !has_plenty(jobs)))
		return 0;
	return sweep_due(jobs);
}

int64_t
llmq_jobs_begin_look(LlmqJobs *jobs, bool full)
{
	release_held(jobs, jobs->core->now.mono_us);
	jobs->polling_sweep = sweeps(jobs, full);
	return jobs->polling_sweep ? jobs->position.sweep_at : jobs->position.tip;
}

/* ---- Position ---------------------------------------------------------------------- */

/* Ends the sweep under way, whether it is complete or not. */
static void
end_sweep(LlmqJobs *jobs)
{
	LlmqPosition *position = &jobs->position;
	int64_t pause = position->sweep_cost_us * SWEEP_PAUSE_FACTOR;

	position->sweeping = false;
	position->sweep_next_us =
		jobs->core->now.mono_us + (pause > SWEEP_PAUSE_US ? pause : SWEEP_PAUSE_US);
}

/* Completes the sweep under way, which has seen everything above the base. */
static void
finish_sweep(LlmqJobs *jobs)
{
	LlmqPosition *position = &jobs->position;

	end_sweep(jobs);
	if (position->candidate_xid != 0 && position->sweep_xid >= position->candidate_xid)
	{
		position->base = position->candidate;
		position->candidate_xid = 0;
	}
}

static void
move_position(LlmqJobs *jobs, int64_t next_xid, int64_t oldest_xid)
{
	LlmqPosition *position = &jobs->position;

	if (jobs->polling_sweep)
	{
		int64_t took = jobs->core->now.mono_us - jobs->core->began_us;

		position->sweep_cost_us += took < SWEEP_POLL_MAX_US ? took : SWEEP_POLL_MAX_US;
		if (position->sweep_xid == 0)
			position->sweep_xid = oldest_xid;
		if (!jobs->more)
			finish_sweep(jobs);
	}
	if (position->candidate_xid == 0 && position->tip > position->base)
	{
		position->candidate = position->tip;
		position->candidate_xid = next_xid;
	}
}

/* Has a sweep find a job again that somebody had locked. */
void
llmq_jobs_look_again(LlmqJobs *jobs, int64_t seq)
{
	LlmqPosition *position = &jobs->position;

	if (position->base >= seq)
		position->base = seq - 1;
	if (position->sweeping)
		end_sweep(jobs);
	position->candidate_xid = 0;
	if (jobs->sweep_due_us == LLMQ_NEVER)
		jobs->sweep_due_us = jobs->core->now.mono_us + SWEEP_PAUSE_US;
}

/* Leaves a job out for a while; the others go on without it. */
void
llmq_jobs_hold(LlmqJobs *jobs, int64_t seq, const char *error)
{
	llmq_core_log(jobs->core, LLMQ_LOG_WARNING,
				  "the job at %" PRId64 " of llmq.ready cannot be claimed and is left out for a "
				  "minute: %s",
				  seq, error);
	if (jobs->held_count == LLMQ_HELD_MAX)
		release_held(jobs, LLMQ_NEVER);
	if (llmq_ready_hold(jobs->ready, seq))
		jobs->held[jobs->held_count++] = (LlmqHeld){seq, jobs->core->now.mono_us + HOLD_US};
}

/* Has jobs found again that were left out for long enough, or at least the first of them. */
static void
release_held(LlmqJobs *jobs, int64_t now_us)
{
	int count = 0;

	while (count < jobs->held_count && jobs->held[count].until_us <= now_us &&
		   (count == 0 || now_us != LLMQ_NEVER))
	{
		llmq_ready_release(jobs->ready, jobs->held[count].seq);
		llmq_jobs_look_again(jobs, jobs->held[count++].seq);
	}
	jobs->held_count -= count;
	memmove(jobs->held, jobs->held + count, sizeof(LlmqHeld) * (size_t) jobs->held_count);
}

/* ---- Rows ---------------------------------------------------------------------------- */

/* Handles a revoked lease: another worker has the job now, or it was cancelled. */
static void
revoke(LlmqJobs *jobs, const char *job_id, const char *delivery)
{
	LlmqJob *job = llmq_job_table_find(&jobs->table, job_id, (int) strtol(delivery, NULL, 10));

	if (job != NULL)
		llmq_jobs_interrupt(jobs, job);
}

/* Returns whether this worker runs the jobs of a queue. */
bool
llmq_jobs_serves(const LlmqJobs *jobs, const char *queue)
{
	const char *const *served = jobs->core->options.queues;

	if (served == NULL)
		return true;
	while (*served != NULL && strcmp(*served, queue) != 0)
		served++;
	return *served != NULL;
}

/* Takes one ready job into memory, if it is for us; false when there is no room for it. */
static bool
take_ready(LlmqJobs *jobs, const LlmqRows *rows, int i)
{
	LlmqPosition *position = &jobs->position;
	int64_t seq = strtoll(llmq_rows_cell(rows, i, LLMQ_POLL_SEQ), NULL, 10);

	if (llmq_jobs_serves(jobs, llmq_rows_cell(rows, i, LLMQ_POLL_QUEUE)) &&
		!llmq_ready_add(jobs->ready, seq, llmq_rows_cell(rows, i, LLMQ_POLL_QUEUE),
						llmq_rows_cell(rows, i, LLMQ_POLL_TENANT),
						(int) strtol(llmq_rows_cell(rows, i, LLMQ_POLL_PRIORITY), NULL, 10)))
		return false;
	if (jobs->polling_sweep)
		position->sweep_at = seq;
	if (seq > position->tip)
		position->tip = seq;
	return true;
}

bool
llmq_jobs_complete_look(LlmqJobs *jobs, const LlmqRows *rows)
{
	bool room = true;

	for (int i = 0; i < rows->row_count; i++)
	{
		if (llmq_rows_cell(rows, i, LLMQ_POLL_CONTROL) != NULL)
			continue;
		if (llmq_rows_cell(rows, i, LLMQ_POLL_SEQ) == NULL)
			revoke(jobs, llmq_rows_cell(rows, i, LLMQ_POLL_JOB_ID),
				   llmq_rows_cell(rows, i, LLMQ_POLL_DELIVERY));
		else if (room)
			room = take_ready(jobs, rows, i);
	}
	return room;
}

void
llmq_jobs_end_look(LlmqJobs *jobs, const json_t *control, bool room)
{
	jobs->more = room && json_is_true(json_object_get(control, "more"));
	if (room)
		move_position(jobs, json_integer_value(json_object_get(control, "next_xid")),
					  json_integer_value(json_object_get(control, "oldest_xid")));
	else
		/* Jobs without room stay in the table; a later sweep reads them from the base again. */
		llmq_jobs_look_again(jobs, LLMQ_NEVER);
}

/*
 * Forgets what is known of llmq.ready.  In a new session the tables may be new, with seqs that
 * begin anew (DROP and CREATE EXTENSION in one transaction).
 */
void
llmq_jobs_forget_ready(LlmqJobs *jobs)
{
	LlmqReady *fresh = llmq_ready_create();

	if (fresh != NULL)
	{
		llmq_ready_destroy(jobs->ready);
		jobs->ready = fresh;
	}
	memset(&jobs->position, 0, sizeof(jobs->position));
	jobs->sweep_due_us = LLMQ_NEVER;
	jobs->more = false;
	jobs->suspect_count = jobs->held_count = 0;
}
