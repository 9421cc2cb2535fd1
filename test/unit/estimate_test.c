/*
 * estimate_test.c
 *		How many tokens a call is taken for, and how usage corrects it.
 */
#include "limits/estimate.h"

#include <stdlib.h>

#include "tap.h"

static void
test_prompts(void)
{
	char image[9000];

	is_int(llmq_estimate(LLMQ_API_OPENAI_CHAT, &(LlmqPrompt){.prompt = "twelve bytes"}),
		   3 + LLMQ_ESTIMATE_OUTPUT, "four bytes are a token, and an answer has some");
	is_int(llmq_estimate(LLMQ_API_OPENAI_EMBEDDINGS, &(LlmqPrompt){.prompt = "twelve bytes"}), 4,
		   "an embedding has no answer");
	is_int(llmq_estimate(LLMQ_API_ANTHROPIC_MESSAGES,
						 &(LlmqPrompt){.prompt = "twelve bytes", .params = "{\"max_tokens\": 50}"}),
		   3 + 4 + 50, "the maximum that is asked for counts");
	is_int(llmq_estimate(LLMQ_API_GEMINI,
						 &(LlmqPrompt){.params = "{\"generationConfig\":{\"maxOutputTokens\":7}}"}),
		   10 + 7, "also in Gemini's words");
	is_int(llmq_estimate(LLMQ_API_OLLAMA_CHAT,
						 &(LlmqPrompt){.params = "{\"options\":{\"num_predict\":100}}"}),
		   7 + 100, "and in Ollama's");
	is_int(llmq_estimate(LLMQ_API_OPENAI_CHAT, &(LlmqPrompt){.params = "{\"max_tokens\":-1}"}),
		   4 + LLMQ_ESTIMATE_OUTPUT, "a maximum that is none is passed over");
	snprintf(image, sizeof(image), "[{\"url\":\"data:image/png;base64,%08000d\"}]", 0);
	ok(llmq_estimate(LLMQ_API_OPENAI_CHAT, &(LlmqPrompt){.messages = image}) <
		   LLMQ_ESTIMATE_DATA + LLMQ_ESTIMATE_OUTPUT + 20,
	   "an image counts as one, not by its bytes");
}

static void
test_correction(void)
{
	LlmqEstimator estimator = {0};

	is_int(llmq_estimator_correct(&estimator, 100), 100,
		   "before the first answer an estimate stands");
	llmq_estimator_note(&estimator, 100, 300);
	is_int(llmq_estimator_correct(&estimator, 100), 300, "one answer corrects it");
	is_int(llmq_estimator_mean(&estimator), 300, "and says what a call uses");
	for (int i = 0; i < 30; i++)
		llmq_estimator_note(&estimator, 100, 50);
	ok(llmq_estimator_correct(&estimator, 100) < 70, "later ones weigh more than earlier ones");
	for (int i = 0; i < 100; i++)
		llmq_estimator_note(&estimator, 10000, 500);
	is_int(llmq_estimator_correct(&estimator, 10000), 500,
		   "an estimate of twenty times as much comes down to what calls use");
	for (int i = 0; i < 300; i++)
		llmq_estimator_note(&estimator, 1000000, 0);
	ok(llmq_estimator_correct(&estimator, 100) >= 1, "no call is taken for free");
}

int
main(void)
{
	test_prompts();
	test_correction();
	return tap_done();
}
