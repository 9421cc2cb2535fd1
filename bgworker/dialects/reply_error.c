/*
 * reply_error.c
 *		Finds a provider's error object and determines the class of the error.
 *
 * Providers report the same problem in different places.  The names, numbers and phrases below
 * are those of test/cases/README.md.
 */
#include "dialects/reply_private.h"

#include <string.h>
#include <strings.h>

#include "json/json_text.h"
#include "base/retry.h"
#include "base/text.h"

#define US_PER_SECOND INT64_C(1000000)

#define LENGTH_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How deep quota ids are looked for; in Google's errors they are four levels deep. */
#define QUOTA_DEPTH_MAX 8

/*
 * The names, in order: code, type, status, innererror.code, and code and status next to the
 * object.
 */
#define NAMES_MAX 6

/* A longer string, even if escaped, is none of the names. */
#define NAME_BYTES_MAX 256

typedef struct ErrorName
{
	const char *name;
	LlmqErrorClass class;
} ErrorName;

static const ErrorName error_names[] = {
	{"insufficient_quota", LLMQ_ERROR_QUOTA_EXHAUSTED},
	{"billing_error", LLMQ_ERROR_QUOTA_EXHAUSTED},
	{"billing_hard_limit_reached", LLMQ_ERROR_QUOTA_EXHAUSTED},
	{"rate_limit_exceeded", LLMQ_ERROR_RATE_LIMITED},
	{"rate_limit_error", LLMQ_ERROR_RATE_LIMITED},
	{"RESOURCE_EXHAUSTED", LLMQ_ERROR_RATE_LIMITED},
	{"overloaded_error", LLMQ_ERROR_OVERLOADED},
	{"unavailable_error", LLMQ_ERROR_OVERLOADED},
	{"UNAVAILABLE", LLMQ_ERROR_OVERLOADED},
	{"server_error", LLMQ_ERROR_SERVER_ERROR},
	{"api_error", LLMQ_ERROR_SERVER_ERROR},
	{"timeout_error", LLMQ_ERROR_SERVER_ERROR},
	{"INTERNAL", LLMQ_ERROR_SERVER_ERROR},
	{"DEADLINE_EXCEEDED", LLMQ_ERROR_SERVER_ERROR},
	{"vector_store_timeout", LLMQ_ERROR_SERVER_ERROR},
	{"failed_to_download_image", LLMQ_ERROR_SERVER_ERROR},
	{"conflict_error", LLMQ_ERROR_CONFLICT},
	{"authentication_error", LLMQ_ERROR_AUTH},
	{"permission_error", LLMQ_ERROR_AUTH},
	{"invalid_api_key", LLMQ_ERROR_AUTH},
	{"UNAUTHENTICATED", LLMQ_ERROR_AUTH},
	{"PERMISSION_DENIED", LLMQ_ERROR_AUTH},
	{"not_found_error", LLMQ_ERROR_NOT_FOUND},
	{"model_not_found", LLMQ_ERROR_NOT_FOUND},
	{"NOT_FOUND", LLMQ_ERROR_NOT_FOUND},
	{"context_length_exceeded", LLMQ_ERROR_CONTEXT_LENGTH},
	{"exceed_context_size_error", LLMQ_ERROR_CONTEXT_LENGTH},
	{"string_above_max_length", LLMQ_ERROR_CONTEXT_LENGTH},
	{"content_filter", LLMQ_ERROR_CONTENT_FILTER},
	{"content_policy_violation", LLMQ_ERROR_CONTENT_FILTER},
	{"ResponsibleAIPolicyViolation", LLMQ_ERROR_CONTENT_FILTER},
	{"invalid_prompt", LLMQ_ERROR_CONTENT_FILTER},
	{"image_content_policy_violation", LLMQ_ERROR_CONTENT_FILTER},
	{"bio_policy", LLMQ_ERROR_CONTENT_FILTER},
	{"invalid_request_error", LLMQ_ERROR_BAD_REQUEST},
	{"INVALID_ARGUMENT", LLMQ_ERROR_BAD_REQUEST},
	{"FAILED_PRECONDITION", LLMQ_ERROR_BAD_REQUEST},
	/* https://platform.openai.com/docs/api-reference/responses/object, error.code */
	{"invalid_image", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_image_format", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_base64_image", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_image_url", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_image_mode", LLMQ_ERROR_BAD_REQUEST},
	{"image_too_large", LLMQ_ERROR_BAD_REQUEST},
	{"image_too_small", LLMQ_ERROR_BAD_REQUEST},
	{"image_parse_error", LLMQ_ERROR_BAD_REQUEST},
	{"image_file_too_large", LLMQ_ERROR_BAD_REQUEST},
	{"image_file_not_found", LLMQ_ERROR_BAD_REQUEST},
	{"unsupported_image_media_type", LLMQ_ERROR_BAD_REQUEST},
	{"empty_image_file", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_file", LLMQ_ERROR_BAD_REQUEST},
	{"invalid_file_format", LLMQ_ERROR_BAD_REQUEST},
	{"file_too_large", LLMQ_ERROR_BAD_REQUEST},
	{"file_not_found", LLMQ_ERROR_BAD_REQUEST},
	{"unsupported_file", LLMQ_ERROR_BAD_REQUEST},
	{"empty_file", LLMQ_ERROR_BAD_REQUEST},
};

static const char *const quota_phrases[] = {
	"credit balance is too low",  "insufficient credits",
	"insufficient balance",		  "out of credits",
	"billing hard limit",		  "spend limit",
	"specified API usage limits",
};

static const char *const context_phrases[] = {
	"prompt is too long",
	"maximum context length",
	"exceeds the context length",
	"exceeds the maximum number of tokens",
	"exceeds the available context size",
	"exceed context limit",
	"maximum model length",
};

static bool locate(const LlmqReply *reply, LlmqSlice root, LlmqSlice *error, LlmqSlice *beside);
static void read_names(LlmqReply *reply, LlmqSlice error, LlmqSlice beside);
static void read_message(LlmqReply *reply, LlmqSlice message);
static void read_retry_hint(LlmqReply *reply, LlmqSlice details);
static bool has_daily_quota(LlmqReply *reply, LlmqSlice value, int depth);
static bool is_named(LlmqReply *reply, LlmqSlice value, const char *name);
static LlmqErrorClass class_of_name(LlmqReply *reply, LlmqSlice name);
static LlmqErrorClass class_of_status(int status);
static bool has_phrase(const char *text, const char *const *phrases, size_t count);

bool
llmq_reply_find_error(LlmqReply *reply, LlmqSlice root)
{
	LlmqErrorObject *found = &reply->error;
	LlmqSlice error;
	LlmqSlice beside = {NULL, 0};

	if (!locate(reply, root, &error, &beside))
		return false;
	found->found = true;
	found->hint_us = -1;
	read_names(reply, error, beside);
	if (llmq_slice_kind(error) == '"')
		read_message(reply, error);
	else
	{
		read_message(reply, llmq_slice_member(error, "message"));
		read_retry_hint(reply, llmq_slice_member(error, "details"));
		found->quota = found->quota || has_daily_quota(reply, error, 0);
	}
	found->quota = found->quota || found->name_class == LLMQ_ERROR_QUOTA_EXHAUSTED;
	return true;
}

LlmqErrorClass
llmq_reply_error_in_success(const LlmqReply *reply)
{
	const LlmqErrorObject *error = &reply->error;
	LlmqErrorClass class = error->name_class;

	if (error->quota)
		return LLMQ_ERROR_QUOTA_EXHAUSTED;
	if (class == LLMQ_ERROR_NONE && error->number != 0)
		class = class_of_status(error->number);
	if ((class == LLMQ_ERROR_NONE || class == LLMQ_ERROR_BAD_REQUEST) && error->context)
		return LLMQ_ERROR_CONTEXT_LENGTH;
	/* A request that was partly answered cannot have been invalid. */
	if (class == LLMQ_ERROR_BAD_REQUEST && error->bare && llmq_answer_has_text(&reply->answer))
		return LLMQ_ERROR_INVALID_RESPONSE;
	return class == LLMQ_ERROR_NONE ? LLMQ_ERROR_INVALID_RESPONSE : class;
}

LlmqErrorClass
llmq_reply_error_by_status(const LlmqReply *reply)
{
	const LlmqErrorObject *error = &reply->error;
	LlmqErrorClass class = class_of_status(reply->status);

	if (reply->status < 400 || reply->status > 499 || !error->found)
		return class;
	if (error->quota)
		return LLMQ_ERROR_QUOTA_EXHAUSTED;
	if (class != LLMQ_ERROR_BAD_REQUEST)
		return class;
	if (error->name_class == LLMQ_ERROR_CONTEXT_LENGTH ||
		error->name_class == LLMQ_ERROR_CONTENT_FILTER || error->name_class == LLMQ_ERROR_NOT_FOUND)
		return error->name_class;
	return error->context ? LLMQ_ERROR_CONTEXT_LENGTH : class;
}

/* Returns whether a value can be an error: an object, or a string that is not empty. */
static bool
is_error(LlmqSlice value)
{
	return llmq_slice_kind(value) == '{' ||
		   (llmq_slice_kind(value) == '"' && !llmq_slice_equals(value, ""));
}

/* Finds the error object, and the object that contains it. */
static bool
locate(const LlmqReply *reply, LlmqSlice root, LlmqSlice *error, LlmqSlice *beside)
{
	LlmqSliceWalk walk;

	if (llmq_slice_kind(root) == '[' && llmq_slice_count(root) == 1)
	{
		walk = llmq_slice_walk(root);
		llmq_slice_next(&walk, &root);
	}
	if (llmq_slice_kind(root) != '{')
		return false;
	*beside = root;
	*error = llmq_slice_member(root, "error");
	if (is_error(*error))
		return true;
	if (reply->options.api == LLMQ_API_OPENAI_RESPONSES)
	{
		*beside = llmq_slice_member(root, "response");
		*error = llmq_slice_member(*beside, "error");
		if (is_error(*error))
			return true;
	}
	*beside = (LlmqSlice){NULL, 0};
	*error = root;
	return llmq_slice_equals(llmq_slice_member(root, "type"), "error") ||
		   llmq_slice_equals(llmq_slice_member(root, "object"), "error");
}

static void
read_names(LlmqReply *reply, LlmqSlice error, LlmqSlice beside)
{
	LlmqErrorObject *found = &reply->error;
	LlmqSlice names[NAMES_MAX] = {
		llmq_slice_member(error, "code"),
		llmq_slice_member(error, "type"),
		llmq_slice_member(error, "status"),
		llmq_slice_member(llmq_slice_member(error, "innererror"), "code"),
		llmq_slice_member(beside, "code"),
		llmq_slice_member(beside, "status"),
	};
	bool coded = false;

	for (int i = 0; i < NAMES_MAX; i++)
	{
		LlmqErrorClass class = class_of_name(reply, names[i]);
		int64_t number;

		if (found->name_class == LLMQ_ERROR_NONE ||
			(found->name_class == LLMQ_ERROR_BAD_REQUEST && class != LLMQ_ERROR_NONE))
			found->name_class = class;
		if (llmq_json_text_integer(names[i], &number) && number >= 400 && number <= 599)
		{
			found->number = found->number == 0 ? (int) number : found->number;
			found->quota = found->quota || number == 402;
		}
		if ((i == 0 || i == 4) && llmq_slice_given(names[i]) && !llmq_slice_equals(names[i], ""))
			coded = true;
	}
	found->bare = !coded && is_named(reply, names[1], "invalid_request_error");
}

static void
read_message(LlmqReply *reply, LlmqSlice message)
{
	LlmqErrorObject *found = &reply->error;

	found->message = llmq_answer_string(&reply->answer, message);
	if (found->message == NULL)
		return;
	if (has_phrase(found->message, quota_phrases, LENGTH_OF(quota_phrases)))
		found->quota = true;
	if (has_phrase(found->message, context_phrases, LENGTH_OF(context_phrases)))
		found->context = true;
}

/*
 * Checks for "type.googleapis.com/google.rpc.RetryInfo"; only the part after the last slash
 * counts.
 */
static bool
is_retry_info(LlmqReply *reply, LlmqSlice type)
{
	const char *name = llmq_answer_string(&reply->answer, type);
	const char *slash = name != NULL ? strrchr(name, '/') : NULL;

	if (slash != NULL)
		name = slash + 1;
	return name != NULL &&
		   (strcmp(name, "google.rpc.RetryInfo") == 0 || strcmp(name, "RetryInfo") == 0);
}

static void
read_retry_hint(LlmqReply *reply, LlmqSlice details)
{
	LlmqSliceWalk walk = llmq_slice_walk(details);
	LlmqSlice detail;

	while (reply->error.hint_us < 0 && llmq_slice_next(&walk, &detail))
	{
		LlmqSlice delay = llmq_slice_member(detail, "retryDelay");
		const char *text;
		int64_t us;

		if (!llmq_slice_given(delay) || !is_retry_info(reply, llmq_slice_member(detail, "@type")))
			continue;
		text = llmq_slice_kind(delay) == '"'
				   ? llmq_answer_string(&reply->answer, delay)
				   : llmq_arena_strndup(reply->answer.arena, delay.at, delay.len);
		if (text != NULL && (llmq_retry_parse_number(text, strlen(text), US_PER_SECOND, &us) ||
							 llmq_retry_parse_duration(text, strlen(text), &us)))
			reply->error.hint_us = us;
	}
}

/* Looks for a daily limit: waiting within a job does not help against it. */
static bool
has_daily_quota(LlmqReply *reply, LlmqSlice value, int depth)
{
	LlmqSliceWalk walk = llmq_slice_walk(value);
	bool object = llmq_slice_kind(value) == '{';
	LlmqSlice key = {NULL, 0};
	LlmqSlice element;

	if (depth == QUOTA_DEPTH_MAX)
		return false;
	while (object ? llmq_slice_next_member(&walk, &key, &element)
				  : llmq_slice_next(&walk, &element))
	{
		const char *id = NULL;

		if (llmq_slice_equals(key, "quotaId") || llmq_slice_equals(key, "quota_limit"))
			id = llmq_answer_string(&reply->answer, element);
		if ((id != NULL && llmq_text_contains(id, "PerDay")) ||
			has_daily_quota(reply, element, depth + 1))
			return true;
	}
	return false;
}

static bool
is_named(LlmqReply *reply, LlmqSlice value, const char *name)
{
	const char *text =
		value.len <= NAME_BYTES_MAX ? llmq_answer_string(&reply->answer, value) : NULL;

	return text != NULL && strcasecmp(text, name) == 0;
}

static LlmqErrorClass
class_of_name(LlmqReply *reply, LlmqSlice name)
{
	const char *text = name.len <= NAME_BYTES_MAX ? llmq_answer_string(&reply->answer, name) : NULL;

	for (size_t i = 0; text != NULL && i < LENGTH_OF(error_names); i++)
	{
		if (strcasecmp(text, error_names[i].name) == 0)
			return error_names[i].class;
	}
	return LLMQ_ERROR_NONE;
}

static LlmqErrorClass
class_of_status(int status)
{
	if (status < 400)
		return LLMQ_ERROR_REDIRECT;
	switch (status)
	{
		case 401:
		case 403:
			return LLMQ_ERROR_AUTH;
		case 402:
			return LLMQ_ERROR_QUOTA_EXHAUSTED;
		case 404:
			return LLMQ_ERROR_NOT_FOUND;
		case 408:
			return LLMQ_ERROR_REQUEST_TIMEOUT;
		case 409:
			return LLMQ_ERROR_CONFLICT;
		case 429:
			return LLMQ_ERROR_RATE_LIMITED;
		case 503:
		case 529:
			return LLMQ_ERROR_OVERLOADED;
		default:
			return status < 500 ? LLMQ_ERROR_BAD_REQUEST : LLMQ_ERROR_SERVER_ERROR;
	}
}

static bool
has_phrase(const char *text, const char *const *phrases, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (llmq_text_contains(text, phrases[i]))
			return true;
	}
	return false;
}
