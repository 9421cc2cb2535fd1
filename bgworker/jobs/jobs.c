/*
 * jobs.c
 *		The client for jobs as a whole: its start, its configuration, its end.
 */
#include "jobs/jobs.h"

#include <stdlib.h>
#include <string.h>

/* ---- Beginning and end --------------------------------------------------------------- */

bool
llmq_jobs_init(LlmqJobs *jobs, LlmqCore *core, int slots)
{
	jobs->core = core;
	jobs->sweep_due_us = LLMQ_NEVER;
	jobs->ready = llmq_ready_create();
	jobs->claiming = calloc((size_t) slots + 1, sizeof(*jobs->claiming));
	jobs->suspects = calloc((size_t) slots + 1, sizeof(*jobs->suspects));
	return jobs->ready != NULL && jobs->claiming != NULL && jobs->suspects != NULL &&
		   llmq_job_table_init(&jobs->table, slots * LLMQ_JOBS_PER_SLOT) &&
		   llmq_heap_reserve(&jobs->waiting, slots * LLMQ_JOBS_PER_SLOT + 1);
}

void
llmq_jobs_free(LlmqJobs *jobs)
{
	llmq_job_table_free(&jobs->table);
	llmq_heap_free(&jobs->waiting);
	llmq_ready_destroy(jobs->ready);
	llmq_learned_free(&jobs->learned);
	free(jobs->claiming);
	free(jobs->suspects);
}

/* ---- Configuration ------------------------------------------------------------------- */

void
llmq_learned_free(LlmqLearned *learned)
{
	free(learned->endpoints);
	free(learned->queues);
	*learned = (LlmqLearned){0};
}

/*
 * Carries an endpoint's state over to a new configuration.  Pauses, quotas and breakers are
 * kept; counts and reports begin anew.
 */
static void
carry_over_endpoint(const LlmqJobs *jobs, const LlmqEndpoint *fresh, LlmqEndpointLimits *limits)
{
	const LlmqEndpoint *before = llmq_config_endpoint(jobs->core->config, fresh->name);

	if (before == NULL)
		return;
	*limits = *llmq_jobs_limits_of(jobs, before);
	limits->in_flight = 0;
	limits->secret_checked_us = 0;
	limits->secret_found = false;
	limits->reported = (LlmqEndpointTrouble){0};
}

bool
llmq_jobs_carry_over(const LlmqJobs *jobs, const LlmqConfig *fresh, LlmqLearned *learned)
{
	size_t endpoints = (size_t) llmq_config_endpoint_count(fresh) + 1;
	size_t queues = (size_t) llmq_config_queue_count(fresh) + 1;

	learned->endpoints = calloc(endpoints, sizeof(*learned->endpoints));
	learned->queues = calloc(queues, sizeof(*learned->queues));
	if (learned->endpoints == NULL || learned->queues == NULL)
	{
		llmq_learned_free(learned);
		return false;
	}
	for (int i = 0; i < llmq_config_endpoint_count(fresh); i++)
		carry_over_endpoint(jobs, llmq_config_endpoint_at(fresh, i), &learned->endpoints[i]);
	return true;
}

static void
count_job(LlmqJob *job, void *context)
{
	LlmqJobs *jobs = context;
	const LlmqConfig *config = jobs->core->config;
	const LlmqQueue *queue = llmq_config_queue(config, job->queue);
	const LlmqEndpoint *endpoint =
		job->state == LLMQ_JOB_CALLING ? llmq_config_endpoint(config, job->call.endpoint) : NULL;

	if (queue != NULL)
		llmq_jobs_state_of(jobs, queue)->in_flight++;
	if (endpoint != NULL)
		llmq_jobs_limits_of(jobs, endpoint)->in_flight++;
}

void
llmq_jobs_take_config(LlmqJobs *jobs, LlmqLearned learned)
{
	llmq_learned_free(&jobs->learned);
	jobs->learned = learned;
	llmq_job_table_each(&jobs->table, count_job, jobs);
}

/* ---- Leaving ------------------------------------------------------------------------- */

static void
interrupt(LlmqJob *job, void *context)
{
	llmq_jobs_interrupt(context, job);
}

static void
give_back_waiting(LlmqJob *job, void *context)
{
	if (job->state == LLMQ_JOB_WAITING)
		llmq_jobs_interrupt(context, job);
}

void
llmq_jobs_drain(LlmqJobs *jobs)
{
	llmq_job_table_each(&jobs->table, give_back_waiting, jobs);
}

void
llmq_jobs_stop(LlmqJobs *jobs)
{
	llmq_job_table_each(&jobs->table, interrupt, jobs);
}

bool
llmq_jobs_are_done(LlmqJobs *jobs)
{
	return !jobs->more && !jobs->position.sweeping && jobs->suspect_count == 0 &&
		   !llmq_ready_any(jobs->ready, llmq_jobs_allowance, jobs);
}

/* ---- Looks from outside -------------------------------------------------------------- */

static void
add_id(LlmqJob *job, void *context)
{
	LlmqBuffer *ids = context;

	llmq_buffer_append_char(ids, ids->len == 0 ? '{' : ',');
	llmq_buffer_append_string(ids, job->job_id);
}

void
llmq_jobs_list_ids(const LlmqJobs *jobs, LlmqBuffer *ids)
{
	llmq_buffer_init(ids, ((size_t) jobs->table.count + 1) * (LLMQ_UUID_LENGTH + 1) + 1);
	llmq_job_table_each(&jobs->table, add_id, ids);
	llmq_buffer_append_string(ids, ids->len == 0 ? "{}" : "}");
}

typedef struct Oldest
{
	int64_t now_us;
	int64_t age_us;
} Oldest;

static void
note_age(LlmqJob *job, void *context)
{
	Oldest *oldest = context;
	int64_t age = oldest->now_us - job->delivery.started_us;

	if (oldest->age_us < age)
		oldest->age_us = age;
}

int64_t
llmq_jobs_oldest_us(const LlmqJobs *jobs)
{
	Oldest oldest = {.now_us = jobs->core->now.mono_us};

	llmq_job_table_each(&jobs->table, note_age, &oldest);
	return oldest.age_us;
}
