/*
 * estimate.c
 *		Estimates how many tokens a call will use, before it is made.
 */
#include "limits/estimate.h"

#include <stdlib.h>
#include <string.h>

#include "json/json_slice.h"

#define BYTES_PER_TOKEN 4

/* The sums halve in about seven calls, so the estimate follows a change of prompts within a few. */
#define MEMORY 0.9

/* How far reported usage may move an estimate. */
#define LEAST_FACTOR 0.02
#define MOST_FACTOR	 20.0

/* A maximum above this is ignored: no model has one as large. */
#define OUTPUT_MAX 1000000

static const char data_mark[] = ";base64,";

/* Counts the tokens of JSON or of plain text. */
static int64_t
count_text(const char *text)
{
	int64_t tokens = 0;
	const char *data;

	if (text == NULL)
		return 0;
	while ((data = strstr(text, data_mark)) != NULL)
	{
		tokens += (data - text) / BYTES_PER_TOKEN + LLMQ_ESTIMATE_DATA;
		text = data + strcspn(data, "\"");
	}
	return tokens + (int64_t) (strlen(text) / BYTES_PER_TOKEN);
}

/* Returns the number in a member; 0 if it is not a number. */
static int64_t
read_maximum(LlmqSlice params, const char *name)
{
	LlmqSlice value = llmq_slice_member(params, name);
	int64_t number = llmq_slice_kind(value) == '0' ? strtoll(value.at, NULL, 10) : 0;

	return number > 0 && number < OUTPUT_MAX ? number : 0;
}

/* Returns the maximum output that a job asks for, under any of its names. */
static int64_t
count_output(const char *source)
{
	static const char *const names[] = {"max_tokens", "max_completion_tokens", "max_output_tokens",
										"maxOutputTokens", "num_predict"};
	static const char *const folders[] = {"generationConfig", "options"};
	LlmqSlice params = {NULL, 0};

	if (source == NULL || !llmq_slice_parse(source, strlen(source), &params))
		return LLMQ_ESTIMATE_OUTPUT;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		int64_t most = read_maximum(params, names[i]);

		for (size_t k = 0; most == 0 && k < sizeof(folders) / sizeof(folders[0]); k++)
			most = read_maximum(llmq_slice_member(params, folders[k]), names[i]);
		if (most > 0)
			return most;
	}
	return LLMQ_ESTIMATE_OUTPUT;
}

int64_t
llmq_estimate(LlmqApi api, const LlmqPrompt *prompt)
{
	int64_t input = count_text(prompt->prompt) + count_text(prompt->system) +
					count_text(prompt->messages) + count_text(prompt->params);

	return input + (api == LLMQ_API_OPENAI_EMBEDDINGS ? 1 : count_output(prompt->params));
}

int64_t
llmq_estimator_correct(const LlmqEstimator *estimator, int64_t estimated)
{
	double factor = estimator->calls > 0 ? estimator->used / estimator->estimated : 1.0;
	double corrected;

	factor = factor < LEAST_FACTOR ? LEAST_FACTOR : factor > MOST_FACTOR ? MOST_FACTOR : factor;
	corrected = (double) estimated * factor;
	return corrected < 1 ? 1 : (int64_t) corrected;
}

int64_t
llmq_estimator_mean(const LlmqEstimator *estimator)
{
	return estimator->calls > 0 ? (int64_t) (estimator->used / estimator->calls) : 0;
}

void
llmq_estimator_note(LlmqEstimator *estimator, int64_t estimated, int64_t used)
{
	estimator->used = estimator->used * MEMORY + (double) used;
	estimator->estimated = estimator->estimated * MEMORY + (double) (estimated > 0 ? estimated : 1);
	estimator->calls = estimator->calls * MEMORY + 1;
}
