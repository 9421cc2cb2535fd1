/*
 * wait.c
 *		CALL llmq.wait: waits for a job without holding any resources.
 *
 * It is a procedure, because a function cannot release the snapshot of its statement, and a
 * snapshot held for a minute keeps VACUUM from cleaning up in the whole database.  Each look is
 * a transaction of its own; between two looks there is no snapshot, no lock and no transaction
 * id.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"
#include "delegate.h"
#include "owner.h"

/*
 * Time between looks: short at first, for jobs that are nearly done, but never so short that
 * it is a burden.
 */
#define FIRST_NAP_MS 2
#define LAST_NAP_MS	 100

#define ERRCODE_BAD_ARGUMENT MAKE_SQLSTATE('P', 'T', '4', '0', '0')
#define ERRCODE_NO_SUCH_JOB	 MAKE_SQLSTATE('P', 'T', '4', '0', '4')

PG_FUNCTION_INFO_V1(llmq_wait_1);

static void require_nonatomic(FunctionCallInfo fcinfo);
static TimestampTz find_deadline(FunctionCallInfo fcinfo);
static bool look(Oid function, const pg_uuid_t *job_id);
static void nap(long milliseconds);
static Datum make_row(FunctionCallInfo fcinfo, Datum status);

/* wait(job_id uuid, timeout interval, INOUT status jsonb) */
Datum
llmq_wait_1(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *job_id;
	TimestampTz deadline;
	long interval = FIRST_NAP_MS;
	Datum status;
	bool isnull;

	require_nonatomic(fcinfo);
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_BAD_ARGUMENT), errmsg("job_id is required"),
						errhint("Give the job_id that llmq.submit returned.")));
	job_id = PG_GETARG_UUID_P(0);
	deadline = find_deadline(fcinfo);

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	while (!look(fcinfo->flinfo->fn_oid, job_id))
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		if (left <= 0)
			break;
		SPI_freetuptable(SPI_tuptable);
		SPI_commit();
		nap(Min(interval, left));
		interval = Min(interval * 2, LAST_NAP_MS);
	}
	status = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	status = SPI_datumTransfer(status, false, -1);
	SPI_finish();
	PG_RETURN_DATUM(make_row(fcinfo, status));
}

static void
require_nonatomic(FunctionCallInfo fcinfo)
{
	bool atomic = true;

	if (fcinfo->context != NULL && IsA(fcinfo->context, CallContext))
		atomic = ((CallContext *) fcinfo->context)->atomic;
	if (atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("llmq.wait cannot run inside a transaction block"),
				 errdetail("It would hold the transaction's snapshot and locks while it waits, and "
						   "never see the job's end."),
				 errhint("Commit first, then CALL llmq.wait on its own, outside of functions.")));
}

static TimestampTz
find_deadline(FunctionCallInfo fcinfo)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline = DT_NOBEGIN;

	if (!PG_ARGISNULL(1))
		deadline = DatumGetTimestampTz(DirectFunctionCall2(
			timestamptz_pl_interval, TimestampTzGetDatum(now), PG_GETARG_DATUM(1)));
	if (deadline < now)
		ereport(ERROR,
				(errcode(ERRCODE_BAD_ARGUMENT), errmsg("timeout must be an interval of at least 0"),
				 errhint("For example: CALL llmq.wait(job_id, '30 s').")));
	return deadline;
}

/*
 * Leaves the job's status in SPI_tuptable and returns whether it is final.  Reads as llmq's
 * owner for the caller; llmq_internal.wait_look decides what the caller may see.
 */
static bool
look(Oid function, const pg_uuid_t *job_id)
{
	LlmqOwnerCaller caller;
	Oid types[2] = {UUIDOID, NAMEOID};
	Datum values[2];
	char *statement;
	bool isnull;

	llmq_delegate_hold_off_update();
	caller = llmq_owner_assume(function);
	values[0] = UUIDPGetDatum(job_id);
	values[1] = llmq_owner_name(caller.role);
	statement =
		psprintf("SELECT l.status, l.final FROM %s.wait_look($1, $2) AS l", llmq_delegate_schema());
	if (SPI_execute_with_args(statement, lengthof(types), types, values, NULL, false, 1) !=
		SPI_OK_SELECT)
		elog(ERROR, "wait_look did not answer");
	pfree(statement);
	if (SPI_processed == 0)
		ereport(ERROR, (errcode(ERRCODE_NO_SUCH_JOB), errmsg("there is no such job"),
						errdetail("No job with that job_id was submitted by you or a role that you "
								  "are a member of."),
						errhint("Was the submitting transaction committed, and the job not yet "
								"pruned?")));
	llmq_owner_leave(caller);
	llmq_delegate_allow_update();
	return DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
}

static void
nap(long milliseconds)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
					 llmq_compat_wait_event(&wait_event, "LlmqWait"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static Datum
make_row(FunctionCallInfo fcinfo, Datum status)
{
	TupleDesc row;
	bool isnull = false;

	if (get_call_result_type(fcinfo, NULL, &row) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "llmq.wait must have a row to return");
	row = BlessTupleDesc(row);
	return HeapTupleGetDatum(heap_form_tuple(row, &status, &isnull));
}
