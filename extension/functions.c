/*
 * functions.c
 *		Small functions that SQL does not have.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha1.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "dialects/outcome.h"
#include "compat.h"

PG_FUNCTION_INFO_V1(llmq_module_version_1);
PG_FUNCTION_INFO_V1(llmq_system_identifier_1);
PG_FUNCTION_INFO_V1(llmq_next_xid_1);
PG_FUNCTION_INFO_V1(llmq_backend_start_1);
PG_FUNCTION_INFO_V1(llmq_uuid5_1);
PG_FUNCTION_INFO_V1(llmq_error_classes_1);

static void hash_name(const pg_uuid_t *namespace, const text *name, uint8 *digest);

Datum
llmq_module_version_1(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(LLMQ_VERSION));
}

Datum
llmq_system_identifier_1(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) GetSystemIdentifier());
}

/*
 * Only reads: pg_current_xact_id() would assign a transaction id, and an idle worker must not
 * use any up.
 */
Datum
llmq_next_xid_1(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) U64FromFullTransactionId(ReadNextFullTransactionId()));
}

/*
 * backend_start(pid int): when the backend of this database with that pid began; NULL if there
 * is none.  pg_stat_activity hides that from an owner of llmq who is not a superuser.
 */
Datum
llmq_backend_start_1(PG_FUNCTION_ARGS)
{
	int pid = PG_GETARG_INT32(0);
	int count = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= count; i++)
	{
		const PgBackendStatus *backend = &llmq_compat_backend_status(i)->backendStatus;

		if (backend->st_procpid == pid && backend->st_databaseid == MyDatabaseId)
			PG_RETURN_TIMESTAMPTZ(backend->st_proc_start_timestamp);
	}
	PG_RETURN_NULL();
}

/*
 * uuid5(namespace uuid, name text), as in RFC 9562, section 5.5.  It is our own because
 * PostgreSQL has it only in the extension uuid-ossp, which may not be installed.
 */
Datum
llmq_uuid5_1(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *namespace = PG_GETARG_UUID_P(0);
	const text *name = PG_GETARG_TEXT_PP(1);
	uint8 digest[SHA1_DIGEST_LENGTH];
	pg_uuid_t *uuid = palloc(sizeof(pg_uuid_t));

	hash_name(namespace, name, digest);
	memcpy(uuid->data, digest, UUID_LEN);
	uuid->data[6] = (uuid->data[6] & 0x0f) | 0x50; /* version 5 */
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80; /* variant 10 */
	PG_RETURN_UUID_P(uuid);
}

/* error_classes(): the error classes of attempts, by their names in outcome.c. */
Datum
llmq_error_classes_1(PG_FUNCTION_ARGS)
{
	Datum names[LLMQ_ERROR_INTERNAL];

	for (int i = 0; i < LLMQ_ERROR_INTERNAL; i++)
		names[i] = CStringGetTextDatum(llmq_error_name((LlmqErrorClass) (i + 1)));
	PG_RETURN_ARRAYTYPE_P(
		construct_array(names, LLMQ_ERROR_INTERNAL, TEXTOID, -1, false, TYPALIGN_INT));
}

static void
hash_name(const pg_uuid_t *namespace, const text *name, uint8 *digest)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA1);

	if (hash == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	if (pg_cryptohash_init(hash) < 0 || pg_cryptohash_update(hash, namespace->data, UUID_LEN) < 0 ||
		pg_cryptohash_update(hash, (const uint8 *) VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)) <
			0 ||
		pg_cryptohash_final(hash, digest, SHA1_DIGEST_LENGTH) < 0)
	{
		const char *reason = pstrdup(pg_cryptohash_error(hash));

		pg_cryptohash_free(hash);
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not compute a SHA-1 hash: %s", reason)));
	}
	pg_cryptohash_free(hash);
}
