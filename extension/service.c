/*
 * service.c
 *		Finds out whether workers serve the current database, and if not, why.
 *
 * A worker that is about to start counts, so that nobody is told that there is none right
 * after CREATE EXTENSION, or after the start of the server.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "service.h"
#include "settings.h"
#include "shared.h"
#include "wakeup.h"

/* How long a launcher may take to appear: it is restarted after 5 s. */
#define LAUNCHER_GRACE_MS 10000

/* What is wrong, and what to do about it; both are sentences. */
typedef struct Advice
{
	const char *detail;
	const char *hint;
} Advice;

static LlmqService judge_slot(void);
static bool launcher_is_coming(const LlmqLauncherState *launcher);
static Advice advise(LlmqService service);

LlmqService
llmq_service_judge(void)
{
	if (!llmq_enabled)
		return LLMQ_SERVICE_DISABLED;
	if (llmq_shared_count_workers(MyDatabaseId) > 0)
		return LLMQ_SERVICE_RUNNING;
	if (llmq_workers == 0)
		return LLMQ_SERVICE_NONE_WANTED;
	if (!llmq_settings_serves(get_database_name(MyDatabaseId)))
		return LLMQ_SERVICE_EXCLUDED;
	if (llmq_wakeup_is_requested(LLMQ_REQUEST_START))
		return LLMQ_SERVICE_STARTING;
	return judge_slot();
}

static LlmqService
judge_slot(void)
{
	LlmqLauncherState launcher = llmq_shared_launcher();
	LlmqSlot slot = {0};

	(void) llmq_shared_look(MyDatabaseId, &slot);
	if (slot.status == LLMQ_STATUS_STOPPED)
		return LLMQ_SERVICE_STOPPED;
	if (!launcher.running && !launcher_is_coming(&launcher))
		return LLMQ_SERVICE_NO_LAUNCHER;
	if (slot.trouble == LLMQ_TROUBLE_DYING)
		return LLMQ_SERVICE_DYING;
	if (slot.trouble == LLMQ_TROUBLE_NO_PROCESS)
		return LLMQ_SERVICE_NO_PROCESS;
	return LLMQ_SERVICE_STARTING;
}

static bool
launcher_is_coming(const LlmqLauncherState *launcher)
{
	TimestampTz expected = launcher->announced_at;

	if (launcher->preloaded)
		expected = Max(expected, PgStartTime);
	return !TimestampDifferenceExceeds(expected, GetCurrentTimestamp(), LAUNCHER_GRACE_MS);
}

void
llmq_service_warn(LlmqService service)
{
	Advice advice = advise(service);

	ereport(WARNING, (errcode(ERRCODE_WARNING), errmsg("no worker serves this database: jobs wait"),
					  errdetail("%s", advice.detail), errhint("%s", advice.hint)));
}

static Advice
advise(LlmqService service)
{
	switch (service)
	{
		case LLMQ_SERVICE_RUNNING:
		case LLMQ_SERVICE_STARTING:
			break;
		case LLMQ_SERVICE_DISABLED:
			return (Advice){"llmq.enabled is off.",
							"Set llmq.enabled to on and reload the configuration."};
		case LLMQ_SERVICE_NONE_WANTED:
			return (Advice){"llmq.workers is 0.",
							"Set llmq.workers to 1 or more and reload the configuration."};
		case LLMQ_SERVICE_EXCLUDED:
			return (Advice){"llmq.databases does not name this database.",
							"Add it to llmq.databases and reload the configuration."};
		case LLMQ_SERVICE_STOPPED:
			return (Advice){"It was stopped with llmq.stop_worker().",
							"Run SELECT llmq.start_worker()."};
		case LLMQ_SERVICE_DYING:
			return (Advice){"Its workers keep ending soon after their start.",
							"The server log says why."};
		case LLMQ_SERVICE_NO_PROCESS:
			return (Advice){"All background worker processes are in use.",
							"Increase max_worker_processes and restart the server."};
		case LLMQ_SERVICE_NO_LAUNCHER:
			if (llmq_shared_launcher().preloaded)
				return (Advice){
					"The launcher of llmq does not run.",
					"Run SELECT llmq.start_worker(); the server log says why it ended."};
			return (Advice){"llmq was not started with the server.",
							"Add llmq to shared_preload_libraries and restart the server, or run "
							"SELECT llmq.start_worker() after each restart."};
	}
	return (Advice){"Workers are starting.", "Wait a moment."};
}
