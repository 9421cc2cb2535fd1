/*
 * compat.h
 *		All code that depends on differences between PostgreSQL 15 and 18.
 */
#ifndef LLMQ_COMPAT_H
#define LLMQ_COMPAT_H

#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "llmq needs PostgreSQL 15 or newer"
#endif

/* 16: a new header for access to varlena data. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 17: processes have a ProcNumber instead of MyProc->pgprocno. */
#if PG_VERSION_NUM >= 170000
#define LLMQ_MY_PROCNO ((int) MyProcNumber)
#else
#define LLMQ_MY_PROCNO ((int) MyProc->pgprocno)
#endif

/* 17: a limit for whole transactions, which ends the process. */
#if PG_VERSION_NUM >= 170000
#define LLMQ_COMPAT_HAS_TRANSACTION_TIMEOUT true
#else
#define LLMQ_COMPAT_HAS_TRANSACTION_TIMEOUT false
#endif

/* Creates a set of wait events that lives as long as the process.  17: it takes a resource owner.
 */
static inline WaitEventSet *
llmq_compat_create_wait_event_set(int events)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, events);
#else
	return CreateWaitEventSet(TopMemoryContext, events);
#endif
}

/*
 * Returns the wait event with a name; the caller keeps *cache.  17: extensions can name theirs;
 * before that, all are "Extension".
 */
static inline uint32
llmq_compat_wait_event(uint32 *cache, const char *name)
{
	if (*cache == 0)
#if PG_VERSION_NUM >= 170000
		*cache = WaitEventExtensionNew(name);
#else
		*cache = PG_WAIT_EXTENSION;
#endif
	return *cache;
}

/* Returns the parts of a name with its schema.  16: can report an error softly. */
static inline List *
llmq_compat_split_name(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return stringToQualifiedNameList(name, NULL);
#else
	return stringToQualifiedNameList(name);
#endif
}

/* Returns the status of a backend by its number, from 1.  16: a new name. */
static inline LocalPgBackendStatus *
llmq_compat_backend_status(int index)
{
#if PG_VERSION_NUM >= 160000
	return pgstat_get_local_beentry_by_index(index);
#else
	return pgstat_fetch_stat_local_beentry(index);
#endif
}

#endif /* LLMQ_COMPAT_H */
