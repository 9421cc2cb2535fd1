/*
 * job.c
 *		A claimed job in the engine, and the table of them.
 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

/* Prompts, messages and parameters of one job, and the record of its attempts. */
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
	if (job == NULL)
		return;
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

static int
bucket_of(const LlmqJobTable *table, const char *job_id)
{
	uint64_t hash = UINT64_C(1469598103934665603);

	for (; *job_id != '\0'; job_id++)
		hash = (hash ^ (unsigned char) *job_id) * UINT64_C(1099511628211);
	return (int) (hash % (uint64_t) table->bucket_count);
}

bool
llmq_job_table_init(LlmqJobTable *table, int expected)
{
	*table = (LlmqJobTable){.bucket_count = expected + 1};
	table->buckets = calloc((size_t) table->bucket_count, sizeof(LlmqJob *));
	return table->buckets != NULL;
}

void
llmq_job_table_free(LlmqJobTable *table)
{
	for (int i = 0; table->buckets != NULL && i < table->bucket_count; i++)
	{
		while (table->buckets[i] != NULL)
		{
			LlmqJob *job = table->buckets[i];

			table->buckets[i] = job->next_in_bucket;
			llmq_job_destroy(job);
		}
	}
	free(table->buckets);
	*table = (LlmqJobTable){0};
}

void
llmq_job_table_add(LlmqJobTable *table, LlmqJob *job)
{
	int bucket = bucket_of(table, job->job_id);

	job->next_in_bucket = table->buckets[bucket];
	table->buckets[bucket] = job;
	table->count++;
}

void
llmq_job_table_remove(LlmqJobTable *table, LlmqJob *job)
{
	LlmqJob **link = &table->buckets[bucket_of(table, job->job_id)];

	while (*link != job)
		link = &(*link)->next_in_bucket;
	*link = job->next_in_bucket;
	table->count--;
}

LlmqJob *
llmq_job_table_find(const LlmqJobTable *table, const char *job_id, int delivery)
{
	LlmqJob *job = table->buckets[bucket_of(table, job_id)];

	while (job != NULL && (job->delivery_number != delivery || strcmp(job->job_id, job_id) != 0))
		job = job->next_in_bucket;
	return job;
}

void
llmq_job_table_each(const LlmqJobTable *table, void (*visit)(LlmqJob *job, void *context),
					void *context)
{
	for (int i = 0; i < table->bucket_count; i++)
	{
		for (LlmqJob *job = table->buckets[i]; job != NULL; job = job->next_in_bucket)
			visit(job, context);
	}
}
