/*
 * engine_leave.c
 *		How a worker leaves, in steps.
 *
 * Draining: nothing more is claimed, calls and sends under way go on, and what waits for its
 * next attempt is given back for another worker.  Stopping: calls are ended too.  In both cases
 * the last operation is goodbye, which gives back all remaining leases.
 */
#include "engine/engine_state.h"

void
llmq_engine_drain(LlmqEngine *engine)
{
	LlmqEngineState *state = &engine->core.state;

	if (*state >= LLMQ_ENGINE_DRAINING)
		return;
	if (*state != LLMQ_ENGINE_RUNNING && *state != LLMQ_ENGINE_QUARANTINED)
	{
		*state = LLMQ_ENGINE_STOPPED;
		return;
	}
	*state = LLMQ_ENGINE_DRAINING;
	engine->drain_unsaid = true;
	llmq_jobs_drain(&engine->jobs);
	llmq_relay_sort_out(&engine->relay);
}

void
llmq_engine_stop(LlmqEngine *engine)
{
	llmq_engine_drain(engine);
	if (engine->core.state == LLMQ_ENGINE_DRAINING)
		engine->core.state = LLMQ_ENGINE_STOPPING;
	engine->drain_unsaid = false;
	llmq_jobs_stop(&engine->jobs);
	llmq_relay_stop(&engine->relay);
}

bool
llmq_engine_is_idle(LlmqEngine *engine)
{
	const LlmqCore *core = &engine->core;

	return core->state == LLMQ_ENGINE_RUNNING && core->config != NULL && !core->operating &&
		   !core->woken && llmq_engine_in_hand(engine) == 0 && llmq_jobs_are_done(&engine->jobs) &&
		   llmq_relay_claim_due(&engine->relay) == LLMQ_NEVER;
}
