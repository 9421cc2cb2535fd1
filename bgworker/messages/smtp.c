/*
 * smtp.c
 *		Sends a message in an established SMTP session (RFC 5321).
 *
 * It sends one command at a time, even to servers that support pipelining, because the round
 * trips of a few commands cost less than what could go wrong.
 */
#include "messages/smtp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CODE_CLOSING 421
#define CODE_GO_ON	 354

static void say(LlmqSmtp *smtp, LlmqSmtpStep step, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static bool end_of_line(LlmqSmtpReader *reader, int *code, bool *more);
static void answer(LlmqSmtp *smtp, int code);
static void answer_recipient(LlmqSmtp *smtp, int code);
static void say_recipient(LlmqSmtp *smtp);
static void refuse(LlmqSmtp *smtp, int code);
static void take_message(LlmqSmtp *smtp);

LlmqMailReply *
llmq_mail_reply_create(LlmqArena *arena, const LlmqMailRequest *request)
{
	LlmqMailReply *reply = llmq_arena_alloc(arena, sizeof(*reply));

	if (reply == NULL)
		return NULL;
	reply->arena = arena;
	reply->request = request;
	reply->recipients =
		llmq_arena_alloc(arena, (size_t) request->recipient_count * sizeof(LlmqSmtpAnswer));
	reply->remaining = llmq_arena_alloc(arena, (size_t) request->recipient_count * sizeof(char *));
	return reply->recipients != NULL && reply->remaining != NULL ? reply : NULL;
}

/* -- Answers ------------------------------------------------------------------------ */

int
llmq_smtp_read(LlmqSmtpReader *reader, char byte)
{
	int code;
	bool more;

	if (byte != '\n')
	{
		if (reader->line_len < sizeof(reader->line))
			reader->line[reader->line_len++] = byte;
		return 0;
	}
	if (!end_of_line(reader, &code, &more))
		return -1;
	return more ? 0 : code;
}

/* Reads a line, "250-text", "250 text" or "250", and adds its text to that of the answer. */
static bool
end_of_line(LlmqSmtpReader *reader, int *code, bool *more)
{
	const char *line = reader->line;
	size_t len = reader->line_len;
	size_t room = sizeof(reader->text) - 1 - reader->text_len;

	reader->line_len = 0;
	if (len > 0 && line[len - 1] == '\r')
		len--;
	*code = 0;
	for (size_t i = 0; i < 3; i++)
	{
		if (i >= len || line[i] < '0' || line[i] > '9')
			return false;
		*code = *code * 10 + (line[i] - '0');
	}
	if (*code < 200 || (len > 3 && line[3] != ' ' && line[3] != '-'))
		return false;
	*more = len > 3 && line[3] == '-';
	if (len <= 4)
		return true;
	if (reader->text_len > 0 && room > 0)
	{
		reader->text[reader->text_len++] = ' ';
		room--;
	}
	memcpy(reader->text + reader->text_len, line + 4, len - 4 < room ? len - 4 : room);
	reader->text_len += len - 4 < room ? len - 4 : room;
	return true;
}

LlmqSmtpAnswer
llmq_smtp_take(LlmqSmtpReader *reader, int code, LlmqArena *arena)
{
	size_t len = reader->text_len;

	reader->text_len = 0;
	return (LlmqSmtpAnswer){code, llmq_arena_strndup(arena, reader->text, len)};
}

/* -- The conversation ------------------------------------------------------------------ */

void
llmq_smtp_begin(LlmqSmtp *smtp, LlmqMailReply *reply)
{
	memset(smtp, 0, sizeof(*smtp));
	smtp->reply = reply;
	reply->in_session = true;
	reply->refusal = (LlmqSmtpAnswer){0, NULL};
	say(smtp, LLMQ_SMTP_MAIL, "MAIL FROM:<%s>\r\n", reply->request->mail_from);
}

const char *
llmq_smtp_output(LlmqSmtp *smtp, size_t *len)
{
	if (smtp->out_len == 0 && smtp->step == LLMQ_SMTP_MESSAGE)
		take_message(smtp);
	*len = smtp->out_len;
	return smtp->out;
}

void
llmq_smtp_written(LlmqSmtp *smtp, size_t len)
{
	smtp->out += len;
	smtp->out_len -= len;
}

bool
llmq_smtp_input(LlmqSmtp *smtp, const char *bytes, size_t len)
{
	smtp->heard += len;
	if (smtp->heard > LLMQ_SMTP_ANSWERS_MAX)
		return false;
	for (size_t i = 0; i < len && !llmq_smtp_is_over(smtp); i++)
	{
		int code = llmq_smtp_read(&smtp->reader, bytes[i]);

		if (code < 0)
			return false;
		if (code > 0)
			answer(smtp, code);
	}
	return true;
}

bool
llmq_smtp_is_over(const LlmqSmtp *smtp)
{
	return smtp->step == LLMQ_SMTP_QUIT;
}

static LlmqSmtpAnswer
note(LlmqSmtp *smtp, int code)
{
	return llmq_smtp_take(&smtp->reader, code, smtp->reply->arena);
}

/* Goes to a step, and sends a command, unless it is empty. */
static void
say(LlmqSmtp *smtp, LlmqSmtpStep step, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(smtp->command, sizeof(smtp->command), format, args);
	va_end(args);
	smtp->step = step;
	smtp->out = smtp->command;
	smtp->out_len = strlen(smtp->command);
}

static void
answer(LlmqSmtp *smtp, int code)
{
	bool good = code >= 200 && code <= 299;

	if (smtp->step == LLMQ_SMTP_RCPT)
		answer_recipient(smtp, code);
	else if (smtp->step == LLMQ_SMTP_MAIL && good)
		say_recipient(smtp);
	else if (smtp->step == LLMQ_SMTP_DATA && code == CODE_GO_ON)
		say(smtp, LLMQ_SMTP_MESSAGE, "%s", "");
	else if (smtp->step == LLMQ_SMTP_MESSAGE && smtp->end_said && smtp->out_len == 0 && good)
	{
		smtp->reply->accepted = true;
		say(smtp, LLMQ_SMTP_QUIT, "QUIT\r\n");
	}
	else
		refuse(smtp, code);
	smtp->reader.text_len = 0;
}

/* Records the answer to a recipient.  A 421 is none: with it the server ends the session. */
static void
answer_recipient(LlmqSmtp *smtp, int code)
{
	if (code == CODE_CLOSING)
	{
		refuse(smtp, code);
		return;
	}
	smtp->reply->recipients[smtp->recipient++] = note(smtp, code);
	if (code >= 200 && code <= 299)
		smtp->accepted_count++;
	if (smtp->recipient < smtp->reply->request->recipient_count)
		say_recipient(smtp);
	else if (smtp->accepted_count > 0)
		say(smtp, LLMQ_SMTP_DATA, "DATA\r\n");
	else
		say(smtp, LLMQ_SMTP_QUIT, "QUIT\r\n");
}

static void
say_recipient(LlmqSmtp *smtp)
{
	say(smtp, LLMQ_SMTP_RCPT, "RCPT TO:<%s>\r\n",
		smtp->reply->request->recipients[smtp->recipient]);
}

static void
refuse(LlmqSmtp *smtp, int code)
{
	smtp->reply->refusal = note(smtp, code);
	say(smtp, LLMQ_SMTP_QUIT, "QUIT\r\n");
}

/*
 * Takes the next portion of the message, doubles the dots at the beginning of lines (RFC 5321,
 * section 4.5.2), and adds the dot that ends the message after the last one.
 */
static void
take_message(LlmqSmtp *smtp)
{
	static const char end[] = ".\r\n";
	const LlmqMailRequest *request = smtp->reply->request;
	const char *message = request->message;
	size_t len = 0;

	while (smtp->message_at < request->message_len && len + 1 + sizeof(end) < sizeof(smtp->portion))
	{
		size_t at = smtp->message_at++;

		if (message[at] == '.' && (at == 0 || message[at - 1] == '\n'))
			smtp->portion[len++] = '.';
		smtp->portion[len++] = message[at];
	}
	if (smtp->message_at == request->message_len && !smtp->end_said)
	{
		memcpy(smtp->portion + len, end, sizeof(end) - 1);
		len += sizeof(end) - 1;
		smtp->end_said = true;
	}
	smtp->out = smtp->portion;
	smtp->out_len = len;
}
