/*
 * settle.c
 *		Writes ended deliveries as the JSON that llmq.worker_settle takes.
 *
 * Written by hand and not through a JSON tree: an answer of megabytes is copied
 * once.  All strings are valid UTF-8 without NUL by then (reply.h).
 */
#include "jobs/settle.h"

#include <inttypes.h>
#include <string.h>

void
llmq_settle_append_string(LlmqBuffer *buffer, const char *text)
{
	const char *plain = text;

	llmq_buffer_append_char(buffer, '"');
	for (; *text != '\0'; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		llmq_buffer_append(buffer, plain, (size_t) (text - plain));
		if (c < 0x20)
			llmq_buffer_printf(buffer, "\\u%04x", c);
		else
			llmq_buffer_printf(buffer, "\\%c", c);
		plain = text + 1;
	}
	llmq_buffer_append(buffer, plain, (size_t) (text - plain));
	llmq_buffer_append_char(buffer, '"');
}

/* Members follow the first one, which the caller has written. */
static void
add_string(LlmqBuffer *buffer, const char *key, const char *value)
{
	if (value == NULL)
		return;
	llmq_buffer_printf(buffer, ",\"%s\":", key);
	llmq_settle_append_string(buffer, value);
}

static void
add_int(LlmqBuffer *buffer, const char *key, int64_t value)
{
	llmq_buffer_printf(buffer, ",\"%s\":%" PRId64, key, value);
}

/* A count that may be unknown. */
static void
add_count(LlmqBuffer *buffer, const char *key, int64_t value)
{
	if (value >= 0)
		add_int(buffer, key, value);
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

	llmq_buffer_printf(buffer, "%s{\"attempt\":%d", number > 1 ? "," : "", number);
	add_string(buffer, "endpoint", attempt->endpoint);
	add_int(buffer, "started_at", attempt->started_wall_us);
	add_int(buffer, "duration", attempt->duration_us);
	add_string(buffer, "outcome", llmq_outcome_name(verdict->outcome));
	if (verdict->http_status > 0)
		add_int(buffer, "http_status", verdict->http_status);
	add_string(buffer, "error_class", llmq_error_name(verdict->error_class));
	add_string(buffer, "error_message", verdict->error_message);
	add_count(buffer, "retry_after", verdict->retry_after_us);
	add_usage(buffer, verdict);
	add_int(buffer, "bytes_in", (int64_t) verdict->bytes_in);
	add_string(buffer, "billing", llmq_billing_name(verdict->billing));
	add_string(buffer, "request_id", verdict->request_id);
	add_string(buffer, "traceparent", attempt->traceparent);
	llmq_buffer_append_char(buffer, '}');
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
		llmq_buffer_append_string(buffer, ",\"raw_response\":true");
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
		llmq_buffer_printf(buffer, ",\"counted\":%s", job->step.counted ? "true" : "false");
		add_int(buffer, "delay", job->step.delay_us);
	}
	add_string(buffer, "error_class", llmq_error_name(job->step.error_class));
	add_string(buffer, "error_message", job->error);
}

bool
llmq_settle_append(LlmqBuffer *buffer, const LlmqJob *job)
{
	int number = 0;

	llmq_buffer_printf(buffer, "{\"job_id\":\"%s\",\"delivery\":%d", job->job_id,
					   job->delivery_number);
	if (job->step.kind == LLMQ_STEP_SUCCEED)
		add_answer(buffer, job);
	else
		add_failure(buffer, job);
	llmq_buffer_append_string(buffer, ",\"attempts\":[");
	for (const LlmqAttempt *attempt = job->unrecorded ? NULL : job->attempts; attempt != NULL;
		 attempt = attempt->next)
		append_attempt(buffer, attempt, ++number);
	return llmq_buffer_append_string(buffer, "]}");
}
