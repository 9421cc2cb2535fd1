/*
 * wakeup.h
 *		What a transaction has requested for its commit.
 *
 * Requests of a transaction or subtransaction that rolls back are dropped, and so are those of
 * a prepared transaction (the workers' poll finds its jobs).
 */
#ifndef LLMQ_WAKEUP_H
#define LLMQ_WAKEUP_H

typedef enum LlmqRequest
{
	LLMQ_REQUEST_WAKE,	 /* this database's workers look for work */
	LLMQ_REQUEST_LOOK,	 /* they look at everything, including configuration and cancelled jobs */
	LLMQ_REQUEST_SETTLE, /* its callback worker looks for answers */
	LLMQ_REQUEST_START,	 /* its workers are started */
	LLMQ_REQUEST_STOP	 /* its workers end */
} LlmqRequest;

#define LLMQ_REQUESTS (LLMQ_REQUEST_STOP + 1)

/* Registers the callbacks; called once, from _PG_init. */
extern void llmq_wakeup_install(void);

/* Requests something; everything that can fail does so here. */
extern void llmq_wakeup_request(LlmqRequest request);

/* Returns whether the current transaction has requested it. */
extern bool llmq_wakeup_is_requested(LlmqRequest request);

/*
 * Returns whether there is room for notifications that are not essential.  If the queue is
 * full, a transaction that notifies fails at its commit, whatever else it has done.
 */
extern bool llmq_wakeup_may_notify(void);

#endif /* LLMQ_WAKEUP_H */
