/*
 * store.h
 *		The port between the engine and the database.
 *
 * All queue logic lives in SQL, in the functions llmq.worker_*.  The engine asks
 * for one of a few short operations at a time: it begins one, and completes it
 * when its driver says so.  A driver knows how to run a statement with text
 * parameters and hand back rows of text; it knows nothing of what they mean.
 * The server's driver (store_spi.c) completes at once; one over libpq completes
 * when its socket has the answer, so that a database that hangs freezes no clock.
 */
#ifndef LLMQ_STORE_H
#define LLMQ_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the conversation; llmq.worker_hello refuses another. */
#define LLMQ_STORE_PROTOCOL 3

typedef enum LlmqOperation
{
	LLMQ_OP_HELLO,			 /* register, take over what lost workers held */
	LLMQ_OP_POLL,			 /* what is new: ready jobs, recalled leases, configuration */
	LLMQ_OP_CLAIM,			 /* move ready jobs under leases */
	LLMQ_OP_SETTLE,			 /* end deliveries */
	LLMQ_OP_CLAIM_MESSAGES,	 /* move outbox messages under leases */
	LLMQ_OP_SETTLE_MESSAGES, /* say what became of them */
	LLMQ_OP_DRAW,			 /* draw slices of quotas, tell of breakers */
	LLMQ_OP_HEARTBEAT,		 /* say that this worker lives */
	LLMQ_OP_DRAIN,			 /* say that it claims no more */
	LLMQ_OP_RECONCILE,		 /* give back leases that it does not know */
	LLMQ_OP_GOODBYE			 /* give the leases back and go */
} LlmqOperation;

#define LLMQ_OPERATIONS		 (LLMQ_OP_GOODBYE + 1)
#define LLMQ_OP_MAX_PARAMS	 7
#define LLMQ_STORE_ERROR_MAX 512

/* How an operation ended. */
typedef enum LlmqStoreStatus
{
	LLMQ_STORE_PENDING, /* not yet */
	LLMQ_STORE_OK,		/* committed; rows hold what came back */
	LLMQ_STORE_FAILED,	/* rolled back; error and sqlstate say why */
	LLMQ_STORE_AWAY		/* no connection, or its end is unknown */
} LlmqStoreStatus;

/* Rows of text, owned by the driver until the next begin. */
typedef struct LlmqRows
{
	int row_count;
	int column_count;
	char **cells; /* row by row; NULL is SQL NULL */
	char sqlstate[6];
	char error[LLMQ_STORE_ERROR_MAX];
} LlmqRows;

typedef struct LlmqStore LlmqStore;

/* What a driver offers; it embeds LlmqStore as its first member. */
struct LlmqStore
{
	/* Starts an operation; params are read before begin returns. */
	void (*begin)(LlmqStore *store, LlmqOperation operation, const char *const *params);
	/* Looks whether it has ended. */
	LlmqStoreStatus (*complete)(LlmqStore *store, LlmqRows *rows);
};

/* The statement of an operation, and how many parameters it has ($1..$n, text). */
extern const char *llmq_store_statement(LlmqOperation operation);
extern int llmq_store_param_count(LlmqOperation operation);

/* A name for log lines and activity texts. */
extern const char *llmq_store_operation_name(LlmqOperation operation);

/*
 * Whether the commit need not wait for the disk.  A claim must: its lease is what
 * remains of a call that a crash cut off, and that may have been billed.
 */
extern bool llmq_store_may_commit_asynchronously(LlmqOperation operation);

/* A cell, or NULL; row and column must exist. */
static inline const char *
llmq_rows_cell(const LlmqRows *rows, int row, int column)
{
	return rows->cells[(size_t) row * (size_t) rows->column_count + (size_t) column];
}

/*
 * Whether an error is the passing kind (locks, serialization, resources, an
 * administrator's word): trying the same again later may succeed.
 */
extern bool llmq_store_error_passes(const char *sqlstate);

#endif /* LLMQ_STORE_H */
