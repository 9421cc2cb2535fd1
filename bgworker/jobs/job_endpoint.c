/*
 * job_endpoint.c
 *		Chooses the endpoint of a queue's chain for a job, and decides whether it can be called
 *		now.
 *
 * The endpoints of the chain are tried in order.  One that cannot be called is skipped, unless
 * its quota is available soon enough for the job; then the job waits for that.  Ready jobs are
 * treated alike (job is NULL): they are not claimed before they can be called.
 */
#include "jobs/jobs.h"

#include <limits.h>
#include <string.h>

#include "base/secret.h"

/* How long to wait for a slot of an endpoint that has as many calls in flight as it may have. */
#define BUSY_WAIT_US 50000

/* After how long a missing secret is looked for again. */
#define SECRET_RECHECK_US 1000000

/* How long to wait for the result of another worker's probe. */
#define PROBE_WAIT_US 1000000

/* An obstacle that lasts less than this is no reason to check again. */
#define SHORTEST_WAIT_US 1000

#define MINUTE_US INT64_C(60000000)

#define SECRET_ERROR_MAX 256

static int64_t
later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/*
 * Records whether an endpoint's secret was found; without it no jobs are claimed for the
 * endpoint.
 */
void
llmq_jobs_note_secret(LlmqJobs *jobs, const LlmqEndpoint *endpoint, bool found, const char *reason)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);

	if (!found && (limits->secret_found || limits->secret_checked_us == 0))
		llmq_core_log(jobs->core, LLMQ_LOG_WARNING, "jobs for endpoint \"%s\" wait: %s",
					  endpoint->name, reason);
	limits->secret_checked_us = jobs->core->now.mono_us;
	limits->secret_found = found;
}

/* Returns whether the secret that an endpoint needs exists; checks at most once a second. */
bool
llmq_jobs_has_secret(LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	const LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	char error[SECRET_ERROR_MAX];
	LlmqArena *arena;
	bool found;

	if (endpoint->credential == NULL)
		return true;
	if (limits->secret_checked_us != 0 &&
		jobs->core->now.mono_us - limits->secret_checked_us < SECRET_RECHECK_US)
		return limits->secret_found;
	arena = llmq_arena_create(LLMQ_SECRET_MAX_BYTES * 2);
	found = arena != NULL && llmq_secret_read(arena, jobs->core->options.secrets_directory,
											  endpoint->credential, error, sizeof(error)) != NULL;
	llmq_arena_destroy(arena);
	llmq_jobs_note_secret(jobs, endpoint, found, arena == NULL ? "out of memory" : error);
	return found;
}

/*
 * Returns this worker's share of a limit for all workers of the database.  The shares add up to
 * the limit, so the workers need not ask each other; a worker whose rank is beyond the limit
 * has no share.
 */
static int
share(const LlmqJobs *jobs, int limit)
{
	int workers = jobs->workers > 0 ? jobs->workers : 1;

	return limit / workers + (jobs->rank < limit % workers ? 1 : 0);
}

/* Returns how many more calls an endpoint may get from this worker; INT_MAX: no limit. */
static int
endpoint_room(const LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	if (endpoint->max_in_flight == 0)
		return INT_MAX;
	return share(jobs, endpoint->max_in_flight) - llmq_jobs_limits_of(jobs, endpoint)->in_flight;
}

static bool
has_rates(const LlmqEndpoint *endpoint)
{
	return endpoint->rates.requests_per_minute > 0 || endpoint->rates.tokens_per_minute > 0;
}

/*
 * Returns the tokens that a job takes from an endpoint's quota.  job is NULL for a ready job,
 * whose prompt was not read yet.
 */
int64_t
llmq_jobs_tokens(const LlmqJobs *jobs, const LlmqEndpoint *endpoint, LlmqJob *job)
{
	const LlmqEstimator *estimator = &llmq_jobs_limits_of(jobs, endpoint)->estimator;
	int64_t mean = llmq_estimator_mean(estimator);

	if (endpoint->rates.tokens_per_minute == 0)
		return 0;
	if (job == NULL)
		return mean > 0 ? mean : LLMQ_ESTIMATE_OUTPUT;
	if (job->estimated == 0 || job->estimated_for != endpoint->api)
		job->estimated = llmq_estimate(endpoint->api, &job->prompt);
	job->estimated_for = endpoint->api;
	return llmq_estimator_correct(estimator, job->estimated);
}

/* ---- Obstacles ----------------------------------------------------------------------- */

/*
 * Returns whether a breaker prevents a call; when a probe is due, makes the next draw ask for
 * it.
 */
static bool
breaker_obstructs(LlmqJobs *jobs, const LlmqEndpoint *endpoint, int64_t *until)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;

	if (limits->state == LLMQ_BREAKER_CLOSED || limits->may_probe)
		return false;
	if (limits->until_us > now)
	{
		*until = limits->state == LLMQ_BREAKER_OPEN ? limits->until_us : now + PROBE_WAIT_US;
		return true;
	}
	if (limits->event == LLMQ_BREAKER_NO_EVENT)
		limits->event = LLMQ_BREAKER_MAY_PROBE;
	*until = later(limits->ask_at_us, now) + SHORTEST_WAIT_US;
	return true;
}

/* Returns whether a quota, or the pace that the provider's limits require, prevents a call. */
static bool
limiter_obstructs(LlmqJobs *jobs, const LlmqEndpoint *endpoint, LlmqJob *job, int64_t *until)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;
	int64_t tokens = llmq_jobs_tokens(jobs, endpoint, job);

	*until = now;
	if (limits->pace_until_us > now)
		*until = limits->pace_next_us;
	if (has_rates(endpoint))
	{
		*until = later(*until, llmq_quota_when(&limits->quota, &endpoint->rates, tokens, now));
		if (job == NULL)
			*until = later(*until, limits->rest_until_us);
		/*
		 * The draw under way will bring more in a moment; there is no need to wait for the one
		 * after it.
		 */
		if (limits->drawing && *until > now + BUSY_WAIT_US)
			*until = now + BUSY_WAIT_US;
		/* Claimed jobs come first. */
		if (job == NULL && limits->waiting > 0)
			*until = later(*until, now + BUSY_WAIT_US);
		if (*until > now)
			limits->wanted = true;
		if (*until > now && limits->quota.tokens < tokens && limits->quota.least_tokens < tokens)
			limits->quota.least_tokens = tokens;
	}
	if (*until > now || limits->limited)
		llmq_metric_note_wait(&jobs->core->metrics, endpoint->name, now, *until);
	limits->limited = *until > now;
	return limits->limited;
}

/* Returns what prevents a call of a job to an endpoint, and until when (LLMQ_NEVER: unknown). */
static LlmqObstacle
obstacle_of(LlmqJobs *jobs, const LlmqEndpoint *endpoint, LlmqJob *job, int64_t *until)
{
	int64_t now = jobs->core->now.mono_us;

	*until = LLMQ_NEVER;
	if (!llmq_jobs_has_secret(jobs, endpoint))
		return LLMQ_OBSTACLE_SECRET;
	*until = llmq_jobs_limits_of(jobs, endpoint)->paused_until_us;
	if (*until > now)
		return LLMQ_OBSTACLE_PAUSE;
	if (breaker_obstructs(jobs, endpoint, until))
		return LLMQ_OBSTACLE_BREAKER;
	*until = now + BUSY_WAIT_US;
	if (endpoint_room(jobs, endpoint) <= 0)
		return LLMQ_OBSTACLE_BUSY;
	return limiter_obstructs(jobs, endpoint, job, until) ? LLMQ_OBSTACLE_LIMITER
														 : LLMQ_OBSTACLE_NONE;
}

/* ---- Choice -------------------------------------------------------------------------- */

static bool
is_spent(const LlmqJob *job, const char *endpoint)
{
	for (const LlmqSpent *spent = job->spent; spent != NULL; spent = spent->next)
	{
		if (strcmp(spent->endpoint, endpoint) == 0)
			return true;
	}
	return false;
}

LlmqEndpointChoice
llmq_jobs_choose(LlmqJobs *jobs, LlmqJob *job)
{
	const LlmqQueue *queue = llmq_config_queue(jobs->core->config, job->queue);
	int64_t last_start =
		job->delivery.started_us + job->policy.deadline_us - job->policy.min_attempt_us;
	LlmqEndpointChoice choice = {.when_us = LLMQ_NEVER};

	for (int i = 0; queue != NULL && i < queue->endpoint_count; i++)
	{
		const LlmqEndpoint *endpoint = queue->endpoints[i];
		LlmqObstacle obstacle;
		int64_t until;

		if (is_spent(job, endpoint->name))
			continue;
		obstacle = obstacle_of(jobs, endpoint, job, &until);
		if (obstacle == LLMQ_OBSTACLE_NONE ||
			(obstacle == LLMQ_OBSTACLE_LIMITER && until <= last_start))
			return (LlmqEndpointChoice){endpoint, until, obstacle};
		if (until < choice.when_us)
			choice = (LlmqEndpointChoice){NULL, until, obstacle};
	}
	return choice;
}

/* ---- Allowance ----------------------------------------------------------------------- */

/* Notes until when the last of the ready jobs that wait for a quota will wait. */
static void
note_backlog(LlmqJobs *jobs, const LlmqEndpoint *endpoint, int64_t depth, int64_t until)
{
	const LlmqRates *rates = &endpoint->rates;
	double interval = 0;

	if (rates->requests_per_minute > 0)
		interval = (double) MINUTE_US / (double) rates->requests_per_minute;
	if (rates->tokens_per_minute > 0 &&
		interval * (double) rates->tokens_per_minute <
			(double) MINUTE_US * (double) llmq_jobs_tokens(jobs, endpoint, NULL))
		interval = (double) MINUTE_US * (double) llmq_jobs_tokens(jobs, endpoint, NULL) /
				   (double) rates->tokens_per_minute;
	until = later(until, jobs->core->now.mono_us + (int64_t) (interval * (double) (depth - 1)));
	llmq_jobs_limits_of(jobs, endpoint)->backlog_until_us = until;
}

/* Returns how many calls an endpoint without an obstacle may get now. */
static int64_t
room_of(LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t room = endpoint_room(jobs, endpoint);
	int64_t quota =
		llmq_quota_room(&limits->quota, &endpoint->rates, llmq_jobs_tokens(jobs, endpoint, NULL),
						jobs->core->now.mono_us);

	if (limits->state != LLMQ_BREAKER_CLOSED || limits->pace_until_us > jobs->core->now.mono_us)
		room = 1;
	return quota < room ? quota : room;
}

/* Returns how many of a queue's ready jobs the endpoints of its chain may take now. */
static int64_t
chain_room(LlmqJobs *jobs, const LlmqQueue *queue)
{
	int64_t now = jobs->core->now.mono_us;
	int64_t depth = (int64_t) llmq_ready_depth(jobs->ready, queue->name);
	int64_t afford = queue->policy.deadline_us - queue->policy.min_attempt_us;
	int64_t allowed = 0;

	for (int i = 0; i < queue->endpoint_count && allowed < INT_MAX; i++)
	{
		const LlmqEndpoint *endpoint = queue->endpoints[i];
		LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
		int64_t until;
		LlmqObstacle obstacle = obstacle_of(jobs, endpoint, NULL, &until);
		bool limited = has_rates(endpoint) || limits->pace_until_us > now;

		if (obstacle == LLMQ_OBSTACLE_NONE)
			allowed += room_of(jobs, endpoint);
		else if (obstacle != LLMQ_OBSTACLE_BUSY && until < jobs->chance_us)
			jobs->chance_us = later(until, now + SHORTEST_WAIT_US);
		if (obstacle != LLMQ_OBSTACLE_NONE && obstacle != LLMQ_OBSTACLE_LIMITER)
			continue;
		if (llmq_quota_is_short(&limits->quota, &endpoint->rates, depth,
								llmq_jobs_tokens(jobs, endpoint, NULL), now))
			limits->wanted = true;
		if (obstacle == LLMQ_OBSTACLE_LIMITER)
			note_backlog(jobs, endpoint, depth, until);
		/* Jobs beyond a quota wait for it, if it is available soon enough. */
		if (limited && (obstacle == LLMQ_OBSTACLE_NONE || until - now <= afford))
			break;
	}
	return allowed;
}

/*
 * Returns how many jobs of a queue may be claimed now.  A job that cannot run stays in the
 * table, and jobs->chance_us is when it may be able to.
 */
int
llmq_jobs_allowance(void *context, const char *name)
{
	LlmqJobs *jobs = context;
	const LlmqQueue *queue = llmq_config_queue(jobs->core->config, name);
	int64_t allowed;

	if (queue == NULL || queue->paused)
		return 0;
	allowed = chain_room(jobs, queue);
	if (queue->max_in_flight > 0)
	{
		int64_t room =
			share(jobs, queue->max_in_flight) - llmq_jobs_state_of(jobs, queue)->in_flight;

		allowed = allowed < room ? allowed : room;
	}
	return allowed < INT_MAX ? (int) allowed : INT_MAX;
}
