/*
 * database.h
 *		What a process without a database connection can find out about databases.
 */
#ifndef LLMQ_DATABASE_H
#define LLMQ_DATABASE_H

#include "nodes/pg_list.h"

/*
 * Returns whether some transaction holds a lock on a database that keeps new sessions out:
 * DROP, RENAME, use as a TEMPLATE, a move to another tablespace.  It asks only the lock
 * manager, and so needs no transaction and no catalog, and leaves nothing allocated.
 */
extern bool llmq_database_is_contended(Oid database);

/*
 * Returns the OIDs of the databases that may have workers: they allow connections, are not
 * templates, and are not excluded by llmq.databases.  Runs a transaction of its own; the list
 * is in the caller's memory context.
 */
extern List *llmq_database_list(void);

#endif /* LLMQ_DATABASE_H */
