/*
 * callback.h
 *		Running a user's on_complete function, with the rights of who submitted the job.
 *
 * Needs postgres.h before it.
 */
#ifndef LLMQ_CALLBACK_H
#define LLMQ_CALLBACK_H

typedef struct LlmqCallback
{
	const char *role;		 /* who submitted the job */
	const char *function;	 /* schema.name(jsonb), as llmq_internal.callback_name() wrote it */
	const char *search_path; /* the role's; NULL: that of the server */
	Datum argument;			 /* jsonb */
} LlmqCallback;

/*
 * Makes a process ready to run callbacks; once, before its session has settings of its
 * own: the server's search_path is noted.
 */
extern void llmq_callback_prepare(void);

/*
 * Whether a callback has caught its cancellation and gone on, so that the process is
 * ending; for its last moments.
 */
extern bool llmq_callback_was_stubborn(void);

/*
 * Runs it in the present transaction, for llmq.callback_timeout at most.  ERROR if it
 * raises, is too slow, or is not there or the role's to execute any more; the caller must
 * then disarm all timeouts, as llmq_transaction_run() does.
 */
extern void llmq_callback_run(const LlmqCallback *callback);

#endif /* LLMQ_CALLBACK_H */
