/*
 * job_call.c
 *		From a claimed job to a network call and back.
 *
 * A job waits in the heap, has a call under way, or has ended and waits in the list to be
 * settled.  llmq_jobs_start, finish_call and end_delivery move it from one to the next.
 */
#include "jobs/jobs.h"

#include <stdio.h>

#include "base/secret.h"
#include "wire/trace.h"

/* The limit for a request, and for the answer with the copies that reading it makes. */
#define CALL_BASE_BYTES		((size_t) 256 * 1024 * 1024)
#define CALL_BYTES_PER_BYTE 8
#define CALL_ERROR_MAX		256

/* How long to wait when this machine had no descriptor or memory for a call. */
#define LOCAL_TROUBLE_WAIT_US 250000

static bool start_call(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint);
static void wait_for_endpoint(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpointChoice *choice);
static void finish_call(void *client, LlmqCaller *caller, const LlmqTransferResult *result);
static void end_delivery(LlmqJobs *jobs, LlmqJob *job, LlmqStep step);
static void wait_until(LlmqJobs *jobs, LlmqJob *job, int64_t when_us);

/*
 * Handles a job for which no endpoint can be called now.  It waits here for a quota or a slot
 * as long as its deadline allows, and for other things as long as between two attempts.
 * Otherwise it goes back, and is delivered again when an endpoint is available or has been
 * configured.  That counts as a delivery if it has made calls other than probes.
 */
static void
wait_for_endpoint(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpointChoice *choice)
{
	int64_t now = jobs->core->now.mono_us;
	int64_t last_start =
		job->delivery.started_us + job->policy.deadline_us - job->policy.min_attempt_us;
	bool patient =
		choice->obstacle == LLMQ_OBSTACLE_LIMITER || choice->obstacle == LLMQ_OBSTACLE_BUSY;
	LlmqStep step = {.kind = LLMQ_STEP_REDELIVER};

	if (choice->when_us <= last_start &&
		(patient || choice->when_us - now <= job->policy.backoff_cap_us))
	{
		llmq_jobs_await_quota(jobs, job, choice);
		wait_until(jobs, job, choice->when_us);
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
	end_delivery(jobs, job, step);
}

/* Starts the next attempt of a job that is in no list and no heap, or ends its delivery. */
void
llmq_jobs_start(LlmqJobs *jobs, LlmqJob *job)
{
	int64_t now = jobs->core->now.mono_us;
	LlmqEndpointChoice choice;

	llmq_jobs_await_no_more(jobs, job);
	if (llmq_delivery_is_over(&job->policy, &job->delivery, now))
	{
		end_delivery(jobs, job,
					 llmq_delivery_expire(&job->policy, &job->delivery, &jobs->core->random));
		return;
	}
	choice = llmq_jobs_choose(jobs, job);
	if (choice.endpoint == NULL || choice.when_us > now)
	{
		wait_for_endpoint(jobs, job, &choice);
		return;
	}
	llmq_jobs_enter(jobs, job, choice.endpoint);
	if (start_call(jobs, job, choice.endpoint))
		return;
	llmq_jobs_leave(jobs, job, choice.endpoint, false);
	llmq_job_end_call(job, false);
	if (job->step.kind == LLMQ_STEP_RETRY)
		wait_until(jobs, job, job->step.retry_at_us);
	else
		end_delivery(jobs, job, job->step);
}

/* Returns when the next attempt can start; LLMQ_NEVER: none waits, or all slots are in use. */
int64_t
llmq_jobs_start_time(LlmqJobs *jobs)
{
	LlmqHeapNode *next = llmq_heap_top(&jobs->waiting);

	return next != NULL && jobs->calls < jobs->core->options.max_in_flight ? next->key : LLMQ_NEVER;
}

/* Starts the attempts that are due, as long as there are slots. */
void
llmq_jobs_start_due(LlmqJobs *jobs)
{
	while (llmq_jobs_start_time(jobs) <= jobs->core->now.mono_us)
	{
		LlmqHeapNode *node = llmq_heap_top(&jobs->waiting);

		llmq_heap_remove(&jobs->waiting, node);
		llmq_jobs_start(jobs, node->owner);
	}
}

/* Returns the key for the endpoint's idempotency header, or NULL. */
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

/* Ends a delivery because of a fault in the job itself, or in our own code. */
static bool
die(LlmqJob *job, LlmqErrorClass error_class, const char *error)
{
	job->step = (LlmqStep){.kind = LLMQ_STEP_DIE, .error_class = error_class};
	job->error = llmq_arena_strdup(job->arena, error);
	return false;
}

/* Fills in call->request and what the reply has to know about it. */
static bool
write_request(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint, LlmqReplyOptions *options)
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
		target.credential = llmq_secret_read(job->call.arena, jobs->core->options.secrets_directory,
											 endpoint->credential, reason, sizeof(reason));
		if (target.credential == NULL)
		{
			llmq_jobs_note_secret(jobs, endpoint, false, reason);
			job->step = (LlmqStep){.kind = LLMQ_STEP_REDELIVER};
			job->error = llmq_arena_strdup(job->arena, reason);
			return false;
		}
	}
	if (endpoint->idempotency_header != NULL)
		target.idempotency_key = idempotency_key(job, endpoint->name);
	target.traceparent = job->call.traceparent =
		llmq_trace_child(job->call.arena, job->traceparent, llmq_random_bits(&jobs->core->random));
	if (!llmq_provider_request(job->call.arena, &target, &prompt, &job->call.request, &error))
		return die(job, LLMQ_ERROR_BAD_REQUEST, error);
	options->secret = target.credential;
	options->embedding_inputs = job->call.request.embedding_inputs;
	options->embedding_array = job->call.request.embedding_array;
	options->embedding_dimensions = job->call.request.embedding_dimensions;
	return true;
}

/*
 * Makes a job wait because there is no memory for a call at present.  No attempt was made, and
 * none is counted.
 */
static bool
wait_for_memory(const LlmqJobs *jobs, LlmqJob *job)
{
	job->step = (LlmqStep){.kind = LLMQ_STEP_RETRY,
						   .retry_at_us = jobs->core->now.mono_us + LOCAL_TROUBLE_WAIT_US};
	return false;
}

/* Starts a call.  If it returns false there is none, and job->step says what follows instead. */
static bool
start_call(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint)
{
	LlmqCall *call = &job->call;
	LlmqReplyOptions options = {.api = endpoint->api,
								.stream = endpoint->stream,
								.max_bytes = endpoint->max_response_bytes,
								.accept_truncated = job->policy.accept_truncated,
								.require_json = job->policy.require_json};
	LlmqClocks clocks = {.connect_us = endpoint->connect_timeout_us,
						 .first_byte_us = endpoint->first_byte_timeout_us,
						 .idle_us = endpoint->idle_timeout_us,
						 .attempt_us = llmq_delivery_attempt_us(&job->policy, &job->delivery,
																jobs->core->now.mono_us)};
	char error[CALL_ERROR_MAX];

	call->arena =
		llmq_arena_create(CALL_BASE_BYTES + CALL_BYTES_PER_BYTE * endpoint->max_response_bytes);
	if (call->arena == NULL)
		return wait_for_memory(jobs, job);
	if (!write_request(jobs, job, endpoint, &options))
		return false;
	call->endpoint = llmq_arena_strdup(call->arena, endpoint->name);
	call->started_us = jobs->core->now.mono_us;
	call->started_wall_us = jobs->core->now.wall_us;
	call->reply = llmq_reply_create(call->arena, &options);
	if (call->reply == NULL || call->endpoint == NULL)
		return wait_for_memory(jobs, job);
	job->caller = (LlmqCaller){jobs, finish_call};
	call->transfer =
		llmq_transfer_start(jobs->core->transfers, &call->request, llmq_reply_sink(call->reply),
							&clocks, &job->caller, jobs->core->now.mono_us, error, sizeof(error));
	if (call->transfer == NULL)
		return die(job, LLMQ_ERROR_INTERNAL, error);
	job->state = LLMQ_JOB_CALLING;
	jobs->calls++;
	llmq_jobs_limits_of(jobs, endpoint)->in_flight++;
	llmq_metric_begin_call(&jobs->core->metrics, job->call.endpoint);
	return true;
}

/* Takes the call under way off its endpoint's count; returns the endpoint, if it still exists. */
static const LlmqEndpoint *
leave_endpoint(LlmqJobs *jobs, LlmqJob *job)
{
	const LlmqEndpoint *endpoint = llmq_config_endpoint(jobs->core->config, job->call.endpoint);

	jobs->calls--;
	if (endpoint != NULL && llmq_jobs_limits_of(jobs, endpoint)->in_flight > 0)
		llmq_jobs_limits_of(jobs, endpoint)->in_flight--;
	llmq_metric_end_call(&jobs->core->metrics, job->call.endpoint);
	return endpoint;
}

/* Pauses an endpoint whose quota is used up, or that is overloaded, for as long as it asks for. */
static void
heed_hint(LlmqJobs *jobs, const LlmqJob *job)
{
	const LlmqVerdict *verdict = &job->verdict;
	const LlmqEndpoint *endpoint = llmq_config_endpoint(jobs->core->config, job->call.endpoint);
	bool refused = verdict->http_status == 429 || verdict->http_status == 529;
	int64_t hint = refused ? verdict->retry_after_us : -1;
	int64_t until;

	/*
	 * The reset of a limit may say when the full limit is available again; the hint of a
	 * refusal takes precedence.
	 */
	if (hint < 0)
		hint = verdict->exhausted_us;
	if (hint > LLMQ_RETRY_HINT_WAIT_MAX_US)
		hint = LLMQ_RETRY_HINT_WAIT_MAX_US;
	until = jobs->core->now.mono_us + hint;
	if (endpoint != NULL && hint > 0 &&
		llmq_jobs_limits_of(jobs, endpoint)->paused_until_us < until)
		llmq_jobs_limits_of(jobs, endpoint)->paused_until_us = until;
}

/*
 * Returns what a call cost, computed like llmq_internal.cost; 0 if a price or a count that it needs
 * is unknown.
 */
static double
cost_of(const LlmqEndpoint *endpoint, const LlmqVerdict *verdict)
{
	int64_t input = verdict->input_tokens;
	int64_t cached = verdict->cached_tokens > 0 ? verdict->cached_tokens : 0;
	double cached_price;
	double cost;

	if (endpoint == NULL || verdict->billing != LLMQ_BILLING_BILLED || input < 0 ||
		endpoint->input_price < 0)
		return 0;
	if (cached > input)
		cached = input;
	cached_price = endpoint->cached_price < 0 ? endpoint->input_price : endpoint->cached_price;
	cost = (double) (input - cached) * endpoint->input_price + (double) cached * cached_price;
	if (verdict->output_tokens > 0 && endpoint->output_price > 0)
		cost += (double) verdict->output_tokens * endpoint->output_price;
	return cost / 1e6;
}

/* Counts the call that a job has made, with its verdict. */
static void
count_call(LlmqJobs *jobs, const LlmqJob *job)
{
	const LlmqEndpoint *endpoint = llmq_config_endpoint(jobs->core->config, job->call.endpoint);

	llmq_metric_count_call(&jobs->core->metrics, job->call.endpoint, &job->verdict,
						   jobs->core->now.mono_us - job->call.started_us,
						   cost_of(endpoint, &job->verdict));
}

/* Records the call as an attempt, with its verdict. */
static void
conclude_call(LlmqJobs *jobs, LlmqJob *job, LlmqTransferEnd end, const char *detail)
{
	const LlmqEndpoint *endpoint = leave_endpoint(jobs, job);

	llmq_reply_finish(job->call.reply, end, detail, jobs->core->now.wall_us, &job->verdict);
	if (endpoint != NULL && end == LLMQ_END_INTERRUPTED)
		llmq_jobs_leave(jobs, job, endpoint, true);
	else if (endpoint != NULL)
		llmq_jobs_note_call(jobs, job, endpoint);
	count_call(jobs, job);
	job->delivery.attempts++;
	job->delivery.attempts_here++;
	if (!llmq_job_add_attempt(job, &job->verdict, jobs->core->now.mono_us))
		llmq_core_log(jobs->core, LLMQ_LOG_WARNING,
					  "job %s: out of memory, an attempt is not recorded", job->job_id);
}

static void
finish_call(void *client, LlmqCaller *caller, const LlmqTransferResult *result)
{
	LlmqJobs *jobs = client;
	LlmqJob *job = (LlmqJob *) caller;
	const LlmqEndpoint *endpoint;
	LlmqStep step;

	if (result->local_trouble)
	{
		llmq_core_log(jobs->core, LLMQ_LOG_WARNING, "job %s: no call was made: %s", job->job_id,
					  result->detail);
		endpoint = leave_endpoint(jobs, job);
		if (endpoint != NULL)
			llmq_jobs_leave(jobs, job, endpoint, false);
		llmq_job_end_call(job, false);
		wait_until(jobs, job, jobs->core->now.mono_us + LOCAL_TROUBLE_WAIT_US);
		if (jobs->core->state >= LLMQ_ENGINE_DRAINING)
			llmq_jobs_interrupt(jobs, job);
		return;
	}
	conclude_call(jobs, job, result->end, result->detail[0] == '\0' ? NULL : result->detail);
	heed_hint(jobs, job);
	step = llmq_delivery_next(&job->policy, &job->delivery, &job->verdict, jobs->core->now.mono_us,
							  &jobs->core->random);
	llmq_core_log(
		jobs->core, LLMQ_LOG_DEBUG, "job %s delivery %d attempt %d: %s %s", job->job_id,
		job->delivery_number, job->delivery.attempts, llmq_outcome_name(job->verdict.outcome),
		job->verdict.error_class == LLMQ_ERROR_NONE ? ""
													: llmq_error_name(job->verdict.error_class));
	if (llmq_delivery_may_fall_back(&job->policy, &job->delivery, &job->verdict, &step,
									jobs->core->now.mono_us) &&
		llmq_jobs_fall_back(jobs, job))
		step = (LlmqStep){.kind = LLMQ_STEP_RETRY, .retry_at_us = jobs->core->now.mono_us};
	llmq_job_end_call(job, step.kind == LLMQ_STEP_SUCCEED || step.kind == LLMQ_STEP_DIE);
	if (step.kind == LLMQ_STEP_RETRY && jobs->core->state >= LLMQ_ENGINE_DRAINING)
		end_delivery(jobs, job,
					 (LlmqStep){.kind = LLMQ_STEP_REDELIVER,
								.error_class = job->verdict.error_class,
								.delay_us = step.retry_at_us - jobs->core->now.mono_us});
	else if (step.kind == LLMQ_STEP_RETRY)
		wait_until(jobs, job, step.retry_at_us);
	else
		end_delivery(jobs, job, step);
}

/* Ends a delivery that has no call under way; it does not count, and the next may begin at once. */
void
llmq_jobs_give_back(LlmqJobs *jobs, LlmqJob *job)
{
	end_delivery(jobs, job,
				 (LlmqStep){.kind = LLMQ_STEP_REDELIVER, .error_class = LLMQ_ERROR_INTERRUPTED});
}

/*
 * Ends what a job is doing, because its lease was revoked or the engine stops; the delivery
 * does not count.
 */
void
llmq_jobs_interrupt(LlmqJobs *jobs, LlmqJob *job)
{
	if (job->state == LLMQ_JOB_ENDED)
		return;
	if (job->state == LLMQ_JOB_WAITING)
		llmq_heap_remove(&jobs->waiting, &job->timer);
	else
	{
		llmq_transfer_abort(jobs->core->transfers, job->call.transfer);
		conclude_call(jobs, job, LLMQ_END_INTERRUPTED, "the worker ended the call");
		llmq_job_end_call(job, false);
	}
	llmq_jobs_give_back(jobs, job);
}

static void
wait_until(LlmqJobs *jobs, LlmqJob *job, int64_t when_us)
{
	job->state = LLMQ_JOB_WAITING;
	job->timer.key = when_us;
	llmq_heap_add(&jobs->waiting, &job->timer);
}

/* Returns the text that llmq.job_status and llmq.dead_letter show. */
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
end_delivery(LlmqJobs *jobs, LlmqJob *job, LlmqStep step)
{
	llmq_jobs_await_no_more(jobs, job);
	job->state = LLMQ_JOB_ENDED;
	job->step = step;
	if (job->error == NULL)
		job->error = describe_end(job);
	llmq_job_list_add(&jobs->ended, job);
}
