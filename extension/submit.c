/*
 * submit.c
 *		llmq.submit's way from the caller's role to llmq's tables.
 *
 * The rules of submitting are in SQL (sql/submit_code.sql).  Here is what SQL
 * cannot do: note the calling role and then act as the owner, wait for another
 * transaction's idempotency key without a subtransaction, wake the workers at
 * commit, and say so when there are none.
 *
 * The caller's search_path is in force here, so statements name everything with
 * its schema and use no operator.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/uuid.h"

#include "owner.h"
#include "service.h"
#include "settings.h"
#include "wakeup.h"

#define SUBMIT_ARGUMENTS 18
#define REPLAYED_COLUMN	 3 /* of llmq.submission */

/* Waiting for a key no longer than this would refuse a duplicate of a fast transaction. */
#define MIN_KEY_WAIT_MS 50

#define ERRCODE_KEY_HELD MAKE_SQLSTATE('P', 'T', '4', '0', '9')

PG_FUNCTION_INFO_V1(llmq_submit_1);
PG_FUNCTION_INFO_V1(llmq_insert_jobs_1);

static Datum submit_as(Oid caller, FunctionCallInfo fcinfo);
static SPIPlanPtr prepare_submit(void);
static void follow_up(void);
static bool program_serves(void);
static SPIPlanPtr prepare_insert(Oid array_type);
static void insert_jobs(SPIPlanPtr plan, Datum jobs);
static int key_wait(void);
static void limit_lock_wait(int milliseconds);
static Datum collect_ids(MemoryContext context);

/* -- llmq.submit ------------------------------------------------------------------ */

/* The arguments are those of llmq.submit, which llmq.submit_as takes after the caller. */
Datum
llmq_submit_1(PG_FUNCTION_ARGS)
{
	LlmqOwnerCaller caller;
	Datum submission;
	bool isnull;

	Assert(PG_NARGS() == SUBMIT_ARGUMENTS);
	caller = llmq_owner_assume(fcinfo->flinfo->fn_oid);
	submission = submit_as(caller.role, fcinfo);
	if (!DatumGetBool(
			GetAttributeByNum(DatumGetHeapTupleHeader(submission), REPLAYED_COLUMN, &isnull)))
		follow_up();
	llmq_owner_leave(caller);
	PG_RETURN_DATUM(submission);
}

static Datum
submit_as(Oid caller, FunctionCallInfo fcinfo)
{
	Datum values[SUBMIT_ARGUMENTS + 1];
	char nulls[SUBMIT_ARGUMENTS + 1];
	Datum submission;
	bool isnull;
	int i;

	values[0] = llmq_owner_name(caller);
	nulls[0] = ' ';
	for (i = 0; i < SUBMIT_ARGUMENTS; i++)
	{
		values[i + 1] = PG_GETARG_DATUM(i);
		nulls[i + 1] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	SPI_connect();
	if (SPI_execute_plan(prepare_submit(), values, nulls, false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "llmq.submit_as did not answer");
	submission = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	submission = SPI_datumTransfer(submission, false, -1);
	SPI_finish();
	return submission;
}

static SPIPlanPtr
prepare_submit(void)
{
	static SPIPlanPtr plan = NULL;
	Oid types[SUBMIT_ARGUMENTS + 1] = {
		NAMEOID,		TEXTOID,	  TEXTOID,	TEXTOID,  TEXTOID,	  TEXTOID,		  JSONBOID,
		TEXTOID,		JSONBOID,	  JSONBOID, JSONBOID, REGPROCOID, TIMESTAMPTZOID, INT4OID,
		TIMESTAMPTZOID, UUIDARRAYOID, TEXTOID,	TEXTOID,  JSONBOID};

	if (plan == NULL)
	{
		plan = SPI_prepare("SELECT llmq.submit_as($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
						   "$12, $13, $14, $15, $16, $17, $18, $19)",
						   lengthof(types), types);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare llmq.submit_as");
	}
	return plan;
}

/* After a new job: the workers look at commit, and the user hears when there are none. */
static void
follow_up(void)
{
	LlmqService service;

	if (IsBinaryUpgrade)
		return;
	llmq_wakeup_request(LLMQ_REQUEST_WAKE);
	service = llmq_service_judge();
	if (service == LLMQ_SERVICE_RUNNING || service == LLMQ_SERVICE_STARTING)
		return;
	if (llmq_wakeup_first_warning() && !program_serves())
		llmq_service_warn(service);
}

/* Whether a worker on another machine serves this database. */
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

/* -- llmq.insert_jobs ------------------------------------------------------------- */

/*
 * insert_jobs(llmq.job[]) inserts the jobs whose keys are free, in the order of
 * their ids so that two bulk submits cannot deadlock, and returns those ids.
 *
 * The table is locked before the wait is limited: whoever holds that (VACUUM
 * FULL) holds no key, and the user's own lock_timeout is for it.
 */
Datum
llmq_insert_jobs_1(PG_FUNCTION_ARGS)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ArrayType *jobs = PG_GETARG_ARRAYTYPE_P(0);
	Oid row_type = ARR_ELEMTYPE(jobs);
	int nest_level;
	SPIPlanPtr plan;
	Datum ids;

	SPI_connect();
	plan = prepare_insert(get_array_type(row_type));
	LockRelationOid(get_typ_typrelid(row_type), RowExclusiveLock);
	nest_level = NewGUCNestLevel();
	limit_lock_wait(key_wait());
	insert_jobs(plan, PointerGetDatum(jobs));
	AtEOXact_GUC(true, nest_level);
	ids = collect_ids(caller_context);
	SPI_finish();
	PG_RETURN_DATUM(ids);
}

/* The type is another one after DROP and CREATE EXTENSION. */
static SPIPlanPtr
prepare_insert(Oid array_type)
{
	static SPIPlanPtr plan = NULL;
	static Oid plan_type = InvalidOid;
	SPIPlanPtr fresh;

	if (plan != NULL && plan_type == array_type)
		return plan;
	fresh = SPI_prepare("INSERT INTO llmq.job SELECT j.* FROM pg_catalog.unnest($1) AS j "
						"ORDER BY j.job_id ON CONFLICT (job_id) DO NOTHING RETURNING job_id",
						1, &array_type);
	if (fresh == NULL || SPI_keepplan(fresh) != 0)
		elog(ERROR, "could not prepare llmq.insert_jobs");
	if (plan != NULL)
		SPI_freeplan(plan);
	plan = fresh;
	plan_type = array_type;
	return plan;
}

/* The error ends the statement anyway, so nothing needs to be undone here. */
static void
insert_jobs(SPIPlanPtr plan, Datum jobs)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		if (SPI_execute_plan(plan, &jobs, NULL, false, 0) != SPI_OK_INSERT_RETURNING)
			elog(ERROR, "llmq.insert_jobs inserted nothing");
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_KEY_HELD),
				 errmsg("another transaction holds this idempotency key"),
				 errdetail("It submitted the same key and has not ended within %d ms.", key_wait()),
				 errhint("Retry after that transaction has ended. llmq.key_wait sets how long to "
						 "wait, up to 500 ms.")));
	}
	PG_END_TRY();
}

/* Milliseconds for each holder in turn; a shorter lock_timeout of the user is kept. */
static int
key_wait(void)
{
	int wait = Max(llmq_key_wait, MIN_KEY_WAIT_MS);

	return LockTimeout > 0 ? Min(wait, LockTimeout) : wait;
}

static void
limit_lock_wait(int milliseconds)
{
	char value[32];

	snprintf(value, sizeof(value), "%dms", milliseconds);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
}

/* The returned ids as uuid[], made in another memory context. */
static Datum
collect_ids(MemoryContext context)
{
	uint64 count = SPI_processed;
	Datum *ids = palloc(sizeof(Datum) * (count + 1));
	ArrayType *array;
	MemoryContext old;
	bool isnull;
	uint64 i;

	for (i = 0; i < count; i++)
		ids[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
	old = MemoryContextSwitchTo(context);
	array = construct_array(ids, (int) count, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR);
	MemoryContextSwitchTo(old);
	return PointerGetDatum(array);
}
