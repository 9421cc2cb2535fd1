/*
 * callback_worker.h
 *		The callback worker: the process of a database that settles answers of jobs with an
 *		on_complete.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_CALLBACK_WORKER_H
#define LLMQ_CALLBACK_WORKER_H

/* The launcher starts it with the database's OID and, in bgw_extra, LLMQ_CALLBACK_WORKER. */
extern PGDLLEXPORT void llmq_callback_worker_main(Datum database);

#endif /* LLMQ_CALLBACK_WORKER_H */
