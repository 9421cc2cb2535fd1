/*
 * shared_state.h
 *		What is known of each database, its processes and the launcher: copies of what
 *		lies in shared memory.
 */
#ifndef LLMQ_SHARED_STATE_H
#define LLMQ_SHARED_STATE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "utils/uuid.h"

#define LLMQ_MAX_DATABASES 64
#define LLMQ_MAX_WORKERS   8

/* A database's processes: its workers, and behind them its callback worker. */
#define LLMQ_CALLBACK_WORKER LLMQ_MAX_WORKERS
#define LLMQ_MAX_PROCESSES	 (LLMQ_MAX_WORKERS + 1)

/* What the launcher is to do for a database. */
typedef enum LlmqStatus
{
	LLMQ_STATUS_UNKNOWN, /* whether the extension is there: its first worker finds out */
	LLMQ_STATUS_WANTED,	 /* has the extension: keep workers running */
	LLMQ_STATUS_ABSENT,	 /* has no extension: forget it */
	LLMQ_STATUS_STOPPED, /* by llmq.stop_worker(), until started or the server restarts */
	LLMQ_STATUS_ASIDE	 /* workers left for a DROP, RENAME or copy of the database: bring them
						  * back after it */
} LlmqStatus;

/* Why a database that should have workers has none. */
typedef enum LlmqTrouble
{
	LLMQ_TROUBLE_NONE,
	LLMQ_TROUBLE_DYING,		/* they keep ending soon after their start */
	LLMQ_TROUBLE_NO_PROCESS /* max_worker_processes are in use */
} LlmqTrouble;

/* A running process, found through its place in the server's array of them. */
typedef struct LlmqProcess
{
	int pid; /* 0: none */
	int procno;
} LlmqProcess;

/* A database. */
typedef struct LlmqSlot
{
	Oid database; /* InvalidOid: the slot is free */
	LlmqStatus status;
	LlmqTrouble trouble;
	uint32 orders;			/* calls of llmq.start_worker() so far */
	uint32 changes;			/* wake-ups so far that tell of a change */
	pg_atomic_uint32 wakes; /* all wake-ups so far */
	LlmqProcess processes[LLMQ_MAX_PROCESSES];
	bool has_stubborn;
	pg_uuid_t
		stubborn; /* the job whose on_complete its callback worker could end only with itself */
} LlmqSlot;

/* The launcher, as others see it. */
typedef struct LlmqLauncherState
{
	bool running;
	bool preloaded;			  /* comes with the server */
	TimestampTz announced_at; /* last registered by a session; 0: never */
} LlmqLauncherState;

#endif /* LLMQ_SHARED_STATE_H */
