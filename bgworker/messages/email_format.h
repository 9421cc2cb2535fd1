/*
 * email_format.h
 *		Writes texts for an e-mail: header lines, encoded words, quoted-printable.
 */
#ifndef LLMQ_EMAIL_FORMAT_H
#define LLMQ_EMAIL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "messages/mailbox.h"

/*
 * Lines are folded to the first length (RFC 2047, section 2; RFC 2045, section 6.7) and never
 * exceed the second.
 */
#define LLMQ_EMAIL_LINE_MAX	 76
#define LLMQ_EMAIL_LINE_HARD 998

/* A header being written. */
typedef struct LlmqEmailHeader
{
	LlmqBuffer *out;
	size_t column; /* characters of the line so far */
	bool empty;	   /* nothing follows the name yet */
} LlmqEmailHeader;

extern LlmqEmailHeader llmq_email_header_begin(LlmqBuffer *out, const char *name);

/* Adds a word, which is never split; the line is folded before the word if it does not fit. */
extern void llmq_email_header_word(LlmqEmailHeader *header, const char *word, size_t len);

/* Adds text that has no control characters, as it is or as encoded words (RFC 2047). */
extern void llmq_email_header_text(LlmqEmailHeader *header, const char *text);

/* Adds a mailbox; `more` says that another one follows. */
extern void
llmq_email_header_mailbox(LlmqEmailHeader *header, const LlmqMailbox *mailbox, bool more);

extern void llmq_email_header_end(LlmqEmailHeader *header);

/* Writes the header Date (RFC 5322, 3.3), in UTC. */
extern void llmq_email_format_date(LlmqBuffer *out, int64_t date_us);

/* Appends text as quoted-printable.  All lines end with CRLF, including the last one. */
extern void llmq_email_format_text(LlmqBuffer *out, const char *text, size_t len);

#endif /* LLMQ_EMAIL_FORMAT_H */
