/*
 * engine_poll.c
 *		Looking for work and for changed configuration.
 *
 * A poll reads llmq.ready behind the tip, or, as part of a sweep, behind an
 * earlier position, where transactions that committed late have left jobs.  A
 * full poll also asks for everything else that llmq.worker_poll can tell.
 */
#include "engine/engine_private.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MAX_ROWS 2000

/* Room for some thousands of queues and endpoints. */
#define REPORT_MAX_BYTES ((size_t) 1024 * 1024)

/* Woken often, the worker looks at everything at most this often. */
#define FULL_POLL_US 100000

/* A job that is due and that somebody has locked must not make the worker spin. */
#define DUE_PAUSE_US 2000

/*
 * Sweeps begin at least this far apart, and no more than a tenth of the time is
 * spent in them.
 */
#define SWEEP_PAUSE_US	   100000
#define SWEEP_PAUSE_FACTOR 10

/* How long a job that cannot be claimed is left alone. */
#define HOLD_US 60000000

/* A poll that takes longer has waited for a lock, which is no reason to look less often. */
#define SWEEP_POLL_MAX_US 100000

/* Ready ids in memory are enough for a while: looking for more can wait. */
static bool
has_plenty(const LlmqEngine *engine)
{
	return llmq_ready_count(engine->ready) > 2 * (size_t) engine->options.max_in_flight + 1000;
}

/* When the sweep that is wanted may begin. */
static int64_t
sweep_due(const LlmqEngine *engine)
{
	return engine->sweep_due_us > engine->position.sweep_next_us ? engine->sweep_due_us
																 : engine->position.sweep_next_us;
}

/* When the next poll is due. */
int64_t
llmq_engine_poll_due(const LlmqEngine *engine)
{
	int64_t due;

	if (engine->woken || engine->position.sweeping || (engine->more && !has_plenty(engine)))
		return 0;
	due = engine->full_poll_at_us;
	if (llmq_engine_report_due(engine) < due)
		due = llmq_engine_report_due(engine);
	if (llmq_relay_look_due(engine) < due)
		due = llmq_relay_look_due(engine);
	return sweep_due(engine) < due ? sweep_due(engine) : due;
}

/* Whether a poll may not wait for claims: recalls and changed configuration come with it. */
bool
llmq_engine_poll_is_overdue(const LlmqEngine *engine)
{
	int64_t now = engine->now.mono_us;

	return now >= engine->full_poll_at_us || now >= llmq_engine_report_due(engine) ||
		   (engine->woken && now - engine->last_full_poll_us >= FULL_POLL_US);
}

/* Whether the poll that begins now shall be part of a sweep; begins one if so. */
static bool
sweeps(LlmqEngine *engine, bool full)
{
	LlmqPosition *position = &engine->position;
	int64_t now = engine->now.mono_us;

	/* A long sweep takes turns with looks behind the tip. */
	if (position->sweeping)
		return !(engine->polling_sweep && engine->woken);
	if (now < position->sweep_next_us || !(full || engine->woken || now >= engine->sweep_due_us))
	{
		if (engine->woken && engine->sweep_due_us == LLMQ_NEVER)
			engine->sweep_due_us = position->sweep_next_us;
		return false;
	}
	position->sweeping = true;
	position->sweep_at = position->base;
	position->sweep_xid = 0;
	position->sweep_cost_us = 0;
	engine->sweep_due_us = LLMQ_NEVER;
	return true;
}

void
llmq_engine_begin_poll(LlmqEngine *engine)
{
	char after[LLMQ_NUMBER_LENGTH];
	char rows[LLMQ_NUMBER_LENGTH];
	char messages_after[LLMQ_NUMBER_LENGTH];
	LlmqRelayLook look;
	bool full = llmq_engine_poll_is_overdue(engine);
	LlmqBuffer report;
	bool reports;

	llmq_engine_release_held(engine, engine->now.mono_us);
	engine->polling_sweep = sweeps(engine, full);
	snprintf(after, sizeof(after), "%" PRId64,
			 engine->polling_sweep ? engine->position.sweep_at : engine->position.tip);
	snprintf(rows, sizeof(rows), "%d", POLL_MAX_ROWS);
	llmq_relay_begin_look(engine, full, &look);
	snprintf(messages_after, sizeof(messages_after), "%" PRId64, look.after);
	engine->poll_began_us = engine->now.mono_us;
	if (full)
		engine->last_full_poll_us = engine->now.mono_us;
	else if (engine->woken && engine->full_poll_at_us > engine->last_full_poll_us + FULL_POLL_US)
		/* The wake-up may be for changed configuration or a recall: soon, then. */
		engine->full_poll_at_us = engine->last_full_poll_us + FULL_POLL_US;
	engine->woken = false;
	llmq_buffer_init(&report, REPORT_MAX_BYTES);
	reports = full && llmq_engine_write_report(engine, &report);
	llmq_engine_begin(engine, LLMQ_OP_POLL,
					  (const char *[]){engine->worker_id, after, rows,
									   full ? engine->config_hash : NULL,
									   reports ? llmq_buffer_string(&report) : NULL, messages_after,
									   look.topics_after});
	llmq_buffer_free(&report);
}

/* ---- Configuration ----------------------------------------------------------------- */

static void
count_job(LlmqJob *job, void *context)
{
	LlmqEngine *engine = context;
	LlmqQueue *queue = llmq_config_queue(engine->config, job->queue);
	LlmqEndpoint *endpoint = job->state == LLMQ_JOB_CALLING
								 ? llmq_config_endpoint(engine->config, job->call.endpoint)
								 : NULL;

	if (queue != NULL)
		queue->in_flight++;
	if (endpoint != NULL)
		endpoint->in_flight++;
}

/* What this worker has learned of the endpoints outlives a change of configuration. */
static void
keep_pauses(const LlmqConfig *old, const LlmqConfig *fresh)
{
	LlmqEndpoint *endpoint;

	for (int i = 0; (endpoint = llmq_config_endpoint_at(fresh, i)) != NULL; i++)
	{
		const LlmqEndpoint *before = llmq_config_endpoint(old, endpoint->name);

		if (before == NULL)
			continue;
		endpoint->paused_until_us = before->paused_until_us;
		endpoint->gate = before->gate;
	}
}

/* Replaces the configuration; calls under way go on as they began. */
static void
take_config(LlmqEngine *engine, const json_t *value, const char *hash)
{
	char error[LLMQ_STORE_ERROR_MAX] = "out of memory";
	char *source = json_dumps(value, JSON_COMPACT);
	LlmqConfig *config = source == NULL ? NULL : llmq_config_parse(source, error, sizeof(error));

	free(source);
	if (config == NULL)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "%s; the one before stays in force", error);
		return;
	}
	keep_pauses(engine->config, config);
	llmq_config_destroy(engine->config);
	engine->config = config;
	snprintf(engine->config_hash, sizeof(engine->config_hash), "%s", hash == NULL ? "" : hash);
	llmq_job_table_each(&engine->jobs, count_job, engine);
	llmq_relay_take_config(engine);
}

/* What a full poll says besides: configuration, state, when the next deferred job is due. */
static void
take_facts(LlmqEngine *engine, const json_t *control)
{
	const char *state = json_string_value(json_object_get(control, "state"));
	const json_t *due = json_object_get(control, "due_in");
	const json_t *config = json_object_get(control, "config");
	int64_t next = engine->options.poll_interval_us;

	engine->workers = (int) json_integer_value(json_object_get(control, "workers"));
	engine->rank = (int) json_integer_value(json_object_get(control, "rank"));
	/* Jobs of another database may be loaded into this one while it is running. */
	if (state == NULL ||
		(engine->state == LLMQ_ENGINE_RUNNING && strcmp(state, "quarantined") == 0))
		llmq_engine_start_again(engine);
	else if (engine->state == LLMQ_ENGINE_QUARANTINED && strcmp(state, "running") == 0)
		engine->state = LLMQ_ENGINE_RUNNING;
	if (json_is_object(config))
		take_config(engine, config, json_string_value(json_object_get(control, "config_hash")));
	llmq_engine_take_breakers(engine, json_object_get(control, "breakers"));
	if (json_is_integer(due) && json_integer_value(due) < next)
		next = json_integer_value(due);
	engine->full_poll_at_us = engine->now.mono_us + (next > DUE_PAUSE_US ? next : DUE_PAUSE_US);
	llmq_engine_note_pruned(engine, json_integer_value(json_object_get(control, "pruned")));
}

/* ---- Position ---------------------------------------------------------------------- */

/* The sweep under way is over, be it complete or not. */
static void
end_sweep(LlmqEngine *engine)
{
	LlmqPosition *position = &engine->position;
	int64_t pause = position->sweep_cost_us * SWEEP_PAUSE_FACTOR;

	position->sweeping = false;
	position->sweep_next_us =
		engine->now.mono_us + (pause > SWEEP_PAUSE_US ? pause : SWEEP_PAUSE_US);
}

/* The sweep under way has seen everything from base on. */
static void
finish_sweep(LlmqEngine *engine)
{
	LlmqPosition *position = &engine->position;

	end_sweep(engine);
	if (position->candidate_xid != 0 && position->sweep_xid >= position->candidate_xid)
	{
		position->base = position->candidate;
		position->candidate_xid = 0;
	}
}

static void
move_position(LlmqEngine *engine, int64_t next_xid, int64_t oldest_xid)
{
	LlmqPosition *position = &engine->position;

	if (engine->polling_sweep)
	{
		int64_t took = engine->now.mono_us - engine->poll_began_us;

		position->sweep_cost_us += took < SWEEP_POLL_MAX_US ? took : SWEEP_POLL_MAX_US;
		if (position->sweep_xid == 0)
			position->sweep_xid = oldest_xid;
		if (!engine->more)
			finish_sweep(engine);
	}
	if (position->candidate_xid == 0 && position->tip > position->base)
	{
		position->candidate = position->tip;
		position->candidate_xid = next_xid;
	}
}

/* A job that somebody had locked: a sweep will find it again. */
void
llmq_engine_look_again(LlmqEngine *engine, int64_t seq)
{
	LlmqPosition *position = &engine->position;

	if (position->base >= seq)
		position->base = seq - 1;
	if (position->sweeping)
		end_sweep(engine);
	position->candidate_xid = 0;
	if (engine->sweep_due_us == LLMQ_NEVER)
		engine->sweep_due_us = engine->now.mono_us + SWEEP_PAUSE_US;
}

/* Leaves a job alone for a while; the rest goes on without it. */
void
llmq_engine_hold(LlmqEngine *engine, int64_t seq, const char *error)
{
	llmq_engine_log(engine, LLMQ_LOG_WARNING,
					"the job at %" PRId64 " of llmq.ready cannot be claimed and is left for a "
					"minute: %s",
					seq, error);
	if (engine->held_count == LLMQ_HELD_MAX)
		llmq_engine_release_held(engine, LLMQ_NEVER);
	if (llmq_ready_hold(engine->ready, seq))
		engine->held[engine->held_count++] = (LlmqHeld){seq, engine->now.mono_us + HOLD_US};
}

/* Has jobs found again that were left alone for long enough, or at least the first of them. */
void
llmq_engine_release_held(LlmqEngine *engine, int64_t now_us)
{
	int count = 0;

	while (count < engine->held_count && engine->held[count].until_us <= now_us &&
		   (count == 0 || now_us != LLMQ_NEVER))
	{
		llmq_ready_release(engine->ready, engine->held[count].seq);
		llmq_engine_look_again(engine, engine->held[count++].seq);
	}
	engine->held_count -= count;
	memmove(engine->held, engine->held + count, sizeof(LlmqHeld) * (size_t) engine->held_count);
}

/* ---- Complete ---------------------------------------------------------------------- */

/* complete: every row of the poll found room in memory. */
static void
take_control(LlmqEngine *engine, const char *source, bool complete)
{
	json_t *control = json_loads(source, 0, NULL);

	if (control == NULL)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "what the database says cannot be read");
		engine->full_poll_at_us = engine->now.mono_us + engine->options.poll_interval_us;
		complete = false;
	}
	engine->more = complete && json_is_true(json_object_get(control, "more"));
	if (json_object_get(control, "config_hash") != NULL)
		take_facts(engine, control);
	if (json_is_true(json_object_get(control, "unresolved")) &&
		engine->full_poll_at_us > engine->now.mono_us + FULL_POLL_US)
		engine->full_poll_at_us = engine->now.mono_us + FULL_POLL_US;
	llmq_relay_complete_look(engine, control);
	if (complete)
		move_position(engine, json_integer_value(json_object_get(control, "next_xid")),
					  json_integer_value(json_object_get(control, "oldest_xid")));
	else
		/* What did not fit stays in the table; a later sweep reads it from base again. */
		llmq_engine_look_again(engine, LLMQ_NEVER);
	json_decref(control);
}

/* Somebody else has the job now, or it is cancelled. */
static void
recall(LlmqEngine *engine, const char *job_id, const char *delivery)
{
	LlmqJob *job = llmq_job_table_find(&engine->jobs, job_id, (int) strtol(delivery, NULL, 10));

	if (job != NULL)
		llmq_engine_interrupt(engine, job);
}

/* Whether this worker runs the jobs of a queue. */
bool
llmq_engine_serves(const LlmqEngine *engine, const char *queue)
{
	const char *const *served = engine->options.queues;

	if (served == NULL)
		return true;
	while (*served != NULL && strcmp(*served, queue) != 0)
		served++;
	return *served != NULL;
}

/* Takes one ready job into memory, if it is for us; false when there is no room for it. */
static bool
take_ready(LlmqEngine *engine, const LlmqRows *rows, int i)
{
	LlmqPosition *position = &engine->position;
	int64_t seq = strtoll(llmq_rows_cell(rows, i, 0), NULL, 10);

	if (llmq_engine_serves(engine, llmq_rows_cell(rows, i, 1)) &&
		!llmq_ready_add(engine->ready, seq, llmq_rows_cell(rows, i, 1), llmq_rows_cell(rows, i, 2),
						(int) strtol(llmq_rows_cell(rows, i, 3), NULL, 10)))
		return false;
	if (engine->polling_sweep)
		position->sweep_at = seq;
	if (seq > position->tip)
		position->tip = seq;
	return true;
}

/* The control row comes last. */
void
llmq_engine_complete_poll(LlmqEngine *engine, const LlmqRows *rows)
{
	bool room = true;

	for (int i = 0; i < rows->row_count; i++)
	{
		if (llmq_rows_cell(rows, i, 4) != NULL)
			take_control(engine, llmq_rows_cell(rows, i, 4), room);
		else if (llmq_rows_cell(rows, i, 0) == NULL)
			recall(engine, llmq_rows_cell(rows, i, 5), llmq_rows_cell(rows, i, 6));
		else if (room)
			room = take_ready(engine, rows, i);
	}
}
