/*
 * email_format.c
 *		Writes texts for an e-mail.
 *
 * The output is ASCII, in lines that every server accepts.
 */
#include "messages/email_format.h"

#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/text.h"

#define WORD_BEGIN "=?utf-8?B?"
#define WORD_END   "?="

/* The length of an encoded word without its text. */
#define WORD_EXTRA (sizeof(WORD_BEGIN) - 1 + sizeof(WORD_END) - 1)

/* An encoded word is begun only with this much room for text: a character may take 4 bytes. */
#define WORD_TEXT_MIN 12

/* A longer quoted name is encoded, so that it can be folded. */
#define QUOTED_NAME_MAX 60

#define US_PER_SECOND INT64_C(1000000)

static bool is_plain(const char *text);
static void put_encoded(LlmqEmailHeader *header, const char *text);
static void put_quoted(LlmqEmailHeader *header, const char *name);

/* -- Headers ------------------------------------------------------------------------ */

LlmqEmailHeader
llmq_email_header_begin(LlmqBuffer *out, const char *name)
{
	llmq_buffer_append_string(out, name);
	llmq_buffer_append_char(out, ':');
	return (LlmqEmailHeader){.out = out, .column = strlen(name) + 1, .empty = true};
}

void
llmq_email_header_word(LlmqEmailHeader *header, const char *word, size_t len)
{
	if (!header->empty && header->column + 1 + len > LLMQ_EMAIL_LINE_MAX)
	{
		llmq_buffer_append_string(header->out, "\r\n");
		header->column = 0;
	}
	llmq_buffer_append_char(header->out, ' ');
	llmq_buffer_append(header->out, word, len);
	header->column += len + 1;
	header->empty = false;
}

void
llmq_email_header_text(LlmqEmailHeader *header, const char *text)
{
	if (!is_plain(text))
	{
		put_encoded(header, text);
		return;
	}
	while (*text != '\0')
	{
		size_t len = strcspn(text, " ");

		llmq_email_header_word(header, text, len);
		text += len + (text[len] == ' ' ? 1 : 0);
	}
}

void
llmq_email_header_mailbox(LlmqEmailHeader *header, const LlmqMailbox *mailbox, bool more)
{
	char address[300];
	size_t len = strlen(mailbox->address);

	if (mailbox->name != NULL && is_plain(mailbox->name) &&
		strlen(mailbox->name) <= QUOTED_NAME_MAX)
		put_quoted(header, mailbox->name);
	else if (mailbox->name != NULL)
		put_encoded(header, mailbox->name);
	address[0] = '<';
	memcpy(address + 1, mailbox->address, len);
	memcpy(address + 1 + len, ">,", 2);
	llmq_email_header_word(header, address, len + (more ? 3 : 2));
}

void
llmq_email_header_end(LlmqEmailHeader *header)
{
	llmq_buffer_append_string(header->out, "\r\n");
}

/*
 * Returns whether text may be written as it is: it is printable ASCII, does not look like an
 * encoded word, and does not change when it is folded at its spaces.
 */
static bool
is_plain(const char *text)
{
	size_t word = 0;

	if (strstr(text, "=?") != NULL)
		return false;
	for (const char *c = text; *c != '\0'; c++)
	{
		word = *c == ' ' ? 0 : word + 1;
		if (*c < ' ' || *c > '~' || word > QUOTED_NAME_MAX ||
			(*c == ' ' && (c == text || c[1] == ' ' || c[1] == '\0')))
			return false;
	}
	return true;
}

/*
 * Adds text as encoded words.  Characters are never split.  Readers ignore the white space
 * between two encoded words.
 */
static void
put_encoded(LlmqEmailHeader *header, const char *text)
{
	size_t len = strlen(text);

	while (len > 0)
	{
		char word[LLMQ_EMAIL_LINE_MAX + 1];
		size_t used = header->column + 1 + WORD_EXTRA;
		size_t room = used < LLMQ_EMAIL_LINE_MAX ? (LLMQ_EMAIL_LINE_MAX - used) / 4 * 3 : 0;
		size_t taken;

		if (room < WORD_TEXT_MIN)
			room = (LLMQ_EMAIL_LINE_MAX - 1 - WORD_EXTRA) / 4 * 3;
		taken = llmq_text_cut(text, len, room);
		memcpy(word, WORD_BEGIN, sizeof(WORD_BEGIN) - 1);
		llmq_base64_encode(word + sizeof(WORD_BEGIN) - 1, text, taken);
		memcpy(word + sizeof(WORD_BEGIN) - 1 + LLMQ_BASE64_ENCODED(taken), WORD_END,
			   sizeof(WORD_END) - 1);
		llmq_email_header_word(header, word, WORD_EXTRA + LLMQ_BASE64_ENCODED(taken));
		text += taken;
		len -= taken;
	}
}

static void
put_quoted(LlmqEmailHeader *header, const char *name)
{
	char quoted[QUOTED_NAME_MAX * 2 + 2];
	size_t len = 0;

	quoted[len++] = '"';
	for (; *name != '\0'; name++)
	{
		if (*name == '"' || *name == '\\')
			quoted[len++] = '\\';
		quoted[len++] = *name;
	}
	quoted[len++] = '"';
	llmq_email_header_word(header, quoted, len);
}

/* -- Date and text --------------------------------------------------------------------- */

void
llmq_email_format_date(LlmqBuffer *out, int64_t date_us)
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
										 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	time_t seconds = (time_t) (date_us / US_PER_SECOND);
	struct tm date;

	if (gmtime_r(&seconds, &date) == NULL)
		return;
	llmq_buffer_printf(out, "Date: %s, %02d %s %04d %02d:%02d:%02d +0000\r\n", days[date.tm_wday],
					   date.tm_mday, months[date.tm_mon], date.tm_year + 1900, date.tm_hour,
					   date.tm_min, date.tm_sec);
}

/* Ends a line of the message within a line of the text. */
static void
break_softly(LlmqBuffer *out, size_t *column)
{
	llmq_buffer_append_string(out, "=\r\n");
	*column = 0;
}

/* Writes one byte of a line; `last` says that no other follows in this line. */
static void
put_byte(LlmqBuffer *out, unsigned char byte, bool last, size_t *column)
{
	static const char hex[] = "0123456789ABCDEF";
	bool plain =
		(byte > ' ' && byte <= '~' && byte != '=') || ((byte == ' ' || byte == '\t') && !last);
	char written[3] = {'=', hex[byte >> 4], hex[byte & 15]};
	size_t len = plain ? 1 : 3;

	/* The last column is kept for a soft break. */
	if (*column + len > LLMQ_EMAIL_LINE_MAX - 1)
		break_softly(out, column);
	if (plain)
		written[0] = (char) byte;
	llmq_buffer_append(out, written, len);
	*column += len;
}

void
llmq_email_format_text(LlmqBuffer *out, const char *text, size_t len)
{
	size_t at = 0;

	while (at < len)
	{
		const char *found = memchr(text + at, '\n', len - at);
		size_t end = found != NULL ? (size_t) (found - text) : len;
		size_t stop = found != NULL && end > at && text[end - 1] == '\r' ? end - 1 : end;
		size_t column = 0;

		for (; at < stop; at++)
			put_byte(out, (unsigned char) text[at], at + 1 == stop, &column);
		llmq_buffer_append_string(out, "\r\n");
		at = end + 1;
	}
}
