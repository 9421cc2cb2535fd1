/*
 * job_call.c
 *		From a claimed job to a network call and back.
 *
 * A job waits in the heap, has a call under way, or has ended and waits in the
 * list to be settled: llmq_engine_start_job, finish_call and end_delivery are
 * the moves.
 */
#include "engine/engine_private.h"

#include <jansson.h>
#include <stdio.h>

#include "base/secret.h"
#include "wire/trace.h"

/* A request, and the copies that reading its answer makes of it. */
#define CALL_BASE_BYTES		((size_t) 256 * 1024 * 1024)
#define CALL_BYTES_PER_BYTE 8
#define CALL_ERROR_MAX		256

/* How long to wait when the machine itself had no descriptor or memory for a call. */
#define LOCAL_TROUBLE_WAIT_US 250000

static bool start_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
static void wait_for_endpoint(LlmqEngine *engine, LlmqJob *job, const LlmqChoice *choice);
static void finish_call(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result);
static void end_delivery(LlmqEngine *engine, LlmqJob *job, LlmqStep step);
static void wait_until(LlmqEngine *engine, LlmqJob *job, int64_t when_us);

/*
 * No endpoint can be called now.  A job waits in place for a quota or a slot as long as
 * its deadline allows, for other things as long as between two attempts; else it goes
 * back, to come again when there is an endpoint, or when somebody has configured one.
 * That counts if it has made calls of its own: one that tried out an endpoint for all is none.
 */
static void
wait_for_endpoint(LlmqEngine *engine, LlmqJob *job, const LlmqChoice *choice)
{
	int64_t now = engine->now.mono_us;
	int64_t last_start =
		job->delivery.started_us + job->policy.deadline_us - job->policy.min_attempt_us;
	bool patient =
		choice->obstacle == LLMQ_OBSTACLE_LIMITER || choice->obstacle == LLMQ_OBSTACLE_BUSY;
	LlmqStep step = {.kind = LLMQ_STEP_REDELIVER};

	if (choice->when_us <= last_start &&
		(patient || choice->when_us - now <= job->policy.backoff_cap_us))
	{
		llmq_engine_await_quota(engine, job, choice);
		wait_until(engine, job, choice->when_us);
		return;
	}
	if (choice->when_us != LLMQ_NEVER)
	{
		step.delay_us = choice->when_us - now;
		step.error_class = choice->obstacle == LLMQ_OBSTACLE_BREAKER   ? LLMQ_ERROR_BREAKER
						   : choice->obstacle == LLMQ_OBSTACLE_LIMITER ? LLMQ_ERROR_LIMITER
																	   : LLMQ_ERROR_RATE_LIMITED;
		step.counted =
			choice->obstacle != LLMQ_OBSTACLE_PAUSE && job->delivery.attempts > job->probes;
	}
	end_delivery(engine, job, step);
}

/* Starts the next attempt of a job that is in no list and no heap, or ends its delivery. */
void
llmq_engine_start_job(LlmqEngine *engine, LlmqJob *job)
{
	int64_t now = engine->now.mono_us;
	LlmqChoice choice;

	llmq_engine_await_no_more(engine, job);
	if (llmq_delivery_is_over(&job->policy, &job->delivery, now))
	{
		end_delivery(engine, job,
					 llmq_delivery_expire(&job->policy, &job->delivery, &engine->random));
		return;
	}
	choice = llmq_engine_choose(engine, job);
	if (choice.endpoint == NULL || choice.when_us > now)
	{
		wait_for_endpoint(engine, job, &choice);
		return;
	}
	llmq_engine_enter(engine, job, choice.endpoint);
	if (start_call(engine, job, choice.endpoint))
		return;
	llmq_engine_leave(engine, job, choice.endpoint, false);
	llmq_job_end_call(job, false);
	if (job->step.kind == LLMQ_STEP_RETRY)
		wait_until(engine, job, job->step.retry_at_us);
	else
		end_delivery(engine, job, job->step);
}

/* Starts the attempts whose time has come, as far as there are slots. */
void
llmq_engine_start_due(LlmqEngine *engine)
{
	LlmqHeapNode *node;

	while ((node = llmq_heap_top(&engine->waiting)) != NULL && node->key <= engine->now.mono_us &&
		   llmq_engine_calls(engine) < engine->options.max_in_flight)
	{
		llmq_heap_remove(&engine->waiting, node);
		llmq_engine_start_job(engine, node->owner);
	}
}

/* Takes in the transfers that have ended. */
void
llmq_engine_collect(LlmqEngine *engine)
{
	LlmqTransferResult result;

	while (llmq_transfer_pool_next(engine->transfers, &result))
	{
		LlmqCaller *caller = result.owner;

		caller->ended(engine, caller, &result);
	}
}

/* The key for the endpoint's idempotency header, or NULL. */
static const char *
idempotency_key(LlmqJob *job, const char *endpoint)
{
	json_t *keys =
		job->idempotency_keys == NULL ? NULL : json_loads(job->idempotency_keys, 0, NULL);
	const char *key =
		llmq_arena_strdup(job->call.arena, json_string_value(json_object_get(keys, endpoint)));

	json_decref(keys);
	return key;
}

/* Ends a delivery for a reason that lies in the job itself, or in our own code. */
static bool
die(LlmqJob *job, LlmqErrorClass error_class, const char *error)
{
	job->step = (LlmqStep){.kind = LLMQ_STEP_DIE, .error_class = error_class};
	job->error = llmq_arena_strdup(job->arena, error);
	return false;
}

/* Fills in call->request and what the reply has to know of it. */
static bool
write_request(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint, LlmqReplyOptions *options)
{
	LlmqPrompt prompt = job->prompt;
	LlmqTarget target = {.api = endpoint->api,
						 .url = endpoint->url,
						 .headers = endpoint->headers,
						 .idempotency_header = endpoint->idempotency_header,
						 .stream = endpoint->stream};
	char reason[CALL_ERROR_MAX];
	const char *error = NULL;

	if (prompt.model == NULL)
		prompt.model = endpoint->model;
	if (endpoint->credential != NULL)
	{
		target.credential = llmq_secret_read(job->call.arena, engine->options.secrets_directory,
											 endpoint->credential, reason, sizeof(reason));
		if (target.credential == NULL)
		{
			llmq_engine_note_secret(engine, endpoint, false, reason);
			job->step = (LlmqStep){.kind = LLMQ_STEP_REDELIVER};
			job->error = llmq_arena_strdup(job->arena, reason);
			return false;
		}
	}
	if (endpoint->idempotency_header != NULL)
		target.idempotency_key = idempotency_key(job, endpoint->name);
	target.traceparent = job->call.traceparent =
		llmq_trace_child(job->call.arena, job->traceparent, llmq_random_bits(&engine->random));
	if (!llmq_provider_request(job->call.arena, &target, &prompt, &job->call.request, &error))
		return die(job, LLMQ_ERROR_BAD_REQUEST, error);
	options->secret = target.credential;
	options->embedding_inputs = job->call.request.embedding_inputs;
	options->embedding_array = job->call.request.embedding_array;
	options->embedding_dimensions = job->call.request.embedding_dimensions;
	return true;
}

/* The machine has no memory for a call just now: no attempt was made, and none is counted. */
static bool
wait_for_memory(const LlmqEngine *engine, LlmqJob *job)
{
	job->step = (LlmqStep){.kind = LLMQ_STEP_RETRY,
						   .retry_at_us = engine->now.mono_us + LOCAL_TROUBLE_WAIT_US};
	return false;
}

/* False: there is no call now, job->step says what comes instead. */
static bool
start_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint)
{
	LlmqCall *call = &job->call;
	LlmqReplyOptions options = {.api = endpoint->api,
								.stream = endpoint->stream,
								.max_bytes = endpoint->max_response_bytes,
								.accept_truncated = job->policy.accept_truncated,
								.require_json = job->policy.require_json};
	LlmqClocks clocks = {
		.connect_us = endpoint->connect_timeout_us,
		.first_byte_us = endpoint->first_byte_timeout_us,
		.idle_us = endpoint->idle_timeout_us,
		.attempt_us = llmq_delivery_attempt_us(&job->policy, &job->delivery, engine->now.mono_us)};
	char error[CALL_ERROR_MAX];

	call->arena =
		llmq_arena_create(CALL_BASE_BYTES + CALL_BYTES_PER_BYTE * endpoint->max_response_bytes);
	if (call->arena == NULL)
		return wait_for_memory(engine, job);
	if (!write_request(engine, job, endpoint, &options))
		return false;
	call->endpoint = llmq_arena_strdup(call->arena, endpoint->name);
	call->started_us = engine->now.mono_us;
	call->started_wall_us = engine->now.wall_us;
	call->reply = llmq_reply_create(call->arena, &options);
	if (call->reply == NULL || call->endpoint == NULL)
		return wait_for_memory(engine, job);
	call->transfer =
		llmq_transfer_start(engine->transfers, &call->request, llmq_reply_sink(call->reply),
							&clocks, &job->caller, engine->now.mono_us, error, sizeof(error));
	if (call->transfer == NULL)
		return die(job, LLMQ_ERROR_INTERNAL, error);
	job->caller.ended = finish_call;
	job->state = LLMQ_JOB_CALLING;
	endpoint->in_flight++;
	llmq_metric_begin_call(&engine->metrics, job->call.endpoint);
	return true;
}

/* The endpoint of the call under way has one call less; returns it, if it is still there. */
static LlmqEndpoint *
leave_endpoint(LlmqEngine *engine, LlmqJob *job)
{
	LlmqEndpoint *endpoint = llmq_config_endpoint(engine->config, job->call.endpoint);

	if (endpoint != NULL && endpoint->in_flight > 0)
		endpoint->in_flight--;
	llmq_metric_end_call(&engine->metrics, job->call.endpoint);
	return endpoint;
}

/* A provider that is out of quota or overloaded is left alone for as long as it wishes. */
static void
heed_wish(LlmqEngine *engine, const LlmqJob *job)
{
	const LlmqVerdict *verdict = &job->verdict;
	LlmqEndpoint *endpoint = llmq_config_endpoint(engine->config, job->call.endpoint);
	bool refused = verdict->http_status == 429 || verdict->http_status == 529;
	int64_t wish = refused ? verdict->retry_after_us : -1;

	/* A limit's reset may say when it is whole again: a refusal's own wish comes before it. */
	if (wish < 0)
		wish = verdict->exhausted_us;
	if (wish > LLMQ_WISH_WAIT_MAX_US)
		wish = LLMQ_WISH_WAIT_MAX_US;
	if (endpoint != NULL && wish > 0 && endpoint->paused_until_us < engine->now.mono_us + wish)
		endpoint->paused_until_us = engine->now.mono_us + wish;
}

/* Notes the attempt that the call was, with its verdict. */
static void
conclude_call(LlmqEngine *engine, LlmqJob *job, LlmqTransferEnd end, const char *detail)
{
	LlmqEndpoint *endpoint = leave_endpoint(engine, job);

	llmq_reply_finish(job->call.reply, end, detail, engine->now.wall_us, &job->verdict);
	if (endpoint != NULL && end == LLMQ_END_INTERRUPTED)
		llmq_engine_leave(engine, job, endpoint, true);
	else if (endpoint != NULL)
		llmq_engine_note_call(engine, job, endpoint);
	llmq_engine_count_call(engine, job);
	job->delivery.attempts++;
	job->delivery.attempts_here++;
	if (!llmq_job_add_attempt(job, &job->verdict, engine->now.mono_us))
		llmq_engine_log(engine, LLMQ_LOG_WARNING,
						"job %s: out of memory, an attempt is not recorded", job->job_id);
}

static void
finish_call(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result)
{
	LlmqJob *job = (LlmqJob *) caller;
	LlmqEndpoint *endpoint;
	LlmqStep step;

	if (result->local_trouble)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "job %s: no call was made: %s", job->job_id,
						result->detail);
		endpoint = leave_endpoint(engine, job);
		if (endpoint != NULL)
			llmq_engine_leave(engine, job, endpoint, false);
		llmq_job_end_call(job, false);
		wait_until(engine, job, engine->now.mono_us + LOCAL_TROUBLE_WAIT_US);
		if (engine->state >= LLMQ_ENGINE_DRAINING)
			llmq_engine_interrupt(engine, job);
		return;
	}
	conclude_call(engine, job, result->end, result->detail[0] == '\0' ? NULL : result->detail);
	heed_wish(engine, job);
	step = llmq_delivery_next(&job->policy, &job->delivery, &job->verdict, engine->now.mono_us,
							  &engine->random);
	llmq_engine_log(
		engine, LLMQ_LOG_DEBUG, "job %s delivery %d attempt %d: %s %s", job->job_id,
		job->delivery_number, job->delivery.attempts, llmq_outcome_name(job->verdict.outcome),
		job->verdict.error_class == LLMQ_ERROR_NONE ? ""
													: llmq_error_name(job->verdict.error_class));
	if (llmq_delivery_may_fall_back(&job->policy, &job->delivery, &job->verdict, &step,
									engine->now.mono_us) &&
		llmq_engine_fall_back(engine, job))
		step = (LlmqStep){.kind = LLMQ_STEP_RETRY, .retry_at_us = engine->now.mono_us};
	llmq_job_end_call(job, step.kind == LLMQ_STEP_SUCCEED || step.kind == LLMQ_STEP_DIE);
	if (step.kind == LLMQ_STEP_RETRY && engine->state >= LLMQ_ENGINE_DRAINING)
		end_delivery(engine, job,
					 (LlmqStep){.kind = LLMQ_STEP_REDELIVER,
								.error_class = job->verdict.error_class,
								.delay_us = step.retry_at_us - engine->now.mono_us});
	else if (step.kind == LLMQ_STEP_RETRY)
		wait_until(engine, job, step.retry_at_us);
	else
		end_delivery(engine, job, step);
}

/* Ends a delivery in which nothing is under way: it is not counted, and another may come at once.
 */
void
llmq_engine_give_back(LlmqEngine *engine, LlmqJob *job)
{
	end_delivery(engine, job,
				 (LlmqStep){.kind = LLMQ_STEP_REDELIVER, .error_class = LLMQ_ERROR_INTERRUPTED});
}

/* Ends what a job is doing, because it was recalled or the engine stops: nothing is counted. */
void
llmq_engine_interrupt(LlmqEngine *engine, LlmqJob *job)
{
	if (job->state == LLMQ_JOB_ENDED)
		return;
	if (job->state == LLMQ_JOB_WAITING)
		llmq_heap_remove(&engine->waiting, &job->timer);
	else
	{
		llmq_transfer_abort(engine->transfers, job->call.transfer);
		conclude_call(engine, job, LLMQ_END_INTERRUPTED, "the worker ended the call");
		llmq_job_end_call(job, false);
	}
	llmq_engine_give_back(engine, job);
}

static void
wait_until(LlmqEngine *engine, LlmqJob *job, int64_t when_us)
{
	job->state = LLMQ_JOB_WAITING;
	job->timer.key = when_us;
	llmq_heap_add(&engine->waiting, &job->timer);
}

/* The sentence that llmq.job_status and llmq.dead_letter show. */
static const char *
describe_end(LlmqJob *job)
{
	const LlmqAttempt *last = job->last_attempt;
	const char *error = last == NULL ? NULL : last->verdict.error_message;
	const char *class = last == NULL ? NULL : llmq_error_name(last->verdict.error_class);

	if (job->step.kind == LLMQ_STEP_SUCCEED || last == NULL)
		return NULL;
	if (job->step.error_class == last->verdict.error_class)
		return error;
	return llmq_arena_printf(job->arena, "after %d attempts; the last one: %s%s%s",
							 job->delivery.attempts, class == NULL ? "" : class,
							 error == NULL ? "" : ": ", error == NULL ? "" : error);
}

static void
end_delivery(LlmqEngine *engine, LlmqJob *job, LlmqStep step)
{
	llmq_engine_await_no_more(engine, job);
	job->state = LLMQ_JOB_ENDED;
	job->step = step;
	if (job->error == NULL)
		job->error = describe_end(job);
	llmq_job_list_add(&engine->ended, job);
}
