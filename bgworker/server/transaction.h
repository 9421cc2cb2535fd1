/*
 * transaction.h
 *		Runs one transaction of a background worker, and returns its ERROR as a value.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_TRANSACTION_H
#define LLMQ_TRANSACTION_H

/*
 * Makes signals interrupt transactions and nothing else.  With `urgent`, SIGTERM ends the
 * transaction under way, and the process with it; otherwise it waits until the transaction has
 * ended.
 */
extern void llmq_transaction_install_signals(bool urgent);

/*
 * Runs work(argument) in a transaction and commits.  An ERROR rolls the transaction back and is
 * returned, allocated in `context`; NULL if there was none.
 */
extern ErrorData *
llmq_transaction_run(void (*work)(void *argument), void *argument, MemoryContext context);

#endif /* LLMQ_TRANSACTION_H */
