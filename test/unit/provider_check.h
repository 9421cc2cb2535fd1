/*
 * provider_check.h
 *		What the tests of the dialects share: ask for a request, look at its body.
 *
 * JSON in the tests is written with ' for ", so that it can be read.
 */
#ifndef LLMQ_PROVIDER_CHECK_H
#define LLMQ_PROVIDER_CHECK_H

#include <jansson.h>
#include <stdlib.h>

#include "dialects/provider.h"
#include "tap.h"

#define ARENA_BYTES (1 << 20)

/* One case: what is submitted, and the body it becomes, or a word of the error. */
typedef struct Case
{
	const char *sentence;
	const char *messages; /* NULL: the prompt "Hi" */
	const char *params;
	const char *expected;
} Case;

static LlmqArena *arena;
static LlmqHttpRequest request;
static const char *error;

/* Turns ' into " in a copy that lives as long as the arena. */
static inline const char *
quoted(const char *text)
{
	char *copy = llmq_arena_strdup(arena, text);

	for (char *p = copy; p != NULL && *p != '\0'; p++)
		if (*p == '\'')
			*p = '"';
	return copy;
}

/* Begins a case with fresh memory. */
static inline void
start_case(void)
{
	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
}

static inline bool
ask(const LlmqTarget *target, const LlmqPrompt *prompt)
{
	return llmq_provider_request(arena, target, prompt, &request, &error);
}

static inline bool
ask_case(LlmqApi api, bool stream, const char *system, const Case *c)
{
	LlmqTarget target = {.api = api, .url = "https://example.test/v1", .stream = stream};
	LlmqPrompt prompt = {.model = "m", .system = system};

	start_case();
	prompt.messages = quoted(c->messages);
	prompt.params = quoted(c->params);
	if (c->messages == NULL)
		prompt.prompt = "Hi";
	return ask(&target, &prompt);
}

/* Tells whether a body is the expected JSON, whatever the order of members. */
static inline bool
is_json(const char *body, const char *expected, const char *sentence)
{
	json_error_t why;
	json_t *got = body == NULL ? NULL : json_loads(body, JSON_REJECT_DUPLICATES, &why);
	json_t *want = json_loads(quoted(expected), JSON_REJECT_DUPLICATES, &why);
	bool passed = ok(want != NULL && json_equal(got, want), "%s", sentence);

	if (!passed)
		printf("#      got: %s\n# expected: %s%s\n", body == NULL ? error : body, expected,
			   want == NULL ? " (is not JSON)" : "");
	json_decref(got);
	json_decref(want);
	return passed;
}

static inline void
check_bodies(LlmqApi api, const Case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		bool written = ask_case(api, false, NULL, &cases[i]);

		is_json(written ? request.body : NULL, cases[i].expected, cases[i].sentence);
	}
}

/* Each case must be refused with an error that holds the expected words. */
static inline void
check_refusals(LlmqApi api, const Case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		bool written = ask_case(api, false, NULL, &cases[i]);

		if (!ok(!written && strstr(error, cases[i].expected) != NULL, "%s", cases[i].sentence))
			printf("#      got: %s\n# expected: %s\n", written ? request.body : error,
				   cases[i].expected);
	}
}

#define COUNT_OF(array)		 (sizeof(array) / sizeof((array)[0]))
#define BODIES(api, cases)	 check_bodies(api, cases, COUNT_OF(cases))
#define REFUSALS(api, cases) check_refusals(api, cases, COUNT_OF(cases))

#endif /* LLMQ_PROVIDER_CHECK_H */
