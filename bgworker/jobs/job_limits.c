/*
 * job_limits.c
 *		What a call takes from an endpoint's limits, and what we learn from it about them.
 *
 * When a call begins it takes a slot and tokens of its endpoint.  When it ends, its verdict
 * updates the breaker, the estimates and the pace.
 */
#include "jobs/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Slots within this time are claimed together. */
#define REST_US 20000

/* ---- In and out ------------------------------------------------------------------------ */

/*
 * Binds a job to an endpoint.  If it was bound to another, the count of its attempts there
 * begins anew.
 */
static void
bind_to(LlmqJob *job, const LlmqEndpoint *endpoint)
{
	if (job->endpoint != NULL && strcmp(job->endpoint, endpoint->name) == 0)
		return;
	job->endpoint = llmq_arena_strdup(job->arena, endpoint->name);
	job->delivery.attempts_here = 0;
}

/* Makes a claimed job wait for a quota; no others are claimed before it. */
void
llmq_jobs_await_quota(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpointChoice *choice)
{
	if (choice->endpoint == NULL || choice->obstacle != LLMQ_OBSTACLE_LIMITER)
		return;
	bind_to(job, choice->endpoint);
	job->awaits_quota = job->endpoint != NULL;
	llmq_jobs_limits_of(jobs, choice->endpoint)->waiting += job->awaits_quota;
}

void
llmq_jobs_await_no_more(LlmqJobs *jobs, LlmqJob *job)
{
	const LlmqEndpoint *endpoint =
		job->awaits_quota ? llmq_config_endpoint(jobs->core->config, job->endpoint) : NULL;

	if (endpoint != NULL && llmq_jobs_limits_of(jobs, endpoint)->waiting > 0)
		llmq_jobs_limits_of(jobs, endpoint)->waiting--;
	job->awaits_quota = false;
}

/* Begins a call to an endpoint that can be called. */
void
llmq_jobs_enter(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;

	bind_to(job, endpoint);
	job->tokens_taken = llmq_jobs_tokens(jobs, endpoint, job);
	if (!llmq_quota_spend(&limits->quota, &endpoint->rates, job->tokens_taken, now))
		job->tokens_taken = 0;
	limits->rest_until_us = now + REST_US;
	if (limits->pace_until_us > now)
		limits->pace_next_us = now + limits->pace_us;
	job->probing = limits->state != LLMQ_BREAKER_CLOSED && limits->may_probe;
	job->probes += job->probing;
	limits->may_probe = false;
}

/* Ends a call that never took place, or that was interrupted (`called`). */
void
llmq_jobs_leave(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint, bool called)
{
	if (!called)
		llmq_quota_correct(&llmq_jobs_limits_of(jobs, endpoint)->quota, -job->tokens_taken);
	if (job->probing)
	{
		llmq_jobs_limits_of(jobs, endpoint)->may_probe =
			llmq_jobs_limits_of(jobs, endpoint)->state != LLMQ_BREAKER_CLOSED;
		job->probes--;
	}
	job->probing = false;
	job->tokens_taken = 0;
}

/* Goes on with the next endpoint of the chain; false if there is none that is worth waiting for. */
bool
llmq_jobs_fall_back(LlmqJobs *jobs, LlmqJob *job)
{
	LlmqSpent *spent = llmq_arena_alloc(job->arena, sizeof(*spent));

	if (spent == NULL || job->endpoint == NULL)
		return false;
	*spent = (LlmqSpent){job->spent, job->endpoint};
	job->spent = spent;
	if (llmq_jobs_choose(jobs, job).endpoint != NULL)
		return true;
	job->spent = spent->next;
	return false;
}

/* ---- What a call teaches ------------------------------------------------------------------ */

typedef enum Health
{
	HEALTH_UNKNOWN, /* the job was at fault, or the provider was called too often */
	HEALTH_GOOD,
	HEALTH_BAD
} Health;

/* Returns what a verdict says about the endpoint itself. */
static Health
health_of(const LlmqVerdict *verdict)
{
	switch (verdict->error_class)
	{
		case LLMQ_ERROR_NONE:
			return HEALTH_GOOD;
		case LLMQ_ERROR_RATE_LIMITED:
		case LLMQ_ERROR_CONFLICT:
			return HEALTH_UNKNOWN;
		case LLMQ_ERROR_AUTH:
		case LLMQ_ERROR_QUOTA_EXHAUSTED:
			return HEALTH_BAD;
		default:
			return verdict->outcome == LLMQ_OUTCOME_RETRY ? HEALTH_BAD : HEALTH_UNKNOWN;
	}
}

static void
open_breaker(LlmqJobs *jobs, const LlmqEndpoint *endpoint, const LlmqVerdict *verdict)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);

	if (limits->state == LLMQ_BREAKER_CLOSED)
		llmq_core_log(jobs->core, LLMQ_LOG_WARNING,
					  "endpoint \"%s\" keeps failing and is not called for %" PRId64
					  " ms; the last time: %s",
					  endpoint->name, endpoint->breaker_cooldown_us / 1000,
					  llmq_error_name(verdict->error_class));
	limits->state = LLMQ_BREAKER_OPEN;
	limits->until_us = jobs->core->now.mono_us + endpoint->breaker_cooldown_us;
	limits->event = LLMQ_BREAKER_FAILED;
	limits->may_probe = false;
	snprintf(limits->error, sizeof(limits->error), "%s", llmq_error_name(verdict->error_class));
}

void
llmq_jobs_close_breaker(LlmqEndpointLimits *limits)
{
	limits->state = LLMQ_BREAKER_CLOSED;
	limits->may_probe = false;
	llmq_breaker_clear(&limits->breaker);
}

static void
note_health(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	Health health = health_of(&job->verdict);

	if (job->probing)
	{
		job->probing = false;
		if (health == HEALTH_BAD)
		{
			open_breaker(jobs, endpoint, &job->verdict);
			return;
		}
		/* It answers, whatever came of this job. */
		llmq_jobs_close_breaker(limits);
		limits->event = LLMQ_BREAKER_WORKED;
		llmq_core_log(jobs->core, LLMQ_LOG_INFO, "endpoint \"%s\" answers again", endpoint->name);
		return;
	}
	if (health == HEALTH_UNKNOWN || limits->state != LLMQ_BREAKER_CLOSED)
		return;
	if (llmq_breaker_note(&limits->breaker, health == HEALTH_BAD, endpoint->breaker_failures,
						  jobs->core->now.mono_us))
		open_breaker(jobs, endpoint, &job->verdict);
}

/*
 * Corrects the tokens that were taken by the reported usage; without that, they stay as they
 * are.
 */
static void
note_usage(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint)
{
	const LlmqVerdict *verdict = &job->verdict;
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t used =
		verdict->input_tokens + (verdict->output_tokens > 0 ? verdict->output_tokens : 0);

	if (endpoint->rates.tokens_per_minute == 0)
		return;
	if (verdict->input_tokens >= 0)
	{
		llmq_estimator_note(&limits->estimator, job->estimated, used);
		llmq_quota_correct(&limits->quota, used - job->tokens_taken);
	}
	else if (verdict->billing == LLMQ_BILLING_NONE)
		llmq_quota_correct(&limits->quota, -job->tokens_taken);
	job->tokens_taken = 0;
}

/*
 * Sets the pace: what is left of the provider's limits is spread over the time until they are
 * fully available again, so that the provider never has to refuse a call.  Calls under way, and
 * the other workers, share in what is left.
 */
static void
note_pace(LlmqJobs *jobs, const LlmqVerdict *verdict, const LlmqEndpoint *endpoint)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;
	int64_t workers = jobs->workers > 0 ? jobs->workers : 1;
	int64_t left;

	/* A refusal has its own retry hint. */
	if (verdict->left_calls < 0 || verdict->http_status == 429 || verdict->http_status == 529)
		return;
	left = verdict->left_calls / workers - limits->in_flight;
	limits->pace_us = verdict->left_for_us / (left > 0 ? left : 1);
	limits->pace_until_us = now + verdict->left_for_us;
	if (left <= 0)
		limits->pace_next_us = now + limits->pace_us;
	else if (limits->pace_next_us > now + limits->pace_us)
		limits->pace_next_us = now + limits->pace_us;
}

/* Learns from a call that has ended with the job's verdict. */
void
llmq_jobs_note_call(LlmqJobs *jobs, LlmqJob *job, const LlmqEndpoint *endpoint)
{
	note_health(jobs, job, endpoint);
	note_usage(jobs, job, endpoint);
	note_pace(jobs, &job->verdict, endpoint);
}
