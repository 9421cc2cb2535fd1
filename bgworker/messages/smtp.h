/*
 * smtp.h
 *		Sends a message in an established SMTP session, from MAIL to the end of the data.
 *
 * Pure: it is given what the server sent, and returns what to send.  libcurl connects,
 * encrypts, greets and logs in.  The rest is done here, because libcurl blocks until the server
 * has answered to the message and to QUIT, and does not say which recipients were refused.
 */
#ifndef LLMQ_SMTP_H
#define LLMQ_SMTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

/* What to send, and where. */
typedef struct LlmqMailRequest
{
	const char *url;	  /* smtp://host:port or smtps://host:port */
	const char *username; /* NULL: no login */
	const char *password;
	const char *mail_from; /* an address, without brackets */
	const char **recipients;
	int recipient_count;
	const char *message; /* lines end with CRLF, including the last one; dots are not doubled */
	size_t message_len;
} LlmqMailRequest;

/* A server's answer. */
typedef struct LlmqSmtpAnswer
{
	int code;		  /* 0: no answer */
	const char *text; /* the text after the code, lines joined by spaces; any bytes, truncated */
} LlmqSmtpAnswer;

/* What a server answered to a message. */
typedef struct LlmqMailReply
{
	LlmqArena *arena;
	const LlmqMailRequest *request;
	LlmqSmtpAnswer *recipients; /* for each recipient, in the order of the request */
	LlmqSmtpAnswer refusal;		/* for what failed as a whole: greeting, login, sender, message */
	const char **remaining;		/* room for the verdict: as many as there are recipients */
	bool in_session;			/* MAIL was sent */
	bool accepted;				/* the message, for all recipients that were answered with 2xx */
} LlmqMailReply;

/*
 * Creates an empty reply.  All its memory, including that of texts, comes from arena, and
 * request must outlive it.  Returns NULL when out of memory.
 */
extern LlmqMailReply *llmq_mail_reply_create(LlmqArena *arena, const LlmqMailRequest *request);

/* Reads answers line by line, in portions of any size. */
#define LLMQ_SMTP_TEXT_MAX 400

typedef struct LlmqSmtpReader
{
	char line[1024]; /* RFC 5321 allows 512; longer lines are truncated */
	size_t line_len;
	char text[LLMQ_SMTP_TEXT_MAX]; /* of the lines so far */
	size_t text_len;
} LlmqSmtpReader;

/*
 * Takes one byte.  Returns 0, or the code when an answer is complete; its text is then in
 * reader->text.  Returns -1 if this is not SMTP.
 */
extern int llmq_smtp_read(LlmqSmtpReader *reader, char byte);

/* Takes the complete answer, and makes the reader ready for the next one. */
extern LlmqSmtpAnswer llmq_smtp_take(LlmqSmtpReader *reader, int code, LlmqArena *arena);

typedef enum LlmqSmtpStep
{
	LLMQ_SMTP_MAIL,
	LLMQ_SMTP_RCPT,
	LLMQ_SMTP_DATA,
	LLMQ_SMTP_MESSAGE,
	LLMQ_SMTP_QUIT /* everything is known; it is sent, but its answer is not awaited */
} LlmqSmtpStep;

/*
 * How many bytes a server may send in one session: enough for long answers to a hundred
 * recipients.
 */
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
	char command[512];	/* what to send, except for the message */
	const char *out;	/* what is left of it */
	size_t out_len;
	size_t heard;	   /* bytes of answers */
	size_t message_at; /* MESSAGE: how much of it was put into portions */
	bool end_said;	   /* ... and whether its end was too */
	char portion[LLMQ_SMTP_PORTION];
	LlmqSmtpReader reader;
} LlmqSmtp;

/* Starts the conversation with MAIL. */
extern void llmq_smtp_begin(LlmqSmtp *smtp, LlmqMailReply *reply);

/* Returns what to write next; *len is 0 if it is the server's turn. */
extern const char *llmq_smtp_output(LlmqSmtp *smtp, size_t *len);

/* Records that so much of it was written. */
extern void llmq_smtp_written(LlmqSmtp *smtp, size_t len);

/* Takes what the server sent; false if that is not SMTP. */
extern bool llmq_smtp_input(LlmqSmtp *smtp, const char *bytes, size_t len);

/* Returns whether everything is known.  What llmq_smtp_output still returns then is a courtesy. */
extern bool llmq_smtp_is_over(const LlmqSmtp *smtp);

#endif /* LLMQ_SMTP_H */
