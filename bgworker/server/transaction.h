/*
 * transaction.h
 *		One transaction of a background worker, whose ERROR becomes a value.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_TRANSACTION_H
#define LLMQ_TRANSACTION_H

/*
 * Has signals interrupt transactions and nothing else.  With `urgent`, SIGTERM ends a
 * transaction under way, and the process with it; else it waits for its end.
 */
extern void llmq_transaction_install_signals(bool urgent);

/*
 * Runs work(argument) in a transaction and commits.  An ERROR ends the transaction and
 * is returned, made in `context`; NULL when all went well.
 */
extern ErrorData *
llmq_transaction_run(void (*work)(void *argument), void *argument, MemoryContext context);

#endif /* LLMQ_TRANSACTION_H */
