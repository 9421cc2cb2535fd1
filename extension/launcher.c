/*
 * launcher.c
 *		The launcher: the one process that starts the workers and callback workers of all
 *		databases.
 *
 * It is connected to no database, so it never blocks DROP DATABASE, and sleeps until a
 * session, a worker or the postmaster wakes it.  Workers (here this includes callback workers)
 * are registered as never to be restarted, because the postmaster would go on for ever
 * restarting those of a dropped database.  The launcher restarts them, with growing delays
 * while they keep dying, and first checks that the database still exists.
 *
 * What it shares about a database is in shared memory (slot, status, workers); what it keeps
 * for itself, handles and times, is in `children`, in the same order.  A launcher that replaces
 * another has no handles of the running workers, and uses their entries in shared memory.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "database.h"
#include "launcher.h"
#include "settings.h"
#include "shared.h"

#define LAUNCHER_RESTART_S 5

/* A worker that has lived this long is restarted at once when it dies. */
#define LONG_LIFE_MS 10000

/* Otherwise after this time, doubled with each early death. */
#define FIRST_BACKOFF_MS 1000
#define LAST_BACKOFF_MS	 60000

/* How often to check whether a locked database is free again. */
#define CONTENDED_RETRY_MS 100

/* How often to try again when max_worker_processes are in use. */
#define NO_PROCESS_RETRY_MS 10000

/* The most databases that are probed at a time. */
#define MAX_PROBES 2

typedef struct Child
{
	BackgroundWorkerHandle *handle; /* NULL: not started from here, or ended */
	bool terminated;				/* it was told to end */
	TimestampTz started_at;
	TimestampTz not_before; /* of the next start */
	int backoff_ms;			/* the delay behind not_before; 0: it did not die early */
} Child;

/* A database's children, valid while its slot has the same database and orders. */
typedef struct Family
{
	Oid database;
	uint32 orders;
	bool excluded; /* by a change of llmq.databases */
	Child children[LLMQ_MAX_PROCESSES];
} Family;

/* What one turn of the loop works with. */
typedef struct Turn
{
	TimestampTz now;
	TimestampTz next; /* when something is due; DT_NOEND: nothing is */
	bool databases_read;
	List *databases; /* see llmq_database_list */
	LlmqSlot slots[LLMQ_MAX_DATABASES];
} Turn;

static Family families[LLMQ_MAX_DATABASES];
static List *unprobed = NIL; /* databases to probe */
static TimestampTz no_process_until = 0;
static bool no_process_reported = false;
static uint32 wait_event = 0;

static void describe_launcher(BackgroundWorker *worker);
static void set_up(void);
static void reload(void);
static void queue_probes(void);
static void take_turn(Turn *turn);
static void admit_probes(Turn *turn);
static void tend(Turn *turn, const LlmqSlot *slot, Family *family);
static bool is_wanted(const LlmqSlot *slot, const Family *family, int index);
static void begin_family(const LlmqSlot *slot, Family *family);
static bool child_runs(Turn *turn, const LlmqSlot *slot, Child *child, int index);
static void note_death(Turn *turn, const LlmqSlot *slot, Child *child);
static void stop_child(const LlmqSlot *slot, Child *child, int index);
static bool may_start(Turn *turn, const LlmqSlot *slot, Child *child);
static void name_child(BackgroundWorker *worker, const LlmqSlot *slot, int index);
static void start_child(Turn *turn, const LlmqSlot *slot, Child *child, int index);
static void report_no_process(Turn *turn, const LlmqSlot *slot, const BackgroundWorker *worker);
static bool is_served(Turn *turn, Oid database);
static void due(Turn *turn, TimestampTz at);
static void rest(TimestampTz next);

/* -- registration ------------------------------------------------------------- */

void
llmq_launcher_register(void)
{
	BackgroundWorker worker;

	describe_launcher(&worker);
	RegisterBackgroundWorker(&worker);
}

bool
llmq_launcher_ensure(void)
{
	BackgroundWorker worker;

	if (llmq_shared_launcher().running)
		return true;
	describe_launcher(&worker);
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		llmq_shared_announce_launcher();
		return true;
	}
	ereport(WARNING, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					  errmsg("could not start llmq: no background worker process is free"),
					  errhint("Increase max_worker_processes, restart the server, and run SELECT "
							  "llmq.start_worker().")));
	return false;
}

static void
describe_launcher(BackgroundWorker *worker)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = LAUNCHER_RESTART_S;
	strlcpy(worker->bgw_library_name, "llmq", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, "llmq_launcher_main", sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_name, "llmq launcher", BGW_MAXLEN);
	strlcpy(worker->bgw_type, "llmq launcher", BGW_MAXLEN);
}

/* -- the loop ----------------------------------------------------------------- */

/*
 * Runs the launcher.  On SIGTERM it ends with exit code 1, so that a launcher that a person has
 * terminated comes back; the postmaster restarts nothing while it shuts down.
 */
void
llmq_launcher_main(Datum argument)
{
	MemoryContext turn_context;
	Turn *turn;

	set_up();
	turn_context =
		AllocSetContextCreate(TopMemoryContext, "llmq launcher turn", ALLOCSET_DEFAULT_SIZES);
	turn = MemoryContextAlloc(TopMemoryContext, sizeof(Turn));

	while (!ShutdownRequestPending)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(turn_context);
		MemoryContextSwitchTo(turn_context);
		if (ConfigReloadPending)
			reload();
		take_turn(turn);
		rest(turn->next);
	}
	proc_exit(1);
}

static void
set_up(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	ConfigReloadPending = true; /* a SIGHUP that came before this was lost */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	if (!llmq_shared_register_launcher())
		proc_exit(0); /* another one runs, so this one should not be restarted */
	pgstat_report_activity(STATE_IDLE, "keeps the workers of llmq running");
	queue_probes();
}

static void
reload(void)
{
	bool was_enabled = llmq_enabled;
	char *databases = pstrdup(llmq_databases);
	List *served;
	int i;

	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	if (strcmp(databases, llmq_databases) == 0 && was_enabled == llmq_enabled)
		return;
	queue_probes();
	served = llmq_database_list();
	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
		families[i].excluded = !list_member_oid(served, families[i].database);
}

/* Lists the databases whose slots may be missing, for admit_probes(). */
static void
queue_probes(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	list_free(unprobed);
	unprobed = llmq_database_list();
	MemoryContextSwitchTo(old);
}

static void
take_turn(Turn *turn)
{
	int i;

	turn->now = GetCurrentTimestamp();
	turn->next = DT_NOEND;
	turn->databases_read = false;
	turn->databases = NIL;
	llmq_shared_copy(turn->slots);
	if (llmq_enabled && unprobed != NIL)
		admit_probes(turn);
	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
	{
		if (OidIsValid(turn->slots[i].database))
			tend(turn, &turn->slots[i], &families[i]);
	}
}

/*
 * Gives slots to a few databases that are not known yet.  One that cannot be probed, because
 * its worker keeps dying, does not delay the others.
 */
static void
admit_probes(Turn *turn)
{
	int probes = 0;
	int i;

	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
	{
		if (OidIsValid(turn->slots[i].database) && turn->slots[i].status == LLMQ_STATUS_UNKNOWN &&
			turn->slots[i].trouble == LLMQ_TROUBLE_NONE)
			probes++;
	}
	for (; probes < MAX_PROBES && unprobed != NIL; probes++)
	{
		Oid database = llast_oid(unprobed);

		unprobed = list_delete_last(unprobed);
		if (!llmq_shared_admit(database))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("llmq serves at most %d databases of a server", LLMQ_MAX_DATABASES),
					 errhint("Name the databases to serve in llmq.databases.")));
	}
	llmq_shared_copy(turn->slots);
}

/* -- one database --------------------------------------------------------------- */

static void
tend(Turn *turn, const LlmqSlot *slot, Family *family)
{
	int running = 0;
	int i;

	if (family->database != slot->database || family->orders != slot->orders)
		begin_family(slot, family);
	for (i = 0; i < LLMQ_MAX_PROCESSES; i++)
	{
		Child *child = &family->children[i];
		bool runs = child_runs(turn, slot, child, i);
		bool wanted = is_wanted(slot, family, i);

		running += runs;
		if (runs && !wanted)
			stop_child(slot, child, i);
		else if (!runs && wanted && may_start(turn, slot, child))
			start_child(turn, slot, child, i);
	}
	if (running == 0 && (slot->status == LLMQ_STATUS_ABSENT || family->excluded))
	{
		llmq_shared_forget(slot);
		/* The next unknown database can be probed. */
		if (unprobed != NIL)
			due(turn, turn->now);
	}
}

/*
 * Resets a family.  A new order clears the record of early deaths; handles of the same database
 * are kept.
 */
static void
begin_family(const LlmqSlot *slot, Family *family)
{
	int i;

	if (family->database != slot->database)
		memset(family, 0, sizeof(Family));
	family->database = slot->database;
	family->orders = slot->orders;
	family->excluded = false;
	no_process_until = 0;
	for (i = 0; i < LLMQ_MAX_PROCESSES; i++)
	{
		family->children[i].not_before = 0;
		family->children[i].backoff_ms = 0;
	}
}

/*
 * Returns whether a process should run.  The first one of a database finds out whether the
 * extension exists.
 */
static bool
is_wanted(const LlmqSlot *slot, const Family *family, int index)
{
	if (!llmq_enabled || family->excluded)
		return false;
	switch (slot->status)
	{
		case LLMQ_STATUS_UNKNOWN:
			return index == (llmq_workers > 0 ? 0 : LLMQ_CALLBACK_WORKER);
		case LLMQ_STATUS_WANTED:
		case LLMQ_STATUS_ASIDE:
			return index == LLMQ_CALLBACK_WORKER || index < llmq_workers;
		case LLMQ_STATUS_ABSENT:
		case LLMQ_STATUS_STOPPED:
			return false;
	}
	return false;
}

static bool
child_runs(Turn *turn, const LlmqSlot *slot, Child *child, int index)
{
	pid_t pid;

	if (child->handle == NULL)
		return slot->processes[index].pid != 0;
	if (GetBackgroundWorkerPid(child->handle, &pid) != BGWH_STOPPED)
		return true;
	note_death(turn, slot, child);
	return false;
}

/*
 * Notes the end of a worker.  One that left because it was asked to, or had to, did not die
 * early.
 */
static void
note_death(Turn *turn, const LlmqSlot *slot, Child *child)
{
	bool early = !TimestampDifferenceExceeds(child->started_at, turn->now, LONG_LIFE_MS);
	bool expected = child->terminated || slot->status == LLMQ_STATUS_ABSENT ||
					slot->status == LLMQ_STATUS_STOPPED || slot->status == LLMQ_STATUS_ASIDE;

	pfree(child->handle);
	child->handle = NULL;
	child->terminated = false;
	if (!early || expected)
	{
		child->backoff_ms = 0;
		child->not_before = 0;
		return;
	}
	child->backoff_ms =
		child->backoff_ms == 0 ? FIRST_BACKOFF_MS : Min(child->backoff_ms * 2, LAST_BACKOFF_MS);
	child->not_before = TimestampTzPlusMilliseconds(turn->now, child->backoff_ms);
	llmq_shared_set_trouble(slot->database, LLMQ_TROUBLE_DYING);
}

static void
stop_child(const LlmqSlot *slot, Child *child, int index)
{
	if (child->handle == NULL)
		kill(slot->processes[index].pid, SIGTERM);
	else if (!child->terminated)
		TerminateBackgroundWorker(child->handle);
	child->terminated = true;
}

/* -- starting --------------------------------------------------------------------- */

static bool
may_start(Turn *turn, const LlmqSlot *slot, Child *child)
{
	TimestampTz not_before = Max(child->not_before, no_process_until);

	if (not_before > turn->now)
	{
		due(turn, not_before);
		return false;
	}
	if (llmq_database_is_contended(slot->database))
	{
		child->not_before = TimestampTzPlusMilliseconds(turn->now, CONTENDED_RETRY_MS);
		due(turn, child->not_before);
		return false;
	}
	if (!is_served(turn, slot->database))
	{
		llmq_shared_forget(slot);
		return false;
	}
	return true;
}

static void
name_child(BackgroundWorker *worker, const LlmqSlot *slot, int index)
{
	bool settles = index == LLMQ_CALLBACK_WORKER;

	strlcpy(worker->bgw_library_name, "llmq", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, settles ? "llmq_callback_worker_main" : "llmq_worker_main",
			sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_type, settles ? "llmq callback worker" : "llmq worker", BGW_MAXLEN);
	if (settles)
		snprintf(worker->bgw_name, BGW_MAXLEN, "llmq callback worker of database %u",
				 slot->database);
	else
		snprintf(worker->bgw_name, BGW_MAXLEN, "llmq worker %d of database %u", index + 1,
				 slot->database);
}

static void
start_child(Turn *turn, const LlmqSlot *slot, Child *child, int index)
{
	BackgroundWorker worker;
	MemoryContext old;
	bool registered;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = ObjectIdGetDatum(slot->database);
	memcpy(worker.bgw_extra, &index, sizeof(index));
	name_child(&worker, slot, index);

	old = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &child->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		child->handle = NULL;
		report_no_process(turn, slot, &worker);
		return;
	}
	child->started_at = turn->now;
	child->terminated = false;
	no_process_reported = false;
	if (slot->trouble == LLMQ_TROUBLE_NO_PROCESS)
		llmq_shared_set_trouble(slot->database, LLMQ_TROUBLE_NONE);
}

/* Reports the first failure only; retries are silent. */
static void
report_no_process(Turn *turn, const LlmqSlot *slot, const BackgroundWorker *worker)
{
	no_process_until = TimestampTzPlusMilliseconds(turn->now, NO_PROCESS_RETRY_MS);
	due(turn, no_process_until);
	llmq_shared_set_trouble(slot->database, LLMQ_TROUBLE_NO_PROCESS);
	if (no_process_reported)
		return;
	no_process_reported = true;
	ereport(WARNING,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("could not start an %s for database %u: no background worker process is free",
					worker->bgw_type, slot->database),
			 errdetail("It is tried again every %d seconds.", NO_PROCESS_RETRY_MS / 1000),
			 errhint("Increase max_worker_processes (now %d) and restart the server, or lower "
					 "llmq.workers.",
					 max_worker_processes)));
}

/* Returns whether a database exists and may have workers. */
static bool
is_served(Turn *turn, Oid database)
{
	if (!turn->databases_read)
	{
		turn->databases = llmq_database_list();
		turn->databases_read = true;
	}
	return list_member_oid(turn->databases, database);
}

/* -- sleeping --------------------------------------------------------------------- */

static void
due(Turn *turn, TimestampTz at)
{
	turn->next = Min(turn->next, at);
}

static void
rest(TimestampTz next)
{
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long timeout = -1;

	if (next != DT_NOEND)
	{
		events |= WL_TIMEOUT;
		timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next);
	}
	(void) WaitLatch(MyLatch, events, timeout,
					 llmq_compat_wait_event(&wait_event, "LlmqLauncherMain"));
	ResetLatch(MyLatch);
}
