/*
 * wakeup.h
 *		What a transaction has asked to happen when it commits.
 *
 * Requests of a transaction or subtransaction that rolls back are forgotten; those
 * of one that is prepared as well (the workers' poll finds its jobs).
 */
#ifndef LLMQ_WAKEUP_H
#define LLMQ_WAKEUP_H

typedef enum LlmqRequest
{
	LLMQ_REQUEST_WAKE,	 /* this database's workers look for work */
	LLMQ_REQUEST_LOOK,	 /* they look at everything: configuration, cancelled jobs */
	LLMQ_REQUEST_SETTLE, /* its callback worker looks for answers */
	LLMQ_REQUEST_START,	 /* its workers are started */
	LLMQ_REQUEST_STOP	 /* its workers end */
} LlmqRequest;

#define LLMQ_REQUESTS (LLMQ_REQUEST_STOP + 1)

/* Registers the callbacks; called once, from _PG_init. */
extern void llmq_wakeup_install(void);

/* Asks for something; everything that could fail does so here. */
extern void llmq_wakeup_request(LlmqRequest request);

/* Whether the present transaction has asked for it. */
extern bool llmq_wakeup_is_requested(LlmqRequest request);

/*
 * Whether there is room for notifications that can be done without.  With a full queue of them
 * the transaction would fail at its commit, whatever else it has done.
 */
extern bool llmq_wakeup_may_notify(void);

#endif /* LLMQ_WAKEUP_H */
