/*
 * job_table.c
 *		The jobs in hand: a table of all by id and delivery, and ordered lists of some.
 *
 * The hash table is our own because the jobs are its nodes, so that adding one needs no
 * memory, and libc's hsearch has one global table without removal.
 */
#include "jobs/job_table.h"

#include <stdlib.h>
#include <string.h>

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

void
llmq_job_list_add(LlmqJobList *list, LlmqJob *job)
{
	job->previous = list->tail;
	job->next = NULL;
	if (list->tail == NULL)
		list->head = job;
	else
		list->tail->next = job;
	list->tail = job;
	list->count++;
}

void
llmq_job_list_remove(LlmqJobList *list, LlmqJob *job)
{
	*(job->previous == NULL ? &list->head : &job->previous->next) = job->next;
	*(job->next == NULL ? &list->tail : &job->next->previous) = job->previous;
	job->previous = job->next = NULL;
	list->count--;
}
