/*
 * reply_gemini.c
 *		Reads answers of Google's Gemini (generateContent, streamGenerateContent).
 *
 * https://ai.google.dev/api/generate-content
 *
 * A frame of a stream is a response like a document, with the next parts of each candidate.
 * For a blocked prompt there are no candidates, and promptFeedback gives the reason.
 */
#include "dialects/reply_dialect.h"

static bool read_gemini(LlmqAnswer *answer, LlmqSlice root, bool frame);
static bool read_candidate(LlmqAnswer *answer, LlmqSlice candidate, int64_t position, bool frame);
static bool read_parts(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice parts);
static bool read_blocked(LlmqAnswer *answer, LlmqSlice feedback);
static void read_usage(LlmqAnswer *answer, LlmqSlice usage);

static const LlmqReasonName reasons[] = {
	{"STOP", LLMQ_REASON_STOP},
	{"SAFETY", LLMQ_REASON_FILTER},
	{"RECITATION", LLMQ_REASON_FILTER},
	{"BLOCKLIST", LLMQ_REASON_FILTER},
	{"PROHIBITED_CONTENT", LLMQ_REASON_FILTER},
	{"SPII", LLMQ_REASON_FILTER},
	{"LANGUAGE", LLMQ_REASON_FILTER},
	{"IMAGE_SAFETY", LLMQ_REASON_FILTER},
	{"IMAGE_PROHIBITED_CONTENT", LLMQ_REASON_FILTER},
	{"IMAGE_RECITATION", LLMQ_REASON_FILTER},
	{NULL, LLMQ_REASON_NONE},
};

const LlmqReplyDialect llmq_reply_gemini = {
	.json_lines = false,
	.reasons = reasons,
	.read = read_gemini,
};

static bool
read_gemini(LlmqAnswer *answer, LlmqSlice root, bool frame)
{
	LlmqSlice candidates = llmq_slice_member(root, "candidates");
	LlmqSliceWalk walk = llmq_slice_walk(candidates);
	LlmqSlice candidate;
	int64_t position = 0;

	llmq_answer_model(answer, llmq_slice_member(root, "modelVersion"));
	read_usage(answer, llmq_slice_member(root, "usageMetadata"));
	if (llmq_slice_given(candidates) && llmq_slice_kind(candidates) != '[')
		return false;
	while (llmq_slice_next(&walk, &candidate))
	{
		if (!read_candidate(answer, candidate, position++, frame))
			return false;
	}
	return position > 0 || read_blocked(answer, llmq_slice_member(root, "promptFeedback")) || frame;
}

static bool
read_candidate(LlmqAnswer *answer, LlmqSlice candidate, int64_t position, bool frame)
{
	LlmqSlice content = llmq_slice_member(candidate, "content");
	LlmqSlice parts = llmq_slice_member(content, "parts");
	int64_t index = llmq_answer_index(llmq_slice_member(candidate, "index"), position);
	LlmqChoice *choice;

	if (llmq_slice_kind(candidate) != '{' ||
		(llmq_slice_given(content) && llmq_slice_kind(content) != '{') ||
		(llmq_slice_given(parts) && llmq_slice_kind(parts) != '['))
		return false;
	/* In a document, two candidates with the same index are still two. */
	choice = frame ? llmq_answer_choice(answer, index) : llmq_answer_add_choice(answer, index);
	if (choice == NULL || !read_parts(answer, choice, parts))
		return false;
	llmq_answer_reason(answer, choice, llmq_slice_member(candidate, "finishReason"));
	return true;
}

static bool
read_parts(LlmqAnswer *answer, LlmqChoice *choice, LlmqSlice parts)
{
	LlmqSliceWalk walk = llmq_slice_walk(parts);
	LlmqSlice part;

	while (llmq_slice_next(&walk, &part))
	{
		LlmqSlice function = llmq_slice_member(part, "functionCall");
		LlmqAnswerCall *call;

		if (llmq_slice_kind(part) != '{')
			return false;
		if (llmq_slice_kind(llmq_slice_member(part, "thought")) != 't')
			llmq_answer_text(choice, llmq_slice_member(part, "text"));
		if (llmq_slice_kind(function) != '{')
			continue;
		call = llmq_answer_call(answer, choice, -1);
		if (call == NULL)
			return false;
		llmq_answer_call_add(answer, call, llmq_slice_member(function, "id"),
							 llmq_slice_member(function, "name"),
							 llmq_slice_member(function, "args"));
	}
	return true;
}

/* Reads promptFeedback.  Whatever the name of the reason, the prompt was filtered. */
static bool
read_blocked(LlmqAnswer *answer, LlmqSlice feedback)
{
	LlmqSlice reason = llmq_slice_member(feedback, "blockReason");
	LlmqChoice *choice;

	if (llmq_slice_kind(reason) != '"' || llmq_slice_equals(reason, ""))
		return false;
	choice = llmq_answer_choice(answer, 0);
	if (choice != NULL && choice->reason == LLMQ_REASON_NONE)
		choice->reason = LLMQ_REASON_FILTER;
	return choice != NULL;
}

static void
read_usage(LlmqAnswer *answer, LlmqSlice usage)
{
	llmq_answer_count(answer, LLMQ_COUNT_INPUT, llmq_slice_member(usage, "promptTokenCount"));
	llmq_answer_count(answer, LLMQ_COUNT_INPUT_2,
					  llmq_slice_member(usage, "toolUsePromptTokenCount"));
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT, llmq_slice_member(usage, "candidatesTokenCount"));
	llmq_answer_count(answer, LLMQ_COUNT_OUTPUT_2, llmq_slice_member(usage, "thoughtsTokenCount"));
	llmq_answer_count(answer, LLMQ_COUNT_CACHED,
					  llmq_slice_member(usage, "cachedContentTokenCount"));
}
