/*
 * email.h
 *		An outbox message as an e-mail, and what the server made of it.
 *
 * Pure.  Nothing that comes from outside can end a header line, start another
 * header or another command: control characters are refused, not removed.
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

/* More recipients of one message are refused; servers take 100 at least (RFC 5321, 4.5.3.1.8). */
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
	const char *text;	 /* UTF-8; its lines may end as they like */
	size_t text_len;
	const char *id; /* as of a webhook: the same in each attempt, another for each message */
	const char *idempotency_key; /* any text; NULL: none */
	int64_t date_us;			 /* since the Unix epoch */

	/* Those who have not got it yet, addresses as in a verdict's remaining; NULL: all. */
	const char *const *remaining;
	int remaining_count;
} LlmqEmail;

/*
 * Takes to, cc, subject and text (each may be missing but to) from a message's
 * payload, JSON; to and cc are a text or an array of texts.  False with a
 * sentence in *error, NULL in it: memory is out.
 */
extern bool llmq_email_read(LlmqArena *arena, const char *payload, size_t len, LlmqEmail *email,
							const char **error);

/*
 * Writes the message and its envelope; memory comes from arena, three times the
 * text's length and some.  False with a sentence for the user in *error, which
 * holds no secret: no attempt could succeed.  NULL in it: memory is out.
 *
 * Recipients are those of to and cc, each once.  An address is ASCII: a local
 * part of letters, digits and RFC 5322's marks, and a domain; the extension for
 * others (SMTPUTF8) is not offered.  Names may be any text.  Headers: Date, From,
 * To, Cc, Subject, Message-ID <id@domain of the sender>, Idempotency-Key (encoded
 * as in a webhook; left out when too long for a line), Auto-Submitted, MIME.
 */
extern bool llmq_email_request(LlmqArena *arena, const LlmqEmail *email, LlmqMailRequest *request,
							   const char **error);

/*
 * Judges what the server said.  Strings are in the reply's arena.
 *
 * Sent: the server took the message, and no recipient is left for whom it might
 * still; one refused for good (5xx) is named.  Retry: for those that were refused
 * for a while (4xx), or for all if the session failed before the message was
 * judged; remaining has them.  Dead: message, sender or every recipient were
 * refused for good.  A refused greeting or login is the destination's matter, not
 * the message's, and tried again.
 */
extern void llmq_email_verdict(const LlmqMailReply *reply, LlmqTransferEnd end, const char *detail,
							   LlmqSendVerdict *verdict);

#endif /* LLMQ_EMAIL_H */
