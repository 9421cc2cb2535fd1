/*
 * host.h
 *		What the processes of a database, its workers and its callback worker, have in common: how
 *		they begin, and when they have to leave.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_HOST_H
#define LLMQ_HOST_H

/* How often a process looks whether it has to leave; with nothing in hand it is gone sooner. */
#define LLMQ_HOST_TICK_US	   100000
#define LLMQ_HOST_TICK_IDLE_US 250000

typedef struct LlmqHost
{
	Oid database;
	int index; /* among the database's processes: a worker's, or LLMQ_CALLBACK_WORKER */
	int64 tick_at_us;
} LlmqHost;

/*
 * Connects the calling process to its database, under settings that llmq's statements can
 * rely on.  Ends the process, with exit code 0, where there is no work for it.
 */
extern void llmq_host_begin(LlmqHost *host, Datum database);

/*
 * Says why the process has to leave, or NULL.  Looks now and then, less often unless it is
 * busy, and asks no catalog: an idle process runs no transaction.  *ticked: it has looked.
 */
extern const char *llmq_host_why_leave(LlmqHost *host, bool busy, bool *ticked);

/* Whether the extension is there; also true when that cannot be found out just now. */
extern bool llmq_host_has_extension(void);

/* The monotonic clock, in microseconds. */
extern int64 llmq_host_clock(void);

#endif /* LLMQ_HOST_H */
