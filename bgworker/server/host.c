/*
 * host.c
 *		What the workers and the callback worker of a database have in common: how they begin,
 *		and when they have to leave.
 *
 * They leave when they are told to, when they are no longer wanted, and when somebody holds a
 * lock on the database that keeps sessions out (DROP, RENAME, use as a template).  They never
 * end with an error: what they report in shared memory tells the launcher whether to start
 * them again.
 */
#include "postgres.h"

#include <time.h>

#include "commands/extension.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "extension/compat.h"
#include "extension/database.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "server/host.h"
#include "server/transaction.h"

static void configure_session(void);
static bool is_wanted(const LlmqHost *host);
static void look_for_extension(void *found);

void
llmq_host_begin(LlmqHost *host, Datum database)
{
	host->database = DatumGetObjectId(database);
	host->tick_at_us = 0;
	memcpy(&host->index, MyBgworkerEntry->bgw_extra, sizeof(host->index));
	llmq_shared_attach();
	if (!llmq_shared_register_worker(host->database, host->index))
		proc_exit(0);
	if (llmq_database_is_contended(host->database))
	{
		/* Connecting now would wait for the database, which might then be gone. */
		llmq_shared_report(host->database, LLMQ_STATUS_ASIDE);
		proc_exit(0);
	}
	BackgroundWorkerInitializeConnectionByOid(host->database, InvalidOid, 0);
	configure_session();
	if (!llmq_host_has_extension())
	{
		llmq_shared_report(host->database, LLMQ_STATUS_ABSENT);
		proc_exit(0);
	}
	llmq_shared_report(host->database, LLMQ_STATUS_WANTED);
}

/* Sets the settings that our statements rely on, whatever roles and databases set. */
static void
configure_session(void)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"lock_timeout", "500ms"}, /* a VACUUM FULL must not make us lose a lease */
		{"statement_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"session_replication_role", "origin"},
		{"row_security", "on"},
		{"jit", "off"}, /* we run many short statements */
		{"DateStyle", "ISO"},
		{"IntervalStyle", "postgres"},
		{"bytea_output", "hex"},
		{"extra_float_digits", "1"},
	};

	for (size_t i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	if (LLMQ_COMPAT_HAS_TRANSACTION_TIMEOUT)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

const char *
llmq_host_why_leave(LlmqHost *host, bool busy, bool *ticked)
{
	int64 now = llmq_host_clock();

	*ticked = now >= host->tick_at_us;
	if (*ticked)
		host->tick_at_us = now + (busy ? LLMQ_HOST_TICK_US : LLMQ_HOST_TICK_IDLE_US);
	if (ShutdownRequestPending)
		return "it was told to";
	if (!*ticked)
		return NULL;
	if (!is_wanted(host))
		return "it is switched off";
	if (llmq_database_is_contended(host->database))
	{
		llmq_shared_report(host->database, LLMQ_STATUS_ASIDE);
		return "somebody needs exclusive access to the database";
	}
	return NULL;
}

static bool
is_wanted(const LlmqHost *host)
{
	return llmq_enabled && llmq_shared_status(host->database) != LLMQ_STATUS_STOPPED &&
		   (host->index == LLMQ_CALLBACK_WORKER || host->index < llmq_workers);
}

bool
llmq_host_has_extension(void)
{
	bool found = true;
	ErrorData *error = llmq_transaction_run(look_for_extension, &found, CurrentMemoryContext);

	if (error != NULL)
		FreeErrorData(error);
	return found;
}

static void
look_for_extension(void *found)
{
	*(bool *) found = OidIsValid(get_extension_oid("llmq", true));
}

int64
llmq_host_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
