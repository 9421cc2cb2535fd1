/*
 * engine_store.c
 *		Which store operation is next, and what came of it.
 *
 * One operation is under way at a time.  The order of urgency: hello before
 * anything; then the heartbeat, which is rare, and whose absence costs all calls;
 * then answers, which were paid for; then claims for free slots; then the look for
 * more.
 */
#include "engine/engine_private.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations in one dispatch, so that the network gets its turn. */
#define OPERATIONS_PER_TURN 8

/* One claim; more would hold the first calls up. */
#define CLAIM_MAX_JOBS 100

/* A worker with leases says so this often; llmq.lease_ttl() is three times that. */
#define HEARTBEAT_US	   5000000
#define HEARTBEAT_AGAIN_US 1000000 /* after one that failed */

#define BACKOFF_FIRST_US 100000
#define BACKOFF_MAX_US	 5000000

/* Settling that fails so often keeps no worker from stopping. */
#define STOP_FAILURES 5

/* What llmq.worker_claim and llmq.worker_claim_messages raise when this worker was taken for lost
 * (object_not_in_prerequisite_state). */
#define SESSION_HAS_ENDED "55000"

/* How long to wait after so many failures in a row. */
int64_t
llmq_engine_backoff(LlmqEngine *engine, int failures)
{
	return BACKOFF_FIRST_US / 2 +
		   llmq_retry_backoff(&engine->random, BACKOFF_FIRST_US, BACKOFF_MAX_US, failures);
}

/* ---- What is due ------------------------------------------------------------------- */

static bool
has_claims(LlmqEngine *engine)
{
	engine->chance_us = LLMQ_NEVER;
	return engine->state == LLMQ_ENGINE_RUNNING && llmq_engine_room(engine) > 0 &&
		   (engine->suspect_count > 0 ||
			llmq_ready_any(engine->ready, llmq_engine_allowance, engine));
}

/* Leases that this worker holds, of jobs and of messages. */
int
llmq_engine_in_hand(const LlmqEngine *engine)
{
	return engine->jobs.count + llmq_relay_in_hand(&engine->relay);
}

static bool
wants_heartbeat(const LlmqEngine *engine)
{
	return engine->state != LLMQ_ENGINE_STARTING &&
		   (llmq_engine_in_hand(engine) > 0 || engine->heartbeat_shows_work ||
			engine->options.heartbeat_idle || llmq_engine_has_metrics(engine));
}

/* An outdated worker polls no more: it asks now and then whether that has changed. */
static int64_t
next_look(const LlmqEngine *engine)
{
	return engine->state == LLMQ_ENGINE_OUTDATED ? engine->hello_at_us
												 : llmq_engine_poll_due(engine);
}

/* When run_store wants to be called. */
int64_t
llmq_engine_store_due(LlmqEngine *engine)
{
	int64_t due = LLMQ_NEVER;

	if (engine->operating || engine->state == LLMQ_ENGINE_STOPPED)
		return LLMQ_NEVER;
	if (engine->state == LLMQ_ENGINE_STARTING)
		return engine->hello_at_us;
	if (has_claims(engine) || llmq_engine_may_say_goodbye(engine) || engine->drain_unsaid)
		due = 0;
	if (llmq_engine_settle_due(engine) < due)
		due = llmq_engine_settle_due(engine);
	if (llmq_relay_settle_due(engine) < due)
		due = llmq_relay_settle_due(engine);
	if (engine->state == LLMQ_ENGINE_STOPPING)
		return due;
	if (engine->reconcile_at_us < due)
		due = engine->reconcile_at_us;
	if (engine->chance_us < due)
		due = engine->chance_us;
	if (llmq_engine_draw_due(engine) < due)
		due = llmq_engine_draw_due(engine);
	if (wants_heartbeat(engine) && engine->last_heartbeat_us + HEARTBEAT_US < due)
		due = engine->last_heartbeat_us + HEARTBEAT_US;
	if (llmq_relay_claim_due(engine) < due)
		due = llmq_relay_claim_due(engine);
	if (next_look(engine) < due)
		due = next_look(engine);
	return due > engine->store_at_us ? due : engine->store_at_us;
}

/* ---- Begin ------------------------------------------------------------------------- */

void
llmq_engine_begin(LlmqEngine *engine, LlmqOperation operation, const char *const *params)
{
	engine->operating = true;
	engine->operation = operation;
	engine->began_us = engine->now.mono_us;
	engine->store->begin(engine->store, operation, params);
}

static void
begin_hello(LlmqEngine *engine)
{
	char protocol[LLMQ_NUMBER_LENGTH];

	snprintf(protocol, sizeof(protocol), "%d", LLMQ_STORE_PROTOCOL);
	llmq_engine_begin(engine, LLMQ_OP_HELLO,
					  (const char *[]){protocol, engine->options.name, engine->options.kind,
									   engine->options.pid, NULL});
}

static void
begin_claim(LlmqEngine *engine)
{
	LlmqBuffer seqs;
	int room = llmq_engine_room(engine);

	engine->relay.had_turn = false;
	if (engine->suspect_count > 0)
	{
		engine->claiming[0] = engine->suspects[--engine->suspect_count];
		engine->claiming_count = 1;
	}
	else
		engine->claiming_count = llmq_ready_take(engine->ready, engine->claiming,
												 room < CLAIM_MAX_JOBS ? room : CLAIM_MAX_JOBS,
												 llmq_engine_allowance, engine);
	llmq_buffer_init(&seqs, CLAIM_MAX_JOBS * LLMQ_NUMBER_LENGTH);
	for (int i = 0; i < engine->claiming_count; i++)
		llmq_buffer_printf(&seqs, "%c%" PRId64, i == 0 ? '{' : ',', engine->claiming[i]);
	llmq_buffer_append_char(&seqs, '}');
	llmq_engine_begin(engine, LLMQ_OP_CLAIM,
					  (const char *[]){engine->worker_id, llmq_buffer_string(&seqs)});
	llmq_buffer_free(&seqs);
}

/* Moves jobs that may settle now into the batch, and writes them. */
static void
begin_heartbeat(LlmqEngine *engine)
{
	char in_flight[LLMQ_NUMBER_LENGTH];
	LlmqBuffer metrics;
	bool tells;

	llmq_buffer_init(&metrics, LLMQ_METRIC_MAX_BYTES);
	tells = llmq_engine_tell_metrics(engine, &metrics);
	snprintf(in_flight, sizeof(in_flight), "%d", llmq_engine_in_hand(engine));
	engine->last_heartbeat_us = engine->now.mono_us;
	engine->heartbeat_shows_work = llmq_engine_in_hand(engine) > 0;
	llmq_engine_begin(engine, LLMQ_OP_HEARTBEAT,
					  (const char *[]){engine->worker_id, in_flight,
									   tells ? llmq_buffer_string(&metrics) : NULL});
	llmq_buffer_free(&metrics);
}

static void
begin_goodbye(LlmqEngine *engine)
{
	engine->state = LLMQ_ENGINE_STOPPING;
	llmq_engine_begin(engine, LLMQ_OP_GOODBYE, (const char *[]){engine->worker_id});
}

/* Claims of messages and of jobs take turns. */
static bool
relay_claims(LlmqEngine *engine)
{
	int64_t now = engine->now.mono_us;

	return llmq_relay_claim_due(engine) <= now &&
		   !(engine->relay.had_turn && (has_claims(engine) || llmq_engine_draw_due(engine) <= now));
}

/* Begins the most urgent operation; false when there is none. */
static bool
begin_next(LlmqEngine *engine)
{
	int64_t now = engine->now.mono_us;

	if (engine->options.changed != NULL && engine->options.changed())
		engine->full_poll_at_us = 0;
	if (llmq_engine_store_due(engine) > now)
		return false;
	if (engine->state == LLMQ_ENGINE_STARTING)
		begin_hello(engine);
	else if (wants_heartbeat(engine) && now >= engine->last_heartbeat_us + HEARTBEAT_US)
		begin_heartbeat(engine);
	else if (llmq_engine_settle_due(engine) <= now)
		llmq_engine_begin_settle(engine);
	else if (llmq_relay_settle_due(engine) <= now)
		llmq_relay_begin_settle(engine);
	else if (llmq_engine_may_say_goodbye(engine))
		begin_goodbye(engine);
	else if (engine->drain_unsaid)
		llmq_engine_begin(engine, LLMQ_OP_DRAIN, (const char *[]){engine->worker_id});
	else if (now >= engine->reconcile_at_us)
		llmq_engine_begin_reconcile(engine);
	else if (relay_claims(engine) && !llmq_engine_poll_is_overdue(engine))
		llmq_relay_begin_claim(engine);
	else if (llmq_engine_draw_due(engine) <= now)
		llmq_engine_begin_draw(engine);
	else if (has_claims(engine) && !llmq_engine_poll_is_overdue(engine))
		begin_claim(engine);
	else if (engine->state == LLMQ_ENGINE_OUTDATED)
		begin_hello(engine);
	else
		llmq_engine_begin_poll(engine);
	return true;
}

/* ---- Complete ---------------------------------------------------------------------- */

/* The session is not known any more: the worker must say hello again. */
void
llmq_engine_start_again(LlmqEngine *engine)
{
	if (engine->state >= LLMQ_ENGINE_DRAINING)
		return;
	engine->state = LLMQ_ENGINE_STARTING;
	engine->hello_at_us = engine->now.mono_us;
}

/*
 * A new session may stand before new tables, where seqs begin anew (DROP and CREATE
 * EXTENSION in one transaction): what is known of llmq.ready is read again.
 */
static void
forget_ready(LlmqEngine *engine)
{
	LlmqReady *fresh = llmq_ready_create();

	if (fresh != NULL)
	{
		llmq_ready_destroy(engine->ready);
		engine->ready = fresh;
	}
	memset(&engine->position, 0, sizeof(engine->position));
	engine->sweep_due_us = LLMQ_NEVER;
	engine->relay.tip = 0;
	llmq_relay_sweep_afresh(&engine->relay);
	engine->more = false;
	engine->suspect_count = engine->held_count = 0;
}

static void
complete_hello(LlmqEngine *engine, const LlmqRows *rows)
{
	const char *state = llmq_rows_cell(rows, 0, 1);
	const char *reason = llmq_rows_cell(rows, 0, 2);
	LlmqEngineState before = engine->state;

	if (strcmp(engine->worker_id, llmq_rows_cell(rows, 0, 0)) != 0)
		llmq_relay_forget(engine);
	snprintf(engine->worker_id, sizeof(engine->worker_id), "%s", llmq_rows_cell(rows, 0, 0));
	engine->state = strcmp(state, "running") == 0		? LLMQ_ENGINE_RUNNING
					: strcmp(state, "quarantined") == 0 ? LLMQ_ENGINE_QUARANTINED
														: LLMQ_ENGINE_OUTDATED;
	if (reason != NULL && engine->state != before)
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "this worker calls nobody: %s", reason);
	forget_ready(engine);
	engine->hello_failures = 0;
	engine->hello_at_us = engine->now.mono_us + engine->options.poll_interval_us;
	engine->woken = true;
	engine->full_poll_at_us = 0;
	engine->last_heartbeat_us = engine->now.mono_us;
	engine->metrics_told = LLMQ_METRICS_UNTOLD;
	engine->relay.sure_us = engine->began_us;
	llmq_relay_sort_out(engine);
}

static void
take_job(LlmqEngine *engine, const LlmqRows *rows, int i)
{
	LlmqJobRow row = {.job_id = llmq_rows_cell(rows, i, 1),
					  .delivery = llmq_rows_cell(rows, i, 2),
					  .counted = llmq_rows_cell(rows, i, 3),
					  .queue = llmq_rows_cell(rows, i, 4),
					  .prompt = llmq_rows_cell(rows, i, 5),
					  .system = llmq_rows_cell(rows, i, 6),
					  .messages = llmq_rows_cell(rows, i, 7),
					  .params = llmq_rows_cell(rows, i, 8),
					  .model = llmq_rows_cell(rows, i, 9),
					  .policy = llmq_rows_cell(rows, i, 10),
					  .idempotency_keys = llmq_rows_cell(rows, i, 11),
					  .traceparent = llmq_rows_cell(rows, i, 12)};
	LlmqQueue *queue = llmq_config_queue(engine->config, row.queue);
	LlmqJob *job =
		queue == NULL ? NULL : llmq_job_create(&row, &queue->policy, engine->now.mono_us);

	if (job == NULL)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING,
						"job %s was claimed and cannot be held, and goes back", row.job_id);
		llmq_engine_miss_lease(engine);
		return;
	}
	queue->in_flight++;
	llmq_job_table_add(&engine->jobs, job);
	if (engine->state < LLMQ_ENGINE_DRAINING)
		llmq_engine_start_job(engine, job);
	else
		llmq_engine_give_back(engine, job);
}

static void
complete_claim(LlmqEngine *engine, const LlmqRows *rows)
{
	engine->heartbeat_shows_work = true;
	for (int i = 0; i < rows->row_count; i++)
	{
		if (llmq_rows_cell(rows, i, 0) != NULL)
			llmq_engine_look_again(engine, strtoll(llmq_rows_cell(rows, i, 0), NULL, 10));
		else
			take_job(engine, rows, i);
	}
}

/* ---- Failure ----------------------------------------------------------------------- */

/*
 * The transaction was rolled back and the jobs are where they were.  If it was
 * not a trouble that passes, one of them is the cause: it is found by claiming
 * them one by one.
 */
static void
fail_claim(LlmqEngine *engine, const LlmqRows *rows)
{
	if (llmq_store_error_passes(rows->sqlstate))
	{
		for (int i = 0; i < engine->claiming_count; i++)
			llmq_engine_look_again(engine, engine->claiming[i]);
		return;
	}
	engine->store_at_us = 0;
	if (engine->claiming_count == 1)
	{
		llmq_engine_hold(engine, engine->claiming[0], rows->error);
		return;
	}
	memcpy(engine->suspects, engine->claiming,
		   sizeof(*engine->suspects) * (size_t) engine->claiming_count);
	engine->suspect_count = engine->claiming_count;
}

/* Once may be the passing trouble of a moment, or the end of the extension. */
static void
log_failure(LlmqEngine *engine, const char *error)
{
	if (engine->store_failures == 0 || strcmp(engine->last_store_error, error) == 0)
		return;
	snprintf(engine->last_store_error, sizeof(engine->last_store_error), "%s", error);
	llmq_engine_log(engine, LLMQ_LOG_WARNING, "%s failed and will be tried again: %s",
					llmq_store_operation_name(engine->operation), error);
}

/* away: it may have been committed even so. */
static void
fail_operation(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_metric_count_store_error(&engine->metrics);
	log_failure(engine, rows->error);
	engine->store_at_us =
		engine->now.mono_us + llmq_engine_backoff(engine, engine->store_failures++);
	if (strcmp(rows->sqlstate, SESSION_HAS_ENDED) == 0 &&
		(engine->operation == LLMQ_OP_CLAIM || engine->operation == LLMQ_OP_CLAIM_MESSAGES))
		llmq_engine_start_again(engine);
	switch (engine->operation)
	{
		case LLMQ_OP_HELLO:
			engine->hello_at_us =
				engine->now.mono_us + llmq_engine_backoff(engine, engine->hello_failures++);
			break;
		case LLMQ_OP_POLL:
			llmq_engine_repeat_report(engine);
			llmq_relay_fail_look(engine);
			engine->woken = true;
			break;
		case LLMQ_OP_CLAIM:
			fail_claim(engine, rows);
			if (away)
				llmq_engine_doubt_claim(engine);
			break;
		case LLMQ_OP_SETTLE:
			engine->store_at_us = 0; /* each job has its own wait */
			llmq_engine_fail_settle(engine, rows);
			break;
		case LLMQ_OP_CLAIM_MESSAGES:
			llmq_relay_fail_claim(engine, rows);
			if (away)
				llmq_engine_doubt_claim(engine);
			break;
		case LLMQ_OP_SETTLE_MESSAGES:
			engine->store_at_us = 0;
			llmq_relay_fail_settle(engine, llmq_store_error_passes(rows->sqlstate));
			break;
		case LLMQ_OP_DRAW:
			llmq_engine_fail_draw(engine);
			break;
		case LLMQ_OP_HEARTBEAT:
			engine->heartbeat_shows_work = true;
			engine->last_heartbeat_us += HEARTBEAT_AGAIN_US - HEARTBEAT_US;
			break;
		case LLMQ_OP_GOODBYE:
			engine->state = LLMQ_ENGINE_STOPPED; /* a successor takes the leases */
			break;
		case LLMQ_OP_DRAIN:
			engine->drain_unsaid = false; /* others only see it later */
			break;
		case LLMQ_OP_RECONCILE:
			break;
	}
	if (engine->state == LLMQ_ENGINE_STOPPING &&
		(engine->operation == LLMQ_OP_SETTLE || engine->operation == LLMQ_OP_SETTLE_MESSAGES) &&
		engine->store_failures > STOP_FAILURES)
		engine->state = LLMQ_ENGINE_STOPPED;
}

static void
complete(LlmqEngine *engine, const LlmqRows *rows)
{
	engine->store_failures = 0;
	engine->last_store_error[0] = '\0';
	switch (engine->operation)
	{
		case LLMQ_OP_HELLO:
			complete_hello(engine, rows);
			break;
		case LLMQ_OP_POLL:
			llmq_engine_complete_poll(engine, rows);
			break;
		case LLMQ_OP_CLAIM:
			complete_claim(engine, rows);
			break;
		case LLMQ_OP_SETTLE:
			llmq_engine_complete_settle(engine, rows);
			break;
		case LLMQ_OP_CLAIM_MESSAGES:
			llmq_relay_complete_claim(engine, rows);
			break;
		case LLMQ_OP_SETTLE_MESSAGES:
			llmq_relay_complete_settle(engine, rows);
			break;
		case LLMQ_OP_DRAW:
			llmq_engine_complete_draw(engine, rows);
			break;
		case LLMQ_OP_HEARTBEAT:
			engine->relay.sure_us = engine->began_us;
			if (strcmp(llmq_rows_cell(rows, 0, 0), "t") != 0)
				llmq_engine_start_again(engine);
			break;
		case LLMQ_OP_DRAIN:
			engine->drain_unsaid = false;
			break;
		case LLMQ_OP_RECONCILE:
			llmq_engine_complete_reconcile(engine);
			break;
		case LLMQ_OP_GOODBYE:
			engine->state = LLMQ_ENGINE_STOPPED;
			break;
	}
}

/*
 * Runs what is due, as far as the driver completes at once.  A claim ends the turn:
 * its calls go out with the next, while more is claimed.
 */
void
llmq_engine_run_store(LlmqEngine *engine)
{
	LlmqRows rows;

	for (int i = 0; i < OPERATIONS_PER_TURN; i++)
	{
		LlmqStoreStatus status;

		if (!engine->operating && !begin_next(engine))
			return;
		status = engine->store->complete(engine->store, &rows);
		if (status == LLMQ_STORE_PENDING)
			return;
		engine->operating = false;
		engine->now = engine->options.clock();
		if (status == LLMQ_STORE_OK)
			complete(engine, &rows);
		else
			fail_operation(engine, &rows, status == LLMQ_STORE_AWAY);
		if (engine->operation == LLMQ_OP_CLAIM || engine->operation == LLMQ_OP_CLAIM_MESSAGES)
			return;
	}
}
