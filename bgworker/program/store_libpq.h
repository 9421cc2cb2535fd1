/*
 * store_libpq.h
 *		The store's driver outside of the server: operations over libpq.
 *
 * An operation that is begun while the database is away waits until it is back.  One that was
 * sent, and whose connection broke before its outcome was known, is AWAY: it may have
 * committed or not.
 */
#ifndef LLMQ_STORE_LIBPQ_H
#define LLMQ_STORE_LIBPQ_H

#include "program/link.h"
#include "core/store.h"

/* What the database has announced since the last call; bits. */
#define LLMQ_NEWS_WORK	  1 /* there may be work */
#define LLMQ_NEWS_CHANGED 2 /* the configuration, or a running job, has changed */

/* Creates a driver that uses a link, which stays owned by the caller; NULL when out of memory. */
extern LlmqStore *llmq_store_libpq_create(LlmqLink *link);
extern void llmq_store_libpq_destroy(LlmqStore *store);

/*
 * These return what to wait for: a descriptor, or -1, for reading or also for writing, and
 * microseconds.
 */
extern int llmq_store_libpq_fd(const LlmqStore *store, bool *writes);
extern int64_t llmq_store_libpq_timeout(const LlmqStore *store);

/* Does everything that can be done now; returns news. */
extern int llmq_store_libpq_dispatch(LlmqStore *store);

#endif /* LLMQ_STORE_LIBPQ_H */
