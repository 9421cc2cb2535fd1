/*
 * callback.h
 *		Runs a user's on_complete function with the rights of the role that submitted the job.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_CALLBACK_H
#define LLMQ_CALLBACK_H

typedef struct LlmqCallback
{
	const char *role;		 /* the role that submitted the job */
	const char *function;	 /* schema.name(jsonb), as llmq_internal.callback_name() wrote it */
	const char *search_path; /* the role's; NULL: that of the server */
	Datum argument;			 /* jsonb */
} LlmqCallback;

/*
 * Prepares a process to run callbacks, once, before its session has settings of its own,
 * because it notes the server's search_path.
 */
extern void llmq_callback_prepare(void);

/*
 * Returns whether the process is ending because a callback has caught its cancellation and
 * gone on; for the code that runs at its exit.
 */
extern bool llmq_callback_was_stubborn(void);

/*
 * Runs it in the current transaction, for llmq.callback_timeout at most.  Throws an ERROR if
 * the function raises one, is too slow, no longer exists, or may no longer be executed by the
 * role; the caller must then disarm all timeouts, as llmq_transaction_run() does.
 */
extern void llmq_callback_run(const LlmqCallback *callback);

#endif /* LLMQ_CALLBACK_H */
