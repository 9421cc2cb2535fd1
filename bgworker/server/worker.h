/*
 * worker.h
 *		The engine's host inside the server: a background worker of one database.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_WORKER_H
#define LLMQ_WORKER_H

/* The launcher starts it with the database's OID and, in bgw_extra, the worker's index. */
extern PGDLLEXPORT void llmq_worker_main(Datum database);

#endif /* LLMQ_WORKER_H */
