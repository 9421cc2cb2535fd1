/*
 * shared_state.h
 *		What is known about each database, its processes and the launcher: copies of what is in
 *		shared memory.
 */
#ifndef LLMQ_SHARED_STATE_H
#define LLMQ_SHARED_STATE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "utils/uuid.h"

#define LLMQ_MAX_DATABASES 64
#define LLMQ_MAX_WORKERS   8

/* A database's processes: its workers, and after them its callback worker. */
#define LLMQ_CALLBACK_WORKER LLMQ_MAX_WORKERS
#define LLMQ_MAX_PROCESSES	 (LLMQ_MAX_WORKERS + 1)

/* What the launcher should do for a database. */
typedef enum LlmqStatus
{
	LLMQ_STATUS_UNKNOWN, /* its first worker finds out whether the extension exists */
	LLMQ_STATUS_WANTED,	 /* it has the extension: keep workers running */
	LLMQ_STATUS_ABSENT,	 /* it does not have the extension: forget it */
	LLMQ_STATUS_STOPPED, /* by llmq.stop_worker(), until started or the server restarts */
	LLMQ_STATUS_ASIDE /* workers left for a DROP, RENAME or copy of the database: restart them after
						 it */
} LlmqStatus;

/* Why a database that should have workers has none. */
typedef enum LlmqTrouble
{
	LLMQ_TROUBLE_NONE,
	LLMQ_TROUBLE_DYING,		/* they keep ending soon after their start */
	LLMQ_TROUBLE_NO_PROCESS /* max_worker_processes are in use */
} LlmqTrouble;

/* A running process, found by its position in the server's array of them. */
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
	uint32 orders;			/* number of calls of llmq.start_worker() */
	uint32 changes;			/* number of wake-ups that announce a change */
	pg_atomic_uint32 wakes; /* number of all wake-ups */
	LlmqProcess processes[LLMQ_MAX_PROCESSES];
	bool has_stubborn;
	pg_uuid_t stubborn; /* job whose on_complete could end only with its process */
} LlmqSlot;

/* What others know about the launcher. */
typedef struct LlmqLauncherState
{
	bool running;
	bool preloaded;			  /* it starts with the server */
	TimestampTz announced_at; /* when a session last registered it; 0: never */
} LlmqLauncherState;

#endif /* LLMQ_SHARED_STATE_H */
