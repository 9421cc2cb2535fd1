/*
 * settings.c
 *		The settings of llmq.
 *
 * None needs a restart: the workers reload their settings on SIGHUP, and each one can be set
 * before the library is loaded.
 */
#include "postgres.h"

#include <limits.h>

#include "nodes/pg_list.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "settings.h"
#include "shared.h"

bool llmq_enabled = true;
char *llmq_databases = NULL;
int llmq_workers = 1;
int llmq_max_in_flight = 1000;
int llmq_poll_interval = 5000;
char *llmq_secrets_directory = NULL;
int llmq_key_wait = 0;
int llmq_callback_timeout = 5000;

static void define_launching(void);
static void define_working(void);
static void define_submitting(void);
static bool check_databases(char **newval, void **extra, GucSource source);

void
llmq_settings_define(void)
{
	define_launching();
	define_working();
	define_submitting();
	MarkGUCPrefixReserved("llmq");
}

bool
llmq_settings_serves(const char *database)
{
	char *copy;
	List *names;
	ListCell *cell;
	bool found = false;

	if (llmq_databases == NULL || llmq_databases[0] == '\0')
		return true;
	copy = pstrdup(llmq_databases);
	if (!SplitIdentifierString(copy, ',', &names))
		return false; /* impossible after the check hook */
	foreach (cell, names)
	{
		if (strcmp(lfirst(cell), database) == 0)
			found = true;
	}
	list_free(names);
	pfree(copy);
	return found;
}

static void
define_launching(void)
{
	DefineCustomBoolVariable("llmq.enabled", "Lets llmq's workers run.",
							 "When off, the workers of all databases end; jobs can be submitted "
							 "and wait until it is on again.",
							 &llmq_enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("llmq.databases", "Names the databases that have workers.",
							   "Names as in SQL, separated by commas; names with capitals need "
							   "double quotes. Empty: every database that has the extension.",
							   &llmq_databases, "", PGC_SIGHUP, GUC_LIST_INPUT, check_databases,
							   NULL, NULL);
	DefineCustomIntVariable("llmq.workers", "Number of workers in each database.",
							"0 starts none. Each takes one of max_worker_processes.", &llmq_workers,
							1, 0, LLMQ_MAX_WORKERS, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
define_working(void)
{
	DefineCustomIntVariable("llmq.max_in_flight",
							"Number of network calls that one worker has in flight at most.",
							"A worker holds fewer when its limit of open files is lower.",
							&llmq_max_in_flight, 1000, 1, 100000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("llmq.poll_interval", "Time between two looks of an idle worker.",
							"In milliseconds without a unit. Only a safety net: workers are woken "
							"when a submitting transaction commits.",
							&llmq_poll_interval, 5000, 100, 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomStringVariable(
		"llmq.secrets_directory", "Directory of the files that hold the secrets of endpoints.",
		"The credential of an endpoint is the name of a file in it, readable "
		"by the server's user alone. Empty: secrets come from the "
		"environment, LLMQ_SECRET_<NAME>.",
		&llmq_secrets_directory, "", PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable("llmq.callback_timeout", "Time that an on_complete function may take.",
							"In milliseconds without a unit. 0: no limit.", &llmq_callback_timeout,
							5000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

static void
define_submitting(void)
{
	DefineCustomIntVariable("llmq.key_wait",
							"Time that llmq.submit waits for a transaction that holds the same "
							"idempotency key.",
							"In milliseconds without a unit; never less than 50 ms. Then PT409 is "
							"raised.",
							&llmq_key_wait, 0, 0, 500, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char *copy = pstrdup(*newval);
	List *names;
	bool valid = SplitIdentifierString(copy, ',', &names);

	if (!valid)
		GUC_check_errdetail("It must be a list of database names, separated by commas.");
	list_free(names);
	pfree(copy);
	return valid;
}
