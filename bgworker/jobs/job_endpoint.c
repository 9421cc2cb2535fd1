/*
 * job_endpoint.c
 *		Which endpoint of a queue's chain a job is for, and whether it can be called now.
 *
 * The chain is gone through in order.  An endpoint that cannot be called is passed
 * over, but for one whose quota comes back soon enough for the job: that is waited
 * for.  Ready jobs are asked about as one (job NULL): they are not claimed before
 * they can be called.
 */
#include "engine/engine_private.h"

#include <limits.h>
#include <string.h>

#include "base/secret.h"

/* How long to wait for a slot of an endpoint that has as many calls as it may have. */
#define BUSY_WAIT_US 50000

/* How long an endpoint whose secret is missing is left alone. */
#define SECRET_RECHECK_US 1000000

/* Another worker's probe is under way: how it went is known soon. */
#define PROBE_WAIT_US 1000000

/* What stands still for less is no reason for another look. */
#define SHORTEST_WAIT_US 1000

#define MINUTE_US INT64_C(60000000)

#define SECRET_ERROR_MAX 256

static int64_t
later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Notes whether an endpoint's secret was there; jobs are not claimed for one that lacks it. */
void
llmq_engine_note_secret(LlmqEngine *engine, LlmqEndpoint *endpoint, bool found, const char *reason)
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
	char error[SECRET_ERROR_MAX];
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
	llmq_engine_note_secret(engine, endpoint, found, arena == NULL ? "out of memory" : error);
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
has_rates(const LlmqEndpoint *endpoint)
{
	return endpoint->rates.requests_per_minute > 0 || endpoint->rates.tokens_per_minute > 0;
}

/* Tokens that a job takes on an endpoint, or a ready one whose prompt nobody has read yet. */
int64_t
llmq_engine_tokens(const LlmqEndpoint *endpoint, LlmqJob *job)
{
	int64_t mean = llmq_estimator_mean(&endpoint->gate.estimator);

	if (endpoint->rates.tokens_per_minute == 0)
		return 0;
	if (job == NULL)
		return mean > 0 ? mean : LLMQ_ESTIMATE_OUTPUT;
	if (job->estimated == 0 || job->estimated_for != endpoint->api)
		job->estimated = llmq_estimate(endpoint->api, &job->prompt);
	job->estimated_for = endpoint->api;
	return llmq_estimator_correct(&endpoint->gate.estimator, job->estimated);
}

/* ---- Obstacles ----------------------------------------------------------------------- */

/* Whether a breaker is in the way; if it is time for a probe, that is to be asked for. */
static bool
breaker_obstructs(LlmqEngine *engine, LlmqEndpoint *endpoint, int64_t *until)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;

	if (gate->state == LLMQ_BREAKER_CLOSED || gate->may_probe)
		return false;
	if (gate->until_us > now)
	{
		*until = gate->state == LLMQ_BREAKER_OPEN ? gate->until_us : now + PROBE_WAIT_US;
		return true;
	}
	if (gate->word == LLMQ_BREAKER_SILENT)
		gate->word = LLMQ_BREAKER_MAY_PROBE;
	*until = later(gate->ask_at_us, now) + SHORTEST_WAIT_US;
	return true;
}

/* Whether a quota, or the pace that the provider made necessary, is in the way. */
static bool
limiter_obstructs(LlmqEngine *engine, LlmqEndpoint *endpoint, LlmqJob *job, int64_t *until)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;
	int64_t tokens = llmq_engine_tokens(endpoint, job);

	*until = now;
	if (gate->pace_until_us > now)
		*until = gate->pace_next_us;
	if (has_rates(endpoint))
	{
		*until = later(*until, llmq_quota_when(&gate->quota, &endpoint->rates, tokens, now));
		if (job == NULL)
			*until = later(*until, gate->rest_until_us);
		/* What is being drawn will be here in a moment, and not with the draw after that. */
		if (gate->drawing && *until > now + BUSY_WAIT_US)
			*until = now + BUSY_WAIT_US;
		/* Those in hand come first. */
		if (job == NULL && gate->waiting > 0)
			*until = later(*until, now + BUSY_WAIT_US);
		if (*until > now)
			gate->wanted = true;
		if (*until > now && gate->quota.tokens < tokens && gate->quota.least_tokens < tokens)
			gate->quota.least_tokens = tokens;
	}
	if (*until > now || gate->limited)
		llmq_metric_note_wait(&engine->metrics, endpoint->name, now, *until);
	gate->limited = *until > now;
	return gate->limited;
}

/* What keeps a job from an endpoint, and until when (LLMQ_NEVER: nobody knows). */
static LlmqObstacle
obstacle_of(LlmqEngine *engine, LlmqEndpoint *endpoint, LlmqJob *job, int64_t *until)
{
	int64_t now = engine->now.mono_us;

	*until = LLMQ_NEVER;
	if (!llmq_engine_has_secret(engine, endpoint))
		return LLMQ_OBSTACLE_SECRET;
	*until = endpoint->paused_until_us;
	if (*until > now)
		return LLMQ_OBSTACLE_PAUSE;
	if (breaker_obstructs(engine, endpoint, until))
		return LLMQ_OBSTACLE_BREAKER;
	*until = now + BUSY_WAIT_US;
	if (endpoint_room(engine, endpoint) <= 0)
		return LLMQ_OBSTACLE_BUSY;
	return limiter_obstructs(engine, endpoint, job, until) ? LLMQ_OBSTACLE_LIMITER
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

LlmqChoice
llmq_engine_choose(LlmqEngine *engine, LlmqJob *job)
{
	LlmqQueue *queue = llmq_config_queue(engine->config, job->queue);
	int64_t last_start =
		job->delivery.started_us + job->policy.deadline_us - job->policy.min_attempt_us;
	LlmqChoice choice = {.when_us = LLMQ_NEVER};

	for (int i = 0; queue != NULL && i < queue->endpoint_count; i++)
	{
		LlmqEndpoint *endpoint = queue->endpoints[i];
		LlmqObstacle obstacle;
		int64_t until;

		if (is_spent(job, endpoint->name))
			continue;
		obstacle = obstacle_of(engine, endpoint, job, &until);
		if (obstacle == LLMQ_OBSTACLE_NONE ||
			(obstacle == LLMQ_OBSTACLE_LIMITER && until <= last_start))
			return (LlmqChoice){endpoint, until, obstacle};
		if (until < choice.when_us)
			choice = (LlmqChoice){NULL, until, obstacle};
	}
	return choice;
}

/* ---- Allowance ----------------------------------------------------------------------- */

/* Ready jobs wait for a quota: notes until when the last of them will. */
static void
note_backlog(LlmqEngine *engine, LlmqEndpoint *endpoint, int64_t depth, int64_t until)
{
	const LlmqRates *rates = &endpoint->rates;
	double interval = 0;

	if (rates->requests_per_minute > 0)
		interval = (double) MINUTE_US / (double) rates->requests_per_minute;
	if (rates->tokens_per_minute > 0 &&
		interval * (double) rates->tokens_per_minute <
			(double) MINUTE_US * (double) llmq_engine_tokens(endpoint, NULL))
		interval = (double) MINUTE_US * (double) llmq_engine_tokens(endpoint, NULL) /
				   (double) rates->tokens_per_minute;
	until = later(until, engine->now.mono_us + (int64_t) (interval * (double) (depth - 1)));
	endpoint->gate.backlog_until_us = until;
}

/* How many calls an endpoint that nothing obstructs may get now. */
static int64_t
room_of(LlmqEngine *engine, LlmqEndpoint *endpoint)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t room = endpoint_room(engine, endpoint);
	int64_t quota = llmq_quota_room(&gate->quota, &endpoint->rates,
									llmq_engine_tokens(endpoint, NULL), engine->now.mono_us);

	if (gate->state != LLMQ_BREAKER_CLOSED || gate->pace_until_us > engine->now.mono_us)
		room = 1;
	return quota < room ? quota : room;
}

/* How many of a queue's ready jobs the endpoints of its chain may take now. */
static int64_t
chain_room(LlmqEngine *engine, LlmqQueue *queue)
{
	int64_t now = engine->now.mono_us;
	int64_t depth = (int64_t) llmq_ready_depth(engine->ready, queue->name);
	int64_t afford = queue->policy.deadline_us - queue->policy.min_attempt_us;
	int64_t allowed = 0;

	for (int i = 0; i < queue->endpoint_count && allowed < INT_MAX; i++)
	{
		LlmqEndpoint *endpoint = queue->endpoints[i];
		int64_t until;
		LlmqObstacle obstacle = obstacle_of(engine, endpoint, NULL, &until);
		bool limited = has_rates(endpoint) || endpoint->gate.pace_until_us > now;

		if (obstacle == LLMQ_OBSTACLE_NONE)
			allowed += room_of(engine, endpoint);
		else if (obstacle != LLMQ_OBSTACLE_BUSY && until < engine->chance_us)
			engine->chance_us = later(until, now + SHORTEST_WAIT_US);
		if (obstacle != LLMQ_OBSTACLE_NONE && obstacle != LLMQ_OBSTACLE_LIMITER)
			continue;
		if (llmq_quota_is_short(&endpoint->gate.quota, &endpoint->rates, depth,
								llmq_engine_tokens(endpoint, NULL), now))
			endpoint->gate.wanted = true;
		if (obstacle == LLMQ_OBSTACLE_LIMITER)
			note_backlog(engine, endpoint, depth, until);
		/* What a quota leaves over waits for it, if that is worth its while. */
		if (limited && (obstacle == LLMQ_OBSTACLE_NONE || until - now <= afford))
			break;
	}
	return allowed;
}

/*
 * How many jobs of a queue may be claimed now; a job that cannot run stays where it is,
 * and engine->chance_us says when it may be able to.
 */
int
llmq_engine_allowance(void *context, const char *name)
{
	LlmqEngine *engine = context;
	LlmqQueue *queue = llmq_config_queue(engine->config, name);
	int64_t allowed;

	if (queue == NULL || queue->paused)
		return 0;
	allowed = chain_room(engine, queue);
	if (queue->max_in_flight > 0 &&
		allowed > share(engine, queue->max_in_flight) - queue->in_flight)
		allowed = share(engine, queue->max_in_flight) - queue->in_flight;
	return allowed < INT_MAX ? (int) allowed : INT_MAX;
}
