/*
 * store_libpq.c
 *		The store's driver outside of the server: operations over libpq.
 *
 * An operation is one round trip and one transaction: its settings and its statement,
 * pipelined.  The settings are local to it, so that nothing depends on a session that a pooler
 * may have lent.  It has succeeded only when the end of the pipeline has arrived, because only
 * then is it committed.
 */
#include "program/store_libpq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

/*
 * The server cancels a statement after the first limit, and we give up the server after the
 * second.  An operation whose outcome is unknown has certainly ended after the first.
 */
#define STATEMENT_LIMIT	   "30s"
#define OPERATION_LIMIT_US INT64_C(40000000)

#define SETTINGS                                                          \
	"SELECT pg_catalog.set_config(name, value, true) FROM (VALUES "       \
	"('search_path', 'pg_catalog, pg_temp'), ('lock_timeout', '500ms'), " \
	"('statement_timeout', '" STATEMENT_LIMIT "'), ('jit', 'off'), "      \
	"('row_security', 'on'), ('synchronous_commit', "                     \
	"CASE WHEN $1::pg_catalog.bool THEN 'off' "                           \
	"ELSE pg_catalog.current_setting('synchronous_commit') END)"          \
	") AS setting (name, value)"

/* At commit nothing of a user's is left to be fired, with the rights of this session. */
#define DEFER_NOTHING "SET CONSTRAINTS ALL IMMEDIATE"

#define CONNECTION_FAILURE "08006"

typedef enum Phase
{
	PHASE_FREE,	   /* no operation, or one that has ended */
	PHASE_WAITING, /* begun but not sent, because the database is away */
	PHASE_SENT
} Phase;

typedef struct LibpqStore
{
	LlmqStore port; /* first: a LibpqStore is an LlmqStore */
	LlmqLink *link;
	unsigned generation; /* of the connection that was last used */
	Phase phase;
	LlmqOperation operation;
	char *params[LLMQ_OP_MAX_PARAMS]; /* copies, while WAITING */
	bool unsent;					  /* libpq still has bytes to send */
	int64_t give_up_us;
	LlmqStoreStatus status;
	LlmqRows rows;
	PGresult *result; /* owns the cells */
} LibpqStore;

static void libpq_begin(LlmqStore *port, LlmqOperation operation, const char *const *params);
static LlmqStoreStatus libpq_complete(LlmqStore *port, LlmqRows *rows);
static void send_operation(LibpqStore *store, const char *const *params);
static void send_waiting(LibpqStore *store);
static void receive(LibpqStore *store);
static void take_result(LibpqStore *store, PGresult *result);
static void fail_link(LibpqStore *store, const char *reason);

LlmqStore *
llmq_store_libpq_create(LlmqLink *link)
{
	LibpqStore *store = calloc(1, sizeof(*store));

	if (store == NULL)
		return NULL;
	store->port.begin = libpq_begin;
	store->port.complete = libpq_complete;
	store->link = link;
	return &store->port;
}

static void
forget_params(LibpqStore *store)
{
	for (int i = 0; i < LLMQ_OP_MAX_PARAMS; i++)
	{
		free(store->params[i]);
		store->params[i] = NULL;
	}
}

static bool
keep_params(LibpqStore *store, const char *const *params)
{
	bool kept = true;

	for (int i = 0; i < llmq_store_param_count(store->operation); i++)
	{
		store->params[i] = params[i] == NULL ? NULL : strdup(params[i]);
		kept = kept && (params[i] == NULL || store->params[i] != NULL);
	}
	return kept;
}

static void
forget_rows(LibpqStore *store)
{
	free(store->rows.cells);
	PQclear(store->result);
	store->result = NULL;
	memset(&store->rows, 0, sizeof(store->rows));
}

void
llmq_store_libpq_destroy(LlmqStore *port)
{
	LibpqStore *store = (LibpqStore *) port;

	if (store == NULL)
		return;
	forget_params(store);
	forget_rows(store);
	free(store);
}

int
llmq_store_libpq_fd(const LlmqStore *port, bool *writes)
{
	const LibpqStore *store = (const LibpqStore *) port;
	PGconn *conn = llmq_link_connection(store->link);

	*writes = conn != NULL && store->unsent;
	return conn == NULL ? llmq_link_fd(store->link) : PQsocket(conn);
}

int64_t
llmq_store_libpq_timeout(const LlmqStore *port)
{
	const LibpqStore *store = (const LibpqStore *) port;
	int64_t now = llmq_machine_clock().mono_us;

	if (store->phase == PHASE_SENT)
		return store->give_up_us > now ? store->give_up_us - now : 0;
	return llmq_link_timeout(store->link);
}

static int
take_news(LibpqStore *store)
{
	PGconn *conn = llmq_link_connection(store->link);
	PGnotify *notice;
	int news = 0;

	while (conn != NULL && (notice = PQnotifies(conn)) != NULL)
	{
		news |= notice->extra[0] == '\0' ? LLMQ_NEWS_WORK : LLMQ_NEWS_WORK | LLMQ_NEWS_CHANGED;
		PQfreemem(notice);
	}
	/* Notifications in between may have been missed. */
	if (conn != NULL && store->generation != llmq_link_generation(store->link))
		news |= LLMQ_NEWS_WORK | LLMQ_NEWS_CHANGED;
	if (conn != NULL)
		store->generation = llmq_link_generation(store->link);
	return news;
}

int
llmq_store_libpq_dispatch(LlmqStore *port)
{
	LibpqStore *store = (LibpqStore *) port;

	llmq_link_dispatch(store->link);
	if (store->phase == PHASE_WAITING)
		send_waiting(store);
	receive(store);
	return take_news(store);
}

/* ---- The port ------------------------------------------------------------------------ */

static void
libpq_begin(LlmqStore *port, LlmqOperation operation, const char *const *params)
{
	LibpqStore *store = (LibpqStore *) port;

	forget_rows(store);
	store->operation = operation;
	store->status = LLMQ_STORE_PENDING;
	if (llmq_link_connection(store->link) != NULL)
	{
		send_operation(store, params);
		return;
	}
	store->phase = PHASE_WAITING;
	if (!keep_params(store, params))
		fail_link(store, "out of memory");
}

static LlmqStoreStatus
libpq_complete(LlmqStore *port, LlmqRows *rows)
{
	LibpqStore *store = (LibpqStore *) port;

	*rows = store->rows;
	return store->status;
}

/* ---- Sending ------------------------------------------------------------------------- */

static void
end_operation(LibpqStore *store, LlmqStoreStatus status)
{
	forget_params(store);
	store->phase = PHASE_FREE;
	store->unsent = false;
	store->status = status;
}

/* Gives up the connection.  If an operation is under way, its outcome is unknown. */
static void
fail_link(LibpqStore *store, const char *reason)
{
	if (store->phase != PHASE_FREE)
	{
		forget_rows(store);
		snprintf(store->rows.sqlstate, sizeof(store->rows.sqlstate), CONNECTION_FAILURE);
		snprintf(store->rows.error, sizeof(store->rows.error), "%.*s", (int) strcspn(reason, "\n"),
				 reason);
		end_operation(store, LLMQ_STORE_AWAY);
	}
	llmq_link_lose(store->link, reason);
}

static void
flush(LibpqStore *store)
{
	PGconn *conn = llmq_link_connection(store->link);
	int left = PQflush(conn);

	if (left < 0)
		fail_link(store, PQerrorMessage(conn));
	else
		store->unsent = left > 0;
}

static void
send_operation(LibpqStore *store, const char *const *params)
{
	PGconn *conn = llmq_link_connection(store->link);
	const char *relaxed[] = {llmq_store_may_commit_asynchronously(store->operation) ? "t" : "f"};

	store->phase = PHASE_SENT;
	store->give_up_us = llmq_machine_clock().mono_us + OPERATION_LIMIT_US;
	if (PQsendQueryParams(conn, DEFER_NOTHING, 0, NULL, NULL, NULL, NULL, 0) &&
		PQsendQueryParams(conn, SETTINGS, 1, NULL, relaxed, NULL, NULL, 0) &&
		PQsendQueryParams(conn, llmq_store_statement(store->operation),
						  llmq_store_param_count(store->operation), NULL, params, NULL, NULL, 0) &&
		PQpipelineSync(conn))
		flush(store);
	else
		fail_link(store, PQerrorMessage(conn));
}

static void
send_waiting(LibpqStore *store)
{
	const char *params[LLMQ_OP_MAX_PARAMS];

	if (llmq_link_connection(store->link) == NULL)
		return;
	for (int i = 0; i < LLMQ_OP_MAX_PARAMS; i++)
		params[i] = store->params[i];
	send_operation(store, params);
	forget_params(store);
}

/* ---- Receiving ----------------------------------------------------------------------- */

static void
receive(LibpqStore *store)
{
	PGconn *conn = llmq_link_connection(store->link);
	int nothing = 0; /* PQgetResult returns a NULL after each result */

	if (conn == NULL)
		return;
	if (!PQconsumeInput(conn) || PQstatus(conn) == CONNECTION_BAD)
	{
		fail_link(store, PQerrorMessage(conn));
		return;
	}
	if (store->unsent)
		flush(store);
	conn = llmq_link_connection(store->link);
	while (store->phase == PHASE_SENT && !PQisBusy(conn) && nothing < 2)
	{
		PGresult *result = PQgetResult(conn);

		nothing = result == NULL ? nothing + 1 : 0;
		if (result != NULL)
			take_result(store, result);
	}
	if (store->phase == PHASE_SENT && llmq_machine_clock().mono_us >= store->give_up_us)
		fail_link(store, "the server does not answer");
	else if (conn != NULL && PQstatus(conn) == CONNECTION_BAD)
		fail_link(store, PQerrorMessage(conn));
}

/* Keeps the first error of the operation, or the rows of its last statement. */
static void
keep_error(LibpqStore *store, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (store->rows.sqlstate[0] != '\0')
		return;
	snprintf(store->rows.sqlstate, sizeof(store->rows.sqlstate), "%s",
			 sqlstate == NULL ? CONNECTION_FAILURE : sqlstate);
	snprintf(store->rows.error, sizeof(store->rows.error), "%s",
			 message == NULL ? PQresultErrorMessage(result) : message);
}

/* Reads the cells of a result; running out of memory is an error of the operation. */
static void
read_rows(LibpqStore *store)
{
	LlmqRows *rows = &store->rows;
	size_t columns = (size_t) PQnfields(store->result);

	rows->row_count = PQntuples(store->result);
	rows->column_count = (int) columns;
	rows->cells = calloc((size_t) rows->row_count * columns + 1, sizeof(char *));
	for (int row = 0; rows->cells != NULL && row < rows->row_count; row++)
	{
		for (int column = 0; column < rows->column_count; column++)
		{
			if (!PQgetisnull(store->result, row, column))
				rows->cells[(size_t) row * columns + (size_t) column] =
					PQgetvalue(store->result, row, column);
		}
	}
}

/* Ends the operation at the end of the pipeline: it is committed, or has failed. */
static void
finish_operation(LibpqStore *store)
{
	if (store->rows.sqlstate[0] == '\0' && store->result != NULL)
		read_rows(store);
	if (store->rows.sqlstate[0] != '\0')
		end_operation(store, LLMQ_STORE_FAILED);
	else if (store->rows.cells != NULL)
		end_operation(store, LLMQ_STORE_OK);
	else
		fail_link(store, "out of memory"); /* it is committed, but its rows are lost */
}

static void
take_result(LibpqStore *store, PGresult *result)
{
	switch (PQresultStatus(result))
	{
		case PGRES_TUPLES_OK:
			PQclear(store->result);
			store->result = result;
			return;
		case PGRES_PIPELINE_SYNC:
			finish_operation(store);
			break;
		case PGRES_COMMAND_OK:
		case PGRES_PIPELINE_ABORTED:
			break;
		default:
			keep_error(store, result);
	}
	PQclear(result);
}
