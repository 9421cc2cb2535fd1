/*
 * service.h
 *		Finds out whether workers serve the current database, and if not, why.
 */
#ifndef LLMQ_SERVICE_H
#define LLMQ_SERVICE_H

typedef enum LlmqService
{
	LLMQ_SERVICE_RUNNING,
	LLMQ_SERVICE_STARTING,	  /* workers are about to start */
	LLMQ_SERVICE_DISABLED,	  /* llmq.enabled is off */
	LLMQ_SERVICE_NONE_WANTED, /* llmq.workers is 0 */
	LLMQ_SERVICE_EXCLUDED,	  /* llmq.databases excludes it */
	LLMQ_SERVICE_STOPPED,	  /* by llmq.stop_worker() */
	LLMQ_SERVICE_DYING,		  /* workers keep ending */
	LLMQ_SERVICE_NO_PROCESS,  /* max_worker_processes are in use */
	LLMQ_SERVICE_NO_LAUNCHER
} LlmqService;

/* Judges by settings and shared memory only; workers outside of the server are not counted. */
extern LlmqService llmq_service_judge(void);

/* Raises a WARNING that says why no worker serves the database, and what to do about it. */
extern void llmq_service_warn(LlmqService service);

#endif /* LLMQ_SERVICE_H */
