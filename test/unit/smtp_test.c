/*
 * smtp_test.c
 *		The conversation with a mail server that says what it should not.
 */
#include "messages/smtp.h"

#include <string.h>

#include "tap.h"

static const char *const recipients[] = {"one@example.org"};

static LlmqMailRequest request = {.mail_from = "robot@example.com",
								  .recipients = (const char **) recipients,
								  .recipient_count = 1,
								  .message = "Hello\r\n",
								  .message_len = 7};

/* Says all that is to be said. */
static void
speak(LlmqSmtp *smtp)
{
	size_t len;

	while (llmq_smtp_output(smtp, &len), len > 0)
		llmq_smtp_written(smtp, len);
}

static bool
hear(LlmqSmtp *smtp, const char *text)
{
	return llmq_smtp_input(smtp, text, strlen(text));
}

/* A conversation up to the message. */
static LlmqMailReply *
begin(LlmqArena *arena, LlmqSmtp *smtp)
{
	LlmqMailReply *reply = llmq_mail_reply_create(arena, &request);

	llmq_smtp_begin(smtp, reply);
	speak(smtp);
	hear(smtp, "250 sender\r\n");
	speak(smtp);
	hear(smtp, "250 recipient\r\n");
	speak(smtp);
	hear(smtp, "354 go on\r\n");
	return reply;
}

static void
test_taken(void)
{
	LlmqArena *arena = llmq_arena_create(1048576);
	LlmqSmtp smtp;
	LlmqMailReply *reply = begin(arena, &smtp);

	speak(&smtp);
	hear(&smtp, "250 taken\r\n");
	ok(reply->accepted, "a message is taken when the server says so behind its end");
	llmq_arena_destroy(arena);
}

static void
test_too_early(void)
{
	LlmqArena *arena = llmq_arena_create(1048576);
	LlmqSmtp smtp;
	LlmqMailReply *reply = begin(arena, &smtp);
	size_t len;

	llmq_smtp_output(&smtp, &len);
	llmq_smtp_written(&smtp, len - 1);
	hear(&smtp, "250 taken\r\n");
	ok(!reply->accepted, "one whose end is not out has not been taken, whatever the server says");
	ok(llmq_smtp_is_over(&smtp), "and the conversation is over");
	llmq_arena_destroy(arena);
}

static void
test_endless(void)
{
	LlmqArena *arena = llmq_arena_create(1048576);
	LlmqSmtp smtp;
	size_t said = 0;

	begin(arena, &smtp);
	while (said < 2 * LLMQ_SMTP_ANSWERS_MAX && hear(&smtp, "250-and\r\n"))
		said += 9;
	ok(said <= LLMQ_SMTP_ANSWERS_MAX, "an answer without end ends the conversation");
	llmq_arena_destroy(arena);
}

/* RFC 5321, 4.5.2: dots that begin a line are doubled, the first line's too. */
static void
test_dots(void)
{
	static const char message[] = ".a\r\nb.c.\r\n..d\r\n.\r\n";
	LlmqMailRequest dotted = request;
	LlmqArena *arena = llmq_arena_create(1048576);
	LlmqMailReply *reply;
	const char *said;
	LlmqSmtp smtp;
	size_t len;

	dotted.message = message;
	dotted.message_len = strlen(message);
	reply = llmq_mail_reply_create(arena, &dotted);
	llmq_smtp_begin(&smtp, reply);
	for (int i = 0; i < 3; i++)
	{
		speak(&smtp);
		hear(&smtp, i < 2 ? "250 good\r\n" : "354 go on\r\n");
	}
	said = llmq_smtp_output(&smtp, &len);
	is_string(llmq_arena_strndup(arena, said, len), "..a\r\nb.c.\r\n...d\r\n..\r\n.\r\n",
			  "a dot that begins a line is doubled, no other, and one alone ends the message");
	llmq_arena_destroy(arena);
}

static void
test_malformed(void)
{
	static const char *const answers[] = {"25\r\n",		  "25x taken\r\n", "\r\n",
										  "150 wait\r\n", "250_taken\r\n", "+OK\r\n"};
	LlmqArena *arena = llmq_arena_create(1048576);

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
	{
		LlmqSmtp smtp;
		LlmqMailReply *reply = begin(arena, &smtp);

		speak(&smtp);
		ok(!hear(&smtp, answers[i]) && !reply->accepted, "what is no answer of SMTP is none: %.*s",
		   (int) strcspn(answers[i], "\r"), answers[i]);
	}
	llmq_arena_destroy(arena);
}

int
main(void)
{
	test_taken();
	test_too_early();
	test_endless();
	test_dots();
	test_malformed();
	return tap_done();
}
