/*
 * provider.c
 *		Turns a job into the HTTP request of one provider dialect.
 *
 * This is the entry point: it reads the job's JSON into a draft, has the dialect write the
 * body, and joins URL, headers and body into a request.  A prompt becomes a message here, so
 * that dialects see messages only.
 */
#include "dialects/provider.h"

#include <string.h>

#include "dialects/provider_private.h"

static const char *empty_to_null(const char *text);
static const LlmqDialect *find_dialect(LlmqApi api);
static bool write_request(LlmqDraft *draft, const LlmqDialect *dialect);
static bool read_messages(LlmqDraft *draft, const LlmqDialect *dialect);
static bool read_prompt(LlmqDraft *draft);
static bool read_params(LlmqDraft *draft);
static bool check_params(LlmqDraft *draft, const LlmqDialect *dialect);
static bool keep_body(LlmqDraft *draft);

bool
llmq_provider_request(LlmqArena *arena, const LlmqTarget *target, const LlmqPrompt *prompt,
					  LlmqHttpRequest *request, const char **error)
{
	const LlmqDialect *dialect = find_dialect(target->api);
	LlmqDraft draft = {
		.arena = arena,
		.target = target,
		.prompt = prompt,
		.request = request,
		.model = empty_to_null(prompt->model),
		.system = empty_to_null(prompt->system),
	};
	bool written;

	memset(request, 0, sizeof(*request));
	*error = NULL;
	llmq_buffer_init(&draft.body, LLMQ_REQUEST_MAX_BYTES);
	written = write_request(&draft, dialect);
	llmq_buffer_free(&draft.body);
	if (!written)
		*error = draft.error != NULL ? draft.error
									 : "The request does not fit into the memory of one job.";
	return written;
}

static const char *
empty_to_null(const char *text)
{
	return text != NULL && text[0] != '\0' ? text : NULL;
}

static const LlmqDialect *
find_dialect(LlmqApi api)
{
	switch (api)
	{
		case LLMQ_API_OPENAI_CHAT:
			return &llmq_dialect_openai_chat;
		case LLMQ_API_OPENAI_RESPONSES:
			return &llmq_dialect_openai_responses;
		case LLMQ_API_ANTHROPIC_MESSAGES:
			return &llmq_dialect_anthropic;
		case LLMQ_API_GEMINI:
			return &llmq_dialect_gemini;
		case LLMQ_API_OLLAMA_CHAT:
			return &llmq_dialect_ollama;
		case LLMQ_API_OPENAI_EMBEDDINGS:
			return &llmq_dialect_embeddings;
	}
	return NULL;
}

static bool
write_request(LlmqDraft *draft, const LlmqDialect *dialect)
{
	const char *path;

	if (dialect == NULL)
		return llmq_draft_fail(draft, "The endpoint's api is not known.");
	if (dialect->needs_model && draft->model == NULL)
		return llmq_draft_fail(draft, "%s needs a model: name one in the job or in the endpoint.",
							   llmq_api_name(draft->target->api));
	if (!read_params(draft) || !check_params(draft, dialect) || !read_messages(draft, dialect))
		return false;
	path = dialect->write_path == NULL ? dialect->path : dialect->write_path(draft);
	if (path == NULL || !llmq_draft_url(draft, path) || !llmq_draft_headers(draft, dialect))
		return false;
	return dialect->write_body(draft) && draft->error == NULL && keep_body(draft);
}

static bool
read_params(LlmqDraft *draft)
{
	const char *source = draft->prompt->params;
	LlmqSlice object;
	LlmqSliceWalk walk;
	size_t count;

	if (source == NULL)
		return true;
	if (!llmq_slice_parse(source, strlen(source), &object))
		return llmq_draft_fail(draft, "params is not JSON, or is nested deeper than %d levels.",
							   LLMQ_JSON_MAX_DEPTH);
	if (!llmq_slice_given(object))
		return true;
	if (llmq_slice_kind(object) != '{')
		return llmq_draft_fail(draft, "params must be a JSON object.");
	count = llmq_slice_count(object) / 2;
	if (count == 0)
		return true;
	draft->params = llmq_arena_alloc(draft->arena, count * sizeof(LlmqParam));
	if (draft->params == NULL)
		return false;
	walk = llmq_slice_walk(object);
	while (draft->param_count < count &&
		   llmq_slice_next_member(&walk, &draft->params[draft->param_count].key,
								  &draft->params[draft->param_count].value))
		draft->param_count++;
	return true;
}

/*
 * Refuses params that set how the answer is sent, or who answers: the reader of the answer
 * would not know about them.
 */
static bool
check_params(LlmqDraft *draft, const LlmqDialect *dialect)
{
	static const char *const reserved[] = {"model", "messages", "stream"};

	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (llmq_param_take(draft, reserved[i]).at != NULL)
			return llmq_draft_fail(
				draft,
				"params must not contain \"%s\": stream is set in the endpoint; model "
				"and messages are arguments of their own.",
				reserved[i]);
	/* stream_options is an error without a stream, and other dialects do not know it. */
	if (!draft->target->stream || !dialect->has_stream_options)
		llmq_param_take(draft, "stream_options");
	return true;
}

static bool
read_messages(LlmqDraft *draft, const LlmqDialect *dialect)
{
	const char *source = draft->prompt->messages;
	LlmqSliceWalk walk;
	LlmqSlice message;

	if (source != NULL && !llmq_slice_parse(source, strlen(source), &draft->messages))
		return llmq_draft_fail(draft, "messages is not JSON, or is nested deeper than %d levels.",
							   LLMQ_JSON_MAX_DEPTH);
	if (!llmq_slice_given(draft->messages))
		return draft->prompt->prompt != NULL || !dialect->reads_input ? read_prompt(draft) : true;
	if (draft->prompt->prompt != NULL)
		return llmq_draft_fail(draft, "prompt and messages cannot both be given.");
	if (llmq_slice_kind(draft->messages) != '[' || llmq_slice_count(draft->messages) == 0)
		return llmq_draft_fail(draft, "messages must be a JSON array with at least one message.");
	walk = llmq_slice_walk(draft->messages);
	while (llmq_slice_next(&walk, &message))
		if (llmq_slice_kind(message) != '{' ||
			llmq_slice_kind(llmq_slice_member(message, "role")) != '"')
			return llmq_draft_fail(draft, "Each of messages must be an object with a role.");
	return true;
}

/* Makes the prompt the only message, as if it had been submitted that way. */
static bool
read_prompt(LlmqDraft *draft)
{
	const char *prompt = draft->prompt->prompt;
	LlmqBuffer *out = &draft->body;

	if (prompt == NULL)
		return llmq_draft_fail(draft, "The job has neither prompt nor messages.");
	llmq_write_open(out, '[');
	llmq_write_open(out, '{');
	llmq_write_member_text(out, "role", "user");
	llmq_write_member_text(out, "content", prompt);
	llmq_write_close(out, '}');
	llmq_write_close(out, ']');
	if (out->failed)
		return false;
	draft->messages.at = llmq_arena_strndup(draft->arena, out->data, out->len);
	draft->messages.len = out->len;
	llmq_buffer_reset(out);
	return draft->messages.at != NULL;
}

static bool
keep_body(LlmqDraft *draft)
{
	if (draft->body.failed)
		return false;
	draft->request->body_len = draft->body.len;
	draft->request->body = llmq_arena_strndup(draft->arena, draft->body.data, draft->body.len);
	return draft->request->body != NULL;
}
