/*
 * submit.c
 *		What submitting needs that SQL cannot do.
 *
 * The rules of submitting are in SQL (sql/submit/submit.sql).  Here are the entry point of
 * every function that must know who calls it and then act as llmq's owner, and what follows a
 * new job: the workers wake up at commit, and the user is warned if there are none.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "delegate.h"
#include "owner.h"
#include "service.h"
#include "wakeup.h"

/* A session is warned once in this time that nobody serves its database, and looks for programs. */
#define WARN_AGAIN_MS 60000

PG_FUNCTION_INFO_V1(llmq_as_owner_1);
PG_FUNCTION_INFO_V1(llmq_wake_at_commit_1);

static void warn_if_unserved(void);
static bool program_serves(void);

/*
 * Notes the calling role and, as the owner, runs the function's delegate (suffix _as) for it.
 * Functions of row security, which only read, hold off no update: who reads has locked what an
 * update locks later, and the two would wait for each other.
 */
Datum
llmq_as_owner_1(PG_FUNCTION_ARGS)
{
	bool reads = func_volatile(fcinfo->flinfo->fn_oid) != PROVOLATILE_VOLATILE;
	LlmqOwnerCaller caller;
	Datum result;

	if (!reads)
		llmq_delegate_hold_off_update();
	caller = llmq_owner_assume(fcinfo->flinfo->fn_oid);
	result = llmq_delegate_run(fcinfo, "_as", caller.role);
	llmq_owner_leave(caller);
	if (!reads)
		llmq_delegate_allow_update();
	return result;
}

/* wake_at_commit(): wakes the workers at commit, because there are new jobs. */
Datum
llmq_wake_at_commit_1(PG_FUNCTION_ARGS)
{
	if (IsBinaryUpgrade)
		PG_RETURN_VOID();
	llmq_wakeup_request(LLMQ_REQUEST_WAKE);
	warn_if_unserved();
	PG_RETURN_VOID();
}

/*
 * Warns if nobody serves the database, and again when the reason has changed.  A thousand
 * submits a second must not fill the log.
 */
static void
warn_if_unserved(void)
{
	static LlmqService last = LLMQ_SERVICE_RUNNING;
	static TimestampTz last_at = 0;
	LlmqService service = llmq_service_judge();
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (service == last && !TimestampDifferenceExceeds(last_at, now, WARN_AGAIN_MS))
		return;
	last = service;
	last_at = now;
	if (service != LLMQ_SERVICE_RUNNING && service != LLMQ_SERVICE_STARTING && !program_serves())
		llmq_service_warn(service);
}

/* Returns whether a worker outside of the server serves this database. */
static bool
program_serves(void)
{
	bool isnull;
	bool serves;

	SPI_connect();
	if (SPI_execute(psprintf("SELECT %s.has_program()", llmq_delegate_schema()), false, 1) !=
		SPI_OK_SELECT)
		elog(ERROR, "has_program did not answer");
	serves = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return serves;
}
