/*
 * agenda.c
 *		Decides which store operation is next, and handles its result.
 *
 * One operation is under way at a time.  The agenda lists all of them, the most urgent first:
 * hello before everything else; then the heartbeat, which is rare, and without which all calls
 * are lost; then answers, which were paid for; then claims for free slots; then looking for
 * more.  The row of an operation says when it is due, and nothing else does, so the engine
 * never waits for one that could begin, and never wakes up for one that cannot.
 */
#include "engine/engine_state.h"

#include <stdio.h>
#include <string.h>

/* The most operations in one dispatch, so that the network gets its turn. */
#define OPERATIONS_PER_TURN 8

/* After so many failures to settle, a stopping worker stops anyway. */
#define STOP_FAILURES 5

/* What a claim raises when this worker was considered lost (object_not_in_prerequisite_state). */
#define SESSION_HAS_ENDED "55000"

typedef struct Entry
{
	LlmqOperation operation;
	/* When it can begin, on the monotonic clock; LLMQ_NEVER: there is nothing for it to do. */
	int64_t (*due)(LlmqEngine *engine);
	void (*begin)(LlmqEngine *engine);
	void (*complete)(LlmqEngine *engine, const LlmqRows *rows);
	/*
	 * Handles a rollback; with `away` it may have been committed all the same.  NULL: there is
	 * nothing to do.
	 */
	void (*fail)(LlmqEngine *engine, const LlmqRows *rows, bool away);
	bool waits_alone; /* after a failure only this operation waits; others may begin at once */
} Entry;

/* ---- Jobs ---------------------------------------------------------------------------- */

static int64_t
settle_due(LlmqEngine *engine)
{
	return llmq_jobs_settle_due(&engine->jobs);
}

static void
begin_settle(LlmqEngine *engine)
{
	llmq_jobs_begin_settle(&engine->jobs);
}

static void
complete_settle(LlmqEngine *engine, const LlmqRows *rows)
{
	llmq_jobs_complete_settle(&engine->jobs, rows);
}

static void
fail_settle(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_jobs_fail_settle(&engine->jobs, rows);
}

static int64_t
draw_due(LlmqEngine *engine)
{
	return llmq_jobs_draw_due(&engine->jobs);
}

static void
begin_draw(LlmqEngine *engine)
{
	llmq_jobs_begin_draw(&engine->jobs);
}

static void
complete_draw(LlmqEngine *engine, const LlmqRows *rows)
{
	llmq_jobs_complete_draw(&engine->jobs, rows);
}

static void
fail_draw(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_jobs_fail_draw(&engine->jobs);
}

/*
 * Returns when a claim is due.  A poll that is overdue goes first, because it brings revoked
 * leases and changed configuration.
 */
static int64_t
claim_due(LlmqEngine *engine)
{
	if (!engine->may_claim)
		return engine->jobs.chance_us;
	return llmq_engine_poll_is_overdue(engine) ? LLMQ_NEVER : 0;
}

static void
begin_claim(LlmqEngine *engine)
{
	llmq_jobs_begin_claim(&engine->jobs);
}

static void
complete_claim(LlmqEngine *engine, const LlmqRows *rows)
{
	llmq_jobs_complete_claim(&engine->jobs, rows);
}

static void
fail_claim(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_jobs_fail_claim(&engine->jobs, rows);
	if (away)
		llmq_core_doubt_claim(&engine->core);
}

/* ---- Messages ------------------------------------------------------------------------ */

static int64_t
settle_messages_due(LlmqEngine *engine)
{
	return llmq_relay_settle_due(&engine->relay);
}

static void
begin_settle_messages(LlmqEngine *engine)
{
	llmq_relay_begin_settle(&engine->relay);
}

static void
complete_settle_messages(LlmqEngine *engine, const LlmqRows *rows)
{
	llmq_relay_complete_settle(&engine->relay, rows);
}

static void
fail_settle_messages(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_relay_fail_settle(&engine->relay, llmq_store_error_passes(rows->sqlstate));
}

/*
 * Returns when a claim of messages is due.  It takes turns with claims of jobs, and the quotas
 * that these need.
 */
static int64_t
claim_messages_due(LlmqEngine *engine)
{
	int64_t due = llmq_relay_claim_due(&engine->relay);

	if (due > engine->core.now.mono_us)
		return due;
	if (llmq_engine_poll_is_overdue(engine))
		return LLMQ_NEVER;
	if (engine->core.last_claim == LLMQ_OP_CLAIM_MESSAGES &&
		(engine->may_claim || draw_due(engine) <= engine->core.now.mono_us))
		return LLMQ_NEVER;
	return due;
}

static void
begin_claim_messages(LlmqEngine *engine)
{
	llmq_relay_begin_claim(&engine->relay);
}

static void
complete_claim_messages(LlmqEngine *engine, const LlmqRows *rows)
{
	llmq_relay_complete_claim(&engine->relay, rows);
}

static void
fail_claim_messages(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_relay_fail_claim(&engine->relay, rows);
	if (away)
		llmq_core_doubt_claim(&engine->core);
}

/* ---- The agenda ---------------------------------------------------------------------- */

static const Entry agenda[LLMQ_OPERATIONS] = {
	{LLMQ_OP_HELLO, llmq_engine_hello_due, llmq_engine_begin_hello, llmq_engine_complete_hello,
	 llmq_engine_fail_hello, false},
	{LLMQ_OP_HEARTBEAT, llmq_engine_heartbeat_due, llmq_engine_begin_heartbeat,
	 llmq_engine_complete_heartbeat, llmq_engine_fail_heartbeat, false},
	{LLMQ_OP_SETTLE, settle_due, begin_settle, complete_settle, fail_settle, true},
	{LLMQ_OP_SETTLE_MESSAGES, settle_messages_due, begin_settle_messages, complete_settle_messages,
	 fail_settle_messages, true},
	{LLMQ_OP_GOODBYE, llmq_engine_goodbye_due, llmq_engine_begin_goodbye,
	 llmq_engine_complete_goodbye, llmq_engine_fail_goodbye, false},
	{LLMQ_OP_DRAIN, llmq_engine_drain_due, llmq_engine_begin_drain, llmq_engine_complete_drain,
	 llmq_engine_fail_drain, false},
	{LLMQ_OP_RECONCILE, llmq_engine_reconcile_due, llmq_engine_begin_reconcile,
	 llmq_engine_complete_reconcile, NULL, false},
	{LLMQ_OP_CLAIM_MESSAGES, claim_messages_due, begin_claim_messages, complete_claim_messages,
	 fail_claim_messages, false},
	{LLMQ_OP_DRAW, draw_due, begin_draw, complete_draw, fail_draw, false},
	{LLMQ_OP_CLAIM, claim_due, begin_claim, complete_claim, fail_claim, false},
	{LLMQ_OP_POLL, llmq_engine_poll_due, llmq_engine_begin_poll, llmq_engine_complete_poll,
	 llmq_engine_fail_poll, false},
};

/* Returns whether an operation makes sense in the engine's present state. */
static bool
suits(const LlmqEngine *engine, LlmqOperation operation)
{
	switch (engine->core.state)
	{
		case LLMQ_ENGINE_STARTING:
			return operation == LLMQ_OP_HELLO;
		case LLMQ_ENGINE_STOPPING:
			return operation == LLMQ_OP_SETTLE || operation == LLMQ_OP_SETTLE_MESSAGES ||
				   operation == LLMQ_OP_HEARTBEAT || operation == LLMQ_OP_GOODBYE;
		case LLMQ_ENGINE_STOPPED:
			return false;
		default:
			return true;
	}
}

/*
 * Returns whether the next operation must wait because the last one failed.  Hello and goodbye
 * do not.
 */
static bool
backs_off(const LlmqEngine *engine)
{
	return engine->core.state != LLMQ_ENGINE_STARTING && engine->core.state != LLMQ_ENGINE_STOPPING;
}

static int64_t
entry_due(LlmqEngine *engine, const Entry *entry)
{
	return suits(engine, entry->operation) ? entry->due(engine) : LLMQ_NEVER;
}

/* Returns when the agenda must be run; LLMQ_NEVER while an operation is under way. */
int64_t
llmq_agenda_due(LlmqEngine *engine)
{
	int64_t due = LLMQ_NEVER;

	if (engine->core.operating)
		return LLMQ_NEVER;
	/* This comes first, because it finds out which quotas must be drawn. */
	engine->may_claim = llmq_jobs_may_claim(&engine->jobs);
	for (int i = 0; i < LLMQ_OPERATIONS; i++)
	{
		int64_t entry = entry_due(engine, &agenda[i]);

		due = entry < due ? entry : due;
	}
	return due < engine->core.store_at_us && backs_off(engine) ? engine->core.store_at_us : due;
}

/* Begins the most urgent operation; false when there is none. */
static bool
begin_next(LlmqEngine *engine)
{
	LlmqCore *core = &engine->core;

	if (core->options.changed != NULL && core->options.changed())
		core->full_poll_at_us = 0;
	if (core->store_at_us > core->now.mono_us && backs_off(engine))
		return false;
	engine->may_claim = llmq_jobs_may_claim(&engine->jobs);
	for (int i = 0; i < LLMQ_OPERATIONS; i++)
	{
		if (entry_due(engine, &agenda[i]) > core->now.mono_us)
			continue;
		agenda[i].begin(engine);
		return true;
	}
	return false;
}

static const Entry *
entry_of(LlmqOperation operation)
{
	const Entry *entry = agenda;

	while (entry->operation != operation)
		entry++;
	return entry;
}

/*
 * Logs a failure, but not the first in a row, which may be transient, or due to the extension
 * having been dropped.
 */
static void
log_failure(LlmqEngine *engine, const char *error)
{
	if (engine->core.store_failures == 0 || strcmp(engine->last_store_error, error) == 0)
		return;
	snprintf(engine->last_store_error, sizeof(engine->last_store_error), "%s", error);
	llmq_core_log(&engine->core, LLMQ_LOG_WARNING, "%s failed and will be tried again: %s",
				  llmq_store_operation_name(engine->core.operation), error);
}

static void
fail(LlmqEngine *engine, const Entry *entry, const LlmqRows *rows, bool away)
{
	LlmqCore *core = &engine->core;
	bool claims = entry->operation == LLMQ_OP_CLAIM || entry->operation == LLMQ_OP_CLAIM_MESSAGES;

	llmq_metric_count_store_error(&core->metrics);
	log_failure(engine, rows->error);
	core->store_at_us = core->now.mono_us + llmq_core_backoff(core, core->store_failures++);
	if (claims && strcmp(rows->sqlstate, SESSION_HAS_ENDED) == 0)
		llmq_core_start_again(core);
	if (entry->waits_alone)
		core->store_at_us = 0;
	if (entry->fail != NULL)
		entry->fail(engine, rows, away);
	if (core->state == LLMQ_ENGINE_STOPPING && entry->waits_alone &&
		core->store_failures > STOP_FAILURES)
		core->state = LLMQ_ENGINE_STOPPED;
}

static void
complete(LlmqEngine *engine, const Entry *entry, const LlmqRows *rows)
{
	engine->core.store_failures = 0;
	engine->last_store_error[0] = '\0';
	entry->complete(engine, rows);
}

/*
 * Runs the operations that are due, as long as the driver completes them at once.  A claim ends
 * the turn: its calls are started in the next one, while more is claimed.
 */
void
llmq_agenda_run(LlmqEngine *engine)
{
	LlmqCore *core = &engine->core;
	LlmqRows rows;

	for (int i = 0; i < OPERATIONS_PER_TURN; i++)
	{
		LlmqStoreStatus status;

		if (!core->operating && !begin_next(engine))
			return;
		status = core->store->complete(core->store, &rows);
		if (status == LLMQ_STORE_PENDING)
			return;
		core->operating = false;
		core->now = core->options.clock();
		if (status == LLMQ_STORE_OK)
			complete(engine, entry_of(core->operation), &rows);
		else
			fail(engine, entry_of(core->operation), &rows, status == LLMQ_STORE_AWAY);
		if (core->operation == LLMQ_OP_CLAIM || core->operation == LLMQ_OP_CLAIM_MESSAGES)
			return;
	}
}
