/*
 * key_wait.c
 *		Waits for another transaction's idempotency key, but not for long.
 *
 * Whoever inserts a key that another open transaction has inserted waits for the end of that
 * transaction.  lock_timeout limits this wait without subtransactions or advisory locks, either
 * of which would fill the lock table in a bulk submit, and its error can be translated here
 * into one that says what it means.  This is the only place that does so.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "delegate.h"
#include "settings.h"

/* A shorter wait for a key would refuse duplicates even when the other transaction is fast. */
#define MIN_KEY_WAIT_MS 50

#define NO_ELEMENT (-1)

#define ERRCODE_KEY_HELD MAKE_SQLSTATE('P', 'T', '4', '0', '9')

PG_FUNCTION_INFO_V1(llmq_key_wait_1);
PG_FUNCTION_INFO_V1(llmq_note_element_1);

/* The element of a bulk submit that is being inserted, counted from 0. */
static int64 current_element = NO_ELEMENT;

static Oid find_table(Oid row_type);
static Datum run_in_time(FunctionCallInfo fcinfo, int milliseconds);
static void report_held(int milliseconds);
static int key_wait(void);
static void limit_lock_wait(int milliseconds);

/*
 * Runs the function's delegate (suffix _now) with the wait for each lock limited.
 * The first argument is a row of the table that it writes, or an array of rows.
 *
 * The table is locked before the wait is limited: whoever holds that lock (VACUUM FULL) holds
 * no key, so the user's own lock_timeout applies to it.
 */
Datum
llmq_key_wait_1(PG_FUNCTION_ARGS)
{
	int milliseconds = key_wait();
	int nest_level;
	Datum result;

	LockRelationOid(find_table(get_fn_expr_argtype(fcinfo->flinfo, 0)), RowExclusiveLock);
	nest_level = NewGUCNestLevel();
	limit_lock_wait(milliseconds);
	current_element = NO_ELEMENT;
	result = run_in_time(fcinfo, milliseconds);
	AtEOXact_GUC(true, nest_level);
	return result;
}

/*
 * note_element(index bigint): notes that the next row to be inserted is that of this element;
 * returns true.
 */
Datum
llmq_note_element_1(PG_FUNCTION_ARGS)
{
	current_element = PG_GETARG_INT64(0);
	PG_RETURN_BOOL(true);
}

static Oid
find_table(Oid row_type)
{
	Oid element = get_element_type(row_type);

	return get_typ_typrelid(OidIsValid(element) ? element : row_type);
}

/* Runs the delegate.  An error ends the statement anyway, so nothing needs to be undone here. */
static Datum
run_in_time(FunctionCallInfo fcinfo, int milliseconds)
{
	MemoryContext context = CurrentMemoryContext;
	Datum result = (Datum) 0;

	PG_TRY();
	{
		result = llmq_delegate_run(fcinfo, "_now", InvalidOid);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		report_held(milliseconds);
	}
	PG_END_TRY();
	return result;
}

static void
report_held(int milliseconds)
{
	char element[64] = "";

	if (current_element != NO_ELEMENT)
		snprintf(element, sizeof(element), "element " INT64_FORMAT ": ", current_element);
	ereport(ERROR,
			(errcode(ERRCODE_KEY_HELD),
			 errmsg("%sanother transaction holds this idempotency key", element),
			 errdetail("It has not ended within %d ms.", milliseconds),
			 errhint("Retry after that transaction has ended. llmq.key_wait sets how long to "
					 "wait, up to 500 ms.")));
}

/*
 * Returns how many milliseconds to wait for each holder in turn; a shorter lock_timeout of the
 * user is kept.
 */
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
