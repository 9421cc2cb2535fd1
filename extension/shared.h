/*
 * shared.h
 *		What the processes of llmq know about each other: launcher, workers, and the sessions
 *		that wake them.
 *
 * It is small, so that it also fits into the spare shared memory if llmq is not in
 * shared_preload_libraries.  Everything in it is a hint that a crash may erase: whether a
 * database has the extension is then found out again.
 */
#ifndef LLMQ_SHARED_H
#define LLMQ_SHARED_H

#include "shared_state.h"

/* Installs the hooks that reserve the memory; called from _PG_init when preloaded. */
extern void llmq_shared_install_hooks(void);

/*
 * Finds the state, or creates it.  Every function below does that first, so a caller needs it
 * only where nothing may be thrown later.  Throws an ERROR when out of memory.
 */
extern void llmq_shared_attach(void);

/* -- for workers and callback workers ------------------------------------------------ */

/*
 * Registers the calling process as worker `index` (from 0) of a database, or as its callback
 * worker (LLMQ_CALLBACK_WORKER), until it exits; MyProc must exist.  Returns false if the place
 * is taken or the database's workers are stopped; the process must then end with exit code 0.
 */
extern bool llmq_shared_register_worker(Oid database, int index);

/*
 * Reports what a worker found: WANTED (the extension exists), ABSENT, or ASIDE before it
 * leaves.  Changes nothing if the workers were stopped, or if ABSENT is older than a call of
 * llmq.start_worker().
 */
extern void llmq_shared_report(Oid database, LlmqStatus status);

/* Returns the status; LLMQ_STATUS_UNKNOWN also for a database without a slot. */
extern LlmqStatus llmq_shared_status(Oid database);

/* Returns the number of a database's workers, without its callback worker. */
extern int llmq_shared_count_workers(Oid database);

/* Returns a number that grows with each change that workers must look at before they claim. */
extern uint32 llmq_shared_changes(Oid database);

/*
 * Returns a number that grows with each wake-up, before the latch is set.  The latch alone is
 * not enough, because a process that waits for a lock, or for a replica, resets it.
 */
extern uint32 llmq_shared_wakes(Oid database);

/*
 * These note the job whose on_complete ends its callback worker, and let the next callback
 * worker take it.
 */
extern void llmq_shared_note_stubborn(Oid database, const pg_uuid_t *job);
extern bool llmq_shared_take_stubborn(Oid database, pg_uuid_t *job);

/* -- for sessions; after llmq_shared_attach() these throw nothing ------------------ */

/*
 * Sets the latches of a database's workers; `changed` tells them that not only ready jobs are
 * new.
 */
extern void llmq_shared_wake(Oid database, bool changed);

extern void llmq_shared_wake_callback_worker(Oid database);

/*
 * Notes whether workers outside of the server listen in a database.  They repeat it now and
 * then, so it may get lost.
 */
extern void llmq_shared_note_listeners(Oid database, bool are_there);
extern bool llmq_shared_has_listeners(Oid database);

/* Adds a database whose workers nobody has asked for yet, and wakes the launcher. */
extern void llmq_shared_suggest(Oid database);

/*
 * Asks for a database's workers, even if they were stopped or kept dying.  Returns false if the
 * table of databases is full.
 */
extern bool llmq_shared_order_start(Oid database);

/* Stops a database's workers until llmq_shared_order_start(). */
extern void llmq_shared_order_stop(Oid database);

/* Notes that a launcher was registered and will start soon. */
extern void llmq_shared_announce_launcher(void);

extern LlmqLauncherState llmq_shared_launcher(void);

/* Copies a database's slot; false if it has none. */
extern bool llmq_shared_look(Oid database, LlmqSlot *slot);

/* -- for the launcher ------------------------------------------------------------- */

/* Registers the calling process as the launcher; false if another one runs. */
extern bool llmq_shared_register_launcher(void);

/* Copies all LLMQ_MAX_DATABASES slots, including free ones. */
extern void llmq_shared_copy(LlmqSlot *slots);

/* Gives a database a slot in status UNKNOWN, if it has none; false if all are taken. */
extern bool llmq_shared_admit(Oid database);

/* Frees a database's slot, if it has no processes and none were ordered since `seen`. */
extern void llmq_shared_forget(const LlmqSlot *seen);

extern void llmq_shared_set_trouble(Oid database, LlmqTrouble trouble);

#endif /* LLMQ_SHARED_H */
