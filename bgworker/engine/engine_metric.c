/*
 * engine_metric.c
 *		What is counted, on its way to those who watch.
 *
 * A heartbeat carries it to the database, for llmq.metric, when it has changed; a host may write
 * it as text whenever it is asked.
 */
#include "engine/engine_state.h"

/* Looks how things stand now. */
static void
measure(LlmqEngine *engine)
{
	LlmqMetrics *metrics = &engine->core.metrics;

	metrics->jobs = engine->jobs.table.count;
	metrics->messages_in_hand = llmq_relay_in_hand(&engine->relay);
	metrics->oldest_us = llmq_jobs_oldest_us(&engine->jobs);
}

bool
llmq_engine_write_metrics(LlmqEngine *engine, LlmqBuffer *text)
{
	engine->core.now = engine->core.options.clock();
	measure(engine);
	return llmq_metrics_write_text(&engine->core.metrics, text);
}

/* Whether there is something to tell that the database does not know. */
bool
llmq_engine_has_metrics(const LlmqEngine *engine)
{
	return engine->core.state != LLMQ_ENGINE_OUTDATED &&
		   engine->core.metrics.changes != engine->metrics_told;
}

/*
 * Writes what a heartbeat is to tell into an empty buffer; false: nothing.  While something is in
 * hand its age changes, and the heartbeat after it says that nothing is any more.  After a failure
 * the heartbeat goes alone: it matters more.
 */
bool
llmq_engine_tell_metrics(LlmqEngine *engine, LlmqBuffer *json)
{
	bool changes = llmq_engine_has_metrics(engine) || engine->jobs.table.count > 0 ||
				   llmq_relay_in_hand(&engine->relay) > 0 || engine->core.heartbeat_shows_work;

	if (engine->core.store_failures > 0 || engine->core.state == LLMQ_ENGINE_OUTDATED || !changes)
		return false;
	measure(engine);
	engine->metrics_told = engine->core.metrics.changes;
	return llmq_metrics_write_json(&engine->core.metrics, json);
}
