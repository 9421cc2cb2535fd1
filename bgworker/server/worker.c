/*
 * worker.c
 *		The engine's host inside the server: a background worker of one database.
 *
 * It waits for its latch, the engine's descriptor and the postmaster, and gives the engine its
 * turns.  It settles or gives back what it has in hand and leaves at once when it is told to
 * stop, when the extension is dropped, and when somebody holds a lock on the database that
 * keeps sessions out (DROP, RENAME, use as a template).  It never ends with an error: what it
 * reports in shared memory tells the launcher whether to start it again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "extension/compat.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "engine/engine.h"
#include "base/hmac.h"
#include "server/host.h"
#include "base/machine.h"
#include "server/store_spi.h"
#include "server/transaction.h"
#include "server/worker.h"

/* Descriptors kept for the server's own files. */
#define RESERVED_FILES 128

/* The most that llmq.max_in_flight can be set to. */
#define MAX_CONNECTIONS 100000

/*
 * How long a worker ignores further wake-ups after one.  It then handles all commits of that
 * time together: with one look, instead of one for each commit, and without signals, which
 * cost a committing session more than an insert does.
 */
#define DEAF_US 2000

/* The position of the latch in the set of wait events. */
#define LATCH_EVENT 0

/* The longest time that stopping waits for the store; a successor takes over leases that remain. */
#define STOP_LIMIT_US 2000000

typedef struct Worker
{
	LlmqHost host;
	LlmqEngine *engine;
	WaitEventSet *waits;
	int64 hears_at_us; /* ignores wake-ups until then */
	uint32 wakes;	   /* wake-ups that it has handled */
	int64 stop_at_us;  /* 0: not stopping */
	int connections;   /* what the limit of open files allows */
	int max_in_flight; /* the setting when last checked */
} Worker;

static void create_engine(Worker *worker);
static void create_waits(Worker *worker);
static void wait_for_something(Worker *worker);
static void look_around(Worker *worker);
static void report_activity(Worker *worker);

void
llmq_worker_main(Datum database)
{
	Worker worker = {0};

	llmq_transaction_install_signals(false);
	BackgroundWorkerUnblockSignals();
	llmq_host_begin(&worker.host, database);
	create_engine(&worker);
	create_waits(&worker);

	while (llmq_engine_state(worker.engine) != LLMQ_ENGINE_STOPPED)
	{
		wait_for_something(&worker);
		look_around(&worker);
		llmq_engine_dispatch(worker.engine);
		report_activity(&worker);
	}
	llmq_engine_destroy(worker.engine);
	proc_exit(0);
}

/* ---- Start -------------------------------------------------------------------------- */

static bool
has_changed(void)
{
	static uint32 seen = 0;
	uint32 changes = llmq_shared_changes(MyDatabaseId);
	bool changed = changes != seen;

	seen = changes;
	return changed;
}

static void
write_log(LlmqLogLevel level, const char *message)
{
	int elevel = level == LLMQ_LOG_WARNING ? WARNING : level == LLMQ_LOG_INFO ? LOG : DEBUG1;

	ereport(elevel, (errmsg_internal("llmq: %s", message)));
}

/* Reports what the limit of open files means, once for each setting that it reduces. */
static void
report_limit(Worker *worker)
{
	if (llmq_max_in_flight != worker->max_in_flight && llmq_max_in_flight > worker->connections)
		ereport(
			LOG,
			(errmsg("llmq makes at most %d calls at once instead of %d", worker->connections,
					llmq_max_in_flight),
			 errdetail("The hard limit of open files is %d, of which %d are kept for the server.",
					   worker->connections + RESERVED_FILES, RESERVED_FILES),
			 errhint("Raise the limit of the server (LimitNOFILE in systemd), or lower "
					 "llmq.max_in_flight.")));
	worker->max_in_flight = llmq_max_in_flight;
}

static LlmqEngineOptions
read_options(const Worker *worker)
{
	static char name[64];
	static char pid[16];

	snprintf(name, sizeof(name), "server-%d", worker->host.index + 1);
	snprintf(pid, sizeof(pid), "%d", MyProcPid);
	return (LlmqEngineOptions){.name = name,
							   .kind = "server",
							   .pid = pid,
							   .max_in_flight = llmq_max_in_flight,
							   .poll_interval_us = (int64) llmq_poll_interval * 1000,
							   .secrets_directory = llmq_secrets_directory,
							   .user_agent = "llmq/" LLMQ_VERSION,
							   .seed = llmq_machine_seed(),
							   .hmac = llmq_hmac_sha256,
							   .clock = llmq_machine_clock,
							   .log = write_log,
							   .changed = has_changed};
}

static void
create_engine(Worker *worker)
{
	LlmqEngineOptions options = read_options(worker);
	char error[256] = "out of memory";

	worker->connections = llmq_machine_connections(MAX_CONNECTIONS, RESERVED_FILES);
	report_limit(worker);
	options.max_connections = worker->connections;
	worker->engine = llmq_engine_create(&options, llmq_store_spi_create(), error, sizeof(error));
	if (worker->engine == NULL)
		ereport(FATAL, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
						errmsg("llmq's worker could not start: %s", error)));
}

static void
create_waits(Worker *worker)
{
	worker->waits = llmq_compat_create_wait_event_set(3);
	AddWaitEventToSet(worker->waits, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(worker->waits, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(worker->waits, WL_SOCKET_READABLE, llmq_engine_fd(worker->engine), NULL,
					  NULL);
}

/* ---- Turns -------------------------------------------------------------------------- */

/*
 * Makes the engine look for work, if there was a wake-up and it is time to handle it, and then
 * ignores further ones for a while.
 */
static void
hear(Worker *worker)
{
	int64 now = llmq_host_clock();
	uint32 wakes = llmq_shared_wakes(MyDatabaseId);

	if (wakes == worker->wakes || now < worker->hears_at_us)
		return;
	worker->wakes = wakes;
	worker->hears_at_us = now + DEAF_US;
	llmq_engine_wake(worker->engine);
}

/* Returns the time to wait in milliseconds, rounded up. */
static long
time_to_wait(Worker *worker, bool deaf)
{
	int64 now = llmq_host_clock();
	int64 timeout = Min(llmq_engine_timeout(worker->engine), worker->host.tick_at_us - now);

	if (deaf)
		timeout = Min(timeout, worker->hears_at_us - now);
	return (long) ((Max(timeout, 0) + 999) / 1000);
}

/*
 * Waits for an event.  While wake-ups are ignored, the latch is not among them: it can be set
 * without a signal, and stays set.
 */
static void
wait_for_something(Worker *worker)
{
	static uint32 wait_event = 0;
	WaitEvent event;
	bool deaf;

	hear(worker); /* a wait for a lock may have consumed a wake-up */
	deaf = llmq_host_clock() < worker->hears_at_us;
	ModifyWaitEvent(worker->waits, LATCH_EVENT, WL_LATCH_SET, deaf ? NULL : MyLatch);
	if (WaitEventSetWait(worker->waits, time_to_wait(worker, deaf), &event, 1,
						 llmq_compat_wait_event(&wait_event, "LlmqWorkerMain")) == 1 &&
		(event.events & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	hear(worker);
}

static void
leave(Worker *worker, const char *why)
{
	if (worker->stop_at_us != 0)
		return;
	ereport(DEBUG1, (errmsg_internal("llmq's worker stops: %s", why)));
	worker->stop_at_us = llmq_host_clock() + STOP_LIMIT_US;
	llmq_engine_stop(worker->engine);
}

static void
reload(Worker *worker)
{
	LlmqEngineOptions options;

	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	options = read_options(worker);
	report_limit(worker);
	if (!llmq_engine_configure(worker->engine, &options))
		ereport(WARNING, (errcode(ERRCODE_OUT_OF_MEMORY),
						  errmsg("llmq's worker keeps its settings: out of memory")));
}

/* Leaves without settling or giving back anything, because the tables are gone, or about to be. */
static void
vanish(Worker *worker, LlmqStatus status)
{
	llmq_shared_report(worker->host.database, status);
	llmq_engine_destroy(worker->engine);
	proc_exit(0);
}

/*
 * Checks whether it is time to leave.  Without a job in hand this reads no catalog, so an idle
 * worker runs no transaction between its polls.
 */
static void
look_around(Worker *worker)
{
	bool busy = llmq_engine_jobs(worker->engine) > 0;
	bool ticked;
	const char *reason = llmq_host_why_leave(&worker->host, busy, &ticked);

	if (reason != NULL)
		leave(worker, reason);
	if (ConfigReloadPending)
		reload(worker);
	if (worker->stop_at_us != 0 && llmq_host_clock() >= worker->stop_at_us)
		vanish(worker, LLMQ_STATUS_WANTED);
	if (llmq_engine_store_failing(worker->engine) && !llmq_host_has_extension())
		vanish(worker, LLMQ_STATUS_ABSENT);
	if (!ticked)
		return;
	if (busy && !llmq_host_has_extension())
		vanish(worker, LLMQ_STATUS_ABSENT);
}

/* Sets what pg_stat_activity shows; it uses the states of llmq.worker where possible. */
static void
report_activity(Worker *worker)
{
	static const char *const states[] = {
		[LLMQ_ENGINE_STARTING] = "starting",	   [LLMQ_ENGINE_RUNNING] = "running",
		[LLMQ_ENGINE_QUARANTINED] = "quarantined", [LLMQ_ENGINE_OUTDATED] = "outdated",
		[LLMQ_ENGINE_DRAINING] = "draining",	   [LLMQ_ENGINE_STOPPING] = "stopping",
		[LLMQ_ENGINE_STOPPED] = "stopped",
	};
	char text[96];

	snprintf(text, sizeof(text), "%s: %d calls under way, %d jobs and %d messages in hand",
			 states[llmq_engine_state(worker->engine)], llmq_engine_calls(worker->engine),
			 llmq_engine_jobs(worker->engine), llmq_engine_messages(worker->engine));
	pgstat_report_activity(STATE_IDLE, text);
}
