/*
 * metric_test.c
 *		What is counted comes out as Prometheus' text and as JSON, with the same numbers.
 */
#include "core/metric.h"

#include <jansson.h>

#include "tap.h"

#define S INT64_C(1000000)

static LlmqMetrics metrics;
static LlmqBuffer text;

static void
begin(void)
{
	llmq_metrics_free(&metrics);
	ok(llmq_metrics_init(&metrics), "there is memory");
}

/* The text as it is now; good until the next call. */
static const char *
write_text(void)
{
	llmq_buffer_free(&text);
	llmq_buffer_init(&text, LLMQ_METRIC_MAX_BYTES);
	ok(llmq_metrics_write_text(&metrics, &text), "the text is written");
	return llmq_buffer_string(&text);
}

/* Whether the text has this very line. */
static void
has_line(const char *line, const char *sentence)
{
	size_t len = strlen(line);
	const char *found = llmq_buffer_string(&text);

	while ((found = strstr(found, line)) != NULL &&
		   !((found == text.data || found[-1] == '\n') && found[len] == '\n'))
		found++;
	if (!ok(found != NULL, "%s", sentence))
		printf("# no line: %s\n%s\n", line, llmq_buffer_string(&text));
}

static void
count(const char *endpoint, LlmqErrorClass class, int64_t duration_us)
{
	LlmqVerdict verdict = {.outcome = llmq_error_outcome(class),
						   .error_class = class,
						   .input_tokens = class == LLMQ_ERROR_NONE ? 100 : -1,
						   .output_tokens = class == LLMQ_ERROR_NONE ? 20 : -1,
						   .cached_tokens = -1};

	llmq_metric_begin_call(&metrics, endpoint);
	llmq_metric_end_call(&metrics, endpoint);
	llmq_metric_count_call(&metrics, endpoint, &verdict, duration_us, 0.25);
}

static void
test_calls(void)
{
	begin();
	count("a", LLMQ_ERROR_NONE, 100000);
	count("a", LLMQ_ERROR_NONE, 100001);
	count("a", LLMQ_ERROR_TIMEOUT, 900 * S);
	count("b", LLMQ_ERROR_AUTH, 3 * S);
	llmq_metric_begin_call(&metrics, "b");
	write_text();
	has_line("# TYPE llmq_calls_total counter", "a family says its type");
	has_line("llmq_calls_total{endpoint=\"a\",outcome=\"success\",error_class=\"\"} 2",
			 "calls are counted by outcome");
	has_line("llmq_calls_total{endpoint=\"a\",outcome=\"retry\",error_class=\"timeout\"} 1",
			 "and class");
	has_line("llmq_calls_total{endpoint=\"b\",outcome=\"permanent\",error_class=\"auth\"} 1",
			 "and endpoint");
	has_line("llmq_call_duration_seconds_bucket{endpoint=\"a\",le=\"0.1\"} 1",
			 "a bucket has what took as long as its bound");
	has_line("llmq_call_duration_seconds_bucket{endpoint=\"a\",le=\"0.25\"} 2",
			 "and what the buckets below it have");
	has_line("llmq_call_duration_seconds_bucket{endpoint=\"a\",le=\"600\"} 2",
			 "what took longer than all bounds is in none of them");
	has_line("llmq_call_duration_seconds_bucket{endpoint=\"a\",le=\"+Inf\"} 3", "but in the last");
	has_line("llmq_call_duration_seconds_count{endpoint=\"a\"} 3", "which is as many as there are");
	has_line("llmq_call_duration_seconds_sum{endpoint=\"a\"} 900.200001",
			 "durations are summed up in seconds");
	has_line("llmq_input_tokens_total{endpoint=\"a\"} 200", "tokens are summed up");
	has_line("llmq_cost_total{endpoint=\"a\"} 0.75", "so is the cost");
	has_line("llmq_calls_in_flight{endpoint=\"a\"} 0", "no call is under way where all have ended");
	has_line("llmq_calls_in_flight{endpoint=\"b\"} 1", "but where one has not");
	ok(strstr(llmq_buffer_string(&text), "cached_tokens") == NULL,
	   "what was never counted leaves no trace");
}

/* A count of zero was reported, one of -1 was not. */
static void
count_cached(int64_t cached_tokens)
{
	LlmqVerdict verdict = {
		.outcome = LLMQ_OUTCOME_SUCCESS, .input_tokens = 100, .cached_tokens = cached_tokens};

	llmq_metric_count_call(&metrics, "a", &verdict, S, 0);
}

static void
test_cached(void)
{
	begin();
	count_cached(70);
	count_cached(-1);
	count_cached(0);
	count_cached(5);
	write_text();
	has_line("llmq_cached_tokens_total{endpoint=\"a\"} 75",
			 "tokens that were read from a cache are summed up");
	has_line("llmq_input_tokens_total{endpoint=\"a\"} 400", "beside all that were sent");
}

static void
test_bounds(void)
{
	char name[16];

	begin();
	for (int i = 0; i < LLMQ_METRIC_ENDPOINTS + 3; i++)
	{
		snprintf(name, sizeof(name), "e%d", i);
		count(name, LLMQ_ERROR_NONE, S);
	}
	write_text();
	snprintf(name, sizeof(name), "\"e%d\"", LLMQ_METRIC_ENDPOINTS);
	ok(strstr(llmq_buffer_string(&text), "\"e255\"") != NULL &&
		   strstr(llmq_buffer_string(&text), name) == NULL,
	   "no more endpoints than the limit have series of their own");
	has_line("llmq_calls_total{endpoint=\"(others)\",outcome=\"success\",error_class=\"\"} 3",
			 "the others are counted together");
	begin();
	count("say \"hi\"\\\n", LLMQ_ERROR_NONE, S);
	write_text();
	has_line("llmq_calls_total{endpoint=\"say "
			 "\\\"hi\\\"\\\\\\n\",outcome=\"success\",error_class=\"\"} 1",
			 "quotes, backslashes and ends of lines are escaped");
}

static void
test_waits(void)
{
	int64_t now = 1000 * S;

	begin();
	llmq_metric_note_wait(&metrics, "a", now, now + 10 * S);
	llmq_metric_note_wait(&metrics, "a", now + 2 * S, now + 10 * S);
	llmq_metric_note_wait(&metrics, "a", now + 3 * S, now + 3 * S);
	write_text();
	has_line("llmq_limiter_waits_total{endpoint=\"a\"} 1",
			 "a wait that was looked at twice is one");
	has_line("llmq_limiter_wait_seconds_total{endpoint=\"a\"} 3",
			 "and as long as from the first look to its end");
	llmq_metric_note_wait(&metrics, "a", now + 50 * S, now + 51 * S);
	llmq_metric_note_wait(&metrics, "a", now + 90 * S, now + 90 * S);
	write_text();
	has_line("llmq_limiter_waits_total{endpoint=\"a\"} 2", "a later one is another");
	has_line("llmq_limiter_wait_seconds_total{endpoint=\"a\"} 4",
			 "which ends when it was to, if nobody looked then");
}

static void
test_others(void)
{
	uint64_t changes;

	begin();
	changes = metrics.changes;
	llmq_metric_count_delivery(&metrics, LLMQ_DELIVERY_DEAD, LLMQ_ERROR_AUTH);
	llmq_metric_count_message(&metrics, LLMQ_MESSAGE_SENT);
	llmq_metric_count_store_error(&metrics);
	ok(metrics.changes == changes + 3, "each count is a change");
	metrics.oldest_us = 1500000;
	write_text();
	has_line("llmq_deliveries_total{outcome=\"dead\",error_class=\"auth\"} 1",
			 "deliveries are counted");
	has_line("llmq_messages_total{outcome=\"sent\"} 1", "messages are");
	has_line("llmq_store_errors_total 1", "failures of the database are");
	has_line("llmq_oldest_lease_age_seconds 1.5", "an age is in seconds");
}

static void
test_json(void)
{
	LlmqBuffer json;
	json_t *families;
	json_t *family;
	json_t *sample;
	size_t i;
	size_t j;
	int lines = 0;
	int samples = 0;

	begin();
	count("a", LLMQ_ERROR_NONE, S);
	count("\"b\"", LLMQ_ERROR_OVERLOADED, 2 * S);
	llmq_metric_count_message(&metrics, LLMQ_MESSAGE_DEAD);
	write_text();
	for (const char *line = llmq_buffer_string(&text); line != NULL && *line != '\0';
		 line = strchr(line, '\n') + 1)
		lines += *line != '#';
	llmq_buffer_init(&json, LLMQ_METRIC_MAX_BYTES);
	ok(llmq_metrics_write_json(&metrics, &json), "the JSON is written");
	families = json_loads(llmq_buffer_string(&json), 0, NULL);
	ok(json_is_array(families), "it is an array");
	json_array_foreach(families, i, family)
	{
		const char *name = json_string_value(json_object_get(family, "name"));
		const char *help = json_string_value(json_object_get(family, "help"));
		char head[512];

		snprintf(head, sizeof(head), "# HELP %s %s", name, help);
		has_line(head, "a family has the same words in both");
		json_array_foreach(json_object_get(family, "samples"), j, sample) samples++;
	}
	is_int(samples, lines, "both have as many samples");
	json_decref(families);
	llmq_buffer_free(&json);

	llmq_buffer_init(&json, 100);
	ok(!llmq_metrics_write_json(&metrics, &json), "what does not fit is no JSON");
	llmq_buffer_free(&json);
}

int
main(void)
{
	test_calls();
	test_cached();
	test_bounds();
	test_waits();
	test_others();
	test_json();
	llmq_metrics_free(&metrics);
	llmq_buffer_free(&text);
	return tap_done();
}
