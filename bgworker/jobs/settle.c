/*
 * settle.c
 *		Writes ended deliveries as the JSON that llmq.worker_settle takes.
 *
 * It needs no tree, so an answer of megabytes is copied only once.  All strings are already
 * valid UTF-8 without NUL (reply.h).
 */
#include "jobs/settle.h"

#include "json/json_write.h"

static void
add_string(LlmqBuffer *buffer, const char *key, const char *value)
{
	if (value != NULL)
		llmq_write_member_text(buffer, key, value);
}

/* Writes a count that may be unknown. */
static void
add_count(LlmqBuffer *buffer, const char *key, int64_t value)
{
	if (value >= 0)
		llmq_write_member_int(buffer, key, value);
}

static void
add_usage(LlmqBuffer *buffer, const LlmqVerdict *verdict)
{
	add_string(buffer, "model", verdict->model);
	add_string(buffer, "finish_reason", verdict->finish_reason);
	add_count(buffer, "input_tokens", verdict->input_tokens);
	add_count(buffer, "output_tokens", verdict->output_tokens);
	add_count(buffer, "cached_tokens", verdict->cached_tokens);
}

static void
append_attempt(LlmqBuffer *buffer, const LlmqAttempt *attempt, int number)
{
	const LlmqVerdict *verdict = &attempt->verdict;

	llmq_write_open(buffer, '{');
	llmq_write_member_int(buffer, "attempt", number);
	add_string(buffer, "endpoint", attempt->endpoint);
	llmq_write_member_int(buffer, "started_at", attempt->started_wall_us);
	llmq_write_member_int(buffer, "duration", attempt->duration_us);
	add_string(buffer, "outcome", llmq_outcome_name(verdict->outcome));
	if (verdict->http_status > 0)
		llmq_write_member_int(buffer, "http_status", verdict->http_status);
	add_string(buffer, "error_class", llmq_error_name(verdict->error_class));
	add_string(buffer, "error_message", verdict->error_message);
	add_count(buffer, "retry_after", verdict->retry_after_us);
	add_usage(buffer, verdict);
	llmq_write_member_int(buffer, "bytes_in", (int64_t) verdict->bytes_in);
	add_string(buffer, "billing", llmq_billing_name(verdict->billing));
	add_string(buffer, "request_id", verdict->request_id);
	add_string(buffer, "traceparent", attempt->traceparent);
	llmq_write_close(buffer, '}');
}

static void
add_answer(LlmqBuffer *buffer, const LlmqJob *job)
{
	const LlmqVerdict *verdict = &job->verdict;

	add_string(buffer, "outcome", "succeeded");
	add_string(buffer, "endpoint", job->last_attempt == NULL ? NULL : job->last_attempt->endpoint);
	add_string(buffer, "text", verdict->text);
	add_string(buffer, "json", verdict->json);
	add_string(buffer, "tool_calls", verdict->tool_calls);
	add_string(buffer, "embedding", verdict->embedding);
	add_string(buffer, "response", verdict->response);
	add_usage(buffer, verdict);
	if (job->raw_response)
		llmq_write_member_bool(buffer, "raw_response", true);
}

static void
add_failure(LlmqBuffer *buffer, const LlmqJob *job)
{
	if (job->step.kind == LLMQ_STEP_DIE)
	{
		add_string(buffer, "outcome", "dead");
		if (job->step.error_class == LLMQ_ERROR_TRUNCATED)
			add_string(buffer, "text", job->verdict.text);
	}
	else
	{
		add_string(buffer, "outcome", "retry");
		llmq_write_member_bool(buffer, "counted", job->step.counted);
		llmq_write_member_int(buffer, "delay", job->step.delay_us);
	}
	add_string(buffer, "error_class", llmq_error_name(job->step.error_class));
	add_string(buffer, "error_message", job->error);
}

bool
llmq_settle_append(LlmqBuffer *buffer, const LlmqJob *job)
{
	int number = 0;

	llmq_write_open(buffer, '{');
	llmq_write_member_text(buffer, "job_id", job->job_id);
	llmq_write_member_int(buffer, "delivery", job->delivery_number);
	if (job->step.kind == LLMQ_STEP_SUCCEED)
		add_answer(buffer, job);
	else
		add_failure(buffer, job);
	llmq_write_key(buffer, "attempts");
	llmq_write_open(buffer, '[');
	for (const LlmqAttempt *attempt = job->unrecorded ? NULL : job->attempts; attempt != NULL;
		 attempt = attempt->next)
		append_attempt(buffer, attempt, ++number);
	llmq_write_close(buffer, ']');
	llmq_write_close(buffer, '}');
	return !buffer->failed;
}
