/*
 * hmac_program.c
 *		PostgreSQL's HMAC-SHA256 for the program, from the library of PostgreSQL's own client
 *		tools.
 */
#include "postgres_fe.h"

#include "common/hmac.h"
#include "common/sha2.h"

#include "base/hmac.h"

bool
llmq_hmac_sha256(const void *key, size_t key_len, const void *data, size_t data_len,
				 unsigned char mac[32])
{
	pg_hmac_ctx *context = pg_hmac_create(PG_SHA256);
	bool made = context != NULL && pg_hmac_init(context, key, key_len) >= 0 &&
				pg_hmac_update(context, data, data_len) >= 0 &&
				pg_hmac_final(context, mac, PG_SHA256_DIGEST_LENGTH) >= 0;

	pg_hmac_free(context);
	return made;
}
