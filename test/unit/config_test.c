/*
 * config_test.c
 *		What is taken for a configuration, and for a job's own policy.
 */
#include <stdlib.h>

#include "base/buffer.h"
#include "core/config.h"
#include "tap.h"

#define E(name) "{\"name\":\"" name "\",\"api\":\"openai_chat\",\"url\":\"http://a.test\"}"

#define D(topic) "{\"topic\":\"" topic "\",\"kind\":\"notify\",\"url\":\"u\"}"

static char error[256];

static void
check_refused(const char *json, const char *sentence)
{
	LlmqConfig *config = llmq_config_parse(json, error, sizeof(error));

	ok(config == NULL && strstr(error, "cannot be read") != NULL, "%s", sentence);
	llmq_config_destroy(config);
}

static void
test_refused(void)
{
	check_refused("{\"endpoints\":[", "what is no JSON is no configuration");
	check_refused(
		"{\"endpoints\":[{\"name\":\"e\",\"api\":\"telepathy\",\"url\":\"http://a.test\"}]}",
		"an endpoint has an api that is known");
	check_refused("{\"endpoints\":[{\"name\":\"e\",\"api\":\"gemini\"}]}", "and a url");
	check_refused("{\"queues\":[{\"paused\":true}]}", "a queue has a name");
	check_refused("{\"destinations\":[{\"topic\":\"t\",\"kind\":\"pigeon\",\"url\":\"u\"}]}",
				  "a destination has a kind that is known");
	check_refused("{\"destinations\":[{\"topic\":\"\",\"kind\":\"notify\",\"url\":\"u\"}]}",
				  "and a topic");
}

/* There is memory for a hundred thousand endpoints, and not for everything that JSON can say. */
static void
test_too_many(void)
{
	LlmqBuffer json;

	llmq_buffer_init(&json, 4000000);
	llmq_buffer_append_string(&json, "{\"endpoints\":[0");
	for (int i = 0; i < 500000; i++)
		llmq_buffer_append_string(&json, ",0");
	llmq_buffer_append_string(&json, "]}");
	check_refused(llmq_buffer_string(&json),
				  "more endpoints than have room are refused as a whole");
	llmq_buffer_free(&json);
}

static void
test_chain(void)
{
	LlmqConfig *config = llmq_config_parse(
		"{\"endpoints\":[" E("a") "," E(
			"b") "],\"queues\":[{\"name\":\"q\",\"endpoints\":"
				 "[\"b\",\"gone\",7,\"a\"],\"fallback_on\":[\"overloaded\",\"boredom\",7]},"
				 "{\"name\":\"all\",\"endpoints\":null}]}",
		error, sizeof(error));
	const LlmqQueue *queue = llmq_config_queue(config, "q");

	ok(queue->endpoint_count == 2 && strcmp(queue->endpoints[0]->name, "b") == 0,
	   "a chain passes over endpoints that are not there, in its own order");
	is_int(queue->policy.fallback_on, 1 << LLMQ_ERROR_OVERLOADED,
		   "and over classes that nobody knows");
	is_int(llmq_config_queue(config, "all")->endpoint_count, 2, "null stands for all endpoints");
	llmq_config_destroy(config);
}

/* Of several prefixes the longest counts, wherever it stands. */
static void
test_routes(void)
{
	LlmqConfig *config = llmq_config_parse(
		"{\"destinations\":[" D("a*") "," D("abc*") "," D("ab*") "," D("abcd") "]}", error,
		sizeof(error));

	is_string(llmq_config_route(config, "abcd")->topic, "abcd", "a topic of its own comes first");
	is_string(llmq_config_route(config, "abcde")->topic, "abc*", "then the longest prefix");
	is_string(llmq_config_route(config, "abx")->topic, "ab*", "that the topic begins with");
	is_string(llmq_config_route(config, "a")->topic, "a*", "be it all of it");
	ok(llmq_config_route(config, "b") == NULL, "without any a message goes nowhere");
	llmq_config_destroy(config);
}

/* Every number is another, so that none can stand in another's place. */
static void
test_numbers(void)
{
	LlmqConfig *config = llmq_config_parse(
		"{\"endpoints\":[{\"name\":\"e\",\"api\":\"gemini\",\"url\":\"u\",\"max_in_flight\":1,"
		"\"max_response_bytes\":2,\"connect_timeout\":3,\"first_byte_timeout\":4,"
		"\"idle_timeout\":5,\"requests_per_minute\":6,\"tokens_per_minute\":7,"
		"\"breaker_failures\":8,\"breaker_cooldown\":9,\"input_price\":10,\"cached_price\":11,"
		"\"output_price\":12}],\"queues\":[{\"name\":\"q\",\"max_in_flight\":13,"
		"\"max_ready\":14,\"call_timeout\":150,\"deadline\":160,\"min_attempt\":17,"
		"\"backoff_base\":18,\"backoff_cap\":19,\"redelivery_base\":20,\"redelivery_cap\":21,"
		"\"max_attempts\":22}],\"destinations\":[{\"topic\":\"t\",\"kind\":\"notify\","
		"\"url\":\"u\",\"timeout\":23,\"backoff_base\":24,\"backoff_cap\":25,"
		"\"max_attempts\":26,\"max_in_flight\":27}]}",
		error, sizeof(error));
	const LlmqEndpoint *e = llmq_config_endpoint(config, "e");
	const LlmqQueue *q = llmq_config_queue(config, "q");
	const LlmqPolicy *p = &q->policy;
	const LlmqDestination *d = llmq_config_route(config, "t");

	ok(e->max_in_flight == 1 && e->max_response_bytes == 2 && e->connect_timeout_us == 3 &&
		   e->first_byte_timeout_us == 4 && e->idle_timeout_us == 5 &&
		   e->rates.requests_per_minute == 6 && e->rates.tokens_per_minute == 7 &&
		   e->breaker_failures == 8 && e->breaker_cooldown_us == 9 && e->input_price == 10 &&
		   e->cached_price == 11 && e->output_price == 12,
	   "each number of an endpoint is read to its place");
	ok(q->max_in_flight == 13 && q->max_ready == 14 && p->call_timeout_us == 150 &&
		   p->deadline_us == 160 && p->min_attempt_us == 17 && p->backoff_base_us == 18 &&
		   p->backoff_cap_us == 19 && p->redelivery_base_us == 20 && p->redelivery_cap_us == 21 &&
		   p->max_attempts == 22,
	   "so is each of a queue");
	ok(d->timeout_us == 23 && d->backoff_base_us == 24 && d->backoff_cap_us == 25 &&
		   d->max_attempts == 26 && d->max_in_flight == 27,
	   "and of a destination");
	llmq_config_destroy(config);
}

static void
test_policy(void)
{
	LlmqPolicy policy = {
		.call_timeout_us = 20, .deadline_us = 60, .min_attempt_us = 10, .max_attempts = 4};

	ok(llmq_policy_merge(&policy, NULL) && policy.max_attempts == 4,
	   "a job without a policy has its queue's");
	ok(llmq_policy_merge(&policy, "{\"max_attempts\":2}") && policy.max_attempts == 2 &&
		   policy.call_timeout_us == 20,
	   "a job's policy stands over its queue's, as far as it goes");
	ok(llmq_policy_merge(&policy, "{\"call_timeout\":5}") && policy.min_attempt_us == 5,
	   "no attempt needs more time than it may take");
	ok(llmq_policy_merge(&policy, "{\"deadline\":8}") && policy.min_attempt_us == 4,
	   "nor more than half of the time that there is for all of them");
	ok(!llmq_policy_merge(&policy, "[]") && !llmq_policy_merge(&policy, "{"),
	   "what is no object is no policy");
}

int
main(void)
{
	test_refused();
	test_too_many();
	test_chain();
	test_routes();
	test_numbers();
	test_policy();
	return tap_done();
}
