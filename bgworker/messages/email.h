/*
 * email.h
 *		Writes an outbox message as an e-mail, and judges what the server answered.
 *
 * Pure.  Nothing that comes from outside can end a header line, or start another header or
 * command: control characters are refused, not removed.
 */
#ifndef LLMQ_EMAIL_H
#define LLMQ_EMAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "messages/send_verdict.h"
#include "wire/sink.h"
#include "messages/smtp.h"

/*
 * A message with more recipients is refused; servers take at least 100 (RFC 5321, section
 * 4.5.3.1.8).
 */
#define LLMQ_EMAIL_RECIPIENTS_MAX 100

/* A longer subject is refused. */
#define LLMQ_EMAIL_SUBJECT_MAX 2000

typedef struct LlmqEmail
{
	const char *url;	/* the destination's: smtp:// or smtps:// */
	const char *secret; /* "user:password", or NULL: without a login */
	const char *sender; /* the destination's: an address, or Name <address> */
	const char *const *to;
	int to_count;
	const char *const *cc;
	int cc_count;
	const char *subject; /* NULL or "": none */
	const char *text;	 /* UTF-8, with any line ends */
	size_t text_len;
	const char *id; /* as of a webhook: the same in each attempt, different for each message */
	const char *idempotency_key; /* any text; NULL: none */
	int64_t date_us;			 /* since the Unix epoch */

	/* The recipients who have not got it yet, as in the `remaining` of a verdict; NULL: all. */
	const char *const *remaining;
	int remaining_count;
} LlmqEmail;

/*
 * Takes to, cc, subject and text from a message's payload, which is JSON.  Only `to` is
 * required; to and cc are a text or an array of texts.  Returns false with a sentence in
 * *error, or with NULL there when out of memory.
 */
extern bool llmq_email_read(LlmqArena *arena, const char *payload, size_t len, LlmqEmail *email,
							const char **error);

/*
 * Writes the message and its envelope.  Memory comes from arena: a little more than three times
 * the length of the text.  Returns false when no attempt could succeed, with a sentence for the
 * user in *error, which contains no secret; or with NULL there when out of memory.
 *
 * Recipients are those of to and cc, each once.  An address is ASCII: a local part of letters,
 * digits and the marks that RFC 5322 allows, and a domain.  The extension for other addresses
 * (SMTPUTF8) is not used.  Names may be any text.  The headers are Date, From, To, Cc, Subject,
 * Message-ID <id@domain of the sender>, Idempotency-Key (encoded as in a webhook; left out
 * when too long for a line), Auto-Submitted and those of MIME.
 */
extern bool llmq_email_request(LlmqArena *arena, const LlmqEmail *email, LlmqMailRequest *request,
							   const char **error);

/*
 * Judges what the server answered.  Strings are in the reply's arena.
 *
 * SENT: the server accepted the message, and no recipient is left to be tried again;
 * recipients that were permanently refused (5xx) are named.  RETRY: some recipients were
 * temporarily refused (4xx), or the session failed before the server had answered to the
 * message; `remaining` lists those who have yet to get it.  DEAD: the message, the sender or
 * every recipient was permanently refused.  A refused greeting or login is a fault of the
 * destination, not of the message, and is tried again.
 */
extern void llmq_email_verdict(const LlmqMailReply *reply, LlmqTransferEnd end, const char *detail,
							   LlmqSendVerdict *verdict);

#endif /* LLMQ_EMAIL_H */
