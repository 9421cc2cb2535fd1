/*
 * job_table.h
 *		The jobs in hand: a table of all by id and delivery, and ordered lists of some.
 */
#ifndef LLMQ_JOB_TABLE_H
#define LLMQ_JOB_TABLE_H

#include "jobs/job.h"

typedef struct LlmqJobTable
{
	LlmqJob **buckets;
	int bucket_count;
	int count;
} LlmqJobTable;

extern bool llmq_job_table_init(LlmqJobTable *table, int expected);
extern void llmq_job_table_free(LlmqJobTable *table); /* and every job in it */
extern void llmq_job_table_add(LlmqJobTable *table, LlmqJob *job);
extern void llmq_job_table_remove(LlmqJobTable *table, LlmqJob *job);
extern LlmqJob *llmq_job_table_find(const LlmqJobTable *table, const char *job_id, int delivery);

/* Calls visit for every job; visit must not add or remove. */
extern void llmq_job_table_each(const LlmqJobTable *table,
								void (*visit)(LlmqJob *job, void *context), void *context);

/* Jobs in some order. */
typedef struct LlmqJobList
{
	LlmqJob *head;
	LlmqJob *tail;
	int count;
} LlmqJobList;

extern void llmq_job_list_add(LlmqJobList *list, LlmqJob *job);
extern void llmq_job_list_remove(LlmqJobList *list, LlmqJob *job);

#endif /* LLMQ_JOB_TABLE_H */
