/*
 * transfer_mail_test.c
 *		E-mails over real sessions with a mail server (test/fake/mail.py).
 *
 * Each new handle of libcurl is made to trust the mail server's authority, unless
 * a test says otherwise.
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "mail_run.h"

static const LlmqEmail with_login = {.secret = "robot:secret:word", .text = "hi", .text_len = 2};

/* -- The mail server ------------------------------------------------------------------ */

static struct
{
	pid_t pid;
	char folder[64];
	FILE *says;
	int input; /* its end ends the server */
	int plain;
	int open;
	int starttls;
	int smtps;
} server;

static char authority[96]; /* a file; "": that of the machine */
static char fact[8192];	   /* the last that the server said */

CURL *
curl_easy_init(void)
{
	CURL *(*real)(void) = dlsym(RTLD_NEXT, "curl_easy_init");
	CURL *easy = real();

	if (authority[0] != '\0')
		curl_easy_setopt(easy, CURLOPT_CAINFO, authority);
	return easy;
}

/* Waits for the server to say a fact with text in it; those before are passed over. */
static bool
hear_fact(const char *text)
{
	do
	{
		if (fgets(fact, sizeof(fact), server.says) == NULL)
			return false;
	} while (strstr(fact, text) == NULL);
	return true;
}

static int
number_of(const char *name)
{
	char key[32];
	const char *found;

	snprintf(key, sizeof(key), "\"%s\": ", name);
	found = strstr(fact, key);
	return found != NULL ? atoi(found + strlen(key)) : 0;
}

static void
run_server(int input, int output)
{
	dup2(input, 0);
	dup2(output, 1);
	execl("/usr/bin/python3", "python3", "test/fake/mail.py", server.folder, (char *) NULL);
	_exit(127);
}

static bool
server_start(void)
{
	int input[2];
	int output[2];

	strcpy(server.folder, "/tmp/llmq-mail-XXXXXX");
	if (mkdtemp(server.folder) == NULL || pipe2(input, O_CLOEXEC) != 0 ||
		pipe2(output, O_CLOEXEC) != 0)
		return false;
	server.pid = fork();
	if (server.pid == 0)
		run_server(input[0], output[1]);
	close(input[0]);
	close(output[1]);
	server.input = input[1];
	server.says = fdopen(output[0], "r");
	hear_fact("plain");
	server.plain = number_of("plain");
	server.open = number_of("open");
	server.starttls = number_of("starttls");
	server.smtps = number_of("smtps");
	snprintf(authority, sizeof(authority), "%s/cert.pem", server.folder);
	return server.smtps > 0;
}

static void
server_stop(void)
{
	char path[128];

	close(server.input);
	fclose(server.says);
	waitpid(server.pid, NULL, 0);
	snprintf(path, sizeof(path), "%s/cert.pem", server.folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/key.pem", server.folder);
	unlink(path);
	rmdir(server.folder);
}

/* Runs the pool until the server says a fact with text in it. */
static bool
run_until_fact(Mail *mail, const char *text)
{
	struct pollfd said = {.fd = fileno(server.says), .events = POLLIN};
	int64_t limit = now_us() + HANG_US;

	fact[0] = '\0';
	while (!mail->ended && strstr(fact, text) == NULL && now_us() < limit)
	{
		turn(mail, NULL, 5000);
		if (poll(&said, 1, 0) > 0 && fgets(fact, sizeof(fact), server.says) == NULL)
			return false;
	}
	return strstr(fact, text) != NULL;
}

static bool
says(const char *text)
{
	return strstr(fact, text) != NULL;
}

/* -- Sessions --------------------------------------------------------------------------- */

static void
test_plain(void)
{
	static const char *const to[] = {"Ann <ann@example.org>", "bob@example.org", NULL};
	Mail mail;
	char length[64];

	check_mail(&mail, "smtp", server.plain, &hello, to, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "a mail is sent without TLS where there is none");
	ok(mail.verdict.message == NULL, "... and nothing is to be said");
	hear_fact("from");
	ok(says("\"from\": \"robot@example.com\"") &&
		   says("\"to\": [\"ann@example.org\", \"bob@example.org\"]"),
	   "... with its envelope");
	snprintf(length, sizeof(length), "\"length\": %zu,", mail.request.message_len);
	ok(says(length), "... and as it was written, dots and all");
	mail_free(&mail);
}

static void
test_starttls(void)
{
	Mail mail;

	check_mail(&mail, "smtp", server.starttls, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "a mail without a login is sent where TLS is offered");
	hear_fact("from");
	ok(says("\"tls\": true") && says("\"login\": null"), "... with TLS");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.starttls, &with_login, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "a mail with a login is sent where TLS is offered");
	hear_fact("robot");
	ok(!says("from") && says("\"tls\": true"), "... and the login is sent over TLS");
	hear_fact("from");
	ok(says("\"login\": \"robot\""), "... before the mail");
	mail_free(&mail);
}

static void
test_smtps(void)
{
	Mail mail;

	check_mail(&mail, "smtps", server.smtps, &with_login, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "a mail is sent over TLS from the start");
	hear_fact("from");
	ok(says("\"login\": \"robot\""), "... with its login");
	mail_free(&mail);
}

static void
test_wrong_password(void)
{
	LlmqEmail email = with_login;
	Mail mail;
	LlmqSendVerdict verdict;

	email.secret = "robot:wrongword";
	verdict = check_mail(&mail, "smtps", server.smtps, &email, ann, LLMQ_END_NOT_SENT,
						 LLMQ_SEND_RETRY, "a wrong password may be mended: tried again");
	is_int(verdict.code, 535, "... with the server's code");
	ok(strstr(verdict.message, "refused the session: 535") != NULL &&
		   strstr(verdict.message, "wrongword") == NULL,
	   "... and words, without the password");
	hear_fact("robot");
	mail_free(&mail);
	check_mail(&mail, "smtps", server.smtps, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_DEAD,
			   "a server that wants a login refuses a mail without one");
	is_int(mail.verdict.code, 530, "... with its code");
	mail_free(&mail);
}

static void
test_no_password_in_clear(void)
{
	Mail mail;

	check_mail(&mail, "smtp", server.open, &with_login, ann, LLMQ_END_NOT_SENT, LLMQ_SEND_RETRY,
			   "where no TLS is offered a password is not sent");
	ok(strstr(mail.verdict.message, "does not offer TLS") != NULL, "... and said why");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.open, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "... but a mail without one is");
	hear_fact("login");
	ok(says("from") && says("\"login\": null"), "... and no login came before it");
	mail_free(&mail);
}

static void
test_stranger(void)
{
	char kept[sizeof(authority)];
	Mail mail;

	memcpy(kept, authority, sizeof(kept));
	authority[0] = '\0';
	check_mail(&mail, "smtps", server.smtps, &with_login, ann, LLMQ_END_NOT_SENT, LLMQ_SEND_RETRY,
			   "a certificate that nobody vouches for is not accepted");
	ok(strstr(mail.verdict.message, "certificate") != NULL, "... and said so");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.starttls, &hello, ann, LLMQ_END_NOT_SENT, LLMQ_SEND_RETRY,
			   "... nor where TLS is turned to");
	mail_free(&mail);
	memcpy(authority, kept, sizeof(kept));
}

/* -- Refusals --------------------------------------------------------------------------- */

static void
test_recipients(void)
{
	static const char *const mixed[] = {"refused@example.org", "ann@example.org",
										"later@example.org"};
	static const char *const refused[] = {"refused@example.org", NULL};
	Mail mail;
	LlmqSendVerdict verdict;

	verdict = check_mail(&mail, "smtp", server.plain, &hello, mixed, LLMQ_END_COMPLETE,
						 LLMQ_SEND_RETRY, "a refused recipient does not stop the others");
	hear_fact("from");
	ok(says("\"to\": [\"ann@example.org\"]"), "... who get it");
	ok(verdict.remaining_count == 1 && strcmp(verdict.remaining[0], "later@example.org") == 0,
	   "... and whoever was refused for a while is left");
	is_string(
		verdict.message,
		"The server accepted the message, but not for all recipients: refused@example.org (550 "
		"5.1.1 no such user 5.1.1 look elsewhere), later@example.org (451 4.2.0 mailbox busy)",
		"... and each is named with the server's words");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.plain, &hello, refused, LLMQ_END_COMPLETE, LLMQ_SEND_DEAD,
			   "where all are refused nothing is sent");
	mail_free(&mail);
}

static void
test_whole_refusals(void)
{
	static const struct
	{
		const char *sender;
		const char *to;
		LlmqSendOutcome outcome;
		int code;
		const char *sentence;
	} refusals[] = {
		{"later@example.com", "ann@example.org", LLMQ_SEND_RETRY, 451, "greylisting is waited out"},
		{"refused@example.com", "ann@example.org", LLMQ_SEND_DEAD, 550, "a refused sender is dead"},
		{NULL, "data-later@example.org", LLMQ_SEND_RETRY, 451,
		 "a message refused for a while is tried again"},
		{NULL, "data-refused@example.org", LLMQ_SEND_DEAD, 554,
		 "a message refused for good is dead"},
		{NULL, "closing@example.org", LLMQ_SEND_RETRY, 421, "a server that closes is tried again"},
	};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
	{
		const char *const to[] = {"ann@example.org", refusals[i].to, NULL};
		LlmqEmail email = hello;
		Mail mail;

		email.sender = refusals[i].sender;
		check_mail(&mail, "smtp", server.plain, &email, to, LLMQ_END_COMPLETE, refusals[i].outcome,
				   refusals[i].sentence);
		is_int(mail.verdict.code, refusals[i].code, "... with the server's code");
		mail_free(&mail);
	}
}

/* -- Failures --------------------------------------------------------------------------- */

static void
test_hangs(void)
{
	static const char *const to[] = {"hang@example.org", NULL};
	LlmqClocks idle = {.idle_us = 200000, .attempt_us = SECONDS(15)};
	LlmqClocks attempt = {.attempt_us = 200000};
	Mail mail;

	mail_begin(&mail, "smtp", server.plain, &hello, to);
	ok(mail_start(&mail, &idle) && mail_run(&mail) && mail.result.end == LLMQ_END_TIMEOUT,
	   "a server that does not answer is left when it has been silent for too long");
	is_int(mail.verdict.outcome, LLMQ_SEND_RETRY, "... and tried again");
	mail_free(&mail);
	mail_begin(&mail, "smtp", server.plain, &hello, to);
	ok(mail_start(&mail, &attempt) && mail_run(&mail) && mail.result.end != LLMQ_END_COMPLETE,
	   "... or when its time is over");
	mail_free(&mail);
}

static void
test_dies(void)
{
	static const char *const to[] = {"dies@example.org", NULL};
	Mail mail;

	check_mail(&mail, "smtp", server.plain, &hello, to, LLMQ_END_NO_RESPONSE, LLMQ_SEND_RETRY,
			   "a server that dies on the message is tried again");
	ok(hear_fact("dies"), "... which it had got");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.plain, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "... later");
	hear_fact("e");
	ok(says("\"from\""), "... and had not got it again meanwhile");
	mail_free(&mail);
}

static void
answer_ok(Stub *stub, int fd, int number)
{
	if (read_request(stub, fd))
		send_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

/* What libcurl would do itself is to stand still here. */
static void
test_nobody_waits(void)
{
	static const char *const to[] = {"hold@example.org", NULL};
	Stub stub;
	Call call;
	Mail mail;
	int64_t limit = now_us() + HANG_US;

	mail_begin(&mail, "smtps", server.smtps, &with_login, to);
	mail_start(&mail, &patient);
	ok(run_until_fact(&mail, "holds"), "a mail waits for the answer to its message");
	stub_start(&stub, answer_ok);
	call_begin(&call, pool, &stub, &patient);
	while (call.results == 0 && now_us() < limit)
		turn(&mail, &call, 1000000);
	ok(call.results == 1 && call.result.end == LLMQ_END_COMPLETE && !mail.ended,
	   "meanwhile a call goes out and is answered");
	llmq_transfer_abort(pool, mail.transfer);
	is_int(llmq_transfer_pool_count(pool), 0, "a mail that waits can be ended");
	mail_free(&mail);
	call_free(&call);
	call_begin(&call, pool, &stub, &patient);
	while (call.results < 1 && now_us() < limit)
		turn(&mail, &call, 1000000);
	is_int(call.result.end, LLMQ_END_COMPLETE, "... and its slot serves a call");
	check_mail(&mail, "smtp", server.plain, &hello, ann, LLMQ_END_COMPLETE, LLMQ_SEND_SENT,
			   "... and another mail");
	hear_fact("from");
	mail_free(&mail);
	call_free(&call);
	stub_stop(&stub);
}

static void
test_destroy(void)
{
	static const char *const to[] = {"hang@example.org", NULL};
	Mail mail;

	mail_begin(&mail, "smtp", server.starttls, &hello, to);
	mail_start(&mail, &patient);
	ok(run_until_fact(&mail, "hangs"), "a mail is under way");
	llmq_transfer_pool_destroy(pool);
	mail_free(&mail);
	ok(true, "... and ends with the pool");
}

int
main(int argc, char **argv)
{
	alarm(200);
	if (!server_start())
	{
		printf("Bail out! test/fake/mail.py does not start: is python3-aiosmtpd there?\n");
		return 1;
	}
	pool = pool_make(4);
	test_plain();
	test_starttls();
	test_smtps();
	test_wrong_password();
	test_no_password_in_clear();
	test_stranger();
	test_recipients();
	test_whole_refusals();
	test_hangs();
	test_dies();
	test_nobody_waits();
	test_destroy();
	server_stop();
	return tap_done();
}
