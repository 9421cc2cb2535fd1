/*
 * shared.c
 *		What the processes of llmq know about each other.
 *
 * One lock protects everything.  It is held for a scan of 64 slots at most, and never during a
 * wait for anything else.  Processes are identified by pid and by number in the server's array
 * of PGPROCs, never by pointer.  They remove themselves in a before_shmem_exit callback, which
 * also runs after FATAL.  Nothing survives a crash, since the postmaster then creates shared
 * memory anew.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared.h"

typedef struct SharedState
{
	LWLock lock;
	int tranche;						/* set once */
	bool preloaded;						/* set once */
	LlmqProcess launcher;				/* lock */
	TimestampTz announced_at;			/* lock */
	LlmqSlot slots[LLMQ_MAX_DATABASES]; /* lock */
	Oid listened[LLMQ_MAX_DATABASES];	/* lock; InvalidOid: free */
} SharedState;

static SharedState *state = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* The orders of the slot when this process registered as its worker. */
static uint32 orders_seen = 0;

static void request_memory(void);
static void start_up(void);
static LlmqSlot *find_slot(Oid database);
static LlmqSlot *make_slot(Oid database);
static int count_processes(const LlmqSlot *slot, int most);
static void set_latch(const LlmqProcess *process);
static void enter(LlmqProcess *process);
static void leave_worker(int code, Datum index);
static void leave_launcher(int code, Datum unused);

/* -- memory ------------------------------------------------------------------ */

void
llmq_shared_install_hooks(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_up;
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(SharedState)));
}

static void
start_up(void)
{
	if (previous_startup_hook)
		previous_startup_hook();
	state = NULL; /* this runs again in a restart after a crash */
	llmq_shared_attach();
	state->preloaded = true;
}

void
llmq_shared_attach(void)
{
	SharedState *found_state;
	bool found;

	if (state != NULL)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	found_state = ShmemInitStruct("llmq", sizeof(SharedState), &found);
	if (!found)
	{
		memset(found_state, 0, sizeof(SharedState));
		found_state->tranche = LWLockNewTrancheId();
		LWLockInitialize(&found_state->lock, found_state->tranche);
	}
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(found_state->tranche, "llmq");
	state = found_state;
}

/* -- workers ----------------------------------------------------------------- */

bool
llmq_shared_register_worker(Oid database, int index)
{
	LlmqSlot *slot;
	bool entered = false;

	Assert(index >= 0 && index < LLMQ_MAX_PROCESSES);
	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = make_slot(database);
	if (slot != NULL && slot->status != LLMQ_STATUS_STOPPED && slot->processes[index].pid == 0)
	{
		enter(&slot->processes[index]);
		orders_seen = slot->orders;
		entered = true;
	}
	LWLockRelease(&state->lock);
	if (entered)
		before_shmem_exit(leave_worker, Int32GetDatum(index));
	return entered;
}

/*
 * Removes the worker and wakes the launcher, which gets no other signal if it did not start
 * this worker.
 */
static void
leave_worker(int code, Datum index)
{
	int i;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
	{
		LlmqProcess *worker = &state->slots[i].processes[DatumGetInt32(index)];

		if (worker->pid == MyProcPid)
			worker->pid = 0;
	}
	set_latch(&state->launcher);
	LWLockRelease(&state->lock);
}

void
llmq_shared_report(Oid database, LlmqStatus status)
{
	LlmqSlot *slot;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = find_slot(database);
	if (slot != NULL && slot->status != LLMQ_STATUS_STOPPED &&
		(status != LLMQ_STATUS_ABSENT || slot->orders == orders_seen))
	{
		slot->status = status;
		if (status == LLMQ_STATUS_WANTED)
			slot->trouble = LLMQ_TROUBLE_NONE;
		set_latch(&state->launcher);
	}
	LWLockRelease(&state->lock);
}

LlmqStatus
llmq_shared_status(Oid database)
{
	LlmqSlot slot;

	return llmq_shared_look(database, &slot) ? slot.status : LLMQ_STATUS_UNKNOWN;
}

uint32
llmq_shared_changes(Oid database)
{
	LlmqSlot slot;

	return llmq_shared_look(database, &slot) ? slot.changes : 0;
}

uint32
llmq_shared_wakes(Oid database)
{
	LlmqSlot slot;

	return llmq_shared_look(database, &slot) ? pg_atomic_read_u32(&slot.wakes) : 0;
}

int
llmq_shared_count_workers(Oid database)
{
	LlmqSlot slot;

	return llmq_shared_look(database, &slot) ? count_processes(&slot, LLMQ_MAX_WORKERS) : 0;
}

void
llmq_shared_note_stubborn(Oid database, const pg_uuid_t *job)
{
	LlmqSlot *slot;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = find_slot(database);
	if (slot != NULL)
	{
		slot->has_stubborn = true;
		slot->stubborn = *job;
	}
	LWLockRelease(&state->lock);
}

bool
llmq_shared_take_stubborn(Oid database, pg_uuid_t *job)
{
	LlmqSlot *slot;
	bool found;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = find_slot(database);
	found = slot != NULL && slot->has_stubborn;
	if (found)
	{
		*job = slot->stubborn;
		slot->has_stubborn = false;
	}
	LWLockRelease(&state->lock);
	return found;
}

/* -- sessions ---------------------------------------------------------------- */

void
llmq_shared_wake(Oid database, bool changed)
{
	LlmqSlot *slot;
	int i;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, changed ? LW_EXCLUSIVE : LW_SHARED);
	slot = find_slot(database);
	if (slot != NULL && changed)
		slot->changes++;
	if (slot != NULL)
		(void) pg_atomic_fetch_add_u32(&slot->wakes, 1);
	for (i = 0; slot != NULL && i < LLMQ_MAX_WORKERS; i++)
		set_latch(&slot->processes[i]);
	LWLockRelease(&state->lock);
}

void
llmq_shared_wake_callback_worker(Oid database)
{
	LlmqSlot *slot;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_SHARED);
	slot = find_slot(database);
	if (slot != NULL)
		set_latch(&slot->processes[LLMQ_CALLBACK_WORKER]);
	LWLockRelease(&state->lock);
}

/*
 * Returns the position of a database among those in which programs listen, or -1; the caller
 * holds the lock.
 */
static int
find_listened(Oid database)
{
	int i;

	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
	{
		if (state->listened[i] == database)
			return i;
	}
	return -1;
}

/*
 * Notes a database.  If all places are in use, one is overwritten; its database will be noted
 * again.
 */
void
llmq_shared_note_listeners(Oid database, bool are_there)
{
	int place;

	llmq_shared_attach();
	if (llmq_shared_has_listeners(database) == are_there)
		return;
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	place = find_listened(are_there ? InvalidOid : database);
	if (place < 0 && are_there)
		place = (int) (database % LLMQ_MAX_DATABASES);
	if (place >= 0)
		state->listened[place] = are_there ? database : InvalidOid;
	LWLockRelease(&state->lock);
}

bool
llmq_shared_has_listeners(Oid database)
{
	bool found;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_SHARED);
	found = find_listened(database) >= 0;
	LWLockRelease(&state->lock);
	return found;
}

void
llmq_shared_suggest(Oid database)
{
	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	if (find_slot(database) == NULL && make_slot(database) != NULL)
		set_latch(&state->launcher);
	LWLockRelease(&state->lock);
}

bool
llmq_shared_order_start(Oid database)
{
	LlmqSlot *slot;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = make_slot(database);
	if (slot != NULL)
	{
		slot->status = LLMQ_STATUS_WANTED;
		slot->trouble = LLMQ_TROUBLE_NONE;
		slot->orders++;
	}
	set_latch(&state->launcher);
	LWLockRelease(&state->lock);
	return slot != NULL;
}

/* Stops the workers, and signals them here, because there may be no launcher. */
void
llmq_shared_order_stop(Oid database)
{
	LlmqSlot *slot;
	int i;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = make_slot(database);
	if (slot != NULL)
		slot->status = LLMQ_STATUS_STOPPED;
	for (i = 0; slot != NULL && i < LLMQ_MAX_PROCESSES; i++)
	{
		if (slot->processes[i].pid != 0)
			kill(slot->processes[i].pid, SIGTERM);
	}
	set_latch(&state->launcher);
	LWLockRelease(&state->lock);
}

void
llmq_shared_announce_launcher(void)
{
	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	state->announced_at = GetCurrentTimestamp();
	LWLockRelease(&state->lock);
}

LlmqLauncherState
llmq_shared_launcher(void)
{
	LlmqLauncherState launcher;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_SHARED);
	launcher.running = state->launcher.pid != 0;
	launcher.preloaded = state->preloaded;
	launcher.announced_at = state->announced_at;
	LWLockRelease(&state->lock);
	return launcher;
}

bool
llmq_shared_look(Oid database, LlmqSlot *slot)
{
	LlmqSlot *found;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_SHARED);
	found = find_slot(database);
	if (found != NULL)
		*slot = *found;
	LWLockRelease(&state->lock);
	return found != NULL;
}

/* -- launcher ---------------------------------------------------------------- */

bool
llmq_shared_register_launcher(void)
{
	bool entered = false;

	llmq_shared_attach();
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	if (state->launcher.pid == 0)
	{
		enter(&state->launcher);
		entered = true;
	}
	LWLockRelease(&state->lock);
	if (entered)
		before_shmem_exit(leave_launcher, (Datum) 0);
	return entered;
}

static void
leave_launcher(int code, Datum unused)
{
	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	state->launcher.pid = 0;
	LWLockRelease(&state->lock);
}

void
llmq_shared_copy(LlmqSlot *slots)
{
	LWLockAcquire(&state->lock, LW_SHARED);
	memcpy(slots, state->slots, sizeof(state->slots));
	LWLockRelease(&state->lock);
}

bool
llmq_shared_admit(Oid database)
{
	LlmqSlot *slot;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = make_slot(database);
	LWLockRelease(&state->lock);
	return slot != NULL;
}

void
llmq_shared_forget(const LlmqSlot *seen)
{
	LlmqSlot *slot;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = find_slot(seen->database);
	if (slot != NULL && slot->orders == seen->orders &&
		count_processes(slot, LLMQ_MAX_PROCESSES) == 0)
		memset(slot, 0, sizeof(LlmqSlot));
	LWLockRelease(&state->lock);
}

void
llmq_shared_set_trouble(Oid database, LlmqTrouble trouble)
{
	LlmqSlot *slot;

	LWLockAcquire(&state->lock, LW_EXCLUSIVE);
	slot = find_slot(database);
	if (slot != NULL)
		slot->trouble = trouble;
	LWLockRelease(&state->lock);
}

/* -- helpers; the caller holds the lock -------------------------------------------- */

static LlmqSlot *
find_slot(Oid database)
{
	int i;

	for (i = 0; i < LLMQ_MAX_DATABASES; i++)
	{
		if (state->slots[i].database == database)
			return &state->slots[i];
	}
	return NULL;
}

/* Returns the database's slot, or a free one for it; NULL if all are in use. */
static LlmqSlot *
make_slot(Oid database)
{
	LlmqSlot *slot = find_slot(database);

	if (slot == NULL)
	{
		slot = find_slot(InvalidOid);
		if (slot != NULL)
			slot->database = database;
	}
	return slot;
}

/* Counts the processes among the first `most`. */
static int
count_processes(const LlmqSlot *slot, int most)
{
	int count = 0;
	int i;

	for (i = 0; i < most; i++)
		count += slot->processes[i].pid != 0;
	return count;
}

static void
set_latch(const LlmqProcess *process)
{
	if (process->pid != 0)
		SetLatch(&GetPGProcByNumber(process->procno)->procLatch);
}

static void
enter(LlmqProcess *process)
{
	process->pid = MyProcPid;
	process->procno = LLMQ_MY_PROCNO;
}
