/*
 * store.h
 *		The port between the engine and the database.
 *
 * All queue logic is in SQL, in the functions llmq.worker_*.  The engine runs one of a few
 * short operations at a time: it begins one, and the driver says when it is complete.  A driver
 * can run a statement with text parameters and return rows of text; it does not know what they
 * mean.  The driver in the server (store_spi.c) completes at once.  The one over libpq completes
 * when its socket has the answer, so the clocks keep running when the database hangs.
 */
#ifndef LLMQ_STORE_H
#define LLMQ_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the protocol; llmq.worker_hello refuses others. */
#define LLMQ_STORE_PROTOCOL 3

typedef enum LlmqOperation
{
	LLMQ_OP_HELLO,			 /* register, take over what lost workers held */
	LLMQ_OP_POLL,			 /* what is new: ready jobs, revoked leases, configuration */
	LLMQ_OP_CLAIM,			 /* move ready jobs under leases */
	LLMQ_OP_SETTLE,			 /* end deliveries */
	LLMQ_OP_CLAIM_MESSAGES,	 /* move outbox messages under leases */
	LLMQ_OP_SETTLE_MESSAGES, /* say what became of them */
	LLMQ_OP_DRAW,			 /* draw slices of quotas, report on breakers */
	LLMQ_OP_HEARTBEAT,		 /* say that this worker is alive */
	LLMQ_OP_DRAIN,			 /* say that it claims nothing more */
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
	LLMQ_STORE_OK,		/* committed; rows has the result */
	LLMQ_STORE_FAILED,	/* rolled back; error and sqlstate say why */
	LLMQ_STORE_AWAY		/* no connection, or the outcome is unknown */
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
	/* Returns whether it has ended. */
	LlmqStoreStatus (*complete)(LlmqStore *store, LlmqRows *rows);
};

/* These return the statement of an operation, and how many parameters it has ($1..$n, text). */
extern const char *llmq_store_statement(LlmqOperation operation);
extern int llmq_store_param_count(LlmqOperation operation);

/* Returns a name for log lines and activity texts. */
extern const char *llmq_store_operation_name(LlmqOperation operation);

/*
 * Returns whether the commit need not wait for the disk.  That of a claim must: after a crash,
 * its lease is the only trace of a call that may have been billed.
 */
extern bool llmq_store_may_commit_asynchronously(LlmqOperation operation);

/* Returns a cell, or NULL; row and column must exist. */
static inline const char *
llmq_rows_cell(const LlmqRows *rows, int row, int column)
{
	return rows->cells[(size_t) row * (size_t) rows->column_count + (size_t) column];
}

/*
 * Returns whether an error is transient (locks, serialization, resources, an administrator's
 * command), so that trying the same again later may succeed.
 */
extern bool llmq_store_error_passes(const char *sqlstate);

#endif /* LLMQ_STORE_H */
