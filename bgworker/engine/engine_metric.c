/*
 * engine_metric.c
 *		Publishes the metrics.
 *
 * A heartbeat takes them to the database, for llmq.metric, when they have changed.  A host may
 * write them as text at any time.
 */
#include "engine/engine_state.h"

/* Sets the values that describe the present. */
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

/* Returns whether there are metrics that the database does not have. */
bool
llmq_engine_has_metrics(const LlmqEngine *engine)
{
	return engine->core.state != LLMQ_ENGINE_OUTDATED &&
		   engine->core.metrics.changes != engine->metrics_told;
}

/*
 * Writes the metrics for a heartbeat into an empty buffer; false if there are none.  While
 * something is in hand its age changes, and the heartbeat after that reports that nothing is
 * left.  After a failure the heartbeat is sent without metrics, because it matters more.
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
