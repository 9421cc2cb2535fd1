/*
 * engine.c
 *		The worker's engine: claim, call, settle, over a store and a transfer pool.
 *
 * A turn (dispatch) goes: bytes and clocks of the network, retries that are due,
 * then the store, in small operations, the most urgent first.
 */
#include "engine/engine_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deliveries in hand for each call slot: the others wait for their next attempt or to be settled.
 */
#define JOBS_PER_SLOT 2

/* Retention begins some minutes after the start, not for all workers at once. */
#define FIRST_PRUNE_US INT64_C(120000000)

#define LOG_LINE_MAX 1200

static bool copy_options(LlmqEngine *engine, const LlmqEngineOptions *options);

LlmqEngine *
llmq_engine_create(const LlmqEngineOptions *options, LlmqStore *store, char *error,
				   size_t error_size)
{
	LlmqEngine *engine = calloc(1, sizeof(*engine));
	int slots = options->max_connections;

	if (engine == NULL)
		return NULL;
	engine->store = store;
	llmq_random_seed(&engine->random, options->seed);
	engine->sweep_due_us = engine->reconcile_at_us = LLMQ_NEVER;
	engine->transfers = llmq_transfer_pool_create(slots + LLMQ_RELAY_MAX_IN_FLIGHT,
												  options->user_agent, error, error_size);
	engine->ready = llmq_ready_create();
	engine->claiming = calloc((size_t) slots + 1, sizeof(*engine->claiming));
	engine->suspects = calloc((size_t) slots + 1, sizeof(*engine->suspects));
	if (engine->transfers == NULL || engine->ready == NULL || engine->claiming == NULL ||
		engine->suspects == NULL || !llmq_metrics_init(&engine->metrics) ||
		!llmq_job_table_init(&engine->jobs, slots * JOBS_PER_SLOT) ||
		!llmq_heap_reserve(&engine->waiting, slots * JOBS_PER_SLOT + 1) ||
		!copy_options(engine, options))
	{
		if (engine->transfers != NULL)
			snprintf(error, error_size, "out of memory");
		llmq_engine_destroy(engine);
		return NULL;
	}
	engine->now = options->clock();
	engine->clock_offset_us = engine->now.wall_us - engine->now.mono_us;
	engine->clock_set_us = LLMQ_NEVER;
	engine->hello_at_us = engine->now.mono_us;
	engine->prune_at_us =
		engine->now.mono_us + FIRST_PRUNE_US + llmq_random_upto(&engine->random, FIRST_PRUNE_US);
	return engine;
}

void
llmq_engine_destroy(LlmqEngine *engine)
{
	if (engine == NULL)
		return;
	if (engine->transfers != NULL)
		llmq_transfer_pool_destroy(engine->transfers);
	llmq_relay_free(&engine->relay);
	llmq_job_table_free(&engine->jobs);
	llmq_heap_free(&engine->waiting);
	llmq_ready_destroy(engine->ready);
	llmq_config_destroy(engine->config);
	llmq_metrics_free(&engine->metrics);
	free(engine->claiming);
	free(engine->suspects);
	free((char *) engine->options.name);
	free((char *) engine->options.kind);
	free((char *) engine->options.pid);
	free((char *) engine->options.secrets_directory);
	free(engine);
}

static bool
replace(const char **kept, const char *text)
{
	char *copy = text == NULL ? NULL : strdup(text);

	if (text != NULL && copy == NULL)
		return false;
	free((char *) *kept);
	*kept = copy;
	return true;
}

static bool
copy_options(LlmqEngine *engine, const LlmqEngineOptions *options)
{
	engine->options = *options;
	engine->options.name = engine->options.kind = engine->options.pid = NULL;
	engine->options.secrets_directory = engine->options.user_agent = NULL;
	return replace(&engine->options.name, options->name) &&
		   replace(&engine->options.kind, options->kind) &&
		   replace(&engine->options.pid, options->pid) && llmq_engine_configure(engine, options);
}

bool
llmq_engine_configure(LlmqEngine *engine, const LlmqEngineOptions *options)
{
	engine->options.poll_interval_us = options->poll_interval_us;
	engine->options.heartbeat_idle = options->heartbeat_idle;
	engine->options.max_in_flight = options->max_in_flight < engine->options.max_connections
										? options->max_in_flight
										: engine->options.max_connections;
	return replace(&engine->options.secrets_directory, options->secrets_directory);
}

int
llmq_engine_fd(const LlmqEngine *engine)
{
	return llmq_transfer_pool_fd(engine->transfers);
}

static int64_t
sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
llmq_engine_timeout(LlmqEngine *engine)
{
	int64_t now = (engine->now = engine->options.clock()).mono_us;
	int64_t network = llmq_transfer_pool_timeout(engine->transfers, now);
	LlmqHeapNode *next = llmq_heap_top(&engine->waiting);
	int64_t due = llmq_engine_store_due(engine);

	if (network >= 0)
		due = sooner(due, now + network);
	if (next != NULL && llmq_engine_calls(engine) < engine->options.max_in_flight)
		due = sooner(due, next->key);
	return due > now ? due - now : 0;
}

void
llmq_engine_wake(LlmqEngine *engine)
{
	engine->woken = true;
}

void
llmq_engine_dispatch(LlmqEngine *engine)
{
	engine->now = engine->options.clock();
	llmq_transfer_pool_dispatch(engine->transfers, engine->now.mono_us);
	engine->now = engine->options.clock(); /* a wish counts from when the answer was read */
	llmq_engine_watch_clock(engine);
	llmq_engine_collect(engine);
	llmq_engine_start_due(engine);
	llmq_relay_start_due(engine);
	llmq_engine_run_store(engine);
}

LlmqEngineState
llmq_engine_state(const LlmqEngine *engine)
{
	return engine->state;
}

int
llmq_engine_calls(const LlmqEngine *engine)
{
	return llmq_transfer_pool_count(engine->transfers) - engine->relay.in_flight.count;
}

int
llmq_engine_jobs(const LlmqEngine *engine)
{
	return engine->jobs.count;
}

int
llmq_engine_messages(const LlmqEngine *engine)
{
	return llmq_relay_in_hand(&engine->relay);
}

bool
llmq_engine_store_failing(const LlmqEngine *engine)
{
	return engine->store_failures > 0;
}

/* How many more deliveries may be taken in hand. */
int
llmq_engine_room(const LlmqEngine *engine)
{
	int calls = engine->options.max_in_flight - llmq_engine_calls(engine);
	int jobs = engine->options.max_in_flight * JOBS_PER_SLOT - engine->jobs.count;

	return calls < jobs ? calls : jobs;
}

void
llmq_engine_log(LlmqEngine *engine, LlmqLogLevel level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	engine->options.log(level, line);
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
