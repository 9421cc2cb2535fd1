/*
 * email.c
 *		Writes an outbox message as an e-mail (RFC 5322, RFC 2045).
 *
 * The text is sent as quoted-printable: every server accepts seven bits and short lines, and
 * the raw message stays readable.  The writer is our own because curl_mime is in libcurl, which
 * messages/ must not include, and does not encode header fields.
 */
#include "messages/email.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "messages/email_format.h"
#include "wire/http_request.h"
#include "base/idempotency_key.h"
#include "json/json_slice.h"
#include "base/text.h"

#define ERROR_MAX_BYTES 512

/* How much of a refused value an error shows. */
#define SHOWN_MAX_BYTES 100

/* Room for the longest headers. */
#define HEADERS_MAX_BYTES ((size_t) 1 << 20)

#define ID_MAX_BYTES 200

/* An e-mail being written. */
typedef struct Draft
{
	LlmqArena *arena;
	const LlmqEmail *email;
	LlmqMailRequest *request;
	LlmqMailbox from;
	LlmqMailbox *to; /* to and cc, as many as the e-mail has */
	LlmqMailbox *cc;
	const char *error; /* the first thing that was wrong */
} Draft;

static bool fail(Draft *draft, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool write_request(Draft *draft);
static bool set_server(Draft *draft);
static bool set_login(Draft *draft);
static bool check_texts(Draft *draft);
static bool read_mailboxes(Draft *draft, const char *field, const char *const *texts, int count,
						   LlmqMailbox **mailboxes);
static bool read_mailbox(Draft *draft, const char *field, const char *text, LlmqMailbox *mailbox);
static bool set_recipients(Draft *draft);
static void write_message(const Draft *draft, const char *key, LlmqBuffer *out);
static bool keep_message(Draft *draft);
static bool read_text(Draft *draft, LlmqSlice payload, const char *field, const char **text);
static bool read_texts(Draft *draft, LlmqSlice payload, const char *field,
					   const char *const **texts, int *count);

bool
llmq_email_request(LlmqArena *arena, const LlmqEmail *email, LlmqMailRequest *request,
				   const char **error)
{
	Draft draft = {.arena = arena, .email = email, .request = request};
	bool written;

	memset(request, 0, sizeof(*request));
	written = write_request(&draft);
	*error = draft.error;
	return written;
}

static bool
fail(Draft *draft, const char *format, ...)
{
	char text[ERROR_MAX_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	draft->error = llmq_arena_strdup(draft->arena, text);
	return false;
}

static bool
write_request(Draft *draft)
{
	const LlmqEmail *email = draft->email;

	return set_server(draft) && set_login(draft) && check_texts(draft) &&
		   read_mailbox(draft, "sender", email->sender, &draft->from) &&
		   read_mailboxes(draft, "to", email->to, email->to_count, &draft->to) &&
		   read_mailboxes(draft, "cc", email->cc, email->cc_count, &draft->cc) &&
		   set_recipients(draft) && keep_message(draft);
}

/* -- The envelope --------------------------------------------------------------------- */

static bool
set_server(Draft *draft)
{
	const char *url = draft->email->url;

	if (url == NULL ||
		(strncasecmp(url, "smtp://", 7) != 0 && strncasecmp(url, "smtps://", 8) != 0))
		return fail(draft, "The destination's url must begin with smtp:// or smtps://.");
	if (!llmq_http_is_clean(url) || strpbrk(url, " \t#") != NULL)
		return fail(draft,
					"The destination's url must not contain a space, a control character or a #.");
	if (strchr(url, '@') != NULL)
		return fail(draft, "The destination's url must not contain a user: that is for its "
						   "credential, user:password.");
	draft->request->url = url;
	return true;
}

static bool
set_login(Draft *draft)
{
	const char *secret = draft->email->secret;
	const char *colon = secret != NULL ? strchr(secret, ':') : NULL;

	if (secret == NULL)
		return true;
	if (colon == NULL || colon == secret || !llmq_http_is_clean(secret))
		return fail(draft, "The destination's secret is not one line of user:password.");
	draft->request->username = llmq_arena_strndup(draft->arena, secret, (size_t) (colon - secret));
	draft->request->password = llmq_arena_strdup(draft->arena, colon + 1);
	return draft->request->username != NULL && draft->request->password != NULL;
}

static bool
check_texts(Draft *draft)
{
	const LlmqEmail *email = draft->email;
	size_t len = strlen(email->id);

	if (len == 0 || len > ID_MAX_BYTES ||
		strspn(email->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
			len)
		return fail(draft, "The message's id is not allowed in Message-ID.");
	if (email->subject != NULL && strlen(email->subject) > LLMQ_EMAIL_SUBJECT_MAX)
		return fail(draft, "The subject is longer than %d bytes.", LLMQ_EMAIL_SUBJECT_MAX);
	if (email->subject != NULL && !llmq_http_is_clean(email->subject))
		return fail(draft, "The subject contains a control character, such as a line end.");
	if (email->sender == NULL)
		return fail(draft, "The destination has no sender.");
	if (email->to_count == 0)
		return fail(draft, "The message has no recipient in to.");
	if (email->to_count + email->cc_count > LLMQ_EMAIL_RECIPIENTS_MAX)
		return fail(draft, "The message has more than %d recipients.", LLMQ_EMAIL_RECIPIENTS_MAX);
	return true;
}

static bool
read_mailboxes(Draft *draft, const char *field, const char *const *texts, int count,
			   LlmqMailbox **mailboxes)
{
	if (count == 0)
		return true;
	*mailboxes = llmq_arena_alloc(draft->arena, (size_t) count * sizeof(LlmqMailbox));
	if (*mailboxes == NULL)
		return false;
	for (int i = 0; i < count; i++)
		if (!read_mailbox(draft, field, texts[i], &(*mailboxes)[i]))
			return false;
	return true;
}

static bool
read_mailbox(Draft *draft, const char *field, const char *text, LlmqMailbox *mailbox)
{
	const char *why;

	if (llmq_mailbox_parse(draft->arena, text, mailbox, &why))
		return true;
	if (why == NULL)
		return false;
	if (!llmq_http_is_clean(text))
		return fail(draft, "A text in %s %s.", field, why);
	return fail(draft, "\"%.*s\" in %s %s.",
				(int) llmq_text_cut(text, strlen(text), SHOWN_MAX_BYTES), text, field, why);
}

/* Returns whether an address should get the message in this attempt. */
static bool
is_wanted(const Draft *draft, const char *address)
{
	const LlmqEmail *email = draft->email;
	const LlmqMailRequest *request = draft->request;
	bool wanted = email->remaining == NULL;

	for (int i = 0; i < email->remaining_count && !wanted; i++)
		wanted = strcmp(email->remaining[i], address) == 0;
	for (int i = 0; i < request->recipient_count && wanted; i++)
		wanted = !llmq_mailbox_same(request->recipients[i], address);
	return wanted;
}

static bool
set_recipients(Draft *draft)
{
	const LlmqEmail *email = draft->email;
	LlmqMailRequest *request = draft->request;
	int count = email->to_count + email->cc_count;

	request->mail_from = draft->from.address;
	request->recipients = llmq_arena_alloc(draft->arena, (size_t) count * sizeof(char *));
	if (request->recipients == NULL)
		return false;
	for (int i = 0; i < count; i++)
	{
		const char *address =
			i < email->to_count ? draft->to[i].address : draft->cc[i - email->to_count].address;

		if (is_wanted(draft, address))
			request->recipients[request->recipient_count++] = address;
	}
	return request->recipient_count > 0 ||
		   fail(draft, "Nobody who has yet to get the message is among its recipients.");
}

/* -- The message ---------------------------------------------------------------------- */

static bool
keep_message(Draft *draft)
{
	const LlmqEmail *email = draft->email;
	LlmqMailRequest *request = draft->request;
	const char *key = NULL;
	LlmqBuffer out;

	if (email->idempotency_key != NULL)
	{
		key = llmq_idempotency_key_encode(draft->arena, email->idempotency_key);
		if (key == NULL)
			return false;
	}
	llmq_buffer_init(&out, email->text_len * 4 + HEADERS_MAX_BYTES);
	write_message(draft, key, &out);
	if (!out.failed)
		request->message = llmq_arena_strndup(draft->arena, out.data, out.len);
	request->message_len = out.len;
	llmq_buffer_free(&out);
	return request->message != NULL;
}

static void
write_mailboxes(LlmqBuffer *out, const char *name, const LlmqMailbox *mailboxes, int count)
{
	LlmqEmailHeader header;

	if (count == 0)
		return;
	header = llmq_email_header_begin(out, name);
	for (int i = 0; i < count; i++)
		llmq_email_header_mailbox(&header, &mailboxes[i], i + 1 < count);
	llmq_email_header_end(&header);
}

static void
write_subject(LlmqBuffer *out, const char *subject)
{
	LlmqEmailHeader header;

	if (subject == NULL || subject[0] == '\0')
		return;
	header = llmq_email_header_begin(out, "Subject");
	llmq_email_header_text(&header, subject);
	llmq_email_header_end(&header);
}

static void
write_message(const Draft *draft, const char *key, LlmqBuffer *out)
{
	const LlmqEmail *email = draft->email;

	llmq_email_format_date(out, email->date_us);
	write_mailboxes(out, "From", &draft->from, 1);
	write_mailboxes(out, "To", draft->to, email->to_count);
	write_mailboxes(out, "Cc", draft->cc, email->cc_count);
	write_subject(out, email->subject);
	llmq_buffer_printf(out, "Message-ID: <%s@%s>\r\n", email->id,
					   llmq_mailbox_domain(draft->from.address));
	if (key != NULL && strlen("Idempotency-Key: ") + strlen(key) <= LLMQ_EMAIL_LINE_HARD)
		llmq_buffer_printf(out, "Idempotency-Key: %s\r\n", key);
	llmq_buffer_append_string(out, "Auto-Submitted: auto-generated\r\n"
								   "MIME-Version: 1.0\r\n"
								   "Content-Type: text/plain; charset=utf-8\r\n"
								   "Content-Transfer-Encoding: quoted-printable\r\n"
								   "\r\n");
	llmq_email_format_text(out, email->text, email->text_len);
}

/* -- The payload ---------------------------------------------------------------------- */

bool
llmq_email_read(LlmqArena *arena, const char *payload, size_t len, LlmqEmail *email,
				const char **error)
{
	Draft draft = {.arena = arena};
	LlmqSlice root;
	bool read;

	if (!llmq_slice_parse(payload, len, &root) || llmq_slice_kind(root) != '{')
		read = fail(&draft, "The payload of an e-mail must be an object with to, cc, subject and "
							"text.");
	else
		read = read_texts(&draft, root, "to", &email->to, &email->to_count) &&
			   read_texts(&draft, root, "cc", &email->cc, &email->cc_count) &&
			   read_text(&draft, root, "subject", &email->subject) &&
			   read_text(&draft, root, "text", &email->text);
	if (read)
		email->text_len = email->text != NULL ? strlen(email->text) : 0;
	*error = draft.error;
	return read;
}

static bool
decode(Draft *draft, LlmqSlice value, const char *field, const char **text)
{
	size_t len;

	if (llmq_slice_kind(value) != '"')
		return fail(draft, "%s must be a text%s.", field,
					field[0] == 's' || strcmp(field, "text") == 0 ? "" : " or an array of texts");
	*text = llmq_slice_decode(draft->arena, value, &len);
	if (*text != NULL && strlen(*text) != len)
		return fail(draft, "%s contains a control character.", field);
	return *text != NULL;
}

/* Reads a member that may be missing. */
static bool
read_text(Draft *draft, LlmqSlice payload, const char *field, const char **text)
{
	LlmqSlice value = llmq_slice_member(payload, field);

	*text = NULL;
	return !llmq_slice_given(value) || decode(draft, value, field, text);
}

static bool
read_texts(Draft *draft, LlmqSlice payload, const char *field, const char *const **texts,
		   int *count)
{
	LlmqSlice value = llmq_slice_member(payload, field);
	bool array = llmq_slice_kind(value) == '[';
	LlmqSliceWalk walk = llmq_slice_walk(value);
	size_t room = array ? llmq_slice_count(value) : 1;
	const char **read;

	*count = 0;
	*texts = NULL;
	if (!llmq_slice_given(value) || room == 0)
		return true;
	if (room > LLMQ_EMAIL_RECIPIENTS_MAX)
		return fail(draft, "%s has more than %d recipients.", field, LLMQ_EMAIL_RECIPIENTS_MAX);
	read = llmq_arena_alloc(draft->arena, room * sizeof(char *));
	if (read == NULL)
		return false;
	*texts = read;
	if (!array)
		return decode(draft, value, field, &read[(*count)++]);
	while (llmq_slice_next(&walk, &value))
		if (!decode(draft, value, field, &read[(*count)++]))
			return false;
	return true;
}
