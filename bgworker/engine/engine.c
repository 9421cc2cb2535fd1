/*
 * engine.c
 *		The worker's engine: claim, call, settle, over a store and a transfer pool.
 *
 * A turn (dispatch) serves sockets and clocks of the network first, then starts retries that
 * are due, and then runs small store operations, the most urgent first.
 */
#include "engine/engine_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Retention begins a few minutes after the start, and not in all workers at once. */
#define FIRST_PRUNE_US INT64_C(120000000)

static bool copy_options(LlmqCore *core, const LlmqEngineOptions *options);

/* Sets the clocks and times of a core that has its options. */
static void
start_clocks(LlmqEngine *engine)
{
	LlmqCore *core = &engine->core;

	core->now = core->options.clock();
	core->hello_at_us = core->now.mono_us;
	core->reconcile_at_us = LLMQ_NEVER;
	engine->clock_offset_us = core->now.wall_us - core->now.mono_us;
	engine->clock_set_us = LLMQ_NEVER;
	engine->prune_at_us =
		core->now.mono_us + FIRST_PRUNE_US + llmq_random_upto(&core->random, FIRST_PRUNE_US);
}

LlmqEngine *
llmq_engine_create(const LlmqEngineOptions *options, LlmqStore *store, char *error,
				   size_t error_size)
{
	LlmqEngine *engine = calloc(1, sizeof(*engine));
	LlmqCore *core;

	if (engine == NULL)
		return NULL;
	core = &engine->core;
	core->store = store;
	llmq_random_seed(&core->random, options->seed);
	engine->relay.core = core;
	core->transfers = llmq_transfer_pool_create(options->max_connections + LLMQ_RELAY_MAX_IN_FLIGHT,
												options->user_agent, error, error_size);
	if (!llmq_jobs_init(&engine->jobs, core, options->max_connections) || core->transfers == NULL ||
		!llmq_metrics_init(&core->metrics) || !copy_options(core, options))
	{
		if (core->transfers != NULL)
			snprintf(error, error_size, "out of memory");
		llmq_engine_destroy(engine);
		return NULL;
	}
	start_clocks(engine);
	return engine;
}

void
llmq_engine_destroy(LlmqEngine *engine)
{
	LlmqCore *core;

	if (engine == NULL)
		return;
	core = &engine->core;
	if (core->transfers != NULL)
		llmq_transfer_pool_destroy(core->transfers);
	llmq_relay_free(&engine->relay);
	llmq_jobs_free(&engine->jobs);
	llmq_config_destroy((LlmqConfig *) core->config);
	llmq_metrics_free(&core->metrics);
	free((char *) core->options.name);
	free((char *) core->options.kind);
	free((char *) core->options.pid);
	free((char *) core->options.secrets_directory);
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
configure(LlmqCore *core, const LlmqEngineOptions *options)
{
	core->options.poll_interval_us = options->poll_interval_us;
	core->options.heartbeat_idle = options->heartbeat_idle;
	core->options.max_in_flight = options->max_in_flight < core->options.max_connections
									  ? options->max_in_flight
									  : core->options.max_connections;
	return replace(&core->options.secrets_directory, options->secrets_directory);
}

static bool
copy_options(LlmqCore *core, const LlmqEngineOptions *options)
{
	core->options = *options;
	core->options.name = core->options.kind = core->options.pid = NULL;
	core->options.secrets_directory = core->options.user_agent = NULL;
	return replace(&core->options.name, options->name) &&
		   replace(&core->options.kind, options->kind) &&
		   replace(&core->options.pid, options->pid) && configure(core, options);
}

bool
llmq_engine_configure(LlmqEngine *engine, const LlmqEngineOptions *options)
{
	return configure(&engine->core, options);
}

int
llmq_engine_fd(const LlmqEngine *engine)
{
	return llmq_transfer_pool_fd(engine->core.transfers);
}

static int64_t
sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
llmq_engine_timeout(LlmqEngine *engine)
{
	int64_t now = (engine->core.now = engine->core.options.clock()).mono_us;
	int64_t network = llmq_transfer_pool_timeout(engine->core.transfers, now);
	int64_t due = sooner(llmq_agenda_due(engine), llmq_jobs_start_time(&engine->jobs));

	if (network >= 0)
		due = sooner(due, now + network);
	return due > now ? due - now : 0;
}

void
llmq_engine_wake(LlmqEngine *engine)
{
	engine->core.woken = true;
}

/* Handles the transfers that have ended. */
static void
collect(LlmqCore *core)
{
	LlmqTransferResult result;

	while (llmq_transfer_pool_next(core->transfers, &result))
	{
		LlmqCaller *caller = result.owner;

		caller->ended(caller->client, caller, &result);
	}
}

void
llmq_engine_dispatch(LlmqEngine *engine)
{
	LlmqCore *core = &engine->core;

	core->now = core->options.clock();
	llmq_transfer_pool_dispatch(core->transfers, core->now.mono_us);
	core->now =
		core->options.clock(); /* a retry hint counts from the time when the answer was read */
	llmq_engine_watch_clock(engine);
	collect(core);
	llmq_jobs_start_due(&engine->jobs);
	llmq_relay_start_due(&engine->relay);
	llmq_agenda_run(engine);
}

LlmqEngineState
llmq_engine_state(const LlmqEngine *engine)
{
	return engine->core.state;
}

int
llmq_engine_calls(const LlmqEngine *engine)
{
	return engine->jobs.calls;
}

int
llmq_engine_jobs(const LlmqEngine *engine)
{
	return engine->jobs.table.count;
}

int
llmq_engine_messages(const LlmqEngine *engine)
{
	return llmq_relay_in_hand(&engine->relay);
}

bool
llmq_engine_store_failing(const LlmqEngine *engine)
{
	return engine->core.store_failures > 0;
}
