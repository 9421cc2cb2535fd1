/*
 * engine_session.c
 *		The worker's session in the database: hello, heartbeat, drain, reconcile, goodbye.
 */
#include "engine/engine_state.h"

#include <stdio.h>
#include <string.h>

#include "core/store_columns.h"

/* How often a worker with leases sends a heartbeat; llmq.lease_ttl() is three times that. */
#define HEARTBEAT_US	   5000000
#define HEARTBEAT_AGAIN_US 1000000 /* after a failed one */

/*
 * By then a claim whose outcome is unknown has ended, because the store's drivers limit each
 * statement.
 */
#define CLAIM_ENDS_US INT64_C(35000000)

/* Returns how many leases this worker holds, of jobs and of messages. */
int
llmq_engine_in_hand(const LlmqEngine *engine)
{
	return engine->jobs.table.count + llmq_relay_in_hand(&engine->relay);
}

/* ---- Hello --------------------------------------------------------------------------- */

/*
 * Returns when hello is due.  An outdated worker only checks now and then whether that has
 * changed.
 */
int64_t
llmq_engine_hello_due(LlmqEngine *engine)
{
	return engine->core.state == LLMQ_ENGINE_STARTING || engine->core.state == LLMQ_ENGINE_OUTDATED
			   ? engine->core.hello_at_us
			   : LLMQ_NEVER;
}

void
llmq_engine_begin_hello(LlmqEngine *engine)
{
	const LlmqEngineOptions *options = &engine->core.options;
	char protocol[LLMQ_NUMBER_LENGTH];

	snprintf(protocol, sizeof(protocol), "%d", LLMQ_STORE_PROTOCOL);
	llmq_core_begin(&engine->core, LLMQ_OP_HELLO,
					(const char *[]){protocol, options->name, options->kind, options->pid, NULL});
}

void
llmq_engine_complete_hello(LlmqEngine *engine, const LlmqRows *rows)
{
	LlmqCore *core = &engine->core;
	const char *state = llmq_rows_cell(rows, 0, LLMQ_HELLO_STATE);
	const char *reason = llmq_rows_cell(rows, 0, LLMQ_HELLO_REASON);
	LlmqEngineState before = core->state;

	if (strcmp(core->worker_id, llmq_rows_cell(rows, 0, LLMQ_HELLO_WORKER_ID)) != 0)
		llmq_relay_forget(&engine->relay);
	snprintf(core->worker_id, sizeof(core->worker_id), "%s",
			 llmq_rows_cell(rows, 0, LLMQ_HELLO_WORKER_ID));
	core->state = strcmp(state, "running") == 0		  ? LLMQ_ENGINE_RUNNING
				  : strcmp(state, "quarantined") == 0 ? LLMQ_ENGINE_QUARANTINED
													  : LLMQ_ENGINE_OUTDATED;
	if (reason != NULL && core->state != before)
		llmq_core_log(core, LLMQ_LOG_WARNING, "this worker makes no calls: %s", reason);
	llmq_jobs_forget_ready(&engine->jobs);
	llmq_relay_forget_tip(&engine->relay);
	engine->hello_failures = 0;
	core->hello_at_us = core->now.mono_us + core->options.poll_interval_us;
	core->woken = true;
	core->full_poll_at_us = 0;
	engine->last_heartbeat_us = core->now.mono_us;
	engine->metrics_told = LLMQ_METRICS_UNTOLD;
	core->sure_us = core->began_us;
	llmq_relay_sort_out(&engine->relay);
}

void
llmq_engine_fail_hello(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	engine->core.hello_at_us =
		engine->core.now.mono_us + llmq_core_backoff(&engine->core, engine->hello_failures++);
}

/* ---- Heartbeat ----------------------------------------------------------------------- */

int64_t
llmq_engine_heartbeat_due(LlmqEngine *engine)
{
	bool wanted = llmq_engine_in_hand(engine) > 0 || engine->core.heartbeat_shows_work ||
				  engine->core.options.heartbeat_idle || llmq_engine_has_metrics(engine);

	return wanted ? engine->last_heartbeat_us + HEARTBEAT_US : LLMQ_NEVER;
}

void
llmq_engine_begin_heartbeat(LlmqEngine *engine)
{
	char in_flight[LLMQ_NUMBER_LENGTH];
	LlmqBuffer metrics;
	bool tells;

	llmq_buffer_init(&metrics, LLMQ_METRIC_MAX_BYTES);
	tells = llmq_engine_tell_metrics(engine, &metrics);
	snprintf(in_flight, sizeof(in_flight), "%d", llmq_engine_in_hand(engine));
	engine->last_heartbeat_us = engine->core.now.mono_us;
	engine->core.heartbeat_shows_work = llmq_engine_in_hand(engine) > 0;
	llmq_core_begin(&engine->core, LLMQ_OP_HEARTBEAT,
					(const char *[]){engine->core.worker_id, in_flight,
									 tells ? llmq_buffer_string(&metrics) : NULL});
	llmq_buffer_free(&metrics);
}

void
llmq_engine_complete_heartbeat(LlmqEngine *engine, const LlmqRows *rows)
{
	engine->core.sure_us = engine->core.began_us;
	if (strcmp(llmq_rows_cell(rows, 0, 0), "t") != 0)
		llmq_core_start_again(&engine->core);
}

void
llmq_engine_fail_heartbeat(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	engine->core.heartbeat_shows_work = true;
	engine->last_heartbeat_us += HEARTBEAT_AGAIN_US - HEARTBEAT_US;
}

/* ---- Drain and goodbye --------------------------------------------------------------- */

int64_t
llmq_engine_drain_due(LlmqEngine *engine)
{
	return engine->drain_unsaid ? 0 : LLMQ_NEVER;
}

void
llmq_engine_begin_drain(LlmqEngine *engine)
{
	llmq_core_begin(&engine->core, LLMQ_OP_DRAIN, (const char *[]){engine->core.worker_id});
}

void
llmq_engine_complete_drain(LlmqEngine *engine, const LlmqRows *rows)
{
	engine->drain_unsaid = false;
}

/* Handles a failed drain: others merely learn of it later. */
void
llmq_engine_fail_drain(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	engine->drain_unsaid = false;
}

int64_t
llmq_engine_goodbye_due(LlmqEngine *engine)
{
	return engine->core.state >= LLMQ_ENGINE_DRAINING && llmq_engine_in_hand(engine) == 0
			   ? 0
			   : LLMQ_NEVER;
}

void
llmq_engine_begin_goodbye(LlmqEngine *engine)
{
	engine->core.state = LLMQ_ENGINE_STOPPING;
	llmq_core_begin(&engine->core, LLMQ_OP_GOODBYE, (const char *[]){engine->core.worker_id});
}

void
llmq_engine_complete_goodbye(LlmqEngine *engine, const LlmqRows *rows)
{
	engine->core.state = LLMQ_ENGINE_STOPPED;
}

/* Handles a failed goodbye: a successor takes the leases over. */
void
llmq_engine_fail_goodbye(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	engine->core.state = LLMQ_ENGINE_STOPPED;
}

/* ---- Claims of unknown end ----------------------------------------------------------- */

int64_t
llmq_engine_reconcile_due(LlmqEngine *engine)
{
	return engine->core.reconcile_at_us;
}

/* Gives back the leases that do not belong to jobs and messages in hand. */
void
llmq_engine_begin_reconcile(LlmqEngine *engine)
{
	LlmqBuffer ids;
	LlmqBuffer messages;

	llmq_relay_list_ids(&engine->relay, &messages);
	llmq_jobs_list_ids(&engine->jobs, &ids);
	llmq_core_begin(&engine->core, LLMQ_OP_RECONCILE,
					(const char *[]){engine->core.worker_id,
									 ids.failed ? "" : llmq_buffer_string(&ids),
									 messages.failed ? "" : llmq_buffer_string(&messages)});
	llmq_buffer_free(&ids);
	llmq_buffer_free(&messages);
}

void
llmq_engine_complete_reconcile(LlmqEngine *engine, const LlmqRows *rows)
{
	LlmqCore *core = &engine->core;

	core->reconcile_at_us = core->reconcile_again ? core->now.mono_us + CLAIM_ENDS_US : LLMQ_NEVER;
	core->reconcile_again = false;
	engine->relay.sweep_wanted = true; /* what went back may be below the tip */
	core->woken = true;
}
