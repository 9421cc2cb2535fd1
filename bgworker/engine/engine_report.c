/*
 * engine_report.c
 *		What the worker reports about itself with a full poll: see llmq_internal.take_report.
 */
#include "engine/engine_state.h"

#include <inttypes.h>

#include "json/json_write.h"

/*
 * A step of retention is due every ten minutes; while there is something to delete, every
 * second.
 */
#define PRUNE_IDLE_US INT64_C(600000000)
#define PRUNE_BUSY_US 1000000

/*
 * When the wall clock jumps against the monotonic one, it was set, or the machine slept.  Then
 * the heartbeats of all workers look too old, or too new, until each has written its next one,
 * so for llmq.lease_ttl() no worker is considered stuck.
 */
#define CLOCK_JUMP_US  2000000
#define CLOCK_GRACE_US 15000000

/* Notes whether the wall clock was set since the last call. */
void
llmq_engine_watch_clock(LlmqEngine *engine)
{
	int64_t offset = engine->core.now.wall_us - engine->core.now.mono_us;
	int64_t jump = offset - engine->clock_offset_us;

	engine->clock_offset_us = offset;
	if (jump < CLOCK_JUMP_US && jump > -CLOCK_JUMP_US)
		return;
	engine->clock_set_us = engine->core.now.mono_us;
	llmq_core_log(&engine->core, LLMQ_LOG_INFO,
				  "the clock was set by %" PRId64 " s: for 15 s no worker is considered stuck",
				  jump / 1000000);
}

/* Writes the report into an empty buffer; false if there is nothing to report. */
bool
llmq_engine_write_report(LlmqEngine *engine, LlmqBuffer *report)
{
	int64_t now = engine->core.now.mono_us;
	bool says;

	llmq_write_open(report, '{');
	says = llmq_jobs_write_report(&engine->jobs, report);
	if (now >= engine->prune_at_us)
	{
		llmq_write_member_bool(report, "prune", true);
		engine->prune_at_us = now + PRUNE_IDLE_US;
		says = true;
	}
	if (engine->clock_set_us != LLMQ_NEVER && now < engine->clock_set_us + CLOCK_GRACE_US)
	{
		llmq_write_member_bool(report, "clock_set", true);
		says = true;
	}
	llmq_write_close(report, '}');
	return says && !report->failed;
}

/* Notes that retention has deleted something, so that there may be more. */
void
llmq_engine_note_pruned(LlmqEngine *engine, int64_t jobs)
{
	int64_t again = engine->core.now.mono_us + PRUNE_BUSY_US;

	if (jobs <= 0)
		return;
	engine->prune_at_us = again;
	llmq_core_poll_by(&engine->core, again);
}
