/*
 * topic_lock.c
 *		The lock that protects claims of a topic's messages.
 *
 * It is an object lock whose class is the table of the messages.  No statement of a user takes
 * that, while any role could block a topic with an advisory lock of the same key.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(llmq_try_lock_topic_1);

/*
 * try_lock_topic(messages regclass, topic text): locks the topic; false if another transaction
 * has the lock.  Topics with the same hash take turns.
 */
Datum
llmq_try_lock_topic_1(PG_FUNCTION_ARGS)
{
	Oid messages = PG_GETARG_OID(0);
	const text *topic = PG_GETARG_TEXT_PP(1);
	uint32 hash =
		hash_bytes((const unsigned char *) VARDATA_ANY(topic), (int) VARSIZE_ANY_EXHDR(topic));
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, messages, hash, 0);
	PG_RETURN_BOOL(LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL);
}
