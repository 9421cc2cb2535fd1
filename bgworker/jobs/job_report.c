/*
 * job_report.c
 *		What the worker reports with a full poll about endpoints in trouble and the depths of
 *		queues (llmq_internal.take_report).
 *
 * Only changes are reported, so an idle worker reports nothing.  What was reported is kept with
 * what is known about endpoints and queues.
 */
#include "jobs/jobs.h"

#include "json/json_write.h"

/* How old a value that others read, such as the depth of a queue, may get. */
#define REPORT_US 1000000

/* A quota that makes jobs wait for less than this is not reported. */
#define BACKLOG_US 1000000

/* The values of llmq.endpoint_trouble.reason. */
static const char *const wait_reasons[] = {
	[LLMQ_OBSTACLE_SECRET] = "no_secret",
	[LLMQ_OBSTACLE_PAUSE] = "rate_limited",
	[LLMQ_OBSTACLE_BREAKER] = "breaker",
	[LLMQ_OBSTACLE_LIMITER] = "limiter",
};

/* Returns what keeps an endpoint's jobs waiting, and until when. */
static LlmqEndpointTrouble
trouble_of(const LlmqJobs *jobs, const LlmqEndpoint *endpoint, bool has_secret)
{
	const LlmqEndpointLimits *limits = llmq_jobs_limits_of(jobs, endpoint);
	int64_t now = jobs->core->now.mono_us;

	if (!has_secret)
		return (LlmqEndpointTrouble){true, LLMQ_OBSTACLE_SECRET, 0};
	if (limits->paused_until_us > now)
		return (LlmqEndpointTrouble){true, LLMQ_OBSTACLE_PAUSE, limits->paused_until_us};
	if (limits->state != LLMQ_BREAKER_CLOSED && limits->until_us > now)
		return (LlmqEndpointTrouble){true, LLMQ_OBSTACLE_BREAKER, limits->until_us};
	if (limits->backlog_until_us > now + BACKLOG_US)
		return (LlmqEndpointTrouble){true, LLMQ_OBSTACLE_LIMITER, limits->backlog_until_us};
	return (LlmqEndpointTrouble){true, LLMQ_OBSTACLE_NONE, 0};
}

/* Returns whether a trouble differs from what was reported. */
static bool
is_news(const LlmqJobs *jobs, const LlmqEndpointTrouble *said, const LlmqEndpointTrouble *trouble)
{
	int64_t left = trouble->until_us - jobs->core->now.mono_us;
	int64_t moved = said->until_us - trouble->until_us;

	if (!said->said || said->obstacle != trouble->obstacle)
		return true;
	if (trouble->obstacle != LLMQ_OBSTACLE_LIMITER)
		return moved != 0;
	return (moved < 0 ? -moved : moved) > BACKLOG_US + left / 4;
}

static bool
add_endpoints(LlmqJobs *jobs, LlmqBuffer *report)
{
	const LlmqEndpoint *endpoint;
	bool says = false;

	llmq_write_key(report, "endpoints");
	llmq_write_open(report, '{');
	for (int i = 0; (endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL; i++)
	{
		LlmqEndpointTrouble *said = &llmq_jobs_limits_of(jobs, endpoint)->reported;
		LlmqEndpointTrouble trouble =
			trouble_of(jobs, endpoint, llmq_jobs_has_secret(jobs, endpoint));

		if (!is_news(jobs, said, &trouble))
			continue;
		*said = trouble;
		says = true;
		llmq_write_name(report, endpoint->name);
		if (trouble.obstacle == LLMQ_OBSTACLE_NONE)
		{
			llmq_write_raw(report, "null");
			continue;
		}
		llmq_write_open(report, '{');
		llmq_write_member_text(report, "reason", wait_reasons[trouble.obstacle]);
		if (trouble.until_us > 0)
			llmq_write_member_int(report, "in", trouble.until_us - jobs->core->now.mono_us);
		llmq_write_close(report, '}');
	}
	llmq_write_close(report, '}');
	return says;
}

/* Returns whether a queue's depth is needed and this worker knows it. */
static bool
publishes_depth(const LlmqJobs *jobs, const LlmqQueue *queue)
{
	return queue->max_ready > 0 && llmq_jobs_serves(jobs, queue->name);
}

static bool
add_depths(LlmqJobs *jobs, LlmqBuffer *report)
{
	const LlmqQueue *queue;
	bool says = false;

	llmq_write_key(report, "depths");
	llmq_write_open(report, '{');
	for (int i = 0; (queue = llmq_config_queue_at(jobs->core->config, i)) != NULL; i++)
	{
		int64_t depth = (int64_t) llmq_ready_depth(jobs->ready, queue->name);

		if (!publishes_depth(jobs, queue) ||
			llmq_jobs_state_of(jobs, queue)->reported_depth == depth + 1)
			continue;
		llmq_jobs_state_of(jobs, queue)->reported_depth = depth + 1;
		says = true;
		llmq_write_name(report, queue->name);
		llmq_write_int(report, depth);
	}
	llmq_write_close(report, '}');
	return says;
}

bool
llmq_jobs_write_report(LlmqJobs *jobs, LlmqBuffer *report)
{
	bool endpoints = add_endpoints(jobs, report);
	bool depths = add_depths(jobs, report);

	return endpoints || depths;
}

void
llmq_jobs_repeat_report(LlmqJobs *jobs)
{
	for (int i = 0; i < llmq_config_endpoint_count(jobs->core->config); i++)
		jobs->learned.endpoints[i].reported.said = false;
	for (int i = 0; i < llmq_config_queue_count(jobs->core->config); i++)
		jobs->learned.queues[i].reported_depth = 0;
}

/* Returns whether a breaker or a quota has begun, or ceased, to keep jobs waiting. */
static bool
has_turned(const LlmqJobs *jobs, const LlmqEndpoint *endpoint)
{
	const LlmqEndpointTrouble *said = &llmq_jobs_limits_of(jobs, endpoint)->reported;

	return said->said && said->obstacle != LLMQ_OBSTACLE_SECRET &&
		   said->obstacle != trouble_of(jobs, endpoint, true).obstacle;
}

int64_t
llmq_jobs_report_due(const LlmqJobs *jobs)
{
	const LlmqQueue *queue;
	const LlmqEndpoint *endpoint;

	for (int i = 0; (queue = llmq_config_queue_at(jobs->core->config, i)) != NULL; i++)
	{
		if (publishes_depth(jobs, queue) &&
			llmq_jobs_state_of(jobs, queue)->reported_depth !=
				(int64_t) llmq_ready_depth(jobs->ready, queue->name) + 1)
			return jobs->core->last_full_poll_us + REPORT_US;
	}
	for (int i = 0; (endpoint = llmq_config_endpoint_at(jobs->core->config, i)) != NULL; i++)
	{
		if (has_turned(jobs, endpoint))
			return jobs->core->last_full_poll_us + REPORT_US;
	}
	return LLMQ_NEVER;
}
