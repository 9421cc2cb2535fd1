/*
 * smtp.h
 *		A message handed over in an SMTP session that stands: MAIL to the end of data.
 *
 * Pure: it is given what the server says and gives what is to be said.  libcurl
 * connects, encrypts, greets and logs in; the rest is done here, since libcurl
 * waits for the answers to the message and to QUIT without giving control back,
 * and does not say which recipients were refused.
 */
#ifndef LLMQ_SMTP_H
#define LLMQ_SMTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

/* What is to be sent, and where. */
typedef struct LlmqMailRequest
{
	const char *url;	  /* smtp://host:port or smtps://host:port */
	const char *username; /* NULL: without a login */
	const char *password;
	const char *mail_from; /* an address, without brackets */
	const char **recipients;
	int recipient_count;
	const char *message; /* lines end with CRLF, the last one too; dots are not doubled */
	size_t message_len;
} LlmqMailRequest;

/* A server's answer. */
typedef struct LlmqSmtpAnswer
{
	int code;		  /* 0: there was none */
	const char *text; /* behind the code, lines joined by spaces; any bytes, cut */
} LlmqSmtpAnswer;

/* What a server said to a message. */
typedef struct LlmqMailReply
{
	LlmqArena *arena;
	const LlmqMailRequest *request;
	LlmqSmtpAnswer *recipients; /* to each, in the order of the request */
	LlmqSmtpAnswer refusal;		/* to what failed as a whole: greeting, login, sender, message */
	const char **remaining;		/* room for the verdict: as many as there are recipients */
	bool in_session;			/* MAIL was said */
	bool accepted;				/* the message, for all recipients that were answered with 2xx */
} LlmqMailReply;

/*
 * Makes an empty reply; memory, also that of texts, comes from arena, and request
 * must outlive it.  NULL when memory is out.
 */
extern LlmqMailReply *llmq_mail_reply_create(LlmqArena *arena, const LlmqMailRequest *request);

/* Reads answers, line by line, in any portions. */
#define LLMQ_SMTP_TEXT_MAX 400

typedef struct LlmqSmtpReader
{
	char line[1024]; /* RFC 5321 has 512; what is longer is cut */
	size_t line_len;
	char text[LLMQ_SMTP_TEXT_MAX]; /* of the lines so far */
	size_t text_len;
} LlmqSmtpReader;

/*
 * Takes one byte.  Returns 0, or the code when an answer is whole: its text is
 * then in reader->text.  -1: this is not SMTP.
 */
extern int llmq_smtp_read(LlmqSmtpReader *reader, char byte);

/* Takes the answer that is whole, and makes the reader ready for the next. */
extern LlmqSmtpAnswer llmq_smtp_take(LlmqSmtpReader *reader, int code, LlmqArena *arena);

typedef enum LlmqSmtpStep
{
	LLMQ_SMTP_MAIL,
	LLMQ_SMTP_RCPT,
	LLMQ_SMTP_DATA,
	LLMQ_SMTP_MESSAGE,
	LLMQ_SMTP_QUIT /* all is known: said, but not waited for */
} LlmqSmtpStep;

/* What a server may say in one session: enough for long answers to a hundred recipients. */
#define LLMQ_SMTP_ANSWERS_MAX ((size_t) 1024 * 1024)

/* The message is written in portions of this size. */
#define LLMQ_SMTP_PORTION 16384

/* The conversation. */
typedef struct LlmqSmtp
{
	LlmqMailReply *reply;
	LlmqSmtpStep step;
	int recipient;		/* RCPT: which */
	int accepted_count; /* recipients */
	char command[512];	/* what is to be said, but for the message */
	const char *out;	/* what of it is left */
	size_t out_len;
	size_t heard;	   /* bytes of answers */
	size_t message_at; /* MESSAGE: how much of it was taken */
	bool end_said;	   /* ... and whether its end, too */
	char portion[LLMQ_SMTP_PORTION];
	LlmqSmtpReader reader;
} LlmqSmtp;

/* Starts the conversation with MAIL. */
extern void llmq_smtp_begin(LlmqSmtp *smtp, LlmqMailReply *reply);

/* What is to be written next; *len 0: nothing, the server's turn. */
extern const char *llmq_smtp_output(LlmqSmtp *smtp, size_t *len);

/* So much of that was written. */
extern void llmq_smtp_written(LlmqSmtp *smtp, size_t len);

/* The server said this; false: it does not speak SMTP. */
extern bool llmq_smtp_input(LlmqSmtp *smtp, const char *bytes, size_t len);

/* Tells whether all is known that will be; what llmq_smtp_output still has is a courtesy. */
extern bool llmq_smtp_is_over(const LlmqSmtp *smtp);

#endif /* LLMQ_SMTP_H */
