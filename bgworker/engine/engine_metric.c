/*
 * engine_metric.c
 *		What is counted, on its way to those who watch.
 *
 * A heartbeat carries it to the database, for llmq.metric, when it has changed; a host may write
 * it as text whenever it is asked.
 */
#include "engine/engine_private.h"

/* What a call cost, as llmq.cost has it; 0 where a price or a count that it needs is not known. */
static double
cost_of(const LlmqEndpoint *endpoint, const LlmqVerdict *verdict)
{
	int64_t input = verdict->input_tokens;
	int64_t cached = verdict->cached_tokens > 0 ? verdict->cached_tokens : 0;
	double cached_price;
	double cost;

	if (endpoint == NULL || verdict->billing != LLMQ_BILLING_BILLED || input < 0 ||
		endpoint->input_price < 0)
		return 0;
	if (cached > input)
		cached = input;
	cached_price = endpoint->cached_price < 0 ? endpoint->input_price : endpoint->cached_price;
	cost = (double) (input - cached) * endpoint->input_price + (double) cached * cached_price;
	if (verdict->output_tokens > 0 && endpoint->output_price > 0)
		cost += (double) verdict->output_tokens * endpoint->output_price;
	return cost / 1e6;
}

/* Counts the call that a job has made, with its verdict. */
void
llmq_engine_count_call(LlmqEngine *engine, const LlmqJob *job)
{
	const LlmqEndpoint *endpoint = llmq_config_endpoint(engine->config, job->call.endpoint);

	llmq_metric_count_call(&engine->metrics, job->call.endpoint, &job->verdict,
						   engine->now.mono_us - job->call.started_us,
						   cost_of(endpoint, &job->verdict));
}

static void
note_age(LlmqJob *job, void *context)
{
	LlmqEngine *engine = context;
	int64_t age = engine->now.mono_us - job->delivery.started_us;

	if (engine->metrics.oldest_us < age)
		engine->metrics.oldest_us = age;
}

/* Looks how things stand now. */
static void
measure(LlmqEngine *engine)
{
	LlmqMetrics *metrics = &engine->metrics;

	metrics->jobs = llmq_engine_jobs(engine);
	metrics->messages_in_hand = llmq_engine_messages(engine);
	metrics->oldest_us = 0;
	llmq_job_table_each(&engine->jobs, note_age, engine);
}

bool
llmq_engine_write_metrics(LlmqEngine *engine, LlmqBuffer *text)
{
	engine->now = engine->options.clock();
	measure(engine);
	return llmq_metrics_write_text(&engine->metrics, text);
}

/* Whether there is something to tell that the database does not know. */
bool
llmq_engine_has_metrics(const LlmqEngine *engine)
{
	return engine->state != LLMQ_ENGINE_OUTDATED && engine->metrics.changes != engine->metrics_told;
}

/*
 * Writes what a heartbeat is to tell into an empty buffer; false: nothing.  While something is in
 * hand its age changes, and the heartbeat after it says that nothing is any more.  After a failure
 * the heartbeat goes alone: it matters more.
 */
bool
llmq_engine_tell_metrics(LlmqEngine *engine, LlmqBuffer *json)
{
	if (engine->store_failures > 0 || engine->state == LLMQ_ENGINE_OUTDATED ||
		!(llmq_engine_has_metrics(engine) || llmq_engine_in_hand(engine) > 0 ||
		  engine->heartbeat_shows_work))
		return false;
	measure(engine);
	engine->metrics_told = engine->metrics.changes;
	return llmq_metrics_write_json(&engine->metrics, json);
}
