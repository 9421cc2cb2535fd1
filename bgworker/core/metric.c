/*
 * metric.c
 *		What a worker counts, and its two forms: Prometheus' text, and JSON for llmq.metric.
 *
 * A counter that has counted nothing is not written; a gauge always is.
 */
#include "core/metric.h"

#include <stdlib.h>
#include <string.h>

#include "json/json_write.h"

#define MAX_LABELS 3

/* From an immediate refusal to the longest calls of a batch, in seconds, as they are written. */
static const struct
{
	int64_t most_us;
	const char *label;
} bounds[LLMQ_METRIC_BUCKETS] = {
	{100000, "0.1"},	{250000, "0.25"},	 {500000, "0.5"},	 {1000000, "1"},
	{2500000, "2.5"},	{5000000, "5"},		 {10000000, "10"},	 {20000000, "20"},
	{30000000, "30"},	{60000000, "60"},	 {120000000, "120"}, {300000000, "300"},
	{600000000, "600"}, {INT64_MAX, "+Inf"},
};

typedef enum Form
{
	FORM_TEXT,
	FORM_JSON
} Form;

/* Names and values, with a NULL after the last pair. */
typedef const char *const Labels[2 * MAX_LABELS + 1];

typedef struct Writer
{
	const LlmqMetrics *metrics;
	LlmqBuffer *buffer;
	Form form;
	const char *name; /* of the current family */
	const char *type;
	const char *help;
	bool any_sample; /* of this family */
} Writer;

/* ---- Counting -------------------------------------------------------------------------- */

bool
llmq_metrics_init(LlmqMetrics *metrics)
{
	*metrics = (LlmqMetrics){.endpoint_count = 1};
	/*
	 * They are allocated all at once, so that no count is lost when out of memory; pages that
	 * nobody touches cost none.
	 */
	metrics->endpoints = calloc(LLMQ_METRIC_ENDPOINTS + 1, sizeof(*metrics->endpoints));
	if (metrics->endpoints == NULL)
		return false;
	memcpy(metrics->endpoints[0].name, LLMQ_METRIC_OTHERS, sizeof(LLMQ_METRIC_OTHERS));
	return true;
}

void
llmq_metrics_free(LlmqMetrics *metrics)
{
	free(metrics->endpoints);
	metrics->endpoints = NULL;
}

static LlmqEndpointMetric *
find(LlmqMetrics *metrics, const char *name)
{
	LlmqEndpointMetric *endpoint;

	for (int i = 1; i < metrics->endpoint_count; i++)
	{
		if (strcmp(metrics->endpoints[i].name, name) == 0)
			return &metrics->endpoints[i];
	}
	if (metrics->endpoint_count > LLMQ_METRIC_ENDPOINTS || strlen(name) > LLMQ_METRIC_NAME_BYTES)
		return &metrics->endpoints[0];
	endpoint = &metrics->endpoints[metrics->endpoint_count++];
	memcpy(endpoint->name, name, strlen(name) + 1);
	return endpoint;
}

void
llmq_metric_begin_call(LlmqMetrics *metrics, const char *endpoint)
{
	find(metrics, endpoint)->in_flight++;
	metrics->changes++;
}

void
llmq_metric_end_call(LlmqMetrics *metrics, const char *endpoint)
{
	find(metrics, endpoint)->in_flight--;
	metrics->changes++;
}

/* Returns a count of tokens; -1, which means that none was reported, as 0. */
static int64_t
known(int64_t tokens)
{
	return tokens > 0 ? tokens : 0;
}

void
llmq_metric_count_call(LlmqMetrics *metrics, const char *name, const LlmqVerdict *verdict,
					   int64_t duration_us, double cost)
{
	LlmqEndpointMetric *endpoint = find(metrics, name);
	int bucket = 0;

	while (duration_us > bounds[bucket].most_us)
		bucket++;
	endpoint->calls[verdict->outcome][verdict->error_class]++;
	endpoint->durations[bucket]++;
	endpoint->duration_us += duration_us;
	endpoint->input_tokens += known(verdict->input_tokens);
	endpoint->output_tokens += known(verdict->output_tokens);
	endpoint->cached_tokens += known(verdict->cached_tokens);
	endpoint->cost += cost;
	metrics->changes++;
}

void
llmq_metric_note_wait(LlmqMetrics *metrics, const char *name, int64_t now_us, int64_t until_us)
{
	LlmqEndpointMetric *endpoint = find(metrics, name);
	int64_t over_us = endpoint->waits_until_us < now_us ? endpoint->waits_until_us : now_us;

	if (over_us > endpoint->waits_from_us)
	{
		endpoint->waited_us += over_us - endpoint->waits_from_us;
		metrics->changes++;
	}
	if (until_us > now_us && endpoint->waits_until_us < now_us)
	{
		endpoint->waits++;
		metrics->changes++;
	}
	endpoint->waits_from_us = now_us;
	endpoint->waits_until_us = until_us;
}

void
llmq_metric_count_delivery(LlmqMetrics *metrics, LlmqDeliveryEnd end, LlmqErrorClass error_class)
{
	metrics->deliveries[end][error_class]++;
	metrics->changes++;
}

void
llmq_metric_count_message(LlmqMetrics *metrics, LlmqMessageOutcome outcome)
{
	metrics->messages[outcome]++;
	metrics->changes++;
}

void
llmq_metric_count_store_error(LlmqMetrics *metrics)
{
	metrics->store_errors++;
	metrics->changes++;
}

/* ---- Samples ----------------------------------------------------------------------------- */

/* Appends a label's value with the escapes that the format requires. */
static void
append_quoted(LlmqBuffer *buffer, const char *text)
{
	llmq_buffer_append_char(buffer, '"');
	for (; *text != '\0'; text++)
	{
		if (*text == '\n')
			llmq_buffer_append_string(buffer, "\\n");
		else
		{
			if (*text == '"' || *text == '\\')
				llmq_buffer_append_char(buffer, '\\');
			llmq_buffer_append_char(buffer, *text);
		}
	}
	llmq_buffer_append_char(buffer, '"');
}

/*
 * Begins a family.  Its head is written with the first sample, so one without samples leaves no
 * trace.
 */
static void
begin_family(Writer *writer, const char *name, const char *type, const char *help)
{
	writer->name = name;
	writer->type = type;
	writer->help = help;
	writer->any_sample = false;
}

static void
write_head(Writer *writer)
{
	if (writer->form == FORM_TEXT)
		llmq_buffer_printf(writer->buffer, "# HELP %s %s\n# TYPE %s %s\n", writer->name,
						   writer->help, writer->name, writer->type);
	else
	{
		llmq_write_open(writer->buffer, '{');
		llmq_write_member_text(writer->buffer, "name", writer->name);
		llmq_write_member_text(writer->buffer, "type", writer->type);
		llmq_write_member_text(writer->buffer, "help", writer->help);
		llmq_write_key(writer->buffer, "samples");
		llmq_write_open(writer->buffer, '[');
	}
	writer->any_sample = true;
}

static void
end_family(Writer *writer)
{
	if (writer->any_sample && writer->form == FORM_JSON)
	{
		llmq_write_close(writer->buffer, ']');
		llmq_write_close(writer->buffer, '}');
	}
}

static void
write_sample_json(LlmqBuffer *buffer, const char *suffix, Labels labels, double value)
{
	llmq_write_open(buffer, '[');
	llmq_write_text(buffer, suffix);
	llmq_write_open(buffer, '{');
	for (int i = 0; labels[i] != NULL; i += 2)
		llmq_write_member_text(buffer, labels[i], labels[i + 1]);
	llmq_write_close(buffer, '}');
	llmq_buffer_printf(buffer, ",%.15g]", value);
}

static void
write_sample_text(LlmqBuffer *buffer, const char *name, const char *suffix, Labels labels,
				  double value)
{
	llmq_buffer_printf(buffer, "%s%s", name, suffix);
	for (int i = 0; labels[i] != NULL; i += 2)
	{
		llmq_buffer_printf(buffer, "%c%s=", i == 0 ? '{' : ',', labels[i]);
		append_quoted(buffer, labels[i + 1]);
	}
	llmq_buffer_printf(buffer, "%s %.15g\n", labels[0] == NULL ? "" : "}", value);
}

static void
add_sample(Writer *writer, const char *suffix, Labels labels, double value)
{
	if (!writer->any_sample)
		write_head(writer);
	if (writer->form == FORM_JSON)
		write_sample_json(writer->buffer, suffix, labels, value);
	else
		write_sample_text(writer->buffer, writer->name, suffix, labels, value);
}

static void
add_count(Writer *writer, Labels labels, double value)
{
	if (value > 0)
		add_sample(writer, "", labels, value);
}

static const char *
class_label(int error_class)
{
	const char *name = llmq_error_name((LlmqErrorClass) error_class);

	return name == NULL ? "" : name;
}

/* ---- Families of endpoints --------------------------------------------------------------- */

static double
seconds(int64_t us)
{
	return (double) us / 1e6;
}

/* Writes one number of each endpoint. */
static void
write_counter(Writer *writer, const char *name, const char *help,
			  double (*of)(const LlmqEndpointMetric *endpoint))
{
	begin_family(writer, name, "counter", help);
	for (int i = 0; i < writer->metrics->endpoint_count; i++)
	{
		const LlmqEndpointMetric *endpoint = &writer->metrics->endpoints[i];

		add_count(writer, (Labels){"endpoint", endpoint->name}, of(endpoint));
	}
	end_family(writer);
}

static double
input_tokens_of(const LlmqEndpointMetric *endpoint)
{
	return (double) endpoint->input_tokens;
}

static double
output_tokens_of(const LlmqEndpointMetric *endpoint)
{
	return (double) endpoint->output_tokens;
}

static double
cached_tokens_of(const LlmqEndpointMetric *endpoint)
{
	return (double) endpoint->cached_tokens;
}

static double
cost_of(const LlmqEndpointMetric *endpoint)
{
	return endpoint->cost;
}

static double
waits_of(const LlmqEndpointMetric *endpoint)
{
	return (double) endpoint->waits;
}

static double
waited_of(const LlmqEndpointMetric *endpoint)
{
	return seconds(endpoint->waited_us);
}

static void
write_calls(Writer *writer)
{
	begin_family(writer, "llmq_calls_total", "counter",
				 "Network calls to providers that have ended.");
	for (int i = 0; i < writer->metrics->endpoint_count; i++)
	{
		const LlmqEndpointMetric *endpoint = &writer->metrics->endpoints[i];

		for (int outcome = 0; outcome < LLMQ_OUTCOMES; outcome++)
			for (int class = 0; class < LLMQ_ERROR_CLASSES; class ++)
				add_count(writer,
						  (Labels){"endpoint", endpoint->name, "outcome",
								   llmq_outcome_name((LlmqOutcome) outcome), "error_class",
								   class_label(class)},
						  (double) endpoint->calls[outcome][class]);
	}
	end_family(writer);
}

static void
write_durations(Writer *writer)
{
	begin_family(writer, "llmq_call_duration_seconds", "histogram",
				 "How long network calls took, from the request to the end of the answer.");
	for (int i = 0; i < writer->metrics->endpoint_count; i++)
	{
		const LlmqEndpointMetric *endpoint = &writer->metrics->endpoints[i];
		int64_t calls = 0;

		for (int bucket = 0; bucket < LLMQ_METRIC_BUCKETS; bucket++)
			calls += endpoint->durations[bucket];
		if (calls == 0)
			continue;
		calls = 0;
		for (int bucket = 0; bucket < LLMQ_METRIC_BUCKETS; bucket++)
		{
			calls += endpoint->durations[bucket];
			add_sample(writer, "_bucket",
					   (Labels){"endpoint", endpoint->name, "le", bounds[bucket].label},
					   (double) calls);
		}
		add_sample(writer, "_sum", (Labels){"endpoint", endpoint->name},
				   seconds(endpoint->duration_us));
		add_sample(writer, "_count", (Labels){"endpoint", endpoint->name}, (double) calls);
	}
	end_family(writer);
}

static void
write_in_flight(Writer *writer)
{
	begin_family(writer, "llmq_calls_in_flight", "gauge", "Network calls under way.");
	for (int i = 0; i < writer->metrics->endpoint_count; i++)
	{
		const LlmqEndpointMetric *endpoint = &writer->metrics->endpoints[i];

		if (i > 0 || endpoint->in_flight > 0)
			add_sample(writer, "", (Labels){"endpoint", endpoint->name}, endpoint->in_flight);
	}
	end_family(writer);
}

/* ---- Families of the worker -------------------------------------------------------------- */

static void
write_deliveries(Writer *writer)
{
	static const char *const ends[LLMQ_DELIVERY_ENDS] = {[LLMQ_DELIVERY_SUCCEEDED] = "succeeded",
														 [LLMQ_DELIVERY_RETRY] = "retry",
														 [LLMQ_DELIVERY_DEAD] = "dead",
														 [LLMQ_DELIVERY_LATE] = "late"};

	begin_family(writer, "llmq_deliveries_total", "counter",
				 "Deliveries of jobs that have ended, and are settled.");
	for (int end = 0; end < LLMQ_DELIVERY_ENDS; end++)
		for (int class = 0; class < LLMQ_ERROR_CLASSES; class ++)
			add_count(writer, (Labels){"outcome", ends[end], "error_class", class_label(class)},
					  (double) writer->metrics->deliveries[end][class]);
	end_family(writer);
}

static void
write_messages(Writer *writer)
{
	begin_family(writer, "llmq_messages_total", "counter",
				 "Outbox messages that were sent, or tried to be.");
	for (int outcome = 0; outcome < LLMQ_MESSAGE_OUTCOMES; outcome++)
		add_count(writer,
				  (Labels){"outcome", llmq_message_outcome_name((LlmqMessageOutcome) outcome)},
				  (double) writer->metrics->messages[outcome]);
	end_family(writer);
}

static void
write_number(Writer *writer, const char *name, const char *type, const char *help, double value)
{
	begin_family(writer, name, type, help);
	add_sample(writer, "", (Labels){NULL}, value);
	end_family(writer);
}

static bool
write_all(Writer writer)
{
	const LlmqMetrics *metrics = writer.metrics;

	write_calls(&writer);
	write_durations(&writer);
	write_in_flight(&writer);
	write_counter(&writer, "llmq_input_tokens_total", "Tokens of what was sent.", input_tokens_of);
	write_counter(&writer, "llmq_output_tokens_total", "Tokens of answers.", output_tokens_of);
	write_counter(&writer, "llmq_cached_tokens_total",
				  "Tokens of what was sent that were read from a cache.", cached_tokens_of);
	write_counter(&writer, "llmq_cost_total", "What billed calls cost, by the endpoint's prices.",
				  cost_of);
	write_counter(&writer, "llmq_limiter_waits_total",
				  "Spans of time in which a quota kept jobs back.", waits_of);
	write_counter(&writer, "llmq_limiter_wait_seconds_total",
				  "Time in which a quota kept jobs back.", waited_of);
	write_deliveries(&writer);
	write_messages(&writer);
	write_number(&writer, "llmq_store_errors_total", "counter",
				 "Operations of the database that failed.", (double) metrics->store_errors);
	write_number(&writer, "llmq_jobs_in_hand", "gauge", "Jobs under leases.", metrics->jobs);
	write_number(&writer, "llmq_messages_in_hand", "gauge", "Outbox messages under leases.",
				 metrics->messages_in_hand);
	write_number(&writer, "llmq_oldest_lease_age_seconds", "gauge",
				 "Age of the oldest lease of a job, 0 without one.", seconds(metrics->oldest_us));
	return !writer.buffer->failed;
}

bool
llmq_metrics_write_text(const LlmqMetrics *metrics, LlmqBuffer *text)
{
	return write_all((Writer){.metrics = metrics, .buffer = text, .form = FORM_TEXT});
}

bool
llmq_metrics_write_json(const LlmqMetrics *metrics, LlmqBuffer *json)
{
	llmq_buffer_append_char(json, '[');
	write_all((Writer){.metrics = metrics, .buffer = json, .form = FORM_JSON});
	return llmq_buffer_append_char(json, ']') && !json->failed;
}
