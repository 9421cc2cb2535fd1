/*
 * store.c
 *		The operations of the store port: their statements and their errors.
 */
#include "core/store.h"

#include <string.h>

#include "core/store_columns.h"

typedef struct Operation
{
	const char *name;
	const char *statement;
	int params;
	bool asynchronous;
} Operation;

/* The beginning of a statement that returns rows of these columns. */
#define SELECT(COLUMNS) "SELECT " COLUMNS(LLMQ_COLUMN_NAME) " FROM llmq."

/*
 * Each parameter has the type of the function's argument, so that no other function of that name
 * can be meant, and each type its schema: a program's session has a search_path of its own.
 */
static const Operation operations[LLMQ_OPERATIONS] = {
	[LLMQ_OP_HELLO] = {"hello",
					   SELECT(LLMQ_HELLO_COLUMNS) "worker_hello($1::int, $2::pg_catalog.text, "
												  "$3::pg_catalog.text, $4::int, "
												  "$5::pg_catalog.timestamptz)",
					   5, false},
	[LLMQ_OP_POLL] = {"poll",
					  SELECT(LLMQ_POLL_COLUMNS) "worker_poll($1::bigint, $2::bigint, $3::int, "
												"$4::pg_catalog.text, "
												"$5::pg_catalog.jsonb, $6::bigint, "
												"$7::pg_catalog.text)",
					  7, false},
	[LLMQ_OP_CLAIM] = {"claim", SELECT(LLMQ_CLAIM_COLUMNS) "worker_claim($1::bigint, $2::bigint[])",
					   2, false},
	[LLMQ_OP_SETTLE] = {"settle",
						SELECT(
							LLMQ_SETTLE_COLUMNS) "worker_settle($1::bigint, $2::pg_catalog.jsonb)",
						2, false},
	[LLMQ_OP_CLAIM_MESSAGES] =
		{"relay-claim",
		 SELECT(LLMQ_OUTBOX_COLUMNS) "worker_claim_messages($1::bigint, $2::pg_catalog.jsonb)", 2,
		 false},
	[LLMQ_OP_SETTLE_MESSAGES] =
		{"relay-settle",
		 SELECT(
			 LLMQ_OUTBOX_SETTLE_COLUMNS) "worker_settle_messages($1::bigint, $2::pg_catalog.jsonb)",
		 2, false},
	[LLMQ_OP_DRAW] = {"draw",
					  SELECT(LLMQ_DRAW_COLUMNS) "worker_draw($1::bigint, $2::pg_catalog.jsonb)", 2,
					  true},
	[LLMQ_OP_HEARTBEAT] =
		{"heartbeat", "SELECT llmq.worker_heartbeat($1::bigint, $2::int, $3::pg_catalog.jsonb)", 3,
		 true},
	[LLMQ_OP_DRAIN] = {"drain", "SELECT llmq.worker_drain($1::bigint)", 1, true},
	[LLMQ_OP_RECONCILE] =
		{"reconcile",
		 "SELECT llmq.worker_reconcile($1::bigint, $2::pg_catalog.uuid[], $3::bigint[])", 3, false},
	[LLMQ_OP_GOODBYE] = {"goodbye", "SELECT llmq.worker_goodbye($1::bigint)", 1, false},
};

const char *
llmq_store_statement(LlmqOperation operation)
{
	return operations[operation].statement;
}

int
llmq_store_param_count(LlmqOperation operation)
{
	return operations[operation].params;
}

const char *
llmq_store_operation_name(LlmqOperation operation)
{
	return operations[operation].name;
}

bool
llmq_store_may_commit_asynchronously(LlmqOperation operation)
{
	return operations[operation].asynchronous;
}

bool
llmq_store_error_passes(const char *sqlstate)
{
	/*
	 * 08 connection, 25006 read-only server, 40 rollback, 53 resources (disk
	 * full, memory), 55 locks and states, 57 operator intervention, 58 system.
	 */
	static const char *const passing[] = {"08", "25006", "40", "53", "55", "57", "58"};

	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
	{
		if (strncmp(sqlstate, passing[i], strlen(passing[i])) == 0)
			return true;
	}
	return false;
}
