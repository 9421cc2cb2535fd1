/*
 * delegate.c
 *		Runs the SQL function behind a C function.
 *
 * Some public functions need C for one thing, and SQL for everything else.  Then the entry
 * point is in C, and an SQL function of the same name with a suffix, its delegate, does the
 * work; it is in schema llmq_internal.  It is called directly, which costs a third of what a
 * statement does.  A function that returns a set needs a statement; each process keeps one
 * saved plan for each such function.
 *
 * The caller's search_path is in force here, so statements qualify all names with a schema and
 * use no operator.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#include "delegate.h"
#include "owner.h"

/* Few functions have delegates; DROP and CREATE EXTENSION add the same number again. */
#define EXPECTED_DELEGATES 32

/* What a delegate is called with. */
typedef struct Arguments
{
	int count;
	NullableDatum values[FUNC_MAX_ARGS + 1];
} Arguments;

typedef struct Delegate
{
	Oid function;		/* the one in C; the hash key */
	const char *schema; /* that the plan names */
	SPIPlanPtr plan;
} Delegate;

static void collect(FunctionCallInfo fcinfo, Oid role, Arguments *arguments);
static Datum
call(FunctionCallInfo fcinfo, const char *suffix, bool tells_role, const Arguments *arguments);
static FmgrInfo *find_function(FunctionCallInfo fcinfo, const char *suffix, bool tells_role);
static Datum select_set(FunctionCallInfo fcinfo, const char *suffix, bool tells_role,
						const Arguments *arguments);
static SPIPlanPtr find_plan(Oid function, const char *suffix, bool tells_role);
static HTAB *delegates(void);
static SPIPlanPtr prepare(Oid function, const char *schema, const char *suffix, bool tells_role);
static HeapTuple find_entry(Oid function);
static int list_types(Form_pg_proc function, bool tells_role, Oid *types);
static char *write_call(Form_pg_proc function, const char *schema, const char *suffix, int count);
static void fill_store(FunctionCallInfo fcinfo);

/*
 * Asks for a function that every release before 0.3.0 has there.  To ask for schema llmq_internal
 * would not do: with the SQL of such a release it is somebody else's, whose functions must not be
 * called.
 */
const char *
llmq_delegate_schema(void)
{
	Oid llmq = get_namespace_oid("llmq", false);

	return SearchSysCacheExists3(PROCNAMEARGSNSP, CStringGetDatum("is_home"),
								 PointerGetDatum(buildoidvector(NULL, 0)), ObjectIdGetDatum(llmq))
			   ? "llmq"
			   : "llmq_internal";
}

/* In the mode that conflicts with what COMMENT ON SCHEMA takes: an update begins with one. */
void
llmq_delegate_hold_off_update(void)
{
	if (!RecoveryInProgress())
		LockDatabaseObject(NamespaceRelationId, get_namespace_oid("llmq", false), 0, ShareLock);
}

void
llmq_delegate_allow_update(void)
{
	if (!RecoveryInProgress())
		UnlockDatabaseObject(NamespaceRelationId, get_namespace_oid("llmq", false), 0, ShareLock);
}

Datum
llmq_delegate_run(FunctionCallInfo fcinfo, const char *suffix, Oid role)
{
	Arguments arguments;

	collect(fcinfo, role, &arguments);
	if (fcinfo->flinfo->fn_retset)
		return select_set(fcinfo, suffix, OidIsValid(role), &arguments);
	return call(fcinfo, suffix, OidIsValid(role), &arguments);
}

static void
collect(FunctionCallInfo fcinfo, Oid role, Arguments *arguments)
{
	int told = OidIsValid(role) ? 1 : 0;

	if (told)
		arguments->values[0] = (NullableDatum){llmq_owner_name(role), false};
	memcpy(arguments->values + told, fcinfo->args, PG_NARGS() * sizeof(NullableDatum));
	arguments->count = told + PG_NARGS();
}

/* ---- A function ---------------------------------------------------------------------- */

/*
 * Calls the delegate with the collation that a statement would derive, where that of a name
 * wins over that of a text.
 */
static Datum
call(FunctionCallInfo fcinfo, const char *suffix, bool tells_role, const Arguments *arguments)
{
	LOCAL_FCINFO(inner, FUNC_MAX_ARGS + 1);
	FmgrInfo *function = find_function(fcinfo, suffix, tells_role);
	Datum result;
	int i;

	InitFunctionCallInfoData(*inner, function, arguments->count,
							 tells_role ? C_COLLATION_OID : DEFAULT_COLLATION_OID, NULL, NULL);
	memcpy(inner->args, arguments->values, arguments->count * sizeof(NullableDatum));
	for (i = 0; function->fn_strict && i < inner->nargs; i++)
	{
		if (inner->args[i].isnull)
			PG_RETURN_NULL();
	}
	result = FunctionCallInvoke(inner);
	fcinfo->isnull = inner->isnull;
	return result;
}

/*
 * Finds the delegate once for each statement of the caller, so that it is always the current
 * one.
 */
static FmgrInfo *
find_function(FunctionCallInfo fcinfo, const char *suffix, bool tells_role)
{
	FmgrInfo *entry = fcinfo->flinfo;
	Oid types[FUNC_MAX_ARGS + 1];
	HeapTuple tuple;
	Form_pg_proc form;
	FmgrInfo *function;
	char *name;
	Oid oid;

	if (entry->fn_extra != NULL)
		return entry->fn_extra;
	tuple = find_entry(entry->fn_oid);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	name = psprintf("%s%s", NameStr(form->proname), suffix);
	oid =
		GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						PointerGetDatum(buildoidvector(types, list_types(form, tells_role, types))),
						ObjectIdGetDatum(get_namespace_oid(llmq_delegate_schema(), false)));
	ReleaseSysCache(tuple);
	if (!OidIsValid(oid))
		elog(ERROR, "there is no function %s", name);
	function = MemoryContextAlloc(entry->fn_mcxt, sizeof(FmgrInfo));
	fmgr_info_cxt(oid, function, entry->fn_mcxt);
	entry->fn_extra = function;
	return function;
}

/* ---- A set --------------------------------------------------------------------------- */

static Datum
select_set(FunctionCallInfo fcinfo, const char *suffix, bool tells_role, const Arguments *arguments)
{
	Datum values[FUNC_MAX_ARGS + 1];
	char nulls[FUNC_MAX_ARGS + 1];
	int i;

	for (i = 0; i < arguments->count; i++)
	{
		values[i] = arguments->values[i].value;
		nulls[i] = arguments->values[i].isnull ? 'n' : ' ';
	}
	SPI_connect();
	if (SPI_execute_plan(find_plan(fcinfo->flinfo->fn_oid, suffix, tells_role), values, nulls,
						 false, 0) != SPI_OK_SELECT)
		elog(ERROR, "the delegate of function %u did not answer", fcinfo->flinfo->fn_oid);
	fill_store(fcinfo);
	SPI_finish();
	return (Datum) 0;
}

static SPIPlanPtr
find_plan(Oid function, const char *suffix, bool tells_role)
{
	const char *schema = llmq_delegate_schema();
	bool found;
	Delegate *delegate = hash_search(delegates(), &function, HASH_ENTER, &found);

	if (!found)
		delegate->plan = NULL;
	if (delegate->plan == NULL || delegate->schema != schema)
	{
		delegate->plan = prepare(function, schema, suffix, tells_role);
		delegate->schema = schema;
	}
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
prepare(Oid function, const char *schema, const char *suffix, bool tells_role)
{
	HeapTuple tuple = find_entry(function);
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);
	Oid types[FUNC_MAX_ARGS + 1];
	int count = list_types(form, tells_role, types);
	SPIPlanPtr plan = SPI_prepare(write_call(form, schema, suffix, count), count, types);

	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare the delegate of %s", NameStr(form->proname));
	ReleaseSysCache(tuple);
	return plan;
}

static HeapTuple
find_entry(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	return tuple;
}

/* The types of a delegate's arguments; returns how many they are. */
static int
list_types(Form_pg_proc function, bool tells_role, Oid *types)
{
	int told = tells_role ? 1 : 0;

	if (told)
		types[0] = NAMEOID;
	memcpy(types + told, function->proargtypes.values, function->pronargs * sizeof(Oid));
	return told + function->pronargs;
}

static char *
write_call(Form_pg_proc function, const char *schema, const char *suffix, int count)
{
	const char *name = quote_identifier(psprintf("%s%s", NameStr(function->proname), suffix));
	StringInfoData call;
	int i;

	initStringInfo(&call);
	appendStringInfo(&call, "SELECT r.* FROM %s.%s(", schema, name);
	for (i = 1; i <= count; i++)
		appendStringInfo(&call, "%s$%d", i == 1 ? "" : ", ", i);
	appendStringInfoString(&call, ") AS r");
	return call.data;
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
