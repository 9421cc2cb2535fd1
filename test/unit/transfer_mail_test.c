/*
 * transfer_mail_test.c
 *		E-mails over real sessions: with a mail server (test/fake/mail.py), and with
 *		scripted ones that misbehave.
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

#include "../../bgworker/email.h"
#include "http_stub.h"

#define ARENA_BYTES ((size_t) 64 * 1048576)

/* More than the kernel takes into its buffers at once. */
#define LARGE_TEXT ((size_t) 12 * 1048576)

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

/* -- An e-mail --------------------------------------------------------------------------- */

typedef struct Mail
{
	LlmqArena *arena;
	LlmqMailRequest request;
	LlmqMailReply *reply;
	LlmqTransfer *transfer;
	bool ended;
	LlmqTransferResult result;
	LlmqRelayVerdict verdict;
	char url[64];
	char error[256];
} Mail;

static LlmqTransferPool *pool;

/* Begins an e-mail to up to three recipients (NULL: fewer). */
static bool
mail_begin(Mail *mail, const char *scheme, int port, const LlmqEmail *given, const char *const *to)
{
	LlmqEmail email = *given;
	const char *error = NULL;

	memset(mail, 0, sizeof(*mail));
	snprintf(mail->url, sizeof(mail->url), "%s://127.0.0.1:%d", scheme, port);
	mail->arena = llmq_arena_create(ARENA_BYTES);
	email.url = mail->url;
	email.to = to;
	while (email.to_count < 3 && to[email.to_count] != NULL)
		email.to_count++;
	if (email.sender == NULL)
		email.sender = "robot@example.com";
	email.id = "msg_1";
	if (!llmq_email_request(mail->arena, &email, &mail->request, &error))
	{
		printf("# %s\n", error);
		return false;
	}
	mail->reply = llmq_mail_reply_create(mail->arena, &mail->request);
	return true;
}

static bool
mail_start(Mail *mail, const LlmqClocks *clocks)
{
	mail->transfer = llmq_transfer_start_mail(pool, &mail->request, mail->reply, clocks, mail,
											  now_us(), mail->error, sizeof(mail->error));
	return mail->transfer != NULL;
}

/* Takes what has ended; results of HTTP calls go to their calls. */
static void
collect(Mail *mail, Call *call)
{
	LlmqTransferResult result;

	while (llmq_transfer_pool_next(pool, &result))
	{
		if (result.owner == call)
		{
			call->results++;
			call->result = result;
			continue;
		}
		mail->ended = true;
		mail->result = result;
		llmq_email_verdict(mail->reply, result.end, result.detail, &mail->verdict);
	}
}

/* Waits once as a host does, then dispatches. */
static void
turn(Mail *mail, Call *call, int64_t longest_us)
{
	struct pollfd waited = {.fd = llmq_transfer_pool_fd(pool), .events = POLLIN};
	int64_t timeout = llmq_transfer_pool_timeout(pool, now_us());

	if (timeout < 0 || timeout > longest_us)
		timeout = longest_us;
	poll(&waited, 1, (int) ((timeout + 999) / 1000));
	llmq_transfer_pool_dispatch(pool, now_us());
	collect(mail, call);
}

static bool
mail_run(Mail *mail)
{
	int64_t limit = now_us() + HANG_US;

	while (!mail->ended && now_us() < limit)
		turn(mail, NULL, 1000000);
	return mail->ended;
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

static void
mail_free(Mail *mail)
{
	llmq_arena_destroy(mail->arena);
}

/* Sends an e-mail and checks what came of it. */
static LlmqRelayVerdict
check_mail(Mail *mail, const char *scheme, int port, const LlmqEmail *email, const char *const *to,
		   LlmqTransferEnd end, LlmqRelayOutcome outcome, const char *sentence)
{
	bool started = mail_begin(mail, scheme, port, email, to) && mail_start(mail, &patient);

	if (!ok(started && mail_run(mail) && mail->result.end == end &&
				mail->verdict.outcome == outcome,
			"%s", sentence))
		printf("# end %d, outcome %d: %s (%s)\n", mail->result.end, mail->verdict.outcome,
			   mail->verdict.message, mail->error);
	return mail->verdict;
}

static const LlmqEmail hello = {.subject = "Hello", .text = ".dot\n..\nend", .text_len = 11};
static const LlmqEmail with_login = {.secret = "robot:secret:word", .text = "hi", .text_len = 2};

static const char *const ann[] = {"ann@example.org", NULL};

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

	check_mail(&mail, "smtp", server.plain, &hello, to, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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

	check_mail(&mail, "smtp", server.starttls, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
			   "a mail without a login is sent where TLS is offered");
	hear_fact("from");
	ok(says("\"tls\": true") && says("\"login\": null"), "... with TLS");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.starttls, &with_login, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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

	check_mail(&mail, "smtps", server.smtps, &with_login, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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
	LlmqRelayVerdict verdict;

	email.secret = "robot:wrongword";
	verdict = check_mail(&mail, "smtps", server.smtps, &email, ann, LLMQ_END_NOT_SENT,
						 LLMQ_RELAY_RETRY, "a wrong password may be mended: tried again");
	is_int(verdict.code, 535, "... with the server's code");
	ok(strstr(verdict.message, "refused the session: 535") != NULL &&
		   strstr(verdict.message, "wrongword") == NULL,
	   "... and words, without the password");
	hear_fact("robot");
	mail_free(&mail);
	check_mail(&mail, "smtps", server.smtps, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_DEAD,
			   "a server that wants a login refuses a mail without one");
	is_int(mail.verdict.code, 530, "... with its code");
	mail_free(&mail);
}

static void
test_no_password_in_clear(void)
{
	Mail mail;

	check_mail(&mail, "smtp", server.open, &with_login, ann, LLMQ_END_NOT_SENT, LLMQ_RELAY_RETRY,
			   "where no TLS is offered a password is not sent");
	ok(strstr(mail.verdict.message, "does not offer TLS") != NULL, "... and said why");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.open, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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
	check_mail(&mail, "smtps", server.smtps, &with_login, ann, LLMQ_END_NOT_SENT, LLMQ_RELAY_RETRY,
			   "a certificate that nobody vouches for is not accepted");
	ok(strstr(mail.verdict.message, "certificate") != NULL, "... and said so");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.starttls, &hello, ann, LLMQ_END_NOT_SENT, LLMQ_RELAY_RETRY,
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
	LlmqRelayVerdict verdict;

	verdict = check_mail(&mail, "smtp", server.plain, &hello, mixed, LLMQ_END_COMPLETE,
						 LLMQ_RELAY_RETRY, "a refused recipient does not stop the others");
	hear_fact("from");
	ok(says("\"to\": [\"ann@example.org\"]"), "... who get it");
	ok(verdict.remaining_count == 1 && strcmp(verdict.remaining[0], "later@example.org") == 0,
	   "... and whoever was refused for a while is left");
	is_string(
		verdict.message,
		"The server took the message, but not for all recipients: refused@example.org (550 "
		"5.1.1 no such user 5.1.1 look elsewhere), later@example.org (451 4.2.0 mailbox busy)",
		"... and each is named with the server's words");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.plain, &hello, refused, LLMQ_END_COMPLETE, LLMQ_RELAY_DEAD,
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
		LlmqRelayOutcome outcome;
		int code;
		const char *sentence;
	} refusals[] = {
		{"later@example.com", "ann@example.org", LLMQ_RELAY_RETRY, 451,
		 "greylisting is waited out"},
		{"refused@example.com", "ann@example.org", LLMQ_RELAY_DEAD, 550,
		 "a refused sender is dead"},
		{NULL, "data-later@example.org", LLMQ_RELAY_RETRY, 451,
		 "a message refused for a while is tried again"},
		{NULL, "data-refused@example.org", LLMQ_RELAY_DEAD, 554,
		 "a message refused for good is dead"},
		{NULL, "closing@example.org", LLMQ_RELAY_RETRY, 421, "a server that closes is tried again"},
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
	is_int(mail.verdict.outcome, LLMQ_RELAY_RETRY, "... and tried again");
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

	check_mail(&mail, "smtp", server.plain, &hello, to, LLMQ_END_NO_RESPONSE, LLMQ_RELAY_RETRY,
			   "a server that dies on the message is tried again");
	ok(hear_fact("dies"), "... which it had got");
	mail_free(&mail);
	check_mail(&mail, "smtp", server.plain, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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
	check_mail(&mail, "smtp", server.plain, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
			   "... and another mail");
	hear_fact("from");
	mail_free(&mail);
	call_free(&call);
	stub_stop(&stub);
}

/* -- Servers that misbehave ---------------------------------------------------------------- */

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
check_stub(StubScript script, LlmqTransferEnd end, LlmqRelayOutcome outcome, const char *words,
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
	LlmqClocks attempt = {.attempt_us = 300000};
	Stub stub;
	Mail mail;

	check_stub(refuse_greeting, LLMQ_END_NOT_SENT, LLMQ_RELAY_RETRY,
			   "refused the session: 554 no not you", "a refused greeting is tried again");
	check_stub(speak_http, LLMQ_END_NO_RESPONSE, LLMQ_RELAY_RETRY, "does not speak SMTP",
			   "what is not SMTP is noticed");
	check_stub(close_after_mail, LLMQ_END_NO_RESPONSE, LLMQ_RELAY_RETRY, "before the message",
			   "a connection that is closed is tried again");
	check_stub(close_after_message, LLMQ_END_NO_RESPONSE, LLMQ_RELAY_RETRY, "after the message",
			   "one that is closed on the message is not used again at once");
	check_stub(refuse_early, LLMQ_END_COMPLETE, LLMQ_RELAY_DEAD, "552 too much",
			   "a message may be refused before it is whole");

	stub_start(&stub, never_quit);
	check_mail(&mail, "smtp", stub.port, &hello, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
			   "the end of a session is not waited for");
	ok(await(&stub.marks, 3), "... but QUIT is said, and the connection is closed");
	mail_free(&mail);
	stub_stop(&stub);

	stub_start(&stub, talk_for_ever);
	mail_begin(&mail, "smtp", stub.port, &hello, ann);
	ok(mail_start(&mail, &attempt) && mail_run(&mail) && mail.result.end == LLMQ_END_NO_RESPONSE,
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
	check_mail(&mail, "smtp", stub.port, &email, ann, LLMQ_END_COMPLETE, LLMQ_RELAY_SENT,
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
			   LLMQ_RELAY_RETRY, "where nobody listens it is tried again");
	ok(strstr(mail.verdict.message, "could not be sent") != NULL, "... and said so");
	mail_free(&mail);
	close(fd);
	mail_begin(&mail, "smtp", 25, &hello, ann);
	mail.request.url = "http://127.0.0.1/";
	ok(!mail_start(&mail, &patient) && strstr(mail.error, "smtp") != NULL,
	   "another scheme is refused");
	mail_free(&mail);
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
	test_stubs();
	test_large();
	test_nobody_there();
	test_destroy();
	server_stop();
	return tap_done();
}
