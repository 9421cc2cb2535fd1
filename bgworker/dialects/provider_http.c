/*
 * provider_http.c
 *		Writes the URL and the headers of a call to a model.
 */
#include "dialects/provider_private.h"

#include <string.h>

/* Content-Type, Accept, authentication, the dialect's own, traceparent, idempotency. */
#define OWN_HEADERS_MAX 6

static LlmqHttpWriter writer_of(const LlmqDraft *draft);
static bool conclude(LlmqDraft *draft, const LlmqHttpWriter *writer, bool written);
static bool
add_own_headers(LlmqHttpWriter *writer, const LlmqTarget *target, const LlmqDialect *dialect);
static bool add_idempotency(LlmqHttpWriter *writer, const LlmqTarget *target);

bool
llmq_draft_url(LlmqDraft *draft, const char *path)
{
	const char *base = draft->target->url;
	LlmqHttpWriter writer = writer_of(draft);
	const char *query;
	size_t base_len;
	const char *join;

	if (!llmq_http_check_url(&writer, base))
		return conclude(draft, &writer, false);
	base_len = strcspn(base, "?");
	query = base[base_len] == '?' ? base + base_len + 1 : "";
	while (base_len > 0 && base[base_len - 1] == '/')
		base_len--;
	join = query[0] == '\0' ? "" : strchr(path, '?') != NULL ? "&" : "?";
	draft->request->url =
		llmq_arena_printf(draft->arena, "%.*s%s%s%s", (int) base_len, base, path, join, query);
	return draft->request->url != NULL;
}

bool
llmq_draft_headers(LlmqDraft *draft, const LlmqDialect *dialect)
{
	LlmqHttpWriter writer = writer_of(draft);
	bool written = llmq_http_check_secret(&writer) &&
				   llmq_http_open_headers(&writer, draft->target->headers, OWN_HEADERS_MAX) &&
				   add_own_headers(&writer, draft->target, dialect);

	return conclude(draft, &writer, written);
}

static LlmqHttpWriter
writer_of(const LlmqDraft *draft)
{
	return (LlmqHttpWriter){.arena = draft->arena,
							.request = draft->request,
							.row = "endpoint",
							.secret = draft->target->credential};
}

/* Copies the writer's error, if there is one, to the draft. */
static bool
conclude(LlmqDraft *draft, const LlmqHttpWriter *writer, bool written)
{
	if (writer->error != NULL)
		return llmq_draft_fail(draft, "%s", writer->error);
	return written;
}

static bool
add_own_headers(LlmqHttpWriter *writer, const LlmqTarget *target, const LlmqDialect *dialect)
{
	const char *accept = target->stream ? dialect->stream_accept : "application/json";
	const char *secret = target->credential;

	if (!llmq_http_add_header(writer, "Content-Type", "", "application/json") ||
		!llmq_http_add_header(writer, "Accept", "", accept))
		return false;
	if (dialect->extra_header != NULL &&
		!llmq_http_add_header(writer, dialect->extra_header, "", dialect->extra_value))
		return false;
	if (secret != NULL && secret[0] != '\0' && !writer->secret_placed &&
		!llmq_http_add_header(writer, dialect->auth_header, dialect->auth_prefix, secret))
		return false;
	if (target->traceparent != NULL &&
		!llmq_http_add_header(writer, "traceparent", "", target->traceparent))
		return false;
	return add_idempotency(writer, target);
}

static bool
add_idempotency(LlmqHttpWriter *writer, const LlmqTarget *target)
{
	const char *name = target->idempotency_header;
	const char *key = target->idempotency_key;

	if (name == NULL || key == NULL)
		return true;
	if (!llmq_http_check_name(writer, name, strlen(name)))
		return false;
	if (!llmq_http_is_clean(key))
		return llmq_http_fail(writer, "The idempotency key contains a control character.");
	return llmq_http_add_header(writer, name, "", key);
}
