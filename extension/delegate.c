/*
 * delegate.c
 *		Running the SQL function that stands behind a C function.
 *
 * Some public functions need C for one thing, and SQL for all the rest: C is then
 * the door, and the SQL function of the same name with a suffix is the house.  One
 * saved plan a function and process keeps the door cheap.
 *
 * The caller's search_path is in force here, so statements name everything with
 * its schema and use no operator.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#include "delegate.h"
#include "owner.h"

/* The functions that have delegates are few; DROP and CREATE EXTENSION add as many again. */
#define EXPECTED_DELEGATES 32

typedef struct Delegate
{
	Oid function; /* the one in C; the hash key */
	SPIPlanPtr plan;
} Delegate;

static SPIPlanPtr find_plan(Oid function, const char *suffix, bool tells_role);
static HTAB *delegates(void);
static SPIPlanPtr prepare(Oid function, const char *suffix, bool tells_role);
static char *write_call(Form_pg_proc function, const char *suffix, int count);
static Datum fetch_value(FunctionCallInfo fcinfo);
static void fill_store(FunctionCallInfo fcinfo);

Datum
llmq_delegate_run(FunctionCallInfo fcinfo, const char *suffix, Oid role)
{
	Datum values[FUNC_MAX_ARGS + 1];
	char nulls[FUNC_MAX_ARGS + 1];
	Datum result = (Datum) 0;
	int count = 0;
	int i;

	if (OidIsValid(role))
	{
		values[count] = llmq_owner_name(role);
		nulls[count++] = ' ';
	}
	for (i = 0; i < PG_NARGS(); i++)
	{
		values[count] = PG_GETARG_DATUM(i);
		nulls[count++] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	SPI_connect();
	if (SPI_execute_plan(find_plan(fcinfo->flinfo->fn_oid, suffix, OidIsValid(role)), values, nulls,
						 false, 0) != SPI_OK_SELECT)
		elog(ERROR, "the delegate of function %u did not answer", fcinfo->flinfo->fn_oid);
	if (fcinfo->flinfo->fn_retset)
		fill_store(fcinfo);
	else
		result = fetch_value(fcinfo);
	SPI_finish();
	return result;
}

static SPIPlanPtr
find_plan(Oid function, const char *suffix, bool tells_role)
{
	bool found;
	Delegate *delegate = hash_search(delegates(), &function, HASH_ENTER, &found);

	if (!found)
		delegate->plan = NULL;
	if (delegate->plan == NULL)
		delegate->plan = prepare(function, suffix, tells_role);
	return delegate->plan;
}

static HTAB *
delegates(void)
{
	static HTAB *table = NULL;

	if (table == NULL)
	{
		HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(Delegate)};

		table = hash_create("llmq delegates", EXPECTED_DELEGATES, &control, HASH_ELEM | HASH_BLOBS);
	}
	return table;
}

static SPIPlanPtr
prepare(Oid function, const char *suffix, bool tells_role)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	Oid types[FUNC_MAX_ARGS + 1];
	int count = 0;
	SPIPlanPtr plan;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (tells_role)
		types[count++] = NAMEOID;
	memcpy(types + count, form->proargtypes.values, form->pronargs * sizeof(Oid));
	count += form->pronargs;
	plan = SPI_prepare(write_call(form, suffix, count), count, types);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare the delegate of %s", NameStr(form->proname));
	ReleaseSysCache(tuple);
	return plan;
}

static char *
write_call(Form_pg_proc function, const char *suffix, int count)
{
	const char *name = quote_identifier(psprintf("%s%s", NameStr(function->proname), suffix));
	StringInfoData call;
	int i;

	initStringInfo(&call);
	appendStringInfo(&call, function->proretset ? "SELECT r.* FROM llmq.%s(" : "SELECT llmq.%s(",
					 name);
	for (i = 1; i <= count; i++)
		appendStringInfo(&call, "%s$%d", i == 1 ? "" : ", ", i);
	appendStringInfoString(&call, function->proretset ? ") AS r" : ")");
	return call.data;
}

static Datum
fetch_value(FunctionCallInfo fcinfo)
{
	Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, 0);
	Datum value;

	if (SPI_processed != 1)
		elog(ERROR, "the delegate of function %u gave no answer", fcinfo->flinfo->fn_oid);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &fcinfo->isnull);
	return fcinfo->isnull ? (Datum) 0 : SPI_datumTransfer(value, column->attbyval, column->attlen);
}

static void
fill_store(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	uint64 i;

	if (set == NULL || !IsA(set, ReturnSetInfo) || !(set->allowedModes & SFRM_Materialize))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("set-valued function called in context that cannot accept a set"),
						errhint("Call it in FROM.")));
	old = MemoryContextSwitchTo(set->econtext->ecxt_per_query_memory);
	set->returnMode = SFRM_Materialize;
	set->setDesc = CreateTupleDescCopy(SPI_tuptable->tupdesc);
	set->setResult =
		tuplestore_begin_heap((set->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	for (i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(set->setResult, SPI_tuptable->vals[i]);
	MemoryContextSwitchTo(old);
}
