/*
 * job_test.c
 *		Claimed jobs are made of rows, and found by id and delivery.
 */
#include "jobs/job_table.h"
#include "tap.h"

static const LlmqPolicy policy = {.call_timeout_us = 20, .max_attempts = 4};

static LlmqJob *
make(const char *job_id, const char *delivery, const char *own_policy)
{
	LlmqJobRow row = {.job_id = job_id,
					  .delivery = delivery,
					  .counted = "0",
					  .queue = "q",
					  .prompt = "Hi",
					  .policy = own_policy};

	return llmq_job_create(&row, &policy, 0);
}

static void
count(LlmqJob *job, void *context)
{
	++*(int *) context;
}

/* One bucket: all are neighbours. */
static void
test_table(void)
{
	LlmqJobTable table;
	LlmqJob *first = make("a", "1", NULL);
	LlmqJob *second = make("b", "1", NULL);
	int jobs = 0;

	llmq_job_table_init(&table, 0);
	llmq_job_table_add(&table, first);
	llmq_job_table_add(&table, second);
	llmq_job_table_add(&table, make("a", "2", NULL));
	ok(llmq_job_table_find(&table, "a", 1) == first &&
		   llmq_job_table_find(&table, "b", 1) == second,
	   "a job is found among others");
	ok(llmq_job_table_find(&table, "b", 2) == NULL, "another delivery of it is another");
	llmq_job_table_remove(&table, first);
	llmq_job_destroy(first);
	ok(llmq_job_table_find(&table, "a", 1) == NULL && llmq_job_table_find(&table, "a", 2) != NULL,
	   "one can go from between the others");
	llmq_job_table_each(&table, count, &jobs);
	is_int(jobs, 2, "who stay");
	llmq_job_table_free(&table);
}

int
main(void)
{
	LlmqJob *job = make("a", "3", "{\"max_attempts\":2}");

	ok(job->policy.max_attempts == 2 && job->policy.call_timeout_us == 20,
	   "a job has its queue's policy but for what is its own");
	llmq_job_destroy(job);
	ok(make("a", "1", "[]") == NULL, "a job whose policy cannot be read cannot be held");
	test_table();
	return tap_done();
}
