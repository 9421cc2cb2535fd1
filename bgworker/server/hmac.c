/*
 * hmac.c
 *		The server's HMAC-SHA256, for the engine.
 *
 * The server's functions may run out of memory, and with OpenSSL need a resource owner, which
 * is NULL between transactions.  So the work is done in a transaction, which writes nothing.
 */
#include "postgres.h"

#include "common/hmac.h"
#include "common/sha2.h"

#include "base/hmac.h"
#include "server/transaction.h"

typedef struct Signing
{
	const void *key;
	size_t key_len;
	const void *data;
	size_t data_len;
	unsigned char *mac;
	bool made;
} Signing;

static void
sign(void *argument)
{
	Signing *signing = argument;
	pg_hmac_ctx *context = pg_hmac_create(PG_SHA256);

	if (context == NULL)
		return;
	signing->made = pg_hmac_init(context, signing->key, signing->key_len) >= 0 &&
					pg_hmac_update(context, signing->data, signing->data_len) >= 0 &&
					pg_hmac_final(context, signing->mac, PG_SHA256_DIGEST_LENGTH) >= 0;
	pg_hmac_free(context);
}

bool
llmq_hmac_sha256(const void *key, size_t key_len, const void *data, size_t data_len,
				 unsigned char mac[32])
{
	Signing signing = {
		.key = key, .key_len = key_len, .data = data, .data_len = data_len, .mac = mac};
	ErrorData *error = llmq_transaction_run(sign, &signing, CurrentMemoryContext);

	if (error != NULL)
		FreeErrorData(error);
	return error == NULL && signing.made;
}
