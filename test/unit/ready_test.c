/*
 * ready_test.c
 *		Whose turn it is: queues, priorities, tenants, order.
 */
#include "jobs/ready.h"
#include "tap.h"

#include <stdlib.h>

typedef struct Limits
{
	const char *closed; /* a queue that may not run */
	int others;
} Limits;

static int
allowance(void *context, const char *queue)
{
	const Limits *limits = context;

	if (limits->closed != NULL && strcmp(queue, limits->closed) == 0)
		return 0;
	return limits->others;
}

static bool
takes(LlmqReady *ready, Limits *limits, const int64_t *expected, int count)
{
	int64_t got[64];
	int taken = llmq_ready_take(ready, got, 64, allowance, limits);

	if (taken != count)
		return false;
	return memcmp(got, expected, sizeof(*got) * (size_t) count) == 0;
}

static void
test_order(void)
{
	LlmqReady *ready = llmq_ready_create();
	Limits all = {NULL, 100};

	for (int64_t seq = 1; seq <= 6; seq++)
		llmq_ready_add(ready, seq, "default", "a", 0);
	llmq_ready_add(ready, 7, "default", "b", 0);
	llmq_ready_add(ready, 8, "default", "a", 9);
	ok(takes(ready, &all, (int64_t[]){8, 1, 7, 2, 3, 4, 5, 6}, 8),
	   "higher priority goes first, then tenants take turns, each in order");
	is_int((int64_t) llmq_ready_count(ready), 0, "what was taken is gone");
	llmq_ready_destroy(ready);
}

static void
test_queues(void)
{
	LlmqReady *ready = llmq_ready_create();
	Limits limits = {"paused", 2};

	for (int64_t seq = 1; seq <= 4; seq++)
	{
		llmq_ready_add(ready, seq, "one", "t", 0);
		llmq_ready_add(ready, seq + 10, "paused", "t", 0);
		llmq_ready_add(ready, seq + 20, "two", "t", 0);
	}
	ok(takes(ready, &limits, (int64_t[]){1, 21, 2, 22}, 4),
	   "queues take turns, each within its allowance, a closed one not at all");
	ok(llmq_ready_any(ready, allowance, &limits), "a queue with jobs and an allowance is seen");
	limits.others = 0;
	ok(!llmq_ready_any(ready, allowance, &limits), "without an allowance nothing can run");
	is_int((int64_t) llmq_ready_count(ready), 8, "what was not taken stays");
	llmq_ready_destroy(ready);
}

static void
test_repeats(void)
{
	LlmqReady *ready = llmq_ready_create();
	Limits all = {NULL, 1000000};
	int64_t *got = malloc(sizeof(*got) * 100000);
	bool ordered = true;
	int taken;

	for (int round = 0; round < 3; round++)
	{
		for (int64_t seq = 1; seq <= 100000; seq++)
			llmq_ready_add(ready, seq, "default", seq % 2 ? "odd" : "even", 0);
	}
	is_int((int64_t) llmq_ready_count(ready), 100000, "an id that is there already is left alone");
	taken = llmq_ready_take(ready, got, 100000, allowance, &all);
	is_int(taken, 100000, "all of a large backlog can be taken");
	for (int i = 0; i < taken; i++)
		ordered = ordered && got[i] == i + 1;
	ok(ordered, "two tenants alternate over a large backlog, each in order");
	ok(llmq_ready_add(ready, 5, "default", "odd", 0) && llmq_ready_count(ready) == 1,
	   "an id that was taken may come back");
	free(got);
	llmq_ready_destroy(ready);
}

static void
test_many_tenants(void)
{
	LlmqReady *ready = llmq_ready_create();
	Limits all = {NULL, 1000000};
	int64_t got[3000];
	char tenant[32];

	for (int64_t seq = 1; seq <= 10000; seq++)
		llmq_ready_add(ready, seq, "default", "busy", 0);
	for (int64_t i = 1; i <= 2000; i++)
	{
		snprintf(tenant, sizeof(tenant), "t%d", (int) i);
		llmq_ready_add(ready, 20000 + i, "default", tenant, 0);
	}
	llmq_ready_take(ready, got, 2001, allowance, &all);
	is_int(got[0], 1, "the tenant that came first goes first");
	is_int(got[2000], 22000, "ten thousand jobs of one tenant delay another's first by one turn");
	llmq_ready_destroy(ready);
}

static void
test_held(void)
{
	LlmqReady *ready = llmq_ready_create();
	Limits all = {NULL, 100};

	ok(llmq_ready_hold(ready, 7), "an id may be held");
	llmq_ready_add(ready, 7, "default", "t", 0);
	ok(takes(ready, &all, (int64_t[]){0}, 0), "then it is not taken");
	llmq_ready_release(ready, 8);
	is_int((int64_t) llmq_ready_count(ready), 1, "to let another one go changes nothing");
	llmq_ready_release(ready, 7);
	llmq_ready_add(ready, 7, "default", "t", 0);
	ok(takes(ready, &all, (int64_t[]){7}, 1), "let go, it is");
	llmq_ready_destroy(ready);
}

static void
test_most(void)
{
	LlmqReady *ready = llmq_ready_create();
	bool room = true;

	for (int64_t seq = 1; seq <= LLMQ_READY_MAX; seq++)
		room = room && llmq_ready_add(ready, seq, "default", "t", 0);
	ok(room, "two million ids have room");
	ok(!llmq_ready_add(ready, LLMQ_READY_MAX + 1, "default", "t", 0), "and no more");
	ok(llmq_ready_add(ready, 1, "default", "t", 0), "those that are there have it still");
	llmq_ready_destroy(ready);
}

int
main(void)
{
	test_order();
	test_queues();
	test_repeats();
	test_many_tenants();
	test_held();
	test_most();
	return tap_done();
}
