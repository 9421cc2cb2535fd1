/*
 * reply_verdict.c
 *		Judges an answer by the rules of test/cases/README.md and fills in the verdict.
 *
 * The rules are ordered, and the first that matches wins; classify() follows their order.  When
 * out of memory, the class is `internal`.
 */
#include "dialects/reply_private.h"

#include <string.h>
#include <strings.h>

#include "json/json_text.h"
#include "json/json_write.h"
#include "base/text.h"

static LlmqErrorClass classify(const LlmqReply *reply, LlmqTransferEnd end);
static LlmqErrorClass classify_end(const LlmqReply *reply, LlmqTransferEnd end);
static LlmqErrorClass classify_body(const LlmqReply *reply);
static LlmqErrorClass classify_answer(const LlmqReply *reply);
static void read_counts(const LlmqReply *reply, LlmqVerdict *verdict);
static LlmqBilling billing_of(const LlmqReply *reply, const LlmqVerdict *verdict);
static LlmqOutcome outcome_of(const LlmqReply *reply, LlmqErrorClass class);
static void fill_answer(LlmqReply *reply, LlmqVerdict *verdict);
static void accept_text(LlmqReply *reply, LlmqVerdict *verdict);
static const char *json_of_text(LlmqReply *reply, const char *text);
static const char *finish_reason_of(const LlmqReply *reply, LlmqErrorClass class);
static const char *response_of(LlmqReply *reply);
static const char *message_of(LlmqReply *reply, const LlmqVerdict *verdict, const char *detail);
static const char *request_id_of(LlmqReply *reply);

bool
llmq_reply_marker_read(const LlmqReply *reply)
{
	const LlmqChoice *choice;

	if (!reply->streamed || !reply->any_frame)
		return false;
	choice = llmq_answer_pick(&reply->answer);
	return reply->error.found || reply->answer.terminal ||
		   (choice != NULL && choice->reason != LLMQ_REASON_NONE);
}

void
llmq_reply_judge(LlmqReply *reply, LlmqTransferEnd end, const char *detail, int64_t now_us,
				 LlmqVerdict *verdict)
{
	LlmqAnswer *answer = &reply->answer;

	memset(verdict, 0, sizeof(*verdict));
	verdict->http_status = reply->status >= 200 ? reply->status : 0;
	verdict->bytes_in = reply->bytes_in;
	verdict->error_class = classify(reply, end);
	verdict->model = answer->model;
	verdict->request_id = request_id_of(reply);
	read_counts(reply, verdict);
	fill_answer(reply, verdict);
	verdict->outcome = outcome_of(reply, verdict->error_class);
	verdict->retry_after_us =
		verdict->outcome == LLMQ_OUTCOME_RETRY ? llmq_reply_retry_hint(reply, now_us) : -1;
	verdict->exhausted_us = llmq_reply_exhausted(reply);
	llmq_reply_left(reply, verdict, now_us);
	if (verdict->error_class != LLMQ_ERROR_NONE)
		verdict->error_message = message_of(reply, verdict, detail);
	verdict->billing = billing_of(reply, verdict);
	if (answer->no_memory || llmq_arena_failed(answer->arena))
	{
		verdict->error_class = LLMQ_ERROR_INTERNAL;
		verdict->outcome = LLMQ_OUTCOME_PERMANENT;
		verdict->retry_after_us = -1;
		verdict->text = verdict->json = verdict->tool_calls = verdict->embedding = NULL;
		verdict->finish_reason = verdict->response = NULL;
		verdict->error_message = "out of memory while the answer was read";
	}
}

static bool
is_success_status(int status)
{
	return status >= 200 && status <= 299;
}

/* Applies rules 1 to 5. */
static LlmqErrorClass
classify(const LlmqReply *reply, LlmqTransferEnd end)
{
	bool marked = llmq_reply_marker_read(reply);

	if (end == LLMQ_END_NOT_SENT)
		return LLMQ_ERROR_CONNECTION;
	if (reply->status >= 200 && !is_success_status(reply->status))
		return llmq_reply_error_by_status(reply);
	if (end == LLMQ_END_TIMEOUT && !marked)
		return LLMQ_ERROR_TIMEOUT;
	if (end == LLMQ_END_INTERRUPTED && !marked)
		return LLMQ_ERROR_INTERRUPTED;
	if (end == LLMQ_END_HEADERS_LARGE || reply->too_large)
		return LLMQ_ERROR_TOO_LARGE;
	if (marked)
		return classify_answer(reply);
	if (reply->malformed)
		return LLMQ_ERROR_INVALID_RESPONSE;
	return classify_end(reply, end);
}

/* Applies rule 5: how the connection ended decides if nothing that was read does. */
static LlmqErrorClass
classify_end(const LlmqReply *reply, LlmqTransferEnd end)
{
	switch (end)
	{
		case LLMQ_END_NO_RESPONSE:
		case LLMQ_END_RESET:
			return LLMQ_ERROR_INTERRUPTED;
		case LLMQ_END_SHORT:
			return LLMQ_ERROR_INCOMPLETE;
		case LLMQ_END_BAD_ENCODING:
			return LLMQ_ERROR_INVALID_RESPONSE;
		case LLMQ_END_STOPPED:
			if (!reply->done)
				return LLMQ_ERROR_INTERRUPTED;
			break;
		default:
			break;
	}
	return reply->status < 200 ? LLMQ_ERROR_INTERRUPTED : classify_body(reply);
}

/* Applies rules 6 to 8. */
static LlmqErrorClass
classify_body(const LlmqReply *reply)
{
	bool json = reply->first == '{' || reply->first == '[';

	if (reply->streamed && (reply->any_frame || !json || reply->dialect->json_lines))
		return reply->first == '<' && !reply->any_frame ? LLMQ_ERROR_INVALID_RESPONSE
														: LLMQ_ERROR_INCOMPLETE;
	if (reply->document == LLMQ_DOCUMENT_NONE)
		return LLMQ_ERROR_INVALID_RESPONSE;
	if (!reply->error.found && reply->document == LLMQ_DOCUMENT_SHAPELESS)
		return LLMQ_ERROR_INVALID_RESPONSE;
	return classify_answer(reply);
}

/* Applies rules 8 and 9. */
static LlmqErrorClass
classify_answer(const LlmqReply *reply)
{
	const LlmqChoice *choice = llmq_answer_pick(&reply->answer);

	if (reply->error.found)
		return llmq_reply_error_in_success(reply);
	if (reply->options.api == LLMQ_API_OPENAI_EMBEDDINGS)
		return LLMQ_ERROR_NONE;
	switch (choice == NULL ? LLMQ_REASON_UNKNOWN : choice->reason)
	{
		case LLMQ_REASON_NONE:
			return LLMQ_ERROR_INCOMPLETE;
		case LLMQ_REASON_UNKNOWN:
			return LLMQ_ERROR_INVALID_RESPONSE;
		case LLMQ_REASON_LENGTH:
			return LLMQ_ERROR_TRUNCATED;
		case LLMQ_REASON_FILTER:
			return LLMQ_ERROR_CONTENT_FILTER;
		case LLMQ_REASON_REFUSAL:
			return LLMQ_ERROR_REFUSAL;
		case LLMQ_REASON_STOP:
			break;
	}
	if (choice->refusal.len > 0)
		return LLMQ_ERROR_REFUSAL;
	if (choice->calls == NULL && choice->text.len == 0)
		return LLMQ_ERROR_EMPTY_RESPONSE;
	return LLMQ_ERROR_NONE;
}

static void
read_counts(const LlmqReply *reply, LlmqVerdict *verdict)
{
	const LlmqAnswer *answer = &reply->answer;

	verdict->input_tokens = llmq_answer_sum(answer, LLMQ_COUNT_INPUT, LLMQ_COUNT_INPUT_3);
	verdict->output_tokens = llmq_answer_sum(answer, LLMQ_COUNT_OUTPUT, LLMQ_COUNT_OUTPUT_2);
	verdict->cached_tokens = llmq_answer_sum(answer, LLMQ_COUNT_CACHED, LLMQ_COUNT_CACHED);
}

static LlmqBilling
billing_of(const LlmqReply *reply, const LlmqVerdict *verdict)
{
	int status = verdict->http_status;
	bool client_error = status >= 400 && status <= 499 && status != 408 &&
						verdict->error_class != LLMQ_ERROR_CONTENT_FILTER;

	if (verdict->error_class == LLMQ_ERROR_CONNECTION || (status >= 300 && status <= 399) ||
		status == 503 || status == 529 || client_error)
		return LLMQ_BILLING_NONE;
	return verdict->input_tokens >= 0 || verdict->output_tokens >= 0 ? LLMQ_BILLING_BILLED
																	 : LLMQ_BILLING_UNKNOWN;
}

/*
 * Applies the part of rule 2 on outcomes: x-should-retry overrides the outcome of a status,
 * except for a used-up quota, which waiting does not restore.
 */
static LlmqOutcome
outcome_of(const LlmqReply *reply, LlmqErrorClass class)
{
	const char *should_retry = reply->headers[LLMQ_HEADER_SHOULD_RETRY];

	if (should_retry == NULL || class == LLMQ_ERROR_QUOTA_EXHAUSTED ||
		class == LLMQ_ERROR_CONNECTION || reply->status < 300)
		return llmq_error_outcome(class);
	if (strcasecmp(should_retry, "true") == 0)
		return LLMQ_OUTCOME_RETRY;
	if (strcasecmp(should_retry, "false") == 0)
		return LLMQ_OUTCOME_PERMANENT;
	return llmq_error_outcome(class);
}

/* Fills in the fields that only an answer has.  The options may still change its class. */
static void
fill_answer(LlmqReply *reply, LlmqVerdict *verdict)
{
	LlmqErrorClass class = verdict->error_class;
	const LlmqChoice *choice = llmq_answer_pick(&reply->answer);

	if (!is_success_status(reply->status) || reply->error.found)
		return;
	verdict->finish_reason = finish_reason_of(reply, class);
	if (class != LLMQ_ERROR_NONE && class != LLMQ_ERROR_TRUNCATED)
		return;
	if (choice != NULL)
		verdict->text = llmq_answer_joined(&reply->answer, &choice->text);
	accept_text(reply, verdict);
	class = verdict->error_class;
	if (class == LLMQ_ERROR_NONE && choice != NULL && choice->reason == LLMQ_REASON_STOP)
		verdict->tool_calls = llmq_answer_calls_json(&reply->answer, choice);
	if (class == LLMQ_ERROR_NONE)
		verdict->embedding = reply->answer.embedding;
	if (class == LLMQ_ERROR_NONE || class == LLMQ_ERROR_TRUNCATED)
		verdict->response = response_of(reply);
}

/*
 * Checks the text against the options.  A truncated text may be accepted, and a text that
 * should be JSON must parse.  One that is truncated and does not parse stays `truncated`,
 * because another attempt would be truncated too.
 */
static void
accept_text(LlmqReply *reply, LlmqVerdict *verdict)
{
	bool truncated = verdict->error_class == LLMQ_ERROR_TRUNCATED;

	if (verdict->text == NULL || (truncated && !reply->options.accept_truncated))
		return;
	if (reply->options.require_json)
		verdict->json = json_of_text(reply, verdict->text);
	if (!reply->options.require_json || verdict->json != NULL)
		verdict->error_class = LLMQ_ERROR_NONE;
	else if (!truncated)
	{
		verdict->error_class = LLMQ_ERROR_INVALID_RESPONSE;
		verdict->finish_reason = NULL;
		verdict->text = NULL;
	}
}

static const char *
json_of_text(LlmqReply *reply, const char *text)
{
	LlmqAnswer *answer = &reply->answer;
	LlmqSlice value;
	LlmqBuffer out;
	char *json = NULL;

	if (!llmq_slice_parse(text, strlen(text), &value))
		return NULL;
	llmq_buffer_init(&out, reply->frames.max);
	if (!llmq_json_text_jsonb(&out, value.at, value.len))
		answer->no_memory = true;
	else
		json = llmq_arena_strndup(answer->arena, out.data, out.len);
	llmq_buffer_free(&out);
	return json;
}

static const char *
finish_reason_of(const LlmqReply *reply, LlmqErrorClass class)
{
	const LlmqChoice *choice = llmq_answer_pick(&reply->answer);

	if (choice == NULL)
		return NULL;
	switch (class)
	{
		case LLMQ_ERROR_NONE:
			return choice->calls != NULL ? "tool_calls" : "stop";
		case LLMQ_ERROR_TRUNCATED:
			return "length";
		case LLMQ_ERROR_CONTENT_FILTER:
			return "content_filter";
		case LLMQ_ERROR_REFUSAL:
			return "refusal";
		default:
			return NULL;
	}
}

/* Returns the document as it was received, or the frames as an array. */
static const char *
response_of(LlmqReply *reply)
{
	LlmqAnswer *answer = &reply->answer;
	LlmqBuffer *frames = &reply->frames;

	if (reply->document == LLMQ_DOCUMENT_READ)
		llmq_json_text_jsonb(frames, reply->root.at, reply->root.len);
	else
		llmq_buffer_append_char(frames, ']');
	if (frames->failed)
		answer->no_memory = true;
	return llmq_arena_strndup(answer->arena, llmq_buffer_string(frames), frames->len);
}

static const char *
request_id_of(LlmqReply *reply)
{
	LlmqArena *arena = reply->answer.arena;
	const char *id = NULL;
	char *clean = NULL;
	LlmqBuffer out;
	LlmqBuffer hidden;

	for (int i = LLMQ_HEADER_REQUEST_ID_LAST; i >= LLMQ_HEADER_REQUEST_ID; i--)
	{
		if (reply->headers[i] != NULL && reply->headers[i][0] != '\0')
			id = reply->headers[i];
	}
	if (id == NULL)
		return NULL;
	llmq_buffer_init(&out, reply->frames.max);
	llmq_buffer_init(&hidden, reply->frames.max * 3);
	llmq_text_clean(&out, id, strlen(id));
	llmq_text_hide(&hidden, llmq_buffer_string(&out), out.len, reply->options.secret);
	clean = llmq_arena_strndup(arena, llmq_buffer_string(&hidden),
							   llmq_text_cut(hidden.data, hidden.len, LLMQ_ERROR_MESSAGE_MAX));
	llmq_buffer_free(&out);
	llmq_buffer_free(&hidden);
	return clean;
}

/* Returns a description of what went wrong, for when there is no other. */
static const char *
words_for(const LlmqReply *reply, LlmqErrorClass class)
{
	switch (class)
	{
		case LLMQ_ERROR_TIMEOUT:
			return "no whole answer in time";
		case LLMQ_ERROR_CONNECTION:
			return "the request could not be sent";
		case LLMQ_ERROR_INTERRUPTED:
			return "the connection ended without an answer";
		case LLMQ_ERROR_INCOMPLETE:
			return "the answer ended before its end";
		case LLMQ_ERROR_EMPTY_RESPONSE:
			return "the answer has no text";
		case LLMQ_ERROR_TRUNCATED:
			return "the answer was cut off at a token limit";
		case LLMQ_ERROR_CONTENT_FILTER:
			return "the provider filtered the answer or the prompt";
		case LLMQ_ERROR_REFUSAL:
			return "the model refused to answer";
		case LLMQ_ERROR_TOO_LARGE:
			return "the answer is larger than its limit";
		default:
			return reply->error.found ? "the provider sent an error without a message"
									  : "the answer is not what this API gives";
	}
}

/*
 * Returns whether a class describes how the connection ended, which matters more than what was
 * read of the body.
 */
static bool
is_of_transfer(LlmqErrorClass class)
{
	return class == LLMQ_ERROR_TIMEOUT || class == LLMQ_ERROR_CONNECTION ||
		   class == LLMQ_ERROR_INTERRUPTED || class == LLMQ_ERROR_TOO_LARGE;
}

/* Appends the beginning of the body as one line. */
static void
add_excerpt(LlmqBuffer *out, const LlmqBuffer *body)
{
	size_t len = body->len < LLMQ_ERROR_MESSAGE_MAX ? body->len : LLMQ_ERROR_MESSAGE_MAX;
	bool space = true;

	for (size_t i = 0; i < len; i++)
	{
		bool now = (unsigned char) body->data[i] <= ' ';

		if (!now || !space)
			llmq_buffer_append_char(out, now ? ' ' : body->data[i]);
		space = now;
	}
}

/* Writes the most informative message only: the provider's own, or else ours. */
static void
add_message(LlmqReply *reply, const LlmqVerdict *verdict, const char *detail, LlmqBuffer *out)
{
	const LlmqChoice *choice = llmq_answer_pick(&reply->answer);
	char *refusal = NULL;

	if (verdict->error_class == LLMQ_ERROR_REFUSAL && choice != NULL && !reply->error.found)
		refusal = llmq_answer_joined(&reply->answer, &choice->refusal);
	if (is_of_transfer(verdict->error_class))
		llmq_buffer_append_string(out,
								  detail != NULL ? detail : words_for(reply, verdict->error_class));
	else if (reply->error.message != NULL)
		llmq_buffer_append_string(out, reply->error.message);
	else if (refusal != NULL)
		llmq_buffer_append_string(out, refusal);
	else if (reply->status >= 300)
	{
		llmq_buffer_printf(out, reply->body.len > 0 ? "HTTP %d: " : "HTTP %d", reply->status);
		add_excerpt(out, &reply->body);
	}
	else
	{
		llmq_buffer_append_string(out, words_for(reply, verdict->error_class));
		if (detail != NULL)
			llmq_buffer_printf(out, ": %s", detail);
		else if (verdict->error_class == LLMQ_ERROR_INVALID_RESPONSE && reply->body.len > 0)
		{
			llmq_buffer_append_string(out, ": ");
			add_excerpt(out, &reply->body);
		}
	}
}

/* Returns the message for people to read: clean, without keys, and not too long. */
static const char *
message_of(LlmqReply *reply, const LlmqVerdict *verdict, const char *detail)
{
	LlmqAnswer *answer = &reply->answer;
	LlmqBuffer raw;
	LlmqBuffer clean;
	LlmqBuffer hidden;
	LlmqBuffer masked;
	char *message;

	llmq_buffer_init(&raw, reply->frames.max);
	llmq_buffer_init(&clean, reply->frames.max * 3);
	llmq_buffer_init(&hidden, reply->frames.max * 6);
	llmq_buffer_init(&masked, reply->frames.max * 12);
	add_message(reply, verdict, detail, &raw);
	llmq_text_clean(&clean, llmq_buffer_string(&raw), raw.len);
	llmq_text_hide(&hidden, llmq_buffer_string(&clean), clean.len, reply->options.secret);
	llmq_text_mask(&masked, llmq_buffer_string(&hidden), hidden.len);
	if (raw.failed || clean.failed || hidden.failed || masked.failed)
		answer->no_memory = true;
	message = llmq_arena_strndup(
		answer->arena, llmq_buffer_string(&masked),
		llmq_text_cut(llmq_buffer_string(&masked), masked.len, LLMQ_ERROR_MESSAGE_MAX));
	llmq_buffer_free(&raw);
	llmq_buffer_free(&clean);
	llmq_buffer_free(&hidden);
	llmq_buffer_free(&masked);
	return message;
}
