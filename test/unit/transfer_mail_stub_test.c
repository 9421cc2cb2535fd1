/*
 * transfer_mail_stub_test.c
 *		E-mails to servers that misbehave, and to none.
 */
#define _GNU_SOURCE
#include "mail_run.h"

/* More than the kernel takes into its buffers at once. */
#define LARGE_TEXT ((size_t) 12 * 1048576)

/* Reads a line; false when the client has left. */
static bool
read_line(int fd, char *line, size_t size)
{
	size_t len = 0;
	char c = '\0';

	while (len + 1 < size && c != '\n')
	{
		if (recv(fd, &c, 1, 0) <= 0)
			return false;
		line[len++] = c;
	}
	line[len] = '\0';
	return true;
}

/* Greets, and answers commands up to `last` (four letters) with 250; true: that one has come. */
static bool
serve_until(int fd, const char *last)
{
	char line[2048];

	send_text(fd, "220 stub\r\n");
	while (read_line(fd, line, sizeof(line)))
	{
		if (strncmp(line, last, 4) == 0)
			return true;
		send_text(fd, "250-stub\r\n250 fine\r\n");
	}
	return false;
}

static void
refuse_greeting(Stub *stub, int fd, int number)
{
	send_text(fd, "554-no\r\n554 not you\r\n");
	hold(fd);
}

static void
speak_http(Stub *stub, int fd, int number)
{
	if (serve_until(fd, "MAIL"))
		send_text(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
	hold(fd);
}

static void
close_after_mail(Stub *stub, int fd, int number)
{
	serve_until(fd, "MAIL");
}

static void
close_after_message(Stub *stub, int fd, int number)
{
	char line[2048];

	if (!serve_until(fd, "DATA"))
		return;
	send_text(fd, "354 go\r\n");
	while (read_line(fd, line, sizeof(line)) && strcmp(line, ".\r\n") != 0)
		;
	atomic_fetch_add(&stub->marks, 1);
}

static void
refuse_early(Stub *stub, int fd, int number)
{
	if (serve_until(fd, "DATA"))
		send_text(fd, "354 go\r\n552 too much\r\n");
	hold(fd);
}

/* Counts the bytes of a message up to its end. */
static void
take_large(Stub *stub, int fd, int number)
{
	char bytes[65536];
	char tail[5] = "";
	size_t total = 0;
	ssize_t got;

	if (!serve_until(fd, "DATA"))
		return;
	send_text(fd, "354 go\r\n");
	while (memcmp(tail, "\r\n.\r\n", 5) != 0 && (got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
	{
		total += (size_t) got;
		for (ssize_t i = got > 5 ? got - 5 : 0; i < got; i++)
		{
			memmove(tail, tail + 1, 4);
			tail[4] = bytes[i];
		}
	}
	atomic_store(&stub->marks, (int) total);
	send_text(fd, "250 queued\r\n");
	hold(fd);
}

static void
never_quit(Stub *stub, int fd, int number)
{
	char line[2048];

	close_after_message(stub, fd, number);
	send_text(fd, "250 queued\r\n");
	while (read_line(fd, line, sizeof(line)))
		if (strncmp(line, "QUIT", 4) == 0)
			atomic_fetch_add(&stub->marks, 1);
	atomic_fetch_add(&stub->marks, 1);
}

static void
talk_for_ever(Stub *stub, int fd, int number)
{
	if (!serve_until(fd, "MAIL"))
		return;
	while (send(fd, "250-more and more and more\r\n", 28, MSG_NOSIGNAL) > 0)
		;
}

static void
check_stub(StubScript script, LlmqTransferEnd end, LlmqSendOutcome outcome, const char *words,
		   const char *sentence)
{
	Stub stub;
	Mail mail;

	stub_start(&stub, script);
	check_mail(&mail, "smtp", stub.port, &hello, ann, end, outcome, sentence);
	if (!ok(words == NULL
				? mail.verdict.message == NULL
				: mail.verdict.message != NULL && strstr(mail.verdict.message, words) != NULL,
			"... in these words"))
		printf("# %s\n", mail.verdict.message);
	is_int(atomic_load(&stub.connections), 1, "... over one connection");
	mail_free(&mail);
	stub_stop(&stub);
}

static void
test_stubs(void)
{
	Stub stub;
	Mail mail;

	check_stub(refuse_greeting, LLMQ_END_NOT_SENT, LLMQ_SEND_RETRY,
			   "refused the session: 554 no not you", "a refused greeting is tried again");
	check_stub(speak_http, LLMQ_END_NO_RESPONSE, LLMQ_SEND_RETRY, "does not speak SMTP",
			   "what is not SMTP is noticed");
	check_stub(close_after_mail, LLMQ_END_NO_RESPONSE, LLMQ_SEND_RETRY, "before the message",
			   "a connection that is closed is tried again");
	check_stub(close_after_message, LLMQ_END_NO_RESPONSE, LLMQ_SEND_RETRY, "after the message",
			   "one that is closed on the message is not used again at once");
	check_stub(refuse_early, LLMQ_END_COMPLETE, LLMQ_SEND_DEAD, "552 too much",
			   "a message may be refused before it is whole");

	stub_start(&stub, never_quit);
	check_mail(&mail, "smtp", stub.port, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "the end of a session is not waited for");
	ok(await(&stub.marks, 3), "... but QUIT is said, and the connection is closed");
	mail_free(&mail);
	stub_stop(&stub);

	stub_start(&stub, talk_for_ever);
	mail_begin(&mail, "smtp", stub.port, &hello, ann);
	ok(mail_start(&mail, &patient) && mail_run(&mail) && mail.result.end == LLMQ_END_NO_RESPONSE,
	   "a server that talks for ever is left, and not heard for as long as it likes");
	mail_free(&mail);
	stub_stop(&stub);
}

static void
test_large(void)
{
	LlmqEmail email = hello;
	char *text = malloc(LARGE_TEXT);
	size_t dots = 0;
	Stub stub;
	Mail mail;

	for (size_t i = 0; i < LARGE_TEXT; i++)
		text[i] = i % 50 == 49 ? '\n' : i % 50 == 0 ? '.' : 'x';
	dots = (LARGE_TEXT + 49) / 50;
	email.text = text;
	email.text_len = LARGE_TEXT;
	stub_start(&stub, take_large);
	check_mail(&mail, "smtp", stub.port, &email, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "a mail that does not fit into the socket is sent");
	is_int(atomic_load(&stub.marks), (int64_t) (mail.request.message_len + dots + 3),
		   "... whole, with its dots doubled");
	mail_free(&mail);
	stub_stop(&stub);
	free(text);
}

static void
test_nobody_there(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	Mail mail;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(fd, (struct sockaddr *) &address, sizeof(address));
	getsockname(fd, (struct sockaddr *) &address, &len);
	check_mail(&mail, "smtp", ntohs(address.sin_port), &hello, ann, LLMQ_END_NOT_SENT,
			   LLMQ_SEND_RETRY, "where nobody listens it is tried again");
	ok(strstr(mail.verdict.message, "could not be sent") != NULL, "... and said so");
	mail_free(&mail);
	close(fd);
	mail_begin(&mail, "smtp", 25, &hello, ann);
	mail.request.url = "http://127.0.0.1/";
	ok(!mail_start(&mail, &patient) && strstr(mail.error, "smtp") != NULL,
	   "another scheme is refused");
	mail_free(&mail);
}

int
main(int argc, char **argv)
{
	alarm(200);
	pool = pool_make(4);
	test_stubs();
	test_large();
	test_nobody_there();
	llmq_transfer_pool_destroy(pool);
	return tap_done();
}
