/*
 * engine_poll.c
 *		Looks for work and for changed configuration.
 *
 * Every poll looks for ready jobs (jobs/job_look.c) and for messages (relay/relay_look.c).  A
 * full poll also gets everything else that llmq.worker_poll returns.
 */
#include "engine/engine_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/store_columns.h"

#define POLL_MAX_ROWS 2000

/* Room for a few thousand queues and endpoints. */
#define REPORT_MAX_BYTES ((size_t) 1024 * 1024)

/* The shortest time between two full polls of a worker that is woken often. */
#define FULL_POLL_US 100000

/* A wait that keeps a due job that somebody has locked from making the worker spin. */
#define DUE_PAUSE_US 2000

static int64_t
sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
llmq_engine_poll_due(LlmqEngine *engine)
{
	if (engine->core.state == LLMQ_ENGINE_OUTDATED)
		return LLMQ_NEVER;
	if (engine->core.woken)
		return 0;
	return sooner(sooner(engine->core.full_poll_at_us, llmq_jobs_report_due(&engine->jobs)),
				  sooner(llmq_jobs_look_due(&engine->jobs), llmq_relay_look_due(&engine->relay)));
}

/*
 * Returns whether a poll must come before claims, because it brings revoked leases and changed
 * configuration.
 */
bool
llmq_engine_poll_is_overdue(const LlmqEngine *engine)
{
	const LlmqCore *core = &engine->core;
	int64_t now = core->now.mono_us;

	return now >= core->full_poll_at_us || now >= llmq_jobs_report_due(&engine->jobs) ||
		   (core->woken && now - core->last_full_poll_us >= FULL_POLL_US);
}

/*
 * Returns the hash of the configuration in force.  If the database has another one, it sends
 * that.
 */
static const char *
known_config(const LlmqEngine *engine)
{
	return engine->core.config_doubted ? "" : engine->config_hash;
}

void
llmq_engine_begin_poll(LlmqEngine *engine)
{
	LlmqCore *core = &engine->core;
	char after[LLMQ_NUMBER_LENGTH];
	char rows[LLMQ_NUMBER_LENGTH];
	char messages_after[LLMQ_NUMBER_LENGTH];
	LlmqRelayLook look;
	bool full = llmq_engine_poll_is_overdue(engine);
	LlmqBuffer report;
	bool reports;

	snprintf(after, sizeof(after), "%" PRId64, llmq_jobs_begin_look(&engine->jobs, full));
	snprintf(rows, sizeof(rows), "%d", POLL_MAX_ROWS);
	llmq_relay_begin_look(&engine->relay, full, &look);
	snprintf(messages_after, sizeof(messages_after), "%" PRId64, look.after);
	if (full)
		core->last_full_poll_us = core->now.mono_us;
	else if (core->woken)
		/*
		 * The wake-up may mean changed configuration or a revoked lease, so a full poll
		 * follows soon.
		 */
		llmq_core_poll_by(core, core->last_full_poll_us + FULL_POLL_US);
	core->woken = false;
	llmq_buffer_init(&report, REPORT_MAX_BYTES);
	reports = full && llmq_engine_write_report(engine, &report);
	llmq_core_begin(core, LLMQ_OP_POLL,
					(const char *[]){core->worker_id, after, rows,
									 full ? known_config(engine) : NULL,
									 reports ? llmq_buffer_string(&report) : NULL, messages_after,
									 look.topics_after});
	llmq_buffer_free(&report);
}

/* ---- Configuration ----------------------------------------------------------------- */

/* Puts a configuration into force; when out of memory, changes nothing and returns false. */
static bool
replace_config(LlmqEngine *engine, LlmqConfig *fresh)
{
	LlmqConfig *before = (LlmqConfig *) engine->core.config;
	LlmqDestinationState *destinations = llmq_relay_carry_over(&engine->relay, fresh);
	LlmqLearned learned;

	if (destinations == NULL || !llmq_jobs_carry_over(&engine->jobs, fresh, &learned))
	{
		free(destinations);
		return false;
	}
	engine->core.config = fresh;
	llmq_jobs_take_config(&engine->jobs, learned);
	llmq_relay_take_config(&engine->relay, destinations);
	llmq_config_destroy(before);
	return true;
}

/* Replaces the configuration; calls under way go on as they were started. */
static void
take_config(LlmqEngine *engine, const json_t *value, const char *hash)
{
	char error[LLMQ_STORE_ERROR_MAX] = "out of memory";
	char *source = json_dumps(value, JSON_COMPACT);
	LlmqConfig *config = source == NULL ? NULL : llmq_config_parse(source, error, sizeof(error));

	free(source);
	if (config == NULL || !replace_config(engine, config))
	{
		llmq_config_destroy(config);
		llmq_core_log(&engine->core, LLMQ_LOG_WARNING, "%s; the previous one stays in force",
					  error);
		return;
	}
	snprintf(engine->config_hash, sizeof(engine->config_hash), "%s", hash == NULL ? "" : hash);
	engine->core.config_doubted = false;
}

/* Takes what else a full poll returns: configuration, state, when the next deferred job is due. */
static void
take_facts(LlmqEngine *engine, const json_t *control)
{
	LlmqCore *core = &engine->core;
	const char *state = json_string_value(json_object_get(control, "state"));
	const json_t *due = json_object_get(control, "due_in");
	const json_t *config = json_object_get(control, "config");
	int64_t next = core->options.poll_interval_us;

	engine->jobs.workers = (int) json_integer_value(json_object_get(control, "workers"));
	engine->jobs.rank = (int) json_integer_value(json_object_get(control, "rank"));
	/* Jobs of another database may be restored into this one while it is running. */
	if (state == NULL || (core->state == LLMQ_ENGINE_RUNNING && strcmp(state, "quarantined") == 0))
		llmq_core_start_again(core);
	else if (core->state == LLMQ_ENGINE_QUARANTINED && strcmp(state, "running") == 0)
		core->state = LLMQ_ENGINE_RUNNING;
	if (json_is_object(config))
		take_config(engine, config, json_string_value(json_object_get(control, "config_hash")));
	llmq_jobs_take_breakers(&engine->jobs, json_object_get(control, "breakers"));
	if (json_is_integer(due))
		next = sooner(next, json_integer_value(due));
	core->full_poll_at_us = core->now.mono_us + (next > DUE_PAUSE_US ? next : DUE_PAUSE_US);
	llmq_engine_note_pruned(engine, json_integer_value(json_object_get(control, "pruned")));
}

/* ---- Complete ---------------------------------------------------------------------- */

/* Takes the control row; `room` says that all rows of the poll found room in memory. */
static void
take_control(LlmqEngine *engine, const char *source, bool room)
{
	LlmqCore *core = &engine->core;
	json_t *control = json_loads(source, 0, NULL);

	if (control == NULL)
	{
		llmq_core_log(core, LLMQ_LOG_WARNING, "the database's answer to a poll cannot be read");
		core->full_poll_at_us = core->now.mono_us + core->options.poll_interval_us;
	}
	if (json_object_get(control, "config_hash") != NULL)
		take_facts(engine, control);
	if (json_is_true(json_object_get(control, "unresolved")))
		llmq_core_poll_by(core, core->now.mono_us + FULL_POLL_US);
	llmq_relay_complete_look(&engine->relay, control);
	llmq_jobs_end_look(&engine->jobs, control, room && control != NULL);
	json_decref(control);
}

/* Completes a poll.  The control row comes last; it is the only row with a value in that column. */
void
llmq_engine_complete_poll(LlmqEngine *engine, const LlmqRows *rows)
{
	bool room = llmq_jobs_complete_look(&engine->jobs, rows);

	for (int i = 0; i < rows->row_count; i++)
	{
		if (llmq_rows_cell(rows, i, LLMQ_POLL_CONTROL) != NULL)
			take_control(engine, llmq_rows_cell(rows, i, LLMQ_POLL_CONTROL), room);
	}
}

void
llmq_engine_fail_poll(LlmqEngine *engine, const LlmqRows *rows, bool away)
{
	llmq_jobs_repeat_report(&engine->jobs);
	llmq_relay_fail_look(&engine->relay);
	engine->core.woken = true;
}
