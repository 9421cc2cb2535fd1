/*
 * estimate.h
 *		Estimates how many tokens a call will use, before it is made.
 *
 * Pure.  The input counts one token for every four bytes of its JSON, except for data in
 * base64, which counts as an image.  The output counts the maximum that the job's params set,
 * in the dialect's name for it; embeddings have no output.  For each endpoint, the usage that
 * earlier calls reported corrects the estimate.
 */
#ifndef LLMQ_ESTIMATE_H
#define LLMQ_ESTIMATE_H

#include <stdint.h>

#include "dialects/outcome.h"
#include "dialects/provider.h"

/* The output of a job that sets no maximum, until reported usage corrects it. */
#define LLMQ_ESTIMATE_OUTPUT 256

/* Tokens of one image or file.  Its size in bytes says little about that. */
#define LLMQ_ESTIMATE_DATA 1000

/* Sums with decay: old calls count less and less. */
typedef struct LlmqEstimator
{
	double used;	  /* as reported in usage */
	double estimated; /* as llmq_estimate returned */
	double calls;
} LlmqEstimator;

/* Returns the uncorrected estimate of a job. */
extern int64_t llmq_estimate(LlmqApi api, const LlmqPrompt *prompt);

/* Returns an estimate corrected by what calls have used so far. */
extern int64_t llmq_estimator_correct(const LlmqEstimator *estimator, int64_t estimated);

/* Returns the tokens of an average call; 0 if no call was made yet. */
extern int64_t llmq_estimator_mean(const LlmqEstimator *estimator);

/* Records what a call has used. */
extern void llmq_estimator_note(LlmqEstimator *estimator, int64_t estimated, int64_t used);

#endif /* LLMQ_ESTIMATE_H */
