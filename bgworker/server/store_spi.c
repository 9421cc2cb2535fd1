/*
 * store_spi.c
 *		The store's driver inside the server: every operation completes at once.
 *
 * Each operation is one transaction.  An ERROR in it becomes a status, because the worker has
 * answers in hand that were paid for, and must survive a failed statement.  Of the memory that
 * an operation allocates only its rows outlive it; they are in a context of their own until
 * the next one begins.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "extension/debug_point.h"
#include "server/store_spi.h"
#include "server/transaction.h"

typedef struct SpiStore
{
	LlmqStore port; /* first: a SpiStore is an LlmqStore */
	SPIPlanPtr plans[LLMQ_OPERATIONS];
	MemoryContext context; /* of the rows */
	LlmqStoreStatus status;
	LlmqRows rows;
} SpiStore;

typedef struct Call
{
	SpiStore *store;
	LlmqOperation operation;
	const char *const *params;
} Call;

static void spi_begin(LlmqStore *port, LlmqOperation operation, const char *const *params);
static LlmqStoreStatus spi_complete(LlmqStore *port, LlmqRows *rows);
static void run_operation(SpiStore *store, const Call *call);
static void execute_call(void *argument);
static void execute(SpiStore *store, LlmqOperation operation, const char *const *params);
static void copy_rows(SpiStore *store);

LlmqStore *
llmq_store_spi_create(void)
{
	SpiStore *store = MemoryContextAllocZero(TopMemoryContext, sizeof(SpiStore));

	store->port.begin = spi_begin;
	store->port.complete = spi_complete;
	store->context =
		AllocSetContextCreate(TopMemoryContext, "llmq store rows", ALLOCSET_DEFAULT_SIZES);
	return &store->port;
}

static void
spi_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	SpiStore *store = (SpiStore *) port;

	MemoryContextReset(store->context);
	memset(&store->rows, 0, sizeof(store->rows));
	run_operation(store, &(Call){store, operation, params});
}

static LlmqStoreStatus
spi_complete(LlmqStore *port, LlmqRows *rows)
{
	SpiStore *store = (SpiStore *) port;

	*rows = store->rows;
	return store->status;
}

/* Runs one operation in a transaction, up to its rows or its error. */
static void
run_operation(SpiStore *store, const Call *call)
{
	ErrorData *error;

	LLMQ_DEBUG_POINT("%s-begun", llmq_store_operation_name(call->operation));
	pgstat_report_activity(STATE_RUNNING, llmq_store_statement(call->operation));
	error = llmq_transaction_run(execute_call, (void *) call, store->context);
	store->status = error == NULL ? LLMQ_STORE_OK : LLMQ_STORE_FAILED;
	if (error != NULL)
	{
		strlcpy(store->rows.sqlstate, unpack_sql_state(error->sqlerrcode),
				sizeof(store->rows.sqlstate));
		strlcpy(store->rows.error, error->message, sizeof(store->rows.error));
	}
	else
		LLMQ_DEBUG_POINT("%s-committed", llmq_store_operation_name(call->operation));
	pgstat_report_stat(false);
}

static void
execute_call(void *argument)
{
	const Call *call = argument;

	if (llmq_store_may_commit_asynchronously(call->operation))
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	execute(call->store, call->operation, call->params);
	PopActiveSnapshot();
	LLMQ_DEBUG_POINT("%s-uncommitted", llmq_store_operation_name(call->operation));
}

static SPIPlanPtr
prepare(SpiStore *store, LlmqOperation operation)
{
	Oid types[LLMQ_OP_MAX_PARAMS];
	SPIPlanPtr plan;

	if (store->plans[operation] != NULL)
		return store->plans[operation];
	for (int i = 0; i < LLMQ_OP_MAX_PARAMS; i++)
		types[i] = TEXTOID;
	plan = SPI_prepare(llmq_store_statement(operation), llmq_store_param_count(operation), types);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare llmq's %s", llmq_store_operation_name(operation));
	store->plans[operation] = plan;
	return plan;
}

static void
execute(SpiStore *store, LlmqOperation operation, const char *const *params)
{
	Datum values[LLMQ_OP_MAX_PARAMS];
	char nulls[LLMQ_OP_MAX_PARAMS + 1];
	int rc;

	SPI_connect();
	for (int i = 0; i < llmq_store_param_count(operation); i++)
	{
		nulls[i] = params[i] == NULL ? 'n' : ' ';
		values[i] = params[i] == NULL ? (Datum) 0 : CStringGetTextDatum(params[i]);
	}
	rc = SPI_execute_plan(prepare(store, operation), values, nulls, false, 0);
	if (rc < 0)
		elog(ERROR, "llmq's %s failed: %s", llmq_store_operation_name(operation),
			 SPI_result_code_string(rc));
	copy_rows(store);
	SPI_finish();
}

static void
copy_rows(SpiStore *store)
{
	LlmqRows *rows = &store->rows;
	MemoryContext caller;

	if (SPI_tuptable == NULL)
		return;
	rows->row_count = (int) SPI_processed;
	rows->column_count = SPI_tuptable->tupdesc->natts;
	caller = MemoryContextSwitchTo(store->context);
	rows->cells =
		palloc_extended(sizeof(char *) * (Size) (rows->row_count * rows->column_count + 1),
						MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int row = 0; row < rows->row_count; row++)
	{
		for (int column = 0; column < rows->column_count; column++)
			rows->cells[row * rows->column_count + column] =
				SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
	}
	MemoryContextSwitchTo(caller);
}
