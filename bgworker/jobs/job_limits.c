/*
 * job_limits.c
 *		Quotas and breakers: what is drawn, spent and told.
 *
 * A call enters an endpoint, which takes a slot and tokens, and leaves it with a
 * verdict, from which the breaker, the estimates and the pace learn.  What has to be
 * asked of the database, or told to it, goes out with the next draw: one statement for
 * all endpoints, for each at most once a second but when its breaker turns.
 */
#include "engine/engine_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/settle.h"

/* Room for some thousands of endpoints. */
#define DRAW_MAX_BYTES ((size_t) 1024 * 1024)

/* Slots that come within this are claimed together. */
#define REST_US 20000

#define PROBE_ASK_US 1000000

/* ---- In and out ------------------------------------------------------------------------ */

/* The job is an endpoint's now; attempts on it are counted anew if it was another's. */
static void
bind_to(LlmqJob *job, const LlmqEndpoint *endpoint)
{
	if (job->endpoint != NULL && strcmp(job->endpoint, endpoint->name) == 0)
		return;
	job->endpoint = llmq_arena_strdup(job->arena, endpoint->name);
	job->delivery.attempts_here = 0;
}

/* A job in hand waits, and others are not claimed before it. */
void
llmq_engine_await_quota(LlmqEngine *engine, LlmqJob *job, const LlmqChoice *choice)
{
	if (choice->endpoint == NULL || choice->obstacle != LLMQ_OBSTACLE_LIMITER)
		return;
	bind_to(job, choice->endpoint);
	job->awaits_quota = job->endpoint != NULL;
	choice->endpoint->gate.waiting += job->awaits_quota;
}

void
llmq_engine_await_no_more(LlmqEngine *engine, LlmqJob *job)
{
	LlmqEndpoint *endpoint =
		job->awaits_quota ? llmq_config_endpoint(engine->config, job->endpoint) : NULL;

	if (endpoint != NULL && endpoint->gate.waiting > 0)
		endpoint->gate.waiting--;
	job->awaits_quota = false;
}

/* A call to an endpoint that can be called begins. */
void
llmq_engine_enter(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;

	bind_to(job, endpoint);
	job->tokens_taken = llmq_engine_tokens(endpoint, job);
	if (!llmq_quota_spend(&gate->quota, &endpoint->rates, job->tokens_taken, now))
		job->tokens_taken = 0;
	gate->rest_until_us = now + REST_US;
	if (gate->pace_until_us > now)
		gate->pace_next_us = now + gate->pace_us;
	job->probing = gate->state != LLMQ_BREAKER_CLOSED && gate->may_probe;
	job->probes += job->probing;
	gate->may_probe = false;
}

/* The call that had begun was none, or it was broken off: called says which. */
void
llmq_engine_leave(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint, bool called)
{
	if (!called)
		llmq_quota_correct(&endpoint->gate.quota, -job->tokens_taken);
	if (job->probing)
	{
		endpoint->gate.may_probe = endpoint->gate.state != LLMQ_BREAKER_CLOSED;
		job->probes--;
	}
	job->probing = false;
	job->tokens_taken = 0;
}

/* Goes on with the next endpoint of the chain; false if there is none that can be waited for. */
bool
llmq_engine_fall_back(LlmqEngine *engine, LlmqJob *job)
{
	LlmqSpent *spent = llmq_arena_alloc(job->arena, sizeof(*spent));

	if (spent == NULL || job->endpoint == NULL)
		return false;
	*spent = (LlmqSpent){job->spent, job->endpoint};
	job->spent = spent;
	if (llmq_engine_choose(engine, job).endpoint != NULL)
		return true;
	job->spent = spent->next;
	return false;
}

/* ---- What a call teaches ------------------------------------------------------------------ */

typedef enum Health
{
	HEALTH_UNKNOWN, /* what failed was the job, or the provider was asked too often */
	HEALTH_GOOD,
	HEALTH_BAD
} Health;

/* What a verdict says of the endpoint itself. */
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
open_breaker(LlmqEngine *engine, LlmqEndpoint *endpoint, const LlmqVerdict *verdict)
{
	LlmqGate *gate = &endpoint->gate;

	if (gate->state == LLMQ_BREAKER_CLOSED)
		llmq_engine_log(engine, LLMQ_LOG_WARNING,
						"endpoint \"%s\" keeps failing and is left alone for %" PRId64
						" ms; the last time: %s",
						endpoint->name, endpoint->breaker_cooldown_us / 1000,
						llmq_error_name(verdict->error_class));
	gate->state = LLMQ_BREAKER_OPEN;
	gate->until_us = engine->now.mono_us + endpoint->breaker_cooldown_us;
	gate->word = LLMQ_BREAKER_FAILED;
	gate->may_probe = false;
	snprintf(gate->error, sizeof(gate->error), "%s", llmq_error_name(verdict->error_class));
}

static void
close_breaker(LlmqGate *gate)
{
	gate->state = LLMQ_BREAKER_CLOSED;
	gate->may_probe = false;
	llmq_breaker_clear(&gate->breaker);
}

static void
note_health(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint)
{
	LlmqGate *gate = &endpoint->gate;
	Health health = health_of(&job->verdict);

	if (job->probing)
	{
		job->probing = false;
		if (health == HEALTH_BAD)
		{
			open_breaker(engine, endpoint, &job->verdict);
			return;
		}
		/* It answers, whatever it makes of this job. */
		close_breaker(gate);
		gate->word = LLMQ_BREAKER_WORKED;
		llmq_engine_log(engine, LLMQ_LOG_INFO, "endpoint \"%s\" answers again", endpoint->name);
		return;
	}
	if (health == HEALTH_UNKNOWN || gate->state != LLMQ_BREAKER_CLOSED)
		return;
	if (llmq_breaker_note(&gate->breaker, health == HEALTH_BAD, endpoint->breaker_failures,
						  engine->now.mono_us))
		open_breaker(engine, endpoint, &job->verdict);
}

/* What was taken is settled against usage; where that is unknown, what was taken stands. */
static void
note_usage(LlmqJob *job, LlmqEndpoint *endpoint)
{
	const LlmqVerdict *verdict = &job->verdict;
	LlmqGate *gate = &endpoint->gate;
	int64_t used =
		verdict->input_tokens + (verdict->output_tokens > 0 ? verdict->output_tokens : 0);

	if (endpoint->rates.tokens_per_minute == 0)
		return;
	if (verdict->input_tokens >= 0)
	{
		llmq_estimator_note(&gate->estimator, job->estimated, used);
		llmq_quota_correct(&gate->quota, used - job->tokens_taken);
	}
	else if (verdict->billing == LLMQ_BILLING_NONE)
		llmq_quota_correct(&gate->quota, -job->tokens_taken);
	job->tokens_taken = 0;
}

/*
 * What is left of the provider's limits, spread over the time until they are whole
 * again, is the pace: so its first refusal is never reached.  The calls under way, and
 * the other workers, have their part in what is left.
 */
static void
note_pace(LlmqEngine *engine, const LlmqVerdict *verdict, LlmqEndpoint *endpoint)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;
	int64_t workers = engine->workers > 0 ? engine->workers : 1;
	int64_t left;

	/* A refusal has a wish of its own. */
	if (verdict->left_calls < 0 || verdict->http_status == 429 || verdict->http_status == 529)
		return;
	left = verdict->left_calls / workers - endpoint->in_flight;
	gate->pace_us = verdict->left_for_us / (left > 0 ? left : 1);
	gate->pace_until_us = now + verdict->left_for_us;
	if (left <= 0)
		gate->pace_next_us = now + gate->pace_us;
	else if (gate->pace_next_us > now + gate->pace_us)
		gate->pace_next_us = now + gate->pace_us;
}

/* A call has ended with the job's verdict, and has left the endpoint. */
void
llmq_engine_note_call(LlmqEngine *engine, LlmqJob *job, LlmqEndpoint *endpoint)
{
	note_health(engine, job, endpoint);
	note_usage(job, endpoint);
	note_pace(engine, &job->verdict, endpoint);
}

/* ---- Draws ------------------------------------------------------------------------------------
 */

static bool
draws(const LlmqEndpoint *endpoint)
{
	return endpoint->gate.wanted &&
		   (endpoint->rates.requests_per_minute > 0 || endpoint->rates.tokens_per_minute > 0);
}

/* When an endpoint has something to ask or to tell. */
static int64_t
draw_due(const LlmqEndpoint *endpoint)
{
	const LlmqGate *gate = &endpoint->gate;
	int64_t due = draws(endpoint) ? gate->quota.draw_at_us : LLMQ_NEVER;

	if (gate->word == LLMQ_BREAKER_FAILED || gate->word == LLMQ_BREAKER_WORKED)
		return 0;
	if (gate->word == LLMQ_BREAKER_MAY_PROBE && gate->ask_at_us < due)
		return gate->ask_at_us;
	return due;
}

int64_t
llmq_engine_draw_due(const LlmqEngine *engine)
{
	int64_t due = LLMQ_NEVER;
	LlmqEndpoint *endpoint;

	for (int i = 0; engine->state == LLMQ_ENGINE_RUNNING &&
					(endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL;
		 i++)
	{
		if (draw_due(endpoint) < due)
			due = draw_due(endpoint);
	}
	return due;
}

static void
append_ask(LlmqEngine *engine, LlmqEndpoint *endpoint, LlmqBuffer *asks)
{
	LlmqGate *gate = &endpoint->gate;
	int64_t now = engine->now.mono_us;

	gate->drawing = draws(endpoint) && gate->quota.draw_at_us <= now;
	gate->draw = (LlmqDraw){0};
	if (gate->drawing)
		llmq_quota_ask(&gate->quota, &gate->draw, now);
	gate->wanted = gate->wanted && !gate->drawing;
	gate->telling = gate->word == LLMQ_BREAKER_MAY_PROBE && gate->ask_at_us > now
						? LLMQ_BREAKER_SILENT
						: gate->word;
	if (gate->telling == LLMQ_BREAKER_MAY_PROBE)
		gate->ask_at_us = now + PROBE_ASK_US;
	llmq_buffer_append_string(asks, "{\"endpoint\":");
	llmq_settle_append_string(asks, endpoint->name);
	llmq_buffer_printf(asks,
					   ",\"draw\":%s,\"least\":%" PRId64 ",\"charge\":%" PRId64 ",\"word\":%d",
					   gate->drawing ? "true" : "false", gate->draw.least_tokens, gate->draw.charge,
					   (int) gate->telling);
	if (gate->telling == LLMQ_BREAKER_FAILED)
	{
		llmq_buffer_append_string(asks, ",\"error\":");
		llmq_settle_append_string(asks, gate->error);
	}
	llmq_buffer_append_char(asks, '}');
}

void
llmq_engine_begin_draw(LlmqEngine *engine)
{
	LlmqBuffer asks;
	LlmqEndpoint *endpoint;

	llmq_buffer_init(&asks, DRAW_MAX_BYTES);
	llmq_buffer_append_char(&asks, '[');
	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		if (draw_due(endpoint) > engine->now.mono_us)
			continue;
		if (asks.len > 1)
			llmq_buffer_append_char(&asks, ',');
		append_ask(engine, endpoint, &asks);
	}
	llmq_buffer_append_char(&asks, ']');
	llmq_engine_begin(
		engine, LLMQ_OP_DRAW,
		(const char *[]){engine->worker_id, asks.failed ? "" : llmq_buffer_string(&asks)});
	llmq_buffer_free(&asks);
}

/* Takes over what the database says of a breaker, but for what it has yet to be told. */
static void
adopt(LlmqEngine *engine, LlmqGate *gate, LlmqBreakerState state, int64_t in_us, int64_t turns)
{
	if (gate->word == LLMQ_BREAKER_FAILED || gate->word == LLMQ_BREAKER_WORKED ||
		turns < gate->turns || (turns == gate->turns && state == gate->state))
		return;
	if (state == LLMQ_BREAKER_CLOSED && gate->state != LLMQ_BREAKER_CLOSED)
		close_breaker(gate);
	if (state == LLMQ_BREAKER_OPEN)
		gate->may_probe = false;
	gate->state = state;
	gate->until_us = engine->now.mono_us + in_us;
	gate->turns = turns;
}

static int64_t
read_number(const LlmqRows *rows, int row, int column)
{
	const char *cell = llmq_rows_cell(rows, row, column);

	return cell == NULL ? 0 : strtoll(cell, NULL, 10);
}

static void
take_draw(LlmqEngine *engine, LlmqEndpoint *endpoint, const LlmqRows *rows, int row)
{
	LlmqGate *gate = &endpoint->gate;
	LlmqGrant grant = {.slots = read_number(rows, row, 1),
					   .from_us = read_number(rows, row, 2),
					   .interval_ns = read_number(rows, row, 3),
					   .next_us = read_number(rows, row, 4),
					   .tokens = read_number(rows, row, 5),
					   .tokens_in_us = read_number(rows, row, 6),
					   .again_us = read_number(rows, row, 7)};

	if (gate->drawing)
		llmq_quota_take_in(&gate->quota, &grant, engine->now.mono_us);
	gate->drawing = false;
	if (gate->word == gate->telling)
		gate->word = LLMQ_BREAKER_SILENT;
	gate->telling = LLMQ_BREAKER_SILENT;
	adopt(engine, gate, (LlmqBreakerState) read_number(rows, row, 9), read_number(rows, row, 10),
		  read_number(rows, row, 11));
	if (strcmp(llmq_rows_cell(rows, row, 8), "t") == 0)
		gate->may_probe = true;
}

void
llmq_engine_complete_draw(LlmqEngine *engine, const LlmqRows *rows)
{
	for (int i = 0; i < rows->row_count; i++)
	{
		LlmqEndpoint *endpoint = llmq_config_endpoint(engine->config, llmq_rows_cell(rows, i, 0));

		if (endpoint != NULL)
			take_draw(engine, endpoint, rows, i);
	}
}

void
llmq_engine_fail_draw(LlmqEngine *engine)
{
	LlmqEndpoint *endpoint;

	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		if (endpoint->gate.drawing)
			llmq_quota_put_back(&endpoint->gate.quota, &endpoint->gate.draw);
		endpoint->gate.drawing = false;
	}
}

/* What a full poll says of breakers: those that are not closed, by endpoint. */
void
llmq_engine_take_breakers(LlmqEngine *engine, const json_t *breakers)
{
	LlmqEndpoint *endpoint;

	if (!json_is_object(breakers))
		return;
	for (int i = 0; (endpoint = llmq_config_endpoint_at(engine->config, i)) != NULL; i++)
	{
		const json_t *mark = json_object_get(breakers, endpoint->name);
		LlmqGate *gate = &endpoint->gate;

		if (mark != NULL)
			adopt(engine, gate, (LlmqBreakerState) json_integer_value(json_array_get(mark, 0)),
				  json_integer_value(json_array_get(mark, 1)),
				  json_integer_value(json_array_get(mark, 2)));
		else
			adopt(engine, gate, LLMQ_BREAKER_CLOSED, 0, gate->turns);
	}
}
