/*
 * engine_report.c
 *		What the worker says of itself, with a full poll: see llmq.take_report.
 *
 * Only what has changed is said, so that an idle worker is silent.  What was
 * said is noted in the configuration's rows, which are new after each change of
 * the configuration: then all is said again.
 */
#include "engine/engine_private.h"

#include <inttypes.h>

#include "jobs/settle.h"

/* What others ask for, the depth of a queue say, is as old as this at most. */
#define REPORT_US 1000000

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

/* A quota that makes jobs wait for less is no trouble. */
#define BACKLOG_US 1000000

/* Words of llmq.endpoint_trouble.reason. */
static const char *const wait_reasons[] = {
	[LLMQ_OBSTACLE_SECRET] = "no_secret",
	[LLMQ_OBSTACLE_PAUSE] = "rate_limited",
	[LLMQ_OBSTACLE_BREAKER] = "breaker",
	[LLMQ_OBSTACLE_LIMITER] = "limiter",
};

/* Begins a member of an object in the report, with the comma that it needs. */
static void
add_name(LlmqBuffer *report, const char *name, bool *first)
{
	llmq_buffer_append_string(report, *first ? "" : ",");
	llmq_settle_append_string(report, name);
	llmq_buffer_append_char(report, ':');
	*first = false;
}

/* What is in the way of an endpoint's jobs, and until when. */
static LlmqTrouble
trouble_of(const LlmqEngine *engine, const LlmqEndpoint *endpoint, bool has_secret)
{
	const LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;

	if (!has_secret)
		return (LlmqTrouble){true, LLMQ_OBSTACLE_SECRET, 0};
	if (endpoint->paused_until_us > now)
		return (LlmqTrouble){true, LLMQ_OBSTACLE_PAUSE, endpoint->paused_until_us};
	if (gate->state != LLMQ_BREAKER_CLOSED && gate->until_us > now)
		return (LlmqTrouble){true, LLMQ_OBSTACLE_BREAKER, gate->until_us};
	if (gate->backlog_until_us > now + BACKLOG_US)
		return (LlmqTrouble){true, LLMQ_OBSTACLE_LIMITER, gate->backlog_until_us};
	return (LlmqTrouble){true, LLMQ_OBSTACLE_NONE, 0};
}

/* Whether a trouble is another than what was said. */
static bool
is_news(const LlmqEngine *engine, const LlmqTrouble *said, const LlmqTrouble *trouble)
{
	int64_t left = trouble->until_us - engine->now.mono_us;
	int64_t moved = said->until_us - trouble->until_us;

	if (!said->said || said->obstacle != trouble->obstacle)
		return true;
	if (trouble->obstacle != LLMQ_OBSTACLE_LIMITER)
		return moved != 0;
	return (moved < 0 ? -moved : moved) > BACKLOG_US + left / 4;
}

static void
add_endpoints(LlmqEngine *engine, LlmqBuffer *report)
{
	LlmqEndpoint *endpoint;
	bool first = true;

	llmq_buffer_append_string(report, "\"endpoints\":{");
	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		LlmqTrouble trouble =
			trouble_of(engine, endpoint, llmq_engine_has_secret(engine, endpoint));

		if (!is_news(engine, &endpoint->reported, &trouble))
			continue;
		endpoint->reported = trouble;
		add_name(report, endpoint->name, &first);
		if (trouble.obstacle == LLMQ_OBSTACLE_NONE)
			llmq_buffer_append_string(report, "null");
		else
			llmq_buffer_printf(report, "{\"reason\":\"%s\"", wait_reasons[trouble.obstacle]);
		if (trouble.until_us > 0)
			llmq_buffer_printf(report, ",\"in\":%" PRId64, trouble.until_us - engine->now.mono_us);
		if (trouble.obstacle != LLMQ_OBSTACLE_NONE)
			llmq_buffer_append_char(report, '}');
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
		endpoint->reported.said = false;
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

/* Whether a breaker or a quota has begun, or ceased, to be in the way of jobs. */
static bool
has_turned(const LlmqEngine *engine, const LlmqEndpoint *endpoint)
{
	LlmqTrouble trouble = trouble_of(engine, endpoint, true);

	if (!endpoint->reported.said || endpoint->reported.obstacle == LLMQ_OBSTACLE_SECRET)
		return false;
	return endpoint->reported.obstacle != trouble.obstacle;
}

/* When a full poll is due only to say something that others ask for; LLMQ_NEVER if nothing is. */
int64_t
llmq_engine_report_due(const LlmqEngine *engine)
{
	LlmqQueue *queue;
	LlmqEndpoint *endpoint;

	for (int i = 0; (queue = llmq_config_queue_at(engine->config, i)) != NULL; i++)
	{
		if (publishes_depth(engine, queue) &&
			queue->reported_depth != (int64_t) llmq_ready_depth(engine->ready, queue->name) + 1)
			return engine->last_full_poll_us + REPORT_US;
	}
	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		if (has_turned(engine, endpoint))
			return engine->last_full_poll_us + REPORT_US;
	}
	return LLMQ_NEVER;
}
