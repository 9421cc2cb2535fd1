/*
 * settler.h
 *		The process of a database that settles answers which an on_complete waits for.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_SETTLER_H
#define LLMQ_SETTLER_H

/* The launcher starts it with the database's OID and, in bgw_extra, LLMQ_SETTLER. */
extern PGDLLEXPORT void llmq_settler_main(Datum database);

#endif /* LLMQ_SETTLER_H */
