/*
 * provider_embeddings.c
 *		Writes requests for embeddings in OpenAI's form.
 *
 * The input is the prompt, or params.input: a text, an array of texts, or one or several
 * arrays of tokens.  The shape of the input is checked here, because the reader of the answer
 * must know how many vectors to expect.
 * https://platform.openai.com/docs/api-reference/embeddings/create
 */
#include "dialects/provider_private.h"

#include <limits.h>

/* All providers allow far fewer in one request; this keeps the count an int. */
#define INPUTS_MAX 1000000

static bool write_body(LlmqDraft *draft);
static bool read_input(LlmqDraft *draft, LlmqSlice *input);
static bool check_array(LlmqDraft *draft, LlmqSlice input);
static bool read_dimensions(LlmqDraft *draft, LlmqSlice *dimensions);

const LlmqDialect llmq_dialect_embeddings = {
	.path = "/embeddings",
	.auth_header = "Authorization",
	.auth_prefix = "Bearer ",
	.stream_accept = "application/json", /* there is no streamed form */
	.reads_input = true,
	.write_body = write_body,
};

static bool
write_body(LlmqDraft *draft)
{
	LlmqBuffer *out = &draft->body;
	LlmqSlice input;
	LlmqSlice dimensions;

	if (!read_input(draft, &input) || !read_dimensions(draft, &dimensions))
		return false;
	llmq_write_open(out, '{');
	if (draft->model != NULL)
		llmq_write_member_text(out, "model", draft->model);
	if (input.at != NULL)
		llmq_write_member(out, "input", input);
	else
		llmq_write_member_text(out, "input", draft->prompt->prompt);
	if (dimensions.at != NULL)
		llmq_write_member(out, "dimensions", dimensions);
	/* The answer is stored as numbers, so a base64 form would only have to be decoded. */
	llmq_param_take(draft, "encoding_format");
	llmq_write_member_text(out, "encoding_format", "float");
	llmq_param_write_rest(draft);
	llmq_write_close(out, '}');
	return true;
}

/* Finds the input in params; there is none when the prompt is the input. */
static bool
read_input(LlmqDraft *draft, LlmqSlice *input)
{
	*input = llmq_param_take(draft, "input");
	if (draft->prompt->messages != NULL || draft->system != NULL)
		return llmq_draft_fail(
			draft, "openai_embeddings takes a prompt or params.input, not messages or system.");
	draft->request->embedding_inputs = 1;
	if (input->at == NULL)
		return draft->prompt->prompt != NULL ||
			   llmq_draft_fail(draft, "openai_embeddings needs a prompt or params.input.");
	if (draft->prompt->prompt != NULL)
		return llmq_draft_fail(draft, "prompt and params.input cannot both be given.");
	if (llmq_slice_kind(*input) == '"')
		return true;
	return check_array(draft, *input);
}

static bool
check_array(LlmqDraft *draft, LlmqSlice input)
{
	LlmqSliceWalk walk = llmq_slice_walk(input);
	LlmqSlice element;
	char kind = 0;
	int count = 0;

	while (llmq_slice_kind(input) == '[' && llmq_slice_next(&walk, &element))
	{
		char next = llmq_slice_kind(element);

		if ((kind != 0 && next != kind) || (next != '"' && next != '[' && next != '0'))
			return llmq_draft_fail(
				draft,
				"params.input must contain texts only, or tokens only, or arrays of tokens only.");
		kind = next;
		if (++count > INPUTS_MAX)
			return llmq_draft_fail(draft, "params.input contains more than %d elements.",
								   INPUTS_MAX);
	}
	if (count == 0)
		return llmq_draft_fail(draft,
							   "params.input must be a text, or an array that is not empty.");
	/* An array of numbers is one input, written as tokens. */
	draft->request->embedding_inputs = kind == '0' ? 1 : count;
	draft->request->embedding_array = true;
	return true;
}

static bool
read_dimensions(LlmqDraft *draft, LlmqSlice *dimensions)
{
	int value = 0;

	*dimensions = llmq_param_take(draft, "dimensions");
	for (size_t i = 0; i < dimensions->len; i++)
	{
		char c = dimensions->at[i];

		if (c < '0' || c > '9' || value > (INT_MAX - 9) / 10)
			return llmq_draft_fail(draft, "params.dimensions must be a positive whole number.");
		value = value * 10 + (c - '0');
	}
	if (dimensions->at != NULL && value == 0)
		return llmq_draft_fail(draft, "params.dimensions must be a positive whole number.");
	draft->request->embedding_dimensions = value;
	return true;
}
