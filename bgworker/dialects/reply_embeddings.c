/*
 * reply_embeddings.c
 *		Reads answers of OpenAI's Embeddings and of compatible APIs.
 *
 * https://platform.openai.com/docs/api-reference/embeddings
 *
 * A vector stored with the wrong text is worse than a failure.  So there must be exactly one
 * for each input, all of the same length, with numbers that fit into a float4.
 */
#include "dialects/reply_dialect.h"

#include <float.h>
#include <math.h>

#include "json/json_text.h"

/* In addition to its numbers and commas a vector has "{" and "},". */
#define BRACKETS 3

static bool read_embeddings(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool place_vectors(LlmqAnswer *answer, LlmqSlice data, LlmqSlice *vectors);
static bool write_vectors(LlmqAnswer *answer, const LlmqSlice *vectors);
static bool write_vector(LlmqBuffer *out, LlmqSlice vector);

static const LlmqReasonName reasons[] = {{NULL, LLMQ_REASON_NONE}};

const LlmqReplyDialect llmq_reply_embeddings = {
	.json_lines = false,
	.reasons = reasons,
	.read = read_embeddings,
};

static bool
read_embeddings(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	size_t inputs = (size_t) answer->options->embedding_inputs;
	LlmqSlice data = llmq_slice_member(root, "data");
	LlmqSlice *vectors;

	llmq_answer_model(answer, llmq_slice_member(root, "model"));
	llmq_reply_read_usage(answer, llmq_slice_member(root, "usage"));
	if (inputs == 0 || llmq_slice_kind(data) != '[' || llmq_slice_count(data) != inputs)
		return false;
	vectors = llmq_arena_alloc(answer->arena, inputs * sizeof(*vectors));
	return vectors != NULL && place_vectors(answer, data, vectors) &&
		   write_vectors(answer, vectors);
}

/* Puts each vector at the position of its input. */
static bool
place_vectors(LlmqAnswer *answer, LlmqSlice data, LlmqSlice *vectors)
{
	LlmqSliceWalk walk = llmq_slice_walk(data);
	LlmqSlice from;
	int64_t position = 0;

	while (llmq_slice_next(&walk, &from))
	{
		LlmqSlice given = llmq_slice_member(from, "index");
		LlmqSlice vector = llmq_slice_member(from, "embedding");
		int64_t index = llmq_answer_index(given, llmq_slice_given(given) ? -1 : position);

		position++;
		if (index < 0 || index >= answer->options->embedding_inputs ||
			llmq_slice_kind(vector) != '[' || vectors[index].at != NULL)
			return false;
		vectors[index] = vector;
	}
	return true;
}

/* Writes the vectors as a literal of float4[]. */
static bool
write_vectors(LlmqAnswer *answer, const LlmqSlice *vectors)
{
	int inputs = answer->options->embedding_inputs;
	size_t length = llmq_slice_count(vectors[0]);
	bool nested = answer->options->embedding_array;
	bool written = length > 0;
	LlmqBuffer out;

	if (answer->options->embedding_dimensions > 0 &&
		length != (size_t) answer->options->embedding_dimensions)
		return false;
	llmq_buffer_init(&out, answer->options->max_bytes + (size_t) inputs * BRACKETS + BRACKETS);
	if (nested)
		llmq_buffer_append_char(&out, '{');
	for (int i = 0; i < inputs && written; i++)
	{
		if (i > 0)
			llmq_buffer_append_char(&out, ',');
		written = llmq_slice_count(vectors[i]) == length && write_vector(&out, vectors[i]);
	}
	if (nested)
		llmq_buffer_append_char(&out, '}');
	if (out.failed)
		answer->no_memory = true;
	else if (written)
		answer->embedding = llmq_arena_strndup(answer->arena, out.data, out.len);
	llmq_buffer_free(&out);
	return written;
}

/*
 * Writes a vector.  Numbers keep their spelling, which float4 reads in the same way as JSON.
 * But float4 refuses a number that is too small for it; that one is written as zero.
 */
static bool
write_vector(LlmqBuffer *out, LlmqSlice vector)
{
	LlmqSliceWalk walk = llmq_slice_walk(vector);
	char separator = '{';
	LlmqSlice element;

	while (llmq_slice_next(&walk, &element))
	{
		double number;

		if (!llmq_json_text_real(element, &number) || fabs(number) > (double) FLT_MAX)
			return false;
		if (llmq_slice_kind(element) == '"')
			element = (LlmqSlice){element.at + 1, element.len - 2};
		if ((float) number == 0)
			element = (LlmqSlice){"0", 1};
		llmq_buffer_append_char(out, separator);
		llmq_buffer_append(out, element.at, element.len);
		separator = ',';
	}
	return llmq_buffer_append_char(out, '}');
}
