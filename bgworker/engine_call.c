/*
 * engine_call.c
 *		From a claimed job to a network call and back.
 *
 * A job waits in the heap, has a call under way, or has ended and waits in the
 * list to be settled: llmq_engine_start_job, finish_call and end_delivery are
 * the moves.
 */
#include "engine_private.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "secret.h"
#include "trace.h"

/* A request, and the copies that reading its answer makes of it. */
#define CALL_BASE_BYTES		((size_t) 256 * 1024 * 1024)
#define CALL_BYTES_PER_BYTE 8
#define CALL_ERROR_MAX		256

/* How long to wait when the machine itself had no descriptor or memory for a call. */
#define LOCAL_TROUBLE_WAIT_US 250000

/* How long to wait for a slot of an endpoint that has as many calls as it may have. */
#define BUSY_WAIT_US 50000

/* How long an endpoint whose secret is missing is left alone. */
#define SECRET_RECHECK_US 1000000

static bool start_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint);
static void wait_for_endpoint(LlmqEngine *engine, LlmqJob *job, LlmqQueue *queue);
static void finish_call(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result);
static void end_delivery(LlmqEngine *engine, LlmqJob *job, LlmqStep step);
static void wait_until(LlmqEngine *engine, LlmqJob *job, int64_t when_us);

/* Notes whether an endpoint's secret was there; jobs are not claimed for one that lacks it. */
static void
note_secret(LlmqEngine *engine, LlmqEndpoint *endpoint, bool found, const char *reason)
{
	if (!found && (endpoint->secret_found || endpoint->secret_checked_us == 0))
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "jobs for endpoint \"%s\" wait: %s",
						endpoint->name, reason);
	endpoint->secret_checked_us = engine->now.mono_us;
	endpoint->secret_found = found;
}

/* Whether the secret that an endpoint needs is there; looked up at most once a second. */
bool
llmq_engine_has_secret(LlmqEngine *engine, LlmqEndpoint *endpoint)
{
	char error[CALL_ERROR_MAX];
	LlmqArena *arena;
	bool found;

	if (endpoint->credential == NULL)
		return true;
	if (endpoint->secret_checked_us != 0 &&
		engine->now.mono_us - endpoint->secret_checked_us < SECRET_RECHECK_US)
		return endpoint->secret_found;
	arena = llmq_arena_create(LLMQ_SECRET_MAX_BYTES * 2);
	found = arena != NULL && llmq_secret_read(arena, engine->options.secrets_directory,
											  endpoint->credential, error, sizeof(error)) != NULL;
	llmq_arena_destroy(arena);
	note_secret(engine, endpoint, found, arena == NULL ? "out of memory" : error);
	return found;
}

/*
 * This worker's share of a limit that all workers of the database keep together.
 * The shares add up to the limit, so it holds without asking each other; a worker
 * whose rank is beyond the limit has none.
 */
static int
share(const LlmqEngine *engine, int limit)
{
	int workers = engine->workers > 0 ? engine->workers : 1;

	return limit / workers + (engine->rank < limit % workers ? 1 : 0);
}

/* How many more calls an endpoint may get from this worker; INT_MAX: no limit. */
static int
endpoint_room(const LlmqEngine *engine, const LlmqEndpoint *endpoint)
{
	if (endpoint->max_in_flight == 0)
		return INT_MAX;
	return share(engine, endpoint->max_in_flight) - endpoint->in_flight;
}

static bool
is_usable(LlmqEngine *engine, LlmqEndpoint *endpoint)
{
	return endpoint->paused_until_us <= engine->now.mono_us &&
		   endpoint_room(engine, endpoint) > 0 && llmq_engine_has_secret(engine, endpoint);
}

/* The first endpoint of a queue's chain that can be called now, or NULL. */
LlmqEndpoint *
llmq_engine_choose(LlmqEngine *engine, LlmqQueue *queue)
{
	for (int i = 0; queue != NULL && i < queue->endpoint_count; i++)
	{
		if (is_usable(engine, queue->endpoints[i]))
			return queue->endpoints[i];
	}
	return NULL;
}

/* How many jobs of a queue may be claimed now; a job that cannot run stays where it is. */
int
llmq_engine_allowance(void *context, const char *name)
{
	LlmqEngine *engine = context;
	LlmqQueue *queue = llmq_config_queue(engine->config, name);
	int allowed = 0;

	if (queue == NULL || queue->paused)
		return 0;
	for (int i = 0; i < queue->endpoint_count; i++)
	{
		LlmqEndpoint *endpoint = queue->endpoints[i];

		if (!is_usable(engine, endpoint))
			continue;
		if (endpoint_room(engine, endpoint) == INT_MAX)
		{
			allowed = INT_MAX;
			break;
		}
		allowed += endpoint_room(engine, endpoint);
	}
	if (queue->max_in_flight > 0 &&
		allowed > share(engine, queue->max_in_flight) - queue->in_flight)
		allowed = share(engine, queue->max_in_flight) - queue->in_flight;
	return allowed;
}

/* When an endpoint of a queue that has its secret can be called again; LLMQ_NEVER if it has none.
 */
static int64_t
next_chance(LlmqEngine *engine, LlmqQueue *queue)
{
	int64_t soonest = LLMQ_NEVER;

	for (int i = 0; queue != NULL && i < queue->endpoint_count; i++)
	{
		LlmqEndpoint *endpoint = queue->endpoints[i];
		int64_t when = endpoint->paused_until_us;

		if (!llmq_engine_has_secret(engine, endpoint))
			continue;
		if (when < engine->now.mono_us + BUSY_WAIT_US)
			when = engine->now.mono_us + BUSY_WAIT_US;
		if (when < soonest)
			soonest = when;
	}
	return soonest;
}

/*
 * No endpoint can be called now.  The job waits in place for one that is paused
 * or busy, if its deadline allows; else it goes back uncounted, to come again
 * when there is one, or when somebody has configured one.
 */
static void
wait_for_endpoint(LlmqEngine *engine, LlmqJob *job, LlmqQueue *queue)
{
	int64_t now = engine->now.mono_us;
	int64_t when = next_chance(engine, queue);
	LlmqStep step = {.kind = LLMQ_STEP_REDELIVER};

	if (when != LLMQ_NEVER &&
		when + job->policy.min_attempt_us <= job->delivery.started_us + job->policy.deadline_us)
	{
		wait_until(engine, job, when);
		return;
	}
	if (when != LLMQ_NEVER)
	{
		step.delay_us = when - now;
		step.error_class = LLMQ_ERROR_RATE_LIMITED;
	}
	end_delivery(engine, job, step);
}

/* Starts the next attempt of a job that is in no list and no heap, or ends its delivery. */
void
llmq_engine_start_job(LlmqEngine *engine, LlmqJob *job)
{
	int64_t now = engine->now.mono_us;
	LlmqQueue *queue = llmq_config_queue(engine->config, job->queue);
	LlmqEndpoint *endpoint;

	if (llmq_delivery_is_over(&job->policy, &job->delivery, now))
	{
		end_delivery(engine, job,
					 llmq_delivery_expire(&job->policy, &job->delivery, &engine->random));
		return;
	}
	endpoint = llmq_engine_choose(engine, queue);
	if (endpoint == NULL)
	{
		wait_for_endpoint(engine, job, queue);
		return;
	}
	if (start_call(engine, job, endpoint))
		return;
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
			note_secret(engine, endpoint, false, reason);
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
	return true;
}

/* The endpoint of the call under way has one call less, if it is still there. */
static void
leave_endpoint(LlmqEngine *engine, LlmqJob *job)
{
	LlmqEndpoint *endpoint = llmq_config_endpoint(engine->config, job->call.endpoint);

	if (endpoint != NULL && endpoint->in_flight > 0)
		endpoint->in_flight--;
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
	leave_endpoint(engine, job);
	llmq_reply_finish(job->call.reply, end, detail, engine->now.wall_us, &job->verdict);
	job->delivery.attempts++;
	if (!llmq_job_add_attempt(job, &job->verdict, engine->now.mono_us))
		llmq_engine_log(engine, LLMQ_LOG_WARNING,
						"job %s: out of memory, an attempt is not recorded", job->job_id);
}

static void
finish_call(LlmqEngine *engine, LlmqCaller *caller, const LlmqTransferResult *result)
{
	LlmqJob *job = (LlmqJob *) caller;
	LlmqStep step;

	if (result->local_trouble)
	{
		llmq_engine_log(engine, LLMQ_LOG_WARNING, "job %s: no call was made: %s", job->job_id,
						result->detail);
		leave_endpoint(engine, job);
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
	job->state = LLMQ_JOB_ENDED;
	job->step = step;
	if (job->error == NULL)
		job->error = describe_end(job);
	llmq_job_list_add(&engine->ended, job);
}

/* When the first paused endpoint can be called again; LLMQ_NEVER if none is paused. */
int64_t
llmq_engine_pause_ends(const LlmqEngine *engine)
{
	int64_t soonest = LLMQ_NEVER;
	LlmqEndpoint *endpoint;

	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		if (endpoint->paused_until_us > engine->now.mono_us && endpoint->paused_until_us < soonest)
			soonest = endpoint->paused_until_us;
	}
	return soonest;
}
