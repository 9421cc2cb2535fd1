/*
 * config.c
 *		The configuration as a worker holds it: queues, endpoints, policies, destinations.
 *
 * Everything is in one arena.  The value comes from llmq_internal.worker_config(), whose columns
 *are checked by the tables.  If it is still wrong here, there is a bug or the SQL is newer, and the
 *whole value is refused.
 */
#include "core/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"

/* Enough for about 100,000 endpoints. */
#define CONFIG_MAX_BYTES ((size_t) 64 * 1024 * 1024)

struct LlmqConfig
{
	LlmqArena *arena;
	LlmqQueue *queues;
	int queue_count;
	LlmqEndpoint *endpoints;
	int endpoint_count;
	LlmqDestination *destinations;
	int destination_count;
};

static bool read_endpoint(LlmqConfig *config, const json_t *row, LlmqEndpoint *endpoint);
static bool read_queue(LlmqConfig *config, const json_t *row, LlmqQueue *queue);
static bool read_destination(LlmqConfig *config, const json_t *row, LlmqDestination *destination);
static const char *read_headers(LlmqConfig *config, const json_t *row);
static uint32_t read_classes(const json_t *names);
static bool read_chain(LlmqConfig *config, const json_t *names, LlmqQueue *queue);
static void read_policy(const json_t *row, LlmqPolicy *policy);

static const char *
get_string(LlmqConfig *config, const json_t *row, const char *key)
{
	return llmq_arena_strdup(config->arena, json_string_value(json_object_get(row, key)));
}

/* Reads an integer; returns `otherwise` if it is null or absent. */
static int64_t
get_int(const json_t *row, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(row, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* Reads a number that is not negative; returns -1 if it is null or absent. */
static double
get_price(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	return json_is_number(value) ? json_number_value(value) : -1;
}

static bool
get_bool(const json_t *row, const char *key, bool otherwise)
{
	const json_t *value = json_object_get(row, key);

	return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool
read_all(LlmqConfig *config, const json_t *root)
{
	const json_t *endpoints = json_object_get(root, "endpoints");
	const json_t *queues = json_object_get(root, "queues");
	size_t endpoint_count = json_array_size(endpoints);
	size_t queue_count = json_array_size(queues);
	const json_t *destinations = json_object_get(root, "destinations");
	size_t destination_count = json_array_size(destinations);

	config->endpoints =
		llmq_arena_alloc(config->arena, sizeof(*config->endpoints) * (endpoint_count + 1));
	config->queues = llmq_arena_alloc(config->arena, sizeof(*config->queues) * (queue_count + 1));
	config->destinations =
		llmq_arena_alloc(config->arena, sizeof(*config->destinations) * (destination_count + 1));
	if (llmq_arena_failed(config->arena))
		return false;
	for (size_t i = 0; i < endpoint_count; i++)
	{
		if (!read_endpoint(config, json_array_get(endpoints, i), &config->endpoints[i]))
			return false;
		config->endpoints[i].number = config->endpoint_count++;
	}
	for (size_t i = 0; i < queue_count; i++)
	{
		if (!read_queue(config, json_array_get(queues, i), &config->queues[i]))
			return false;
		config->queues[i].number = config->queue_count++;
	}
	for (size_t i = 0; i < destination_count; i++)
	{
		if (!read_destination(config, json_array_get(destinations, i), &config->destinations[i]))
			return false;
		config->destinations[i].number = config->destination_count++;
	}
	return !llmq_arena_failed(config->arena);
}

LlmqConfig *
llmq_config_parse(const char *json, char *error, size_t error_size)
{
	LlmqArena *arena = llmq_arena_create(CONFIG_MAX_BYTES);
	LlmqConfig *config = arena == NULL ? NULL : llmq_arena_alloc(arena, sizeof(*config));
	json_error_t parse_error;
	json_t *root;

	if (config == NULL)
	{
		llmq_arena_destroy(arena);
		snprintf(error, error_size, "out of memory");
		return NULL;
	}
	config->arena = arena;
	root = json_loads(json, 0, &parse_error);
	if (root == NULL || !read_all(config, root))
	{
		snprintf(error, error_size, "the configuration cannot be read: %s",
				 root == NULL ? parse_error.text : "unexpected content");
		llmq_config_destroy(config);
		config = NULL;
	}
	json_decref(root);
	return config;
}

void
llmq_config_destroy(LlmqConfig *config)
{
	if (config != NULL)
		llmq_arena_destroy(config->arena);
}

const LlmqQueue *
llmq_config_queue(const LlmqConfig *config, const char *name)
{
	for (int i = 0; config != NULL && i < config->queue_count; i++)
	{
		if (strcmp(config->queues[i].name, name) == 0)
			return &config->queues[i];
	}
	return NULL;
}

const LlmqEndpoint *
llmq_config_endpoint(const LlmqConfig *config, const char *name)
{
	for (int i = 0; config != NULL && i < config->endpoint_count; i++)
	{
		if (strcmp(config->endpoints[i].name, name) == 0)
			return &config->endpoints[i];
	}
	return NULL;
}

int
llmq_config_endpoint_count(const LlmqConfig *config)
{
	return config == NULL ? 0 : config->endpoint_count;
}

int
llmq_config_queue_count(const LlmqConfig *config)
{
	return config == NULL ? 0 : config->queue_count;
}

int
llmq_config_destination_count(const LlmqConfig *config)
{
	return config == NULL ? 0 : config->destination_count;
}

const LlmqEndpoint *
llmq_config_endpoint_at(const LlmqConfig *config, int number)
{
	return config != NULL && number < config->endpoint_count ? &config->endpoints[number] : NULL;
}

const LlmqQueue *
llmq_config_queue_at(const LlmqConfig *config, int number)
{
	return config != NULL && number < config->queue_count ? &config->queues[number] : NULL;
}

const LlmqDestination *
llmq_config_destination_at(const LlmqConfig *config, int number)
{
	return config != NULL && number < config->destination_count ? &config->destinations[number]
																: NULL;
}

const LlmqDestination *
llmq_config_route(const LlmqConfig *config, const char *topic)
{
	const LlmqDestination *best = NULL;
	size_t best_len = 0;

	for (int i = 0; config != NULL && i < config->destination_count; i++)
	{
		const LlmqDestination *destination = &config->destinations[i];
		size_t len = strlen(destination->topic);

		if (strcmp(destination->topic, topic) == 0)
			return destination;
		if (destination->topic[len - 1] == '*' && len > best_len &&
			strncmp(destination->topic, topic, len - 1) == 0)
		{
			best = destination;
			best_len = len;
		}
	}
	return best;
}

bool
llmq_policy_merge(LlmqPolicy *policy, const char *json)
{
	json_t *root;

	if (json == NULL)
		return true;
	root = json_loads(json, 0, NULL);
	if (!json_is_object(root))
	{
		json_decref(root);
		return false;
	}
	read_policy(root, policy);
	json_decref(root);
	return true;
}

static bool
read_endpoint(LlmqConfig *config, const json_t *row, LlmqEndpoint *endpoint)
{
	const char *api = json_string_value(json_object_get(row, "api"));

	if (api == NULL || !llmq_api_find(api, &endpoint->api))
		return false;
	endpoint->name = get_string(config, row, "name");
	endpoint->url = get_string(config, row, "url");
	endpoint->model = get_string(config, row, "model");
	endpoint->credential = get_string(config, row, "credential");
	endpoint->idempotency_header = get_string(config, row, "idempotency_header");
	endpoint->stream = get_bool(row, "stream", false);
	endpoint->max_in_flight = (int) get_int(row, "max_in_flight", 0);
	endpoint->max_response_bytes = (size_t) get_int(row, "max_response_bytes", 8388608);
	endpoint->connect_timeout_us = get_int(row, "connect_timeout", 0);
	endpoint->first_byte_timeout_us = get_int(row, "first_byte_timeout", 0);
	endpoint->idle_timeout_us = get_int(row, "idle_timeout", 0);
	endpoint->headers = read_headers(config, row);
	endpoint->rates.requests_per_minute = get_int(row, "requests_per_minute", 0);
	endpoint->rates.tokens_per_minute = get_int(row, "tokens_per_minute", 0);
	endpoint->breaker_failures = (int) get_int(row, "breaker_failures", 5);
	endpoint->breaker_cooldown_us = get_int(row, "breaker_cooldown", 30000000);
	endpoint->input_price = get_price(row, "input_price");
	endpoint->cached_price = get_price(row, "cached_price");
	endpoint->output_price = get_price(row, "output_price");
	return endpoint->name != NULL && endpoint->url != NULL;
}

/* Returns the source of the object, or NULL. */
static const char *
read_headers(LlmqConfig *config, const json_t *row)
{
	const json_t *headers = json_object_get(row, "headers");
	char *source = json_is_object(headers) ? json_dumps(headers, JSON_COMPACT) : NULL;
	const char *copy = llmq_arena_strdup(config->arena, source);

	free(source);
	return copy;
}

static bool
read_destination(LlmqConfig *config, const json_t *row, LlmqDestination *destination)
{
	static const char *const kinds[] = {[LLMQ_DESTINATION_WEBHOOK] = "webhook",
										[LLMQ_DESTINATION_EMAIL] = "email",
										[LLMQ_DESTINATION_NOTIFY] = "notify"};
	const char *kind = json_string_value(json_object_get(row, "kind"));
	bool known = false;

	for (size_t i = 0; kind != NULL && !known && i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		known = strcmp(kind, kinds[i]) == 0;
		destination->kind = (LlmqDestinationKind) i;
	}
	destination->topic = get_string(config, row, "topic");
	destination->url = get_string(config, row, "url");
	destination->credential = get_string(config, row, "credential");
	destination->headers = read_headers(config, row);
	destination->sender = get_string(config, row, "sender");
	destination->timeout_us = get_int(row, "timeout", 0);
	destination->backoff_base_us = get_int(row, "backoff_base", 0);
	destination->backoff_cap_us = get_int(row, "backoff_cap", 0);
	destination->max_attempts = (int) get_int(row, "max_attempts", 1);
	destination->max_in_flight = (int) get_int(row, "max_in_flight", 1);
	destination->enabled = get_bool(row, "enabled", true);
	return known && destination->url != NULL && destination->topic != NULL &&
		   destination->topic[0] != '\0';
}

static bool
read_queue(LlmqConfig *config, const json_t *row, LlmqQueue *queue)
{
	queue->name = get_string(config, row, "name");
	queue->paused = get_bool(row, "paused", false);
	queue->max_in_flight = (int) get_int(row, "max_in_flight", 0);
	queue->max_ready = (int) get_int(row, "max_ready", 0);
	read_policy(row, &queue->policy);
	queue->policy.fallback_on = read_classes(json_object_get(row, "fallback_on"));
	return queue->name != NULL && read_chain(config, json_object_get(row, "endpoints"), queue);
}

/* Reads names of classes as bits; unknown names are ignored. */
static uint32_t
read_classes(const json_t *names)
{
	uint32_t classes = 0;
	LlmqErrorClass error_class;

	for (size_t i = 0; i < json_array_size(names); i++)
	{
		const char *name = json_string_value(json_array_get(names, i));

		if (name != NULL && llmq_error_find(name, &error_class))
			classes |= UINT32_C(1) << error_class;
	}
	return classes;
}

/*
 * Reads the chain of endpoints.  Those that do not exist or are disabled are left out; null
 * means all, in the order of their names.
 */
static bool
read_chain(LlmqConfig *config, const json_t *names, LlmqQueue *queue)
{
	bool all = !json_is_array(names);
	size_t count = all ? (size_t) config->endpoint_count : json_array_size(names);

	queue->endpoints = llmq_arena_alloc(config->arena, sizeof(*queue->endpoints) * (count + 1));
	if (queue->endpoints == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
	{
		const char *name = all ? NULL : json_string_value(json_array_get(names, i));
		const LlmqEndpoint *endpoint = all			  ? &config->endpoints[i]
									   : name == NULL ? NULL
													  : llmq_config_endpoint(config, name);

		if (endpoint != NULL)
			queue->endpoints[queue->endpoint_count++] = endpoint;
	}
	return true;
}

/* Overwrites the values of the policy that the row has. */
static void
read_policy(const json_t *row, LlmqPolicy *policy)
{
	policy->call_timeout_us = get_int(row, "call_timeout", policy->call_timeout_us);
	policy->deadline_us = get_int(row, "deadline", policy->deadline_us);
	policy->min_attempt_us = get_int(row, "min_attempt", policy->min_attempt_us);
	policy->backoff_base_us = get_int(row, "backoff_base", policy->backoff_base_us);
	policy->backoff_cap_us = get_int(row, "backoff_cap", policy->backoff_cap_us);
	policy->redelivery_base_us = get_int(row, "redelivery_base", policy->redelivery_base_us);
	policy->redelivery_cap_us = get_int(row, "redelivery_cap", policy->redelivery_cap_us);
	policy->max_attempts = (int) get_int(row, "max_attempts", policy->max_attempts);
	policy->accept_truncated = get_bool(row, "accept_truncated", policy->accept_truncated);
	policy->require_json = get_bool(row, "require_json", policy->require_json);
	if (policy->min_attempt_us > policy->call_timeout_us)
		policy->min_attempt_us = policy->call_timeout_us;
	/*
	 * A delivery always begins with a little less than a short deadline: without this, none
	 * would make a call.
	 */
	if (policy->min_attempt_us > policy->deadline_us / 2)
		policy->min_attempt_us = policy->deadline_us / 2;
}
