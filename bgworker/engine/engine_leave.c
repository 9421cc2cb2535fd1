/*
 * engine_leave.c
 *		How a worker leaves, by degrees, and what a broken connection leaves behind.
 *
 * Draining: nothing is claimed any more, calls and sends under way go on, and what waits for its
 * next attempt is given back, for another worker.  Stopping: calls are ended too.
 * Either way the last act is goodbye, which returns every lease that is left.
 */
#include "engine/engine_private.h"

/* A claim of unknown end has ended by then: the store's drivers limit each statement. */
#define CLAIM_ENDS_US INT64_C(35000000)

/* A lease that could not be held is given back after that, when there may be memory again. */
#define MISSED_WAIT_US 1000000

static void
interrupt(LlmqJob *job, void *context)
{
	llmq_engine_interrupt(context, job);
}

static void
give_back_waiting(LlmqJob *job, void *context)
{
	if (job->state == LLMQ_JOB_WAITING)
		llmq_engine_interrupt(context, job);
}

void
llmq_engine_drain(LlmqEngine *engine)
{
	if (engine->state >= LLMQ_ENGINE_DRAINING)
		return;
	if (engine->state != LLMQ_ENGINE_RUNNING && engine->state != LLMQ_ENGINE_QUARANTINED)
	{
		engine->state = LLMQ_ENGINE_STOPPED;
		return;
	}
	engine->state = LLMQ_ENGINE_DRAINING;
	engine->drain_unsaid = true;
	llmq_job_table_each(&engine->jobs, give_back_waiting, engine);
	llmq_relay_sort_out(engine);
}

void
llmq_engine_stop(LlmqEngine *engine)
{
	llmq_engine_drain(engine);
	if (engine->state == LLMQ_ENGINE_DRAINING)
		engine->state = LLMQ_ENGINE_STOPPING;
	engine->drain_unsaid = false;
	llmq_job_table_each(&engine->jobs, interrupt, engine);
	llmq_relay_stop(engine);
}

/* Whether nothing is left to do but to say goodbye. */
bool
llmq_engine_may_say_goodbye(const LlmqEngine *engine)
{
	return engine->state >= LLMQ_ENGINE_DRAINING && llmq_engine_in_hand(engine) == 0;
}

bool
llmq_engine_is_idle(LlmqEngine *engine)
{
	return engine->state == LLMQ_ENGINE_RUNNING && engine->config != NULL && !engine->operating &&
		   !engine->woken && !engine->more && !engine->position.sweeping &&
		   llmq_engine_in_hand(engine) == 0 && engine->suspect_count == 0 &&
		   llmq_relay_claim_due(engine) == LLMQ_NEVER &&
		   !llmq_ready_any(engine->ready, llmq_engine_allowance, engine);
}

/* ---- Claims of unknown end ----------------------------------------------------------- */

/*
 * The connection broke while jobs were claimed: their leases may be this worker's, and as
 * long as it lives nobody else may take them.  It is asked for at once, and again when a
 * claim that a server was still busy with must have ended.
 */
void
llmq_engine_doubt_claim(LlmqEngine *engine)
{
	engine->reconcile_at_us = engine->now.mono_us;
	engine->reconcile_again = true;
}

void
llmq_engine_miss_lease(LlmqEngine *engine)
{
	if (engine->reconcile_at_us > engine->now.mono_us + MISSED_WAIT_US)
		engine->reconcile_at_us = engine->now.mono_us + MISSED_WAIT_US;
}

static void
add_id(LlmqJob *job, void *context)
{
	LlmqBuffer *ids = context;

	llmq_buffer_append_char(ids, ids->len == 0 ? '{' : ',');
	llmq_buffer_append_string(ids, job->job_id);
}

/* Has the leases given back that are not of jobs in hand. */
void
llmq_engine_begin_reconcile(LlmqEngine *engine)
{
	LlmqBuffer ids;
	LlmqBuffer messages;

	llmq_relay_list_ids(&engine->relay, &messages);
	llmq_buffer_init(&ids, ((size_t) engine->jobs.count + 1) * (LLMQ_UUID_LENGTH + 1) + 1);
	llmq_job_table_each(&engine->jobs, add_id, &ids);
	llmq_buffer_append_string(&ids, ids.len == 0 ? "{}" : "}");
	llmq_engine_begin(engine, LLMQ_OP_RECONCILE,
					  (const char *[]){engine->worker_id,
									   ids.failed ? "" : llmq_buffer_string(&ids),
									   messages.failed ? "" : llmq_buffer_string(&messages)});
	llmq_buffer_free(&ids);
	llmq_buffer_free(&messages);
}

void
llmq_engine_complete_reconcile(LlmqEngine *engine)
{
	engine->reconcile_at_us =
		engine->reconcile_again ? engine->now.mono_us + CLAIM_ENDS_US : LLMQ_NEVER;
	engine->reconcile_again = false;
	engine->relay.sweep_wanted = true; /* what went back stands anywhere */
	engine->woken = true;
}
