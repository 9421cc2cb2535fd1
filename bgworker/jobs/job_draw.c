/*
 * job_draw.c
 *		Draws quotas, and reports on breakers.
 *
 * Requests and reports for the database go out with the next draw.  It is one statement for all
 * endpoints.  Each endpoint takes part at most once a second, unless its breaker changes.
 */
#include "jobs/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "core/store_columns.h"
#include "json/json_write.h"

/* Room for a few thousand endpoints. */
#define DRAW_MAX_BYTES ((size_t) 1024 * 1024)

#define PROBE_ASK_US 1000000

static bool
draws(const LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	return llmq_jobs_limits_of(jobs, endpoint)->wanted &&
		   (endpoint->rates.requests_per_minute > 0 || endpoint->rates.tokens_per_minute > 0);
}

/* Returns when an endpoint has something to request or to report. */
static int64_t
draw_due(const LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	const LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t due = draws(jobs, endpoint) ? limits->quota.draw_at_us : LLMQ_NEVER;

	if (limits->event == LLMQ_BREAKER_FAILED || limits->event == LLMQ_BREAKER_WORKED)
		return 0;
	if (limits->event == LLMQ_BREAKER_MAY_PROBE && limits->ask_at_us < due)
		return limits->ask_at_us;
	return due;
}

int64_t
llmq_jobs_draw_due(const LlmqJobs *jobs)
{
	int64_t due = LLMQ_NEVER;
	const LlmqEndpoint *endpoint;

	for (int i = 0; jobs->core->state == LLMQ_ENGINE_RUNNING &&
					(endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL;
		 i++)
	{
		if (draw_due(jobs, endpoint) < due)
			due = draw_due(jobs, endpoint);
	}
	return due;
}

static void
append_ask(LlmqJobs *jobs, const LlmqEndpoint *endpoint, LlmqBuffer *asks)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;

	limits->drawing = draws(jobs, endpoint) && limits->quota.draw_at_us <= now;
	limits->draw = (LlmqDraw){0};
	if (limits->drawing)
		llmq_quota_ask(&limits->quota, &limits->draw, now);
	limits->wanted = limits->wanted && !limits->drawing;
	limits->reporting = limits->event == LLMQ_BREAKER_MAY_PROBE && limits->ask_at_us > now
							? LLMQ_BREAKER_NO_EVENT
							: limits->event;
	if (limits->reporting == LLMQ_BREAKER_MAY_PROBE)
		limits->ask_at_us = now + PROBE_ASK_US;
	llmq_write_open(asks, '{');
	llmq_write_member_text(asks, "endpoint", endpoint->name);
	llmq_write_member_bool(asks, "draw", limits->drawing);
	llmq_write_member_int(asks, "least", limits->draw.least_tokens);
	llmq_write_member_int(asks, "charge", limits->draw.charge);
	llmq_write_member_int(asks, "event", (int64_t) limits->reporting);
	if (limits->reporting == LLMQ_BREAKER_FAILED)
		llmq_write_member_text(asks, "error", limits->error);
	llmq_write_close(asks, '}');
}

void
llmq_jobs_begin_draw(LlmqJobs *jobs)
{
	LlmqBuffer asks;
	const LlmqEndpoint *endpoint;

	llmq_buffer_init(&asks, DRAW_MAX_BYTES);
	llmq_write_open(&asks, '[');
	for (int i = 0; (endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL; i++)
	{
		if (draw_due(jobs, endpoint) <= jobs->core->now.mono_us)
			append_ask(jobs, endpoint, &asks);
	}
	llmq_write_close(&asks, ']');
	llmq_core_begin(
		jobs->core, LLMQ_OP_DRAW,
		(const char *[]){jobs->core->worker_id, asks.failed ? "" : llmq_buffer_string(&asks)});
	llmq_buffer_free(&asks);
}

/* Adopts the database's state of a breaker, unless there is a report that it has yet to get. */
static void
adopt(LlmqJobs *jobs, LlmqEndpointLimits *limits, LlmqBreakerState state, int64_t in_us,
	  int64_t turns)
{
	if (limits->event == LLMQ_BREAKER_FAILED || limits->event == LLMQ_BREAKER_WORKED ||
		turns < limits->turns || (turns == limits->turns && state == limits->state))
		return;
	if (state == LLMQ_BREAKER_CLOSED && limits->state != LLMQ_BREAKER_CLOSED)
		llmq_jobs_close_breaker(limits);
	if (state == LLMQ_BREAKER_OPEN)
		limits->may_probe = false;
	limits->state = state;
	limits->until_us = jobs->core->now.mono_us + in_us;
	limits->turns = turns;
}

static int64_t
read_number(const LlmqRows *rows, int row, int column)
{
	const char *cell = llmq_rows_cell(rows, row, column);

	return cell == NULL ? 0 : strtoll(cell, NULL, 10);
}

static void
take_draw(LlmqJobs *jobs, const LlmqEndpoint *endpoint, const LlmqRows *rows, int row)
{
	LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	LlmqGrant grant = {.slots = read_number(rows, row, LLMQ_DRAW_SLOTS),
					   .from_us = read_number(rows, row, LLMQ_DRAW_FROM_US),
					   .interval_ns = read_number(rows, row, LLMQ_DRAW_INTERVAL_NS),
					   .next_us = read_number(rows, row, LLMQ_DRAW_NEXT_US),
					   .tokens = read_number(rows, row, LLMQ_DRAW_TOKENS),
					   .tokens_in_us = read_number(rows, row, LLMQ_DRAW_TOKENS_IN_US),
					   .again_us = read_number(rows, row, LLMQ_DRAW_AGAIN_US)};

	if (limits->drawing)
		llmq_quota_take_in(&limits->quota, &grant, jobs->core->now.mono_us);
	limits->drawing = false;
	if (limits->event == limits->reporting)
		limits->event = LLMQ_BREAKER_NO_EVENT;
	limits->reporting = LLMQ_BREAKER_NO_EVENT;
	adopt(jobs, limits, (LlmqBreakerState) read_number(rows, row, LLMQ_DRAW_BREAKER),
		  read_number(rows, row, LLMQ_DRAW_BREAKER_IN),
		  read_number(rows, row, LLMQ_DRAW_BREAKER_TURNS));
	if (strcmp(llmq_rows_cell(rows, row, LLMQ_DRAW_MAY_PROBE), "t") == 0)
		limits->may_probe = true;
}

void
llmq_jobs_complete_draw(LlmqJobs *jobs, const LlmqRows *rows)
{
	for (int i = 0; i < rows->row_count; i++)
	{
		const LlmqEndpoint *endpoint =
			llmq_config_endpoint(jobs->core->config, llmq_rows_cell(rows, i, LLMQ_DRAW_ENDPOINT));

		if (endpoint != NULL)
			take_draw(jobs, endpoint, rows, i);
	}
}

void
llmq_jobs_fail_draw(LlmqJobs *jobs)
{
	const LlmqEndpoint *endpoint;

	for (int i = 0; (endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL; i++)
	{
		LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);

		if (limits->drawing)
			llmq_quota_put_back(&limits->quota, &limits->draw);
		limits->drawing = false;
	}
}

void
llmq_jobs_take_breakers(LlmqJobs *jobs, const json_t *breakers)
{
	const LlmqEndpoint *endpoint;

	if (!json_is_object(breakers))
		return;
	for (int i = 0; (endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL; i++)
	{
		const json_t *mark = json_object_get(breakers, endpoint->name);
		LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);

		if (mark != NULL)
			adopt(jobs, limits, (LlmqBreakerState) json_integer_value(json_array_get(mark, 0)),
				  json_integer_value(json_array_get(mark, 1)),
				  json_integer_value(json_array_get(mark, 2)));
		else
			adopt(jobs, limits, LLMQ_BREAKER_CLOSED, 0, limits->turns);
	}
}
