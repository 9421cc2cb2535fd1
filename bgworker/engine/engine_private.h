/*
 * engine_private.h
 *		What the engine's files share; nobody else includes it.
 *
 *		engine.c		create, dispatch, timeout
 *		job_call.c	from a claimed job to a network call and back
 *		job_endpoint.c	which endpoint a job is for, and whether it can be called now
 *		job_limits.c	quotas and breakers: what is drawn, spent and told
 *		engine_store.c	which store operation is next, and what came of it
 *		engine_poll.c	looking for work and for changed configuration
 *		engine_report.c	what the worker says of itself with a poll
 *		job_settle.c	ended deliveries on their way into the database
 *		engine_metric.c	what is counted, on its way to those who watch
 *		engine_leave.c	draining, stopping, and claims of unknown end
 *		relay*.c		the same for outbox messages, see relay.h
 */
#ifndef LLMQ_ENGINE_PRIVATE_H
#define LLMQ_ENGINE_PRIVATE_H

#include <jansson.h>

#include "base/buffer.h"
#include "engine/engine_state.h"
#include "relay/relay.h"

/* job_call.c */
extern void llmq_engine_start_job(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_start_due(LlmqEngine *engine);
extern void llmq_engine_collect(LlmqEngine *engine);
extern void llmq_engine_interrupt(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_give_back(LlmqEngine *engine, LlmqJob *job);

/* Where a job goes now. */
typedef struct LlmqChoice
{
	LlmqEndpoint *endpoint; /* to be called, at when_us; NULL: none can be, before when_us */
	int64_t when_us;		/* LLMQ_NEVER: nobody knows */
	LlmqObstacle obstacle;	/* what is in the way until then */
} LlmqChoice;

/* job_endpoint.c */
extern void
llmq_engine_note_secret(LlmqEngine *engine, LlmqEndpoint *endpoint, bool found, const char *reason);
extern bool llmq_engine_has_secret(LlmqEngine *engine, LlmqEndpoint *endpoint);
extern int64_t llmq_engine_tokens(const LlmqEndpoint *endpoint, LlmqJob *job);
extern LlmqChoice llmq_engine_choose(LlmqEngine *engine, LlmqJob *job);
extern int llmq_engine_allowance(void *engine, const char *queue);

/* job_limits.c */
extern void llmq_engine_await_quota(LlmqEngine *engine, LlmqJob *job, const LlmqChoice *choice);
extern void llmq_engine_await_no_more(LlmqEngine *engine, LlmqJob *job);
extern void llmq_engine_enter(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
extern void
llmq_engine_leave(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint, bool called);
extern void llmq_engine_note_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
extern bool llmq_engine_fall_back(LlmqEngine *engine, LlmqJob *job);
extern int64_t llmq_engine_draw_due(const LlmqEngine *engine);
extern void llmq_engine_begin_draw(LlmqEngine *engine);
extern void llmq_engine_complete_draw(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_draw(LlmqEngine *engine);
extern void llmq_engine_take_breakers(LlmqEngine *engine, const json_t *breakers);

/* engine_poll.c */
extern int64_t llmq_engine_poll_due(const LlmqEngine *engine);
extern bool llmq_engine_poll_is_overdue(const LlmqEngine *engine);
extern void llmq_engine_begin_poll(LlmqEngine *engine);
extern void llmq_engine_complete_poll(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_look_again(LlmqEngine *engine, int64_t seq);
extern void llmq_engine_hold(LlmqEngine *engine, int64_t seq, const char *error);
extern void llmq_engine_release_held(LlmqEngine *engine, int64_t now_us);
extern bool llmq_engine_serves(const LlmqEngine *engine, const char *queue);

/* engine_report.c */
extern void llmq_engine_watch_clock(LlmqEngine *engine);
extern bool llmq_engine_write_report(LlmqEngine *engine, LlmqBuffer *report);
extern void llmq_engine_repeat_report(LlmqEngine *engine);
extern void llmq_engine_note_pruned(LlmqEngine *engine, int64_t jobs);
extern int64_t llmq_engine_report_due(const LlmqEngine *engine);

/* engine_leave.c */
extern bool llmq_engine_may_say_goodbye(const LlmqEngine *engine);
extern void llmq_engine_doubt_claim(LlmqEngine *engine);
/* Something was claimed that this worker does not hold: its lease goes back soon. */
extern void llmq_engine_miss_lease(LlmqEngine *engine);
extern void llmq_engine_begin_reconcile(LlmqEngine *engine);
extern void llmq_engine_complete_reconcile(LlmqEngine *engine);

/* engine_metric.c */
extern void llmq_engine_count_call(LlmqEngine *engine, const LlmqJob *job);
extern bool llmq_engine_has_metrics(const LlmqEngine *engine);
extern bool llmq_engine_tell_metrics(LlmqEngine *engine, LlmqBuffer *json);

/* job_settle.c */
extern int64_t llmq_engine_settle_due(const LlmqEngine *engine);
extern void llmq_engine_begin_settle(LlmqEngine *engine);
extern void llmq_engine_complete_settle(LlmqEngine *engine, const LlmqRows *rows);
extern void llmq_engine_fail_settle(LlmqEngine *engine, const LlmqRows *rows);

/* engine_store.c */
extern int llmq_engine_in_hand(const LlmqEngine *engine);
extern int64_t llmq_engine_backoff(LlmqEngine *engine, int failures);
extern void
llmq_engine_begin(LlmqEngine *engine, LlmqOperation operation, const char *const *params);
extern void llmq_engine_start_again(LlmqEngine *engine);
extern void llmq_engine_run_store(LlmqEngine *engine);
extern int64_t llmq_engine_store_due(LlmqEngine *engine);

/* engine.c */
extern void llmq_engine_log(LlmqEngine *engine, LlmqLogLevel level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
extern void llmq_job_list_add(LlmqJobList *list, LlmqJob *job);
extern void llmq_job_list_remove(LlmqJobList *list, LlmqJob *job);
extern int llmq_engine_room(const LlmqEngine *engine);

#endif /* LLMQ_ENGINE_PRIVATE_H */
