/*
 * callback_worker.c
 *		The callback worker: the process of a database that settles answers of jobs with an
 *		on_complete.
 *
 * A user's function may be slow, and may fail.  So the worker leaves such answers in
 * llmq.answer and goes on with its calls.  Here each answer is settled in a transaction of its
 * own: result, attempts, outbox messages, the function, and the removal of the answer's row,
 * all or nothing.  A failure is rolled back, recorded in another transaction
 * (llmq_internal.settler_fail), and tried again later.
 *
 * Memory is only a cache: if the process is killed at any instruction, its successor goes on
 * from the table.  Each database has one callback worker, so no two handle the same answer.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "extension/callback.h"
#include "extension/compat.h"
#include "extension/debug_point.h"
#include "extension/delegate.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "server/host.h"
#include "server/callback_worker.h"
#include "core/store.h"
#include "server/transaction.h"

/*
 * The most answers that one look returns; more would be out of date by the time they are
 * settled.
 */
#define MAX_ANSWERS 100

/*
 * An idle callback worker looks once in so many times llmq.poll_interval.  That is enough,
 * since its latch is set by sessions of the same server, and the worker polls too.
 */
#define IDLE_INTERVALS 10

/* When to look again at answers that others have locked (llmq.cancel). */
#define HELD_RETRY_US 100000

/* When to try again after a failed look, or a failure that could not be recorded. */
#define TROUBLE_RETRY_US 1000000

typedef struct CallbackWorker
{
	LlmqHost host;
	MemoryContext context; /* of one round */
	int64 look_at_us;	   /* when something is due; PG_INT64_MAX: only when woken */
	bool in_trouble;	   /* it has failed, and the log has said so */
	bool leaving;
} CallbackWorker;

/* The job whose answer is being settled, for note_stubborn(). */
static pg_uuid_t current_job;

/* What one look has found. */
typedef struct Look
{
	CallbackWorker *worker;
	int count;
	pg_uuid_t jobs[MAX_ANSWERS];
	int64 due_in_us; /* in how long the next one is due; -1: none */
} Look;

/* An answer that is being settled. */
typedef struct Settling
{
	const pg_uuid_t *job;
	bool found;	 /* it was there to be settled */
	bool called; /* its function has been called */
	LlmqCallback callback;
	const char *message; /* of the failure */
	bool counted;		 /* the failure counts, because it was not transient */
} Settling;

static void note_stubborn(int code, Datum unused);
static void fail_stubborn(CallbackWorker *worker);
static void rest(CallbackWorker *worker);
static bool look_around(CallbackWorker *worker);
static void work(CallbackWorker *worker);
static void plan_next_look(CallbackWorker *worker, const Look *found, int settled);
static bool settle(CallbackWorker *worker, const pg_uuid_t *job);
static void look(void *argument);
static void settle_in_transaction(void *argument);
static void read_callback(Settling *settling);
static void note_failure(CallbackWorker *worker, Settling *settling, const ErrorData *error);
static void fail_in_transaction(void *argument);
static void begin_statements(void);
static void end_statements(void);
static void execute(const char *columns, const char *call, int count, Oid *types, Datum *values);
static void complain(CallbackWorker *worker, const ErrorData *error);
static int64 add_time(int64 time_us, int64 span_us);

void
llmq_callback_worker_main(Datum database)
{
	CallbackWorker worker = {0};

	llmq_transaction_install_signals(true);
	llmq_callback_prepare();
	BackgroundWorkerUnblockSignals();
	llmq_host_begin(&worker.host, database);
	worker.context = AllocSetContextCreate(TopMemoryContext, "llmq callback worker round",
										   ALLOCSET_DEFAULT_SIZES);
	before_shmem_exit(note_stubborn, (Datum) 0);
	fail_stubborn(&worker);

	while (look_around(&worker))
	{
		work(&worker);
		rest(&worker);
	}
	proc_exit(0);
}

/*
 * Leaves the job to the successor, which counts a failure.  A function that catches its
 * cancellation ends the process, and could otherwise do so again and again.
 */
static void
note_stubborn(int code, Datum unused)
{
	if (llmq_callback_was_stubborn())
		llmq_shared_note_stubborn(MyDatabaseId, &current_job);
}

static void
fail_stubborn(CallbackWorker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(worker->context);
	pg_uuid_t job;

	if (llmq_shared_take_stubborn(worker->host.database, &job))
	{
		ErrorData failure = {.sqlerrcode = ERRCODE_QUERY_CANCELED,
							 .message = "on_complete went on after it was cancelled, so that its "
										"process had to be ended"};
		Settling settling = {.job = &job, .called = true};

		note_failure(worker, &settling, &failure);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(worker->context);
}

/* ---- Turns -------------------------------------------------------------------------- */

static void
rest(CallbackWorker *worker)
{
	static uint32 wait_event = 0;
	int64 until = Min(worker->look_at_us, worker->host.tick_at_us);
	int64 timeout = Max(until - llmq_host_clock(), 0);
	int events;

	pgstat_report_activity(STATE_IDLE, "waits for answers to settle");
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   (long) ((timeout + 999) / 1000),
					   llmq_compat_wait_event(&wait_event, "LlmqCallbackWorkerMain"));
	if (events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		worker->look_at_us = 0;
	}
	CHECK_FOR_INTERRUPTS();
}

/* Checks whether to go on; returns false if the process should leave. */
static bool
look_around(CallbackWorker *worker)
{
	bool ticked;
	const char *reason = llmq_host_why_leave(&worker->host, false, &ticked);

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (reason != NULL)
	{
		ereport(DEBUG1, (errmsg_internal("llmq's callback worker stops: %s", reason)));
		worker->leaving = true;
	}
	return !worker->leaving;
}

/* Looks for due answers, if it is time, and settles them. */
static void
work(CallbackWorker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(worker->context);
	Look found = {.worker = worker, .due_in_us = -1};
	int64 now = llmq_host_clock();
	ErrorData *error;
	int settled = 0;
	int i;

	if (now >= worker->look_at_us)
	{
		worker->look_at_us = add_time(now, (int64) llmq_poll_interval * 1000 * IDLE_INTERVALS);
		error = llmq_transaction_run(look, &found, worker->context);
		if (error != NULL)
			complain(worker, error);
		else
			worker->in_trouble = false;
		for (i = 0; i < found.count && look_around(worker); i++)
			settled += settle(worker, &found.jobs[i]);
		plan_next_look(worker, &found, settled);
		pgstat_report_stat(false);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(worker->context);
}

/* Sets the time of the next look; after an error it is already set. */
static void
plan_next_look(CallbackWorker *worker, const Look *found, int settled)
{
	int64 span = found->due_in_us >= 0 ? found->due_in_us : PG_INT64_MAX;

	if (worker->in_trouble)
		return;
	/* Waits inside of the functions may have consumed our wake-ups. */
	if (found->count > 0)
		span = Min(span, settled > 0 ? 0 : HELD_RETRY_US);
	worker->look_at_us = Min(worker->look_at_us, add_time(llmq_host_clock(), span));
}

/* Settles one answer, or records that it failed; false if the answer was not available. */
static bool
settle(CallbackWorker *worker, const pg_uuid_t *job)
{
	Settling settling = {.job = job};
	ErrorData *error;

	current_job = *job;
	LLMQ_DEBUG_POINT("answer-begun");
	error = llmq_transaction_run(settle_in_transaction, &settling, worker->context);
	if (error != NULL)
		note_failure(worker, &settling, error);
	else if (settling.found)
		LLMQ_DEBUG_POINT("answer-committed");
	return error != NULL || settling.found;
}

/* ---- Transactions ------------------------------------------------------------------- */

static void
look(void *argument)
{
	Look *found = argument;
	Oid types[] = {INT4OID};
	Datum values[] = {Int32GetDatum(MAX_ANSWERS)};
	uint64 i;

	pgstat_report_activity(STATE_RUNNING, "looks for answers to settle");
	begin_statements();
	execute("job_id, due_in", "settler_look($1)", 1, types, values);
	for (i = 0; i < SPI_processed; i++)
	{
		bool no_job;
		bool no_time;
		Datum job = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &no_job);
		Datum due_in = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &no_time);

		if (!no_job && found->count < MAX_ANSWERS)
			found->jobs[found->count++] = *DatumGetUUIDP(job);
		else if (!no_time)
			found->due_in_us = Max(DatumGetInt64(due_in), 0);
	}
	end_statements();
}

static void
settle_in_transaction(void *argument)
{
	Settling *settling = argument;
	Oid types[] = {UUIDOID};
	Datum values[] = {UUIDPGetDatum(settling->job)};
	char text[80];

	snprintf(text, sizeof(text), "settles job %s",
			 DatumGetCString(DirectFunctionCall1(uuid_out, values[0])));
	pgstat_report_activity(STATE_RUNNING, text);
	begin_statements();
	execute("role, function, argument, search_path", "settler_settle($1)", 1, types, values);
	settling->found = SPI_processed == 1;
	if (settling->found)
		read_callback(settling);
	end_statements();
	if (!settling->found)
		return;
	LLMQ_DEBUG_POINT("callback-begun");
	settling->called = true;
	PushActiveSnapshot(GetTransactionSnapshot());
	llmq_callback_run(&settling->callback);
	PopActiveSnapshot();
	LLMQ_DEBUG_POINT("answer-uncommitted");
}

/* Copies the row into the transaction's memory, which outlives SPI's. */
static void
read_callback(Settling *settling)
{
	HeapTuple row = SPI_tuptable->vals[0];
	TupleDesc columns = SPI_tuptable->tupdesc;
	const char *search_path = SPI_getvalue(row, columns, 4);
	bool isnull;
	Datum argument = SPI_getbinval(row, columns, 3, &isnull);
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	settling->callback.role = pstrdup(SPI_getvalue(row, columns, 1));
	settling->callback.function = pstrdup(SPI_getvalue(row, columns, 2));
	settling->callback.search_path = search_path == NULL ? NULL : pstrdup(search_path);
	settling->callback.argument = datumCopy(argument, false, -1);
	MemoryContextSwitchTo(old);
}

/*
 * Records a failure in another transaction, after an ERROR has rolled everything back, and
 * says when it is tried again.
 */
static void
note_failure(CallbackWorker *worker, Settling *settling, const ErrorData *failure)
{
	const char *sqlstate = unpack_sql_state(failure->sqlerrcode);
	ErrorData *error;

	ereport(LOG,
			(errcode(failure->sqlerrcode),
			 errmsg("llmq could not settle job %s: %s",
					DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(settling->job))),
					failure->message),
			 failure->context ? errcontext("%s", failure->context) : 0));
	settling->message = psprintf("%s (SQLSTATE %s)", failure->message, sqlstate);
	settling->counted = settling->called || !llmq_store_error_passes(sqlstate);
	error = llmq_transaction_run(fail_in_transaction, settling, worker->context);
	if (error != NULL)
		complain(worker, error);
}

static void
fail_in_transaction(void *argument)
{
	const Settling *settling = argument;
	Oid types[] = {UUIDOID, TEXTOID, BOOLOID};
	Datum values[] = {UUIDPGetDatum(settling->job), CStringGetTextDatum(settling->message),
					  BoolGetDatum(settling->counted)};

	begin_statements();
	execute("*", "settler_fail($1, $2, $3)", 3, types, values);
	end_statements();
}

static void
begin_statements(void)
{
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
}

static void
end_statements(void)
{
	SPI_finish();
	PopActiveSnapshot();
}

/* Calls a function of ours; the caller finds these columns of its rows with SPI. */
static void
execute(const char *columns, const char *call, int count, Oid *types, Datum *values)
{
	const char *statement = psprintf("SELECT %s FROM %s.%s", columns, llmq_delegate_schema(), call);

	if (SPI_execute_with_args(statement, count, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "\"%s\" did not answer", statement);
}

/* ---- Trouble ------------------------------------------------------------------------ */

/* Handles an error in our own code: leaves if the extension is gone, or else waits a moment. */
static void
complain(CallbackWorker *worker, const ErrorData *error)
{
	if (!llmq_host_has_extension())
	{
		llmq_shared_report(worker->host.database, LLMQ_STATUS_ABSENT);
		proc_exit(0);
	}
	ereport(worker->in_trouble ? DEBUG1 : WARNING,
			(errcode(error->sqlerrcode), errmsg("llmq's callback worker: %s", error->message)));
	worker->in_trouble = true;
	worker->look_at_us = add_time(llmq_host_clock(), TROUBLE_RETRY_US);
}

static int64
add_time(int64 time_us, int64 span_us)
{
	return span_us > PG_INT64_MAX - time_us ? PG_INT64_MAX : time_us + span_us;
}
