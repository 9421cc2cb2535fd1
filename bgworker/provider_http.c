/*
 * provider_http.c
 *		The url and the headers of a request.
 *
 * Nothing that comes from outside can end a header line or start another
 * request: control characters are refused wherever they come from.  A header's
 * value may be a secret, so no error shows one.
 */
#include "provider_private.h"

#include <string.h>
#include <strings.h>

#define CREDENTIAL_MARK "${credential}"

/* Content-Type, Accept, authentication, the dialect's own, idempotency. */
#define OWN_HEADERS_MAX 5

static bool check_url(LlmqDraft *draft);
static bool read_user_headers(LlmqDraft *draft, LlmqSlice *object);
static bool add_user_headers(LlmqDraft *draft, LlmqSlice object, bool *has_credential);
static bool add_user_header(LlmqDraft *draft, LlmqSlice key, LlmqSlice value, bool *has_credential);
static bool add_own_headers(LlmqDraft *draft, const LlmqDialect *dialect, bool needs_auth);
static bool check_header_name(LlmqDraft *draft, const char *name, size_t len);
static const char *expand_credential(LlmqDraft *draft, const char *value);
static bool add_header(LlmqDraft *draft, const char *name, const char *prefix, const char *value);
static bool add_own(LlmqDraft *draft, const char *name, const char *prefix, const char *value);
static int find_header(const LlmqHttpRequest *request, const char *name);
static bool is_clean(const char *text);

bool
llmq_draft_url(LlmqDraft *draft, const char *path)
{
	const char *base = draft->target->url;
	const char *query;
	size_t base_len;
	const char *join;

	if (!check_url(draft))
		return false;
	base_len = strcspn(base, "?");
	query = base[base_len] == '?' ? base + base_len + 1 : "";
	while (base_len > 0 && base[base_len - 1] == '/')
		base_len--;
	join = query[0] == '\0' ? "" : strchr(path, '?') != NULL ? "&" : "?";
	draft->request->url =
		llmq_arena_printf(draft->arena, "%.*s%s%s%s", (int) base_len, base, path, join, query);
	return draft->request->url != NULL;
}

const char *
llmq_draft_percent_encode(LlmqDraft *draft, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	static const char unreserved[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	char *encoded = llmq_arena_alloc(draft->arena, strlen(text) * 3 + 1);
	char *to = encoded;

	if (encoded == NULL)
		return NULL;
	for (; *text != '\0'; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (strchr(unreserved, c) != NULL)
		{
			*to++ = (char) c;
			continue;
		}
		*to++ = '%';
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	return encoded;
}

bool
llmq_draft_headers(LlmqDraft *draft, const LlmqDialect *dialect)
{
	const char *secret = draft->target->credential;
	LlmqSlice user = {NULL, 0};
	bool has_credential = false;
	size_t room;

	if (secret != NULL && !is_clean(secret))
		return llmq_draft_fail(draft, "The endpoint's secret holds a control character, such as a "
									  "line end in the middle of its file.");
	if (!read_user_headers(draft, &user))
		return false;
	room = OWN_HEADERS_MAX + llmq_slice_count(user) / 2;
	draft->request->headers = llmq_arena_alloc(draft->arena, room * sizeof(char *));
	if (draft->request->headers == NULL)
		return false;
	return add_user_headers(draft, user, &has_credential) &&
		   add_own_headers(draft, dialect, secret != NULL && secret[0] != '\0' && !has_credential);
}

static bool
check_url(LlmqDraft *draft)
{
	const char *url = draft->target->url;

	if (url == NULL ||
		(strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0))
		return llmq_draft_fail(draft, "The endpoint's url must begin with http:// or https://.");
	if (!is_clean(url) || strpbrk(url, " \t#") != NULL)
		return llmq_draft_fail(
			draft, "The endpoint's url must not hold a space, a control character or a #.");
	return true;
}

static bool
read_user_headers(LlmqDraft *draft, LlmqSlice *object)
{
	const char *source = draft->target->headers;

	if (source == NULL)
		return true;
	if (!llmq_slice_parse(source, strlen(source), object))
		return llmq_draft_fail(draft, "The endpoint's headers are not JSON.");
	if (llmq_slice_given(*object) && llmq_slice_kind(*object) != '{')
		return llmq_draft_fail(draft, "The endpoint's headers must be a JSON object.");
	return true;
}

static bool
add_user_headers(LlmqDraft *draft, LlmqSlice object, bool *has_credential)
{
	LlmqSliceWalk walk = llmq_slice_walk(object);
	LlmqSlice key;
	LlmqSlice value;

	while (llmq_slice_next_member(&walk, &key, &value))
		if (!add_user_header(draft, key, value, has_credential))
			return false;
	return true;
}

static bool
add_user_header(LlmqDraft *draft, LlmqSlice key, LlmqSlice value, bool *has_credential)
{
	size_t name_len;
	size_t text_len;
	const char *name = llmq_slice_decode(draft->arena, key, &name_len);
	const char *text;

	if (name == NULL || !check_header_name(draft, name, name_len))
		return false;
	if (llmq_slice_kind(value) != '"')
		return llmq_draft_fail(draft, "The endpoint's header %s must be a string.", name);
	text = llmq_slice_decode(draft->arena, value, &text_len);
	if (text == NULL)
		return false;
	if (strlen(text) != text_len || !is_clean(text))
		return llmq_draft_fail(draft, "The endpoint's header %s holds a control character.", name);
	if (strstr(text, CREDENTIAL_MARK) != NULL)
	{
		*has_credential = true;
		if (draft->target->credential == NULL)
			return llmq_draft_fail(
				draft,
				"The endpoint's header %s asks for ${credential}, but the endpoint has none.",
				name);
		text = expand_credential(draft, text);
	}
	return text != NULL && add_header(draft, name, "", text);
}

static bool
add_own_headers(LlmqDraft *draft, const LlmqDialect *dialect, bool needs_auth)
{
	const LlmqTarget *target = draft->target;
	const char *accept = target->stream ? dialect->stream_accept : "application/json";

	if (!add_own(draft, "Content-Type", "", "application/json") ||
		!add_own(draft, "Accept", "", accept))
		return false;
	if (dialect->extra_header != NULL &&
		!add_own(draft, dialect->extra_header, "", dialect->extra_value))
		return false;
	if (needs_auth &&
		!add_own(draft, dialect->auth_header, dialect->auth_prefix, target->credential))
		return false;
	if (target->idempotency_header == NULL || target->idempotency_key == NULL)
		return true;
	if (!check_header_name(draft, target->idempotency_header, strlen(target->idempotency_header)))
		return false;
	if (!is_clean(target->idempotency_key))
		return llmq_draft_fail(draft, "The idempotency key holds a control character.");
	return add_own(draft, target->idempotency_header, "", target->idempotency_key);
}

/* A token (RFC 9110, 5.6.2), and none of those that say where a message ends. */
static bool
check_header_name(LlmqDraft *draft, const char *name, size_t len)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789"
								"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	if (len == 0 || strspn(name, token) != len)
		return llmq_draft_fail(draft, "A header's name in the endpoint is not one HTTP allows.");
	if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
		return llmq_draft_fail(draft, "The endpoint must not set the header %s.", name);
	return true;
}

static const char *
expand_credential(LlmqDraft *draft, const char *value)
{
	const size_t mark_len = strlen(CREDENTIAL_MARK);
	const char *secret = draft->target->credential;
	LlmqBuffer *out = &draft->body; /* not in use yet */
	const char *mark;
	char *expanded = NULL;

	for (; (mark = strstr(value, CREDENTIAL_MARK)) != NULL; value = mark + mark_len)
	{
		llmq_buffer_append(out, value, (size_t) (mark - value));
		llmq_buffer_append_string(out, secret);
	}
	llmq_buffer_append_string(out, value);
	if (!out->failed)
		expanded = llmq_arena_strndup(draft->arena, out->data, out->len);
	llmq_buffer_reset(out);
	return expanded;
}

/* Adds a header, or replaces the one of that name. */
static bool
add_header(LlmqDraft *draft, const char *name, const char *prefix, const char *value)
{
	LlmqHttpRequest *request = draft->request;
	int place = find_header(request, name);
	const char *line = llmq_arena_printf(draft->arena, "%s: %s%s", name, prefix, value);

	if (line == NULL)
		return false;
	if (place == request->header_count)
		request->header_count++;
	request->headers[place] = line;
	return true;
}

/* Adds one of ours, unless the user has set it. */
static bool
add_own(LlmqDraft *draft, const char *name, const char *prefix, const char *value)
{
	if (find_header(draft->request, name) < draft->request->header_count)
		return true;
	return add_header(draft, name, prefix, value);
}

/* Returns the place of a header, header_count when there is none. */
static int
find_header(const LlmqHttpRequest *request, const char *name)
{
	size_t len = strlen(name);
	int i;

	for (i = 0; i < request->header_count; i++)
		if (strncasecmp(request->headers[i], name, len) == 0 && request->headers[i][len] == ':')
			break;
	return i;
}

/* No control characters: CR and LF would end the line, the others have no business in it. */
static bool
is_clean(const char *text)
{
	for (; *text != '\0'; text++)
		if (((unsigned char) *text < 0x20 && *text != '\t') || *text == 0x7F)
			return false;
	return true;
}
