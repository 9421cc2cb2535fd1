/*
 * http_request.c
 *		Writes the URL and the headers of a request.
 *
 * Control characters are refused, wherever they come from.  No error shows the value of a
 * header, which may be a secret.
 */
#include "wire/http_request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "json/json_slice.h"

#define CREDENTIAL_MARK "${credential}"

#define ERROR_MAX_BYTES 512

/* No server takes a longer header, and a huge value must not use up the worker's memory. */
#define VALUE_MAX_BYTES ((size_t) 1 << 20)

static bool read_user_headers(LlmqHttpWriter *writer, const char *source, LlmqSlice *object);
static bool add_user_header(LlmqHttpWriter *writer, LlmqSlice key, LlmqSlice value);
static const char *expand_credential(LlmqHttpWriter *writer, const char *value);
static bool
add_line(LlmqHttpWriter *writer, const char *name, const char *prefix, const char *value);
static int find_header(const LlmqHttpRequest *request, const char *name);

bool
llmq_http_fail(LlmqHttpWriter *writer, const char *format, ...)
{
	char text[ERROR_MAX_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	writer->error = llmq_arena_strdup(writer->arena, text);
	return false;
}

bool
llmq_http_check_url(LlmqHttpWriter *writer, const char *url)
{
	if (url == NULL ||
		(strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0))
		return llmq_http_fail(writer, "The %s's url must begin with http:// or https://.",
							  writer->row);
	if (!llmq_http_is_clean(url) || strpbrk(url, " \t#") != NULL)
		return llmq_http_fail(writer,
							  "The %s's url must not contain a space, a control character or a #.",
							  writer->row);
	return true;
}

/*
 * The name must be a token (RFC 9110, section 5.6.2), and not one that says where a message
 * ends.
 */
bool
llmq_http_check_name(LlmqHttpWriter *writer, const char *name, size_t len)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789"
								"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	if (len == 0 || strspn(name, token) != len)
		return llmq_http_fail(writer, "A header in the %s has a name that HTTP does not allow.",
							  writer->row);
	if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
		return llmq_http_fail(writer, "The %s must not set the header %s.", writer->row, name);
	return true;
}

bool
llmq_http_check_secret(LlmqHttpWriter *writer)
{
	if (writer->secret == NULL || llmq_http_is_clean(writer->secret))
		return true;
	return llmq_http_fail(writer,
						  "The %s's secret contains a control character, such as a line end in the "
						  "middle of its file.",
						  writer->row);
}

bool
llmq_http_open_headers(LlmqHttpWriter *writer, const char *headers, size_t own_max)
{
	LlmqSlice object = {NULL, 0};
	LlmqSliceWalk walk;
	LlmqSlice key;
	LlmqSlice value;
	size_t room;

	if (!read_user_headers(writer, headers, &object))
		return false;
	room = own_max + llmq_slice_count(object) / 2;
	writer->request->headers = llmq_arena_alloc(writer->arena, room * sizeof(char *));
	if (writer->request->headers == NULL)
		return false;
	walk = llmq_slice_walk(object);
	while (llmq_slice_next_member(&walk, &key, &value))
		if (!add_user_header(writer, key, value))
			return false;
	return true;
}

bool
llmq_http_add_header(LlmqHttpWriter *writer, const char *name, const char *prefix,
					 const char *value)
{
	return llmq_http_has_header(writer->request, name) || add_line(writer, name, prefix, value);
}

bool
llmq_http_has_header(const LlmqHttpRequest *request, const char *name)
{
	return find_header(request, name) < request->header_count;
}

bool
llmq_http_is_clean(const char *text)
{
	for (; *text != '\0'; text++)
		if (((unsigned char) *text < 0x20 && *text != '\t') || *text == 0x7F)
			return false;
	return true;
}

static bool
read_user_headers(LlmqHttpWriter *writer, const char *source, LlmqSlice *object)
{
	if (source == NULL)
		return true;
	if (!llmq_slice_parse(source, strlen(source), object))
		return llmq_http_fail(writer, "The %s's headers are not JSON.", writer->row);
	if (llmq_slice_given(*object) && llmq_slice_kind(*object) != '{')
		return llmq_http_fail(writer, "The %s's headers must be a JSON object.", writer->row);
	return true;
}

static bool
add_user_header(LlmqHttpWriter *writer, LlmqSlice key, LlmqSlice value)
{
	size_t name_len;
	size_t text_len;
	const char *name = llmq_slice_decode(writer->arena, key, &name_len);
	const char *text;

	if (name == NULL || !llmq_http_check_name(writer, name, name_len))
		return false;
	if (llmq_slice_kind(value) != '"')
		return llmq_http_fail(writer, "The %s's header %s must be a string.", writer->row, name);
	text = llmq_slice_decode(writer->arena, value, &text_len);
	if (text == NULL)
		return false;
	if (strlen(text) != text_len || !llmq_http_is_clean(text))
		return llmq_http_fail(writer, "The %s's header %s contains a control character.",
							  writer->row, name);
	if (strstr(text, CREDENTIAL_MARK) != NULL)
	{
		writer->secret_placed = true;
		if (writer->secret == NULL)
			return llmq_http_fail(writer,
								  "The %s's header %s asks for ${credential}, but the %s has none.",
								  writer->row, name, writer->row);
		if (!llmq_http_check_secret(writer))
			return false;
		text = expand_credential(writer, text);
	}
	return text != NULL && add_line(writer, name, "", text);
}

static const char *
expand_credential(LlmqHttpWriter *writer, const char *value)
{
	const size_t mark_len = strlen(CREDENTIAL_MARK);
	LlmqBuffer out;
	const char *mark;
	char *expanded = NULL;

	llmq_buffer_init(&out, VALUE_MAX_BYTES);
	for (; (mark = strstr(value, CREDENTIAL_MARK)) != NULL; value = mark + mark_len)
	{
		llmq_buffer_append(&out, value, (size_t) (mark - value));
		llmq_buffer_append_string(&out, writer->secret);
	}
	llmq_buffer_append_string(&out, value);
	if (!out.failed)
		expanded = llmq_arena_strndup(writer->arena, llmq_buffer_string(&out), out.len);
	llmq_buffer_free(&out);
	return expanded;
}

/* Adds a header, or replaces the one of that name. */
static bool
add_line(LlmqHttpWriter *writer, const char *name, const char *prefix, const char *value)
{
	LlmqHttpRequest *request = writer->request;
	int place = find_header(request, name);
	const char *line = llmq_arena_printf(writer->arena, "%s: %s%s", name, prefix, value);

	if (line == NULL)
		return false;
	if (place == request->header_count)
		request->header_count++;
	request->headers[place] = line;
	return true;
}

/* Returns the index of a header, or header_count if there is none. */
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
