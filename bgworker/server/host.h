/*
 * host.h
 *		What the workers and the callback worker of a database have in common: how they begin,
 *		and when they have to leave.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_HOST_H
#define LLMQ_HOST_H

/* How often a process checks whether it has to leave, while it is busy and while it is idle. */
#define LLMQ_HOST_TICK_US	   100000
#define LLMQ_HOST_TICK_IDLE_US 250000

typedef struct LlmqHost
{
	Oid database;
	int index; /* among the database's processes: a worker's, or LLMQ_CALLBACK_WORKER */
	int64 tick_at_us;
} LlmqHost;

/*
 * Connects the calling process to its database, with the settings that llmq's statements rely
 * on.  Ends the process with exit code 0 if there is no work for it.
 */
extern void llmq_host_begin(LlmqHost *host, Datum database);

/*
 * Returns the reason why the process has to leave, or NULL.  It checks now and then, more often
 * when busy, and reads no catalog, since an idle process runs no transaction.  *ticked says
 * whether it has checked.
 */
extern const char *llmq_host_why_leave(LlmqHost *host, bool busy, bool *ticked);

/* Returns whether the extension exists; also true when that cannot be found out at present. */
extern bool llmq_host_has_extension(void);

/* Returns the time of the monotonic clock, in microseconds. */
extern int64 llmq_host_clock(void);

#endif /* LLMQ_HOST_H */
