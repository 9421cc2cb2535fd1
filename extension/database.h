/*
 * database.h
 *		What a process without a database connection can learn of databases.
 */
#ifndef LLMQ_DATABASE_H
#define LLMQ_DATABASE_H

#include "nodes/pg_list.h"

/*
 * Whether some transaction holds a lock on a database that keeps new sessions
 * out: DROP, RENAME, use as a TEMPLATE, a move to another tablespace.  Asks the
 * lock manager alone: no transaction, no catalog, nothing left allocated.
 */
extern bool llmq_database_is_contended(Oid database);

/*
 * The OIDs of the databases that may have workers: they can be connected to, are
 * no templates and are not left out by llmq.databases.  Runs a transaction of
 * its own; the list is in the caller's memory context.
 */
extern List *llmq_database_list(void);

#endif /* LLMQ_DATABASE_H */
