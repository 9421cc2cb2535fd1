/*
 * config_test.c
 *		What is taken for a configuration, and for a job's own policy.
 */
#include <stdlib.h>

#include "base/buffer.h"
#include "core/config.h"
#include "tap.h"

#define E(name) "{\"name\":\"" name "\",\"api\":\"openai_chat\",\"url\":\"http://a.test\"}"

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
	test_policy();
	return tap_done();
}
