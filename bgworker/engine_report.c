/*
 * engine_report.c
 *		What the worker says of itself, with a full poll: see llmq.take_report.
 *
 * Only what has changed is said, so that an idle worker is silent.  What was
 * said is noted in the configuration's rows, which are new after each change of
 * the configuration: then all is said again.
 */
#include "engine_private.h"

#include <inttypes.h>

#include "settle.h"

/* The depth of a queue is as old as this at most. */
#define DEPTH_US 1000000

/* A step of retention each ten minutes; while there is something to delete, each second. */
#define PRUNE_IDLE_US INT64_C(600000000)
#define PRUNE_BUSY_US 1000000

/*
 * A wall clock that jumps against the monotonic one was set, or the machine slept.
 * Then the heartbeats of all workers look old, or new, until each has written its
 * next one: for llmq.lease_ttl() nobody is taken for stuck.
 */
#define CLOCK_JUMP_US  2000000
#define CLOCK_GRACE_US 15000000

/* What may stand in LlmqEndpoint.reported beside the end of a pause. */
#define REPORTED_NOTHING_YET 0
#define REPORTED_WELL		 (-1)
#define REPORTED_NO_SECRET	 (-2)

/* Begins a member of an object in the report, with the comma that it needs. */
static void
add_name(LlmqBuffer *report, const char *name, bool *first)
{
	llmq_buffer_append_string(report, *first ? "" : ",");
	llmq_settle_append_string(report, name);
	llmq_buffer_append_char(report, ':');
	*first = false;
}

/* An endpoint's trouble in one number: what is in its way, and until when. */
static int64_t
trouble_of(LlmqEngine *engine, LlmqEndpoint *endpoint)
{
	if (!llmq_engine_has_secret(engine, endpoint))
		return REPORTED_NO_SECRET;
	if (endpoint->paused_until_us > engine->now.mono_us)
		return endpoint->paused_until_us;
	return REPORTED_WELL;
}

static void
add_endpoints(LlmqEngine *engine, LlmqBuffer *report)
{
	LlmqEndpoint *endpoint;
	bool first = true;

	llmq_buffer_append_string(report, "\"endpoints\":{");
	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		int64_t trouble = trouble_of(engine, endpoint);

		if (trouble == endpoint->reported)
			continue;
		endpoint->reported = trouble;
		add_name(report, endpoint->name, &first);
		if (trouble == REPORTED_WELL)
			llmq_buffer_append_string(report, "null");
		else if (trouble == REPORTED_NO_SECRET)
			llmq_buffer_append_string(report, "{\"reason\":\"no_secret\"}");
		else
			llmq_buffer_printf(report, "{\"reason\":\"rate_limited\",\"in\":%" PRId64 "}",
							   trouble - engine->now.mono_us);
	}
	llmq_buffer_append_char(report, '}');
	engine->reports = engine->reports || !first;
}

/* Somebody wants to know a queue's depth, and this worker knows it. */
static bool
publishes_depth(const LlmqEngine *engine, const LlmqQueue *queue)
{
	return queue->max_ready > 0 && llmq_engine_serves(engine, queue->name);
}

/* reported_depth is one more than what was said, so that 0 is nothing yet. */
static void
add_depths(LlmqEngine *engine, LlmqBuffer *report)
{
	LlmqQueue *queue;
	bool first = true;

	llmq_buffer_append_string(report, ",\"depths\":{");
	for (int i = 0; (queue = llmq_config_queue_at(engine->config, i)) != NULL; i++)
	{
		int64_t depth = (int64_t) llmq_ready_depth(engine->ready, queue->name);

		if (!publishes_depth(engine, queue) || queue->reported_depth == depth + 1)
			continue;
		queue->reported_depth = depth + 1;
		add_name(report, queue->name, &first);
		llmq_buffer_printf(report, "%" PRId64, depth);
	}
	llmq_buffer_append_char(report, '}');
	engine->reports = engine->reports || !first;
}

/* Notes whether the wall clock was set since the last time. */
void
llmq_engine_watch_clock(LlmqEngine *engine)
{
	int64_t offset = engine->now.wall_us - engine->now.mono_us;
	int64_t jump = offset - engine->clock_offset_us;

	engine->clock_offset_us = offset;
	if (jump < CLOCK_JUMP_US && jump > -CLOCK_JUMP_US)
		return;
	engine->clock_set_us = engine->now.mono_us;
	llmq_engine_log(engine, LLMQ_LOG_INFO,
					"the clock was set by %" PRId64 " s: for 15 s no worker is taken for stuck",
					jump / 1000000);
}

/* Writes the report into an empty buffer; false: there is nothing to say. */
bool
llmq_engine_write_report(LlmqEngine *engine, LlmqBuffer *report)
{
	int64_t now = engine->now.mono_us;

	engine->reports = false;
	llmq_buffer_append_char(report, '{');
	add_endpoints(engine, report);
	add_depths(engine, report);
	if (now >= engine->prune_at_us)
	{
		llmq_buffer_append_string(report, ",\"prune\":true");
		engine->prune_at_us = now + PRUNE_IDLE_US;
		engine->reports = true;
	}
	if (engine->clock_set_us != LLMQ_NEVER && now < engine->clock_set_us + CLOCK_GRACE_US)
	{
		llmq_buffer_append_string(report, ",\"clock_set\":true");
		engine->reports = true;
	}
	llmq_buffer_append_char(report, '}');
	return engine->reports && !report->failed;
}

/* The poll that carried the report has failed: all is to be said again. */
void
llmq_engine_repeat_report(LlmqEngine *engine)
{
	LlmqEndpoint *endpoint;
	LlmqQueue *queue;

	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
		endpoint->reported = REPORTED_NOTHING_YET;
	for (int i = 0; (queue = llmq_config_queue_at(engine->config, i)) != NULL; i++)
		queue->reported_depth = 0;
}

/* Retention has deleted something: there may be more. */
void
llmq_engine_note_pruned(LlmqEngine *engine, int64_t jobs)
{
	int64_t again = engine->now.mono_us + PRUNE_BUSY_US;

	if (jobs > 0)
		engine->prune_at_us = again;
	if (jobs > 0 && engine->full_poll_at_us > again)
		engine->full_poll_at_us = again;
}

/* When a full poll is due only to say how deep the queues are; LLMQ_NEVER if nobody asks. */
int64_t
llmq_engine_depth_due(const LlmqEngine *engine)
{
	LlmqQueue *queue;

	for (int i = 0; (queue = llmq_config_queue_at(engine->config, i)) != NULL; i++)
	{
		if (publishes_depth(engine, queue) &&
			queue->reported_depth != (int64_t) llmq_ready_depth(engine->ready, queue->name) + 1)
			return engine->last_full_poll_us + DEPTH_US;
	}
	return LLMQ_NEVER;
}
