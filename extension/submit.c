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
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
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

/* Notes the calling role and, as the owner, runs the function's delegate (suffix _as) for it. */
Datum
llmq_as_owner_1(PG_FUNCTION_ARGS)
{
	LlmqOwnerCaller caller = llmq_owner_assume(fcinfo->flinfo->fn_oid);
	Datum result = llmq_delegate_run(fcinfo, "_as", caller.role);

	llmq_owner_leave(caller);
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
	static SPIPlanPtr plan = NULL;
	bool isnull;
	bool serves;

	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare("SELECT llmq.has_program()", 0, NULL);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare llmq.has_program");
	}
	if (SPI_execute_plan(plan, NULL, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "llmq.has_program did not answer");
	serves = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return serves;
}
