/*
 * job.c
 *		A claimed job in the engine.
 */
#include "jobs/job.h"

#include <stdlib.h>
#include <string.h>

/* The limit for the prompt, messages and params of one job, and the record of its attempts. */
#define JOB_MAX_BYTES ((size_t) 1024 * 1024 * 1024)

static const char *
copy(LlmqJob *job, const char *text)
{
	return llmq_arena_strdup(job->arena, text);
}

LlmqJob *
llmq_job_create(const LlmqJobRow *row, const LlmqPolicy *queue_policy, int64_t now_us)
{
	LlmqArena *arena = llmq_arena_create(JOB_MAX_BYTES);
	LlmqJob *job = arena == NULL ? NULL : llmq_arena_alloc(arena, sizeof(*job));

	if (job == NULL)
	{
		llmq_arena_destroy(arena);
		return NULL;
	}
	job->arena = arena;
	job->timer.owner = job;
	strncpy(job->job_id, row->job_id, LLMQ_UUID_LENGTH);
	job->delivery_number = (int) strtol(row->delivery, NULL, 10);
	job->queue = copy(job, row->queue);
	job->idempotency_keys = copy(job, row->idempotency_keys);
	job->traceparent = copy(job, row->traceparent);
	job->prompt = (LlmqPrompt){.prompt = copy(job, row->prompt),
							   .system = copy(job, row->system),
							   .messages = copy(job, row->messages),
							   .params = copy(job, row->params),
							   .model = copy(job, row->model)};
	job->delivery.started_us = now_us;
	job->delivery.counted_before = (int) strtol(row->counted, NULL, 10);
	job->policy = *queue_policy;
	if (!llmq_policy_merge(&job->policy, row->policy) || llmq_arena_failed(arena))
	{
		llmq_arena_destroy(arena);
		return NULL;
	}
	return job;
}

void
llmq_job_destroy(LlmqJob *job)
{
	llmq_job_end_call(job, false);
	llmq_arena_destroy(job->answer_arena);
	llmq_arena_destroy(job->arena);
}

void
llmq_job_end_call(LlmqJob *job, bool keep_answer)
{
	if (job->call.reply != NULL)
		llmq_reply_destroy(job->call.reply);
	if (keep_answer)
		job->answer_arena = job->call.arena;
	else
		llmq_arena_destroy(job->call.arena);
	memset(&job->call, 0, sizeof(job->call));
}

bool
llmq_job_add_attempt(LlmqJob *job, const LlmqVerdict *verdict, int64_t now_us)
{
	LlmqAttempt *attempt = llmq_arena_alloc(job->arena, sizeof(*attempt));

	if (attempt == NULL)
		return false;
	attempt->endpoint = copy(job, job->call.endpoint);
	attempt->traceparent = copy(job, job->call.traceparent);
	attempt->started_wall_us = job->call.started_wall_us;
	attempt->duration_us = now_us - job->call.started_us;
	attempt->verdict = *verdict;
	attempt->verdict.text = attempt->verdict.json = attempt->verdict.tool_calls = NULL;
	attempt->verdict.embedding = attempt->verdict.response = NULL;
	attempt->verdict.finish_reason = copy(job, verdict->finish_reason);
	attempt->verdict.model = copy(job, verdict->model);
	attempt->verdict.error_message = copy(job, verdict->error_message);
	attempt->verdict.request_id = copy(job, verdict->request_id);
	if (job->last_attempt == NULL)
		job->attempts = attempt;
	else
		job->last_attempt->next = attempt;
	job->last_attempt = attempt;
	return true;
}
