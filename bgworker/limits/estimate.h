/*
 * estimate.h
 *		How many tokens a call will use, before it is made.
 *
 * Pure.  What is sent counts a token for each four bytes of its JSON, but for data
 * in base64, which counts as an image.  What is asked for counts the maximum that
 * the job's params name, in the dialect's word for it; embeddings answer with none.
 * What usage said of the calls before corrects that, endpoint by endpoint.
 */
#ifndef LLMQ_ESTIMATE_H
#define LLMQ_ESTIMATE_H

#include <stdint.h>

#include "dialects/outcome.h"
#include "dialects/provider.h"

/* What a job asks for when it names no maximum, until usage has said better. */
#define LLMQ_ESTIMATE_OUTPUT 256

/* Tokens of one image or file, whose size in bytes says little. */
#define LLMQ_ESTIMATE_DATA 1000

/* Moving sums: old calls count less and less. */
typedef struct LlmqEstimator
{
	double used;	  /* as usage had it */
	double estimated; /* as llmq_estimate had it */
	double calls;
} LlmqEstimator;

/* The uncorrected estimate of a job. */
extern int64_t llmq_estimate(LlmqApi api, const LlmqPrompt *prompt);

/* An estimate corrected by what calls have used so far. */
extern int64_t llmq_estimator_correct(const LlmqEstimator *estimator, int64_t estimated);

/* Tokens of a call of average size; 0 while none has been made. */
extern int64_t llmq_estimator_mean(const LlmqEstimator *estimator);

/* Notes what a call has used. */
extern void llmq_estimator_note(LlmqEstimator *estimator, int64_t estimated, int64_t used);

#endif /* LLMQ_ESTIMATE_H */
