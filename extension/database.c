/*
 * database.c
 *		What a process without a database connection can find out about databases.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "database.h"
#include "settings.h"

/* What an interrupted DROP DATABASE leaves in datconnlimit. */
#define INVALID_DATABASE (-2)

static bool may_have_workers(Form_pg_database database);

/*
 * A starting session takes RowExclusiveLock on the database, so whoever holds a conflicting
 * lock keeps sessions out, and waits until ours has left.
 */
bool
llmq_database_is_contended(Oid database)
{
	LOCKTAG tag;
	VirtualTransactionId *holders;
	int count;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	holders = GetLockConflicts(&tag, RowExclusiveLock, &count);
	pfree(holders);
	return count > 0;
}

List *
llmq_database_list(void)
{
	MemoryContext caller = CurrentMemoryContext;
	List *databases = NIL;
	Relation relation;
	TableScanDesc scan;
	HeapTuple tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		if (may_have_workers(database))
		{
			MemoryContext transaction = MemoryContextSwitchTo(caller);

			databases = lappend_oid(databases, database->oid);
			MemoryContextSwitchTo(transaction);
		}
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(caller);
	return databases;
}

static bool
may_have_workers(Form_pg_database database)
{
	return database->datallowconn && !database->datistemplate &&
		   database->datconnlimit != INVALID_DATABASE &&
		   llmq_settings_serves(NameStr(database->datname));
}
