/*
 * engine_state.h
 *		The state of an engine, and what its files share.  Private to the engine.
 *
 *		engine_session.c	hello, heartbeat, goodbye: the worker's session in the database
 *		engine_poll.c		looking for work and for changed configuration
 *		engine_report.c		what the worker says of itself with a poll
 *		engine_metric.c		what is counted, on its way to those who watch
 *		agenda.c			which store operation is next, and what came of it
 *		engine_leave.c		draining and stopping
 *		engine.c			create, dispatch, timeout
 */
#ifndef LLMQ_ENGINE_STATE_H
#define LLMQ_ENGINE_STATE_H

#include "engine/engine.h"
#include "jobs/jobs.h"
#include "relay/relay.h"

/* For metrics_told: nothing was reported yet, so that llmq.metric soon has a new session. */
#define LLMQ_METRICS_UNTOLD UINT64_MAX

struct LlmqEngine
{
	LlmqCore core;
	LlmqJobs jobs;
	LlmqRelay relay;

	bool may_claim; /* a ready job could be claimed when the agenda was last checked */
	char config_hash[40];
	int hello_failures;
	int64_t last_heartbeat_us;
	uint64_t metrics_told;	 /* the number of changes that llmq.metric has, or will have */
	bool drain_unsaid;		 /* the database does not know yet that this worker is draining */
	int64_t clock_offset_us; /* wall clock minus monotonic clock, when last checked */
	int64_t clock_set_us;	 /* when that last jumped; LLMQ_NEVER: it has not */
	int64_t prune_at_us;	 /* when retention is due */
	char last_store_error[LLMQ_STORE_ERROR_MAX]; /* so that it is logged only once */
};

/* engine_session.c */
extern int llmq_engine_in_hand(const LlmqEngine *engine);
extern int64_t llmq_engine_hello_due(LlmqEngine *engine);
extern void llmq_engine_begin_hello(LlmqEngine *engine);
extern void llmq_engine_complete_hello(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_hello(LlmqEngine *engine, const LlmqRows *rows, bool away);
extern int64_t llmq_engine_heartbeat_due(LlmqEngine *engine);
extern void llmq_engine_begin_heartbeat(LlmqEngine *engine);
extern void llmq_engine_complete_heartbeat(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_heartbeat(LlmqEngine *engine, const LlmqRows *rows, bool away);
extern int64_t llmq_engine_drain_due(LlmqEngine *engine);
extern void llmq_engine_begin_drain(LlmqEngine *engine);
extern void llmq_engine_complete_drain(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_drain(LlmqEngine *engine, const LlmqRows *rows, bool away);
extern int64_t llmq_engine_reconcile_due(LlmqEngine *engine);
extern void llmq_engine_begin_reconcile(LlmqEngine *engine);
extern void llmq_engine_complete_reconcile(LlmqEngine *engine, const LlmqRows *rows);
extern int64_t llmq_engine_goodbye_due(LlmqEngine *engine);
extern void llmq_engine_begin_goodbye(LlmqEngine *engine);
extern void llmq_engine_complete_goodbye(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_goodbye(LlmqEngine *engine, const LlmqRows *rows, bool away);

/* engine_poll.c */
extern int64_t llmq_engine_poll_due(LlmqEngine *engine);
extern bool llmq_engine_poll_is_overdue(const LlmqEngine *engine);
extern void llmq_engine_begin_poll(LlmqEngine *engine);
extern void llmq_engine_complete_poll(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_poll(LlmqEngine *engine, const LlmqRows *rows, bool away);

/* engine_report.c */
extern void llmq_engine_watch_clock(LlmqEngine *engine);
extern bool llmq_engine_write_report(LlmqEngine *engine, LlmqBuffer *report);
extern void llmq_engine_note_pruned(LlmqEngine *engine, int64_t jobs);

/* engine_metric.c */
extern bool llmq_engine_has_metrics(const LlmqEngine *engine);
extern bool llmq_engine_tell_metrics(LlmqEngine *engine, LlmqBuffer *json);

/* agenda.c */
extern int64_t llmq_agenda_due(LlmqEngine *engine);
extern void llmq_agenda_run(LlmqEngine *engine);

#endif /* LLMQ_ENGINE_STATE_H */
