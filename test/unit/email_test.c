/*
 * email_test.c
 *		What an e-mail looks like to Python's e-mail package, and what is made of
 *		a server's answers.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "messages/email.h"
#include "messages/email_format.h"
#include "tap.h"

#define ARENA_BYTES (8 << 20)

#define READER                                                                                   \
	"import sys, email, email.policy\n"                                                          \
	"m = email.message_from_binary_file(open(sys.argv[1], 'rb'), policy=email.policy.default)\n" \
	"print('\\n'.join(str(x) for x in m.defects) + repr(eval(sys.argv[2])), end='')\n"

static LlmqArena *arena;
static LlmqMailRequest request;
static const char *error;

static const char *const ann[] = {"ann@example.org"};

static const LlmqEmail plain = {.url = "smtp://mail.example.org:587",
								.secret = "me:pass:word",
								.sender = "Robot <robot@example.com>",
								.to = ann,
								.to_count = 1,
								.subject = "Hello",
								.text = "Hi\n",
								.text_len = 3,
								.id = "msg_1",
								.idempotency_key = "order-1",
								.date_us = INT64_C(1767225600000000)};

static bool
ask(LlmqEmail email)
{
	llmq_arena_destroy(arena);
	arena = llmq_arena_create(ARENA_BYTES);
	return llmq_email_request(arena, &email, &request, &error);
}

/* What Python makes of an expression about the message m. */
static const char *
python(const char *expression)
{
	static char answer[65536];
	char path[] = "/tmp/llmq-email-XXXXXX";
	int fd = mkstemp(path);
	char command[2048];
	FILE *out;
	size_t len;

	if (fd < 0 || write(fd, request.message, request.message_len) != (ssize_t) request.message_len)
		return "no file";
	close(fd);
	snprintf(command, sizeof(command), "/usr/bin/python3 -c \"%s\" %s \"%s\"", READER, path,
			 expression);
	out = popen(command, "r");
	len = fread(answer, 1, sizeof(answer) - 1, out);
	answer[len] = '\0';
	pclose(out);
	unlink(path);
	return answer;
}

/* Tells whether a line of the message is longer than `max`, or ends without CRLF. */
static bool
has_bad_line(size_t max)
{
	const char *at = request.message;
	const char *end = at + request.message_len;

	while (at < end)
	{
		const char *stop = memchr(at, '\n', (size_t) (end - at));

		if (stop == NULL || stop == at || stop[-1] != '\r' || (size_t) (stop - 1 - at) > max ||
			memchr(at, '\r', (size_t) (stop - 1 - at)) != NULL)
			return true;
		at = stop + 1;
	}
	return false;
}

/* -- The message ------------------------------------------------------------------- */

static void
test_whole(void)
{
	static const char expected[] = "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\n"
								   "From: \"Robot\" <robot@example.com>\r\n"
								   "To: <ann@example.org>\r\n"
								   "Subject: Hello\r\n"
								   "Message-ID: <msg_1@example.com>\r\n"
								   "Idempotency-Key: order-1\r\n"
								   "Auto-Submitted: auto-generated\r\n"
								   "MIME-Version: 1.0\r\n"
								   "Content-Type: text/plain; charset=utf-8\r\n"
								   "Content-Transfer-Encoding: quoted-printable\r\n"
								   "\r\n"
								   "Hi\r\n";

	ok(ask(plain), "an e-mail is written");
	is_string(request.message, expected, "it has the headers that it should, and the text");
	is_int((int64_t) request.message_len, sizeof(expected) - 1, "its length is right");
	is_string(request.mail_from, "robot@example.com", "the envelope's sender is an address");
	is_string(request.recipients[0], "ann@example.org", "so is the recipient");
	is_string(request.username, "me", "the user comes before the first colon");
	is_string(request.password, "pass:word", "the password is the rest");
	is_string(request.url, plain.url, "it goes to the url");
}

static void
test_names_and_subject(void)
{
	static const char *const to[] = {"J\xC3\xBCrgen M\xC3\xBCller <j@example.org>",
									 "\"Doe, \\\"Jo\\\"\" <jo@example.org>",
									 "=?utf-8?q?x?= <x@example.org>", "  <bare@example.org>"};
	LlmqEmail email = plain;

	email.to = to;
	email.to_count = 4;
	email.cc = ann;
	email.cc_count = 1;
	email.subject = "Gr\xC3\xBC\xC3\x9F"
					"e \xE2\x9C\x93 \xF0\x9F\x98\x80, und das ist ein langer Betreff mit "
					"\xC3\xA4\xC3\xB6\xC3\xBC, der nicht in eine Zeile passt";
	ok(ask(email), "names and subjects need not be ASCII");
	is_string(python("[a.display_name for a in m['to'].addresses]"),
			  "['J\xC3\xBCrgen M\xC3\xBCller', 'Doe, \"Jo\"', '=?utf-8?q?x?=', '']",
			  "names arrive as they were written");
	is_string(python("[a.addr_spec for a in m['to'].addresses + m['cc'].addresses]"),
			  "['j@example.org', 'jo@example.org', 'x@example.org', 'bare@example.org', "
			  "'ann@example.org']",
			  "so do addresses");
	is_string(python("m['subject']"),
			  "'Gr\xC3\xBC\xC3\x9F"
			  "e \xE2\x9C\x93 \xF0\x9F\x98\x80, und das ist ein langer Betreff mit "
			  "\xC3\xA4\xC3\xB6\xC3\xBC, der nicht in eine Zeile passt'",
			  "so does the subject");
	ok(!has_bad_line(76), "... in lines of 76 characters");
	is_int(request.recipient_count, 5, "to and cc get it");
}

static void
test_subjects(void)
{
	static const char *const subjects[] = {
		"=?utf-8?q?not_this?=",
		"two  spaces ",
		" x",
		"a tab\tin it",
		"many words that are plain but do not fit into one line of seventy-six characters so fold",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"a",
		"it\\'s = 100% (sure)",
	};
	LlmqEmail email = plain;

	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
	{
		char expression[512];

		email.subject = subjects[i];
		ask(email);
		/* the raw value, unfolded and decoded as RFC 2047 has it */
		snprintf(expression, sizeof(expression),
				 "''.join(t.decode(c or 'ascii') if isinstance(t, bytes) else t for t, c in "
				 "__import__('email.header').header.decode_header("
				 "email.message_from_bytes(m.as_bytes()).get('subject').replace('\\n', ''))) == "
				 "r'%s'",
				 subjects[i]);
		is_string(python(expression), "True", "a subject arrives as it was written");
		ok(!has_bad_line(76), "... in lines of 76 characters");
	}
	email.subject = NULL;
	ok(ask(email) && strstr(request.message, "Subject") == NULL, "there need not be a subject");
}

static void
check_text(const char *text, const char *expected, const char *sentence)
{
	LlmqEmail email = plain;

	email.text = text;
	email.text_len = strlen(text);
	ask(email);
	is_string(python("m.get_content()"), expected, sentence);
	ok(!has_bad_line(76), "... in lines of 76 characters that end with CRLF");
}

static void
test_texts(void)
{
	check_text("a\r\nb\nc", "'a\\nb\\nc\\n'", "lines end one way, however they ended");
	check_text("\n\n", "'\\n\\n'", "empty lines are kept");
	check_text("", "''", "a text may be empty");
	check_text("a \t\nb=3D\r", "'a \\t\\nb=3D\\r\\n'",
			   "spaces at the end of a line, = and lone CRs are kept");
	check_text(".\n..a", "'.\\n..a\\n'", "dots are kept");
	check_text("\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4"
			   "\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC",
			   "'\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4"
			   "\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\\n'",
			   "long lines are kept whole");
	check_text(
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"a"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n'",
		"so are those of plain letters");
	check_text(
		"0123456789012345678901234567890123456789012345678901234567890123456789012 4 \nx",
		"'0123456789012345678901234567890123456789012345678901234567890123456789012 4 \\nx\\n'",
		"so are those that end with a space where they are broken");
}

static void
test_keys(void)
{
	char long_key[1200];
	LlmqEmail email = plain;

	email.idempotency_key = "a\r\nBcc: b@example.org";
	ask(email);
	ok(strstr(request.message, "\r\nIdempotency-Key: a%0D%0ABcc: b@example.org\r\n") != NULL,
	   "a key cannot begin a header");
	memset(long_key, 'x', sizeof(long_key) - 1);
	long_key[sizeof(long_key) - 1] = '\0';
	email.idempotency_key = long_key;
	ok(ask(email) && strstr(request.message, "Idempotency-Key") == NULL,
	   "a key that is too long for a line is left out");
}

/* -- What is refused, and who gets it -------------------------------------------------- */

static void
check_recipient(const char *text, const char *words, const char *sentence)
{
	LlmqEmail email = plain;

	email.to = &text;
	if (!ok(!ask(email) && error != NULL && strstr(error, words) != NULL, "%s", sentence))
		printf("# error: %s\n", error);
}

static bool
ask_recipient(const char *text)
{
	LlmqEmail email = plain;

	email.to = &text;
	return ask(email);
}

static void
test_recipients_refused(void)
{
	char local[80];
	char domain[300];
	char name[330];

	check_recipient("a@b.test\r\nBcc: c@d.test", "control character", "a line end is refused");
	check_recipient("A\n <a@b.test>", "control character", "in a name too");
	check_recipient("", "not an e-mail address", "nobody is refused");
	check_recipient("a", "not an e-mail address", "a name without a host is refused");
	check_recipient("a@", "not an e-mail address", "a host without a name is refused");
	check_recipient("@b.test", "not an e-mail address", "... and the other way round");
	check_recipient("a@b.test, c@d.test", "not an e-mail address", "two in one are refused");
	check_recipient("a@b.test> SIZE=1", "not an e-mail address", "a command's end is refused");
	check_recipient("A <a@b.test> x", "not an e-mail address", "something behind is refused");
	check_recipient("A <a@b.test", "not an e-mail address", "an open bracket is refused");
	check_recipient("a b@c.test", "not an e-mail address", "a space is refused");
	check_recipient("\"A\\\"> <a@b.test>", "not an e-mail address", "a quote must end");
	check_recipient("a@b..test", "not an e-mail address", "an empty label is refused");
	check_recipient("j\xC3\xBCrgen@b.test", "not ASCII", "a name that is not ASCII is refused");
	check_recipient("a@b\xC3\xBC.test", "xn--", "a host that is not ASCII is refused");
	memset(local, 'a', 65);
	strcpy(local + 64, "@b.test");
	ok(ask_recipient(local), "a local part of 64 is taken");
	local[64] = 'a';
	strcpy(local + 65, "@b.test");
	check_recipient(local, "longer", "a local part of 65 is refused");
	memset(domain, 'b', sizeof(domain) - 1);
	memcpy(domain, "a@", 2);
	domain[255] = '\0';
	check_recipient(domain, "longer", "an address of 255 is refused");
	memset(name, 'n', 301);
	strcpy(name + 301, "<a@b.test>");
	check_recipient(name, "too long a name", "a name of 301 is refused");
}

static void
test_refused(void)
{
	static const char *many[LLMQ_EMAIL_RECIPIENTS_MAX + 1];
	static char subject[LLMQ_EMAIL_SUBJECT_MAX + 2];
	LlmqEmail email = plain;

	email.subject = "a\r\nBcc: b@example.org";
	ok(!ask(email) && strstr(error, "subject") != NULL, "a subject with a line end is refused");
	memset(subject, 's', sizeof(subject) - 1);
	email.subject = subject;
	ok(!ask(email) && strstr(error, "longer than 2000") != NULL, "a subject of 2001 is refused");
	email.subject = subject + 1;
	ok(ask(email), "one of 2000 is not");
	email = plain;
	email.sender = NULL;
	ok(!ask(email) && strstr(error, "no sender") != NULL, "there must be a sender");
	email = plain;
	email.to_count = 0;
	ok(!ask(email) && strstr(error, "no recipient") != NULL, "there must be a recipient");
	email = plain;
	email.secret = "hunter2";
	ok(!ask(email) && strstr(error, "user:password") != NULL && strstr(error, "hunter2") == NULL,
	   "a secret without a user is refused, and not shown");
	email = plain;
	email.url = "https://example.org/";
	ok(!ask(email) && strstr(error, "smtp://") != NULL, "another scheme is refused");
	email.url = "smtp://me:hunter2@example.org/";
	ok(!ask(email) && strstr(error, "hunter2") == NULL, "a url with a password is refused");
	email.url = "smtp://example.org/a b";
	ok(!ask(email) && strstr(error, "a space") != NULL, "a url with a space is refused");
	email = plain;
	email.id = "a@b";
	ok(!ask(email), "an id that cannot stand in Message-ID is refused");
	email = plain;
	for (int i = 0; i <= LLMQ_EMAIL_RECIPIENTS_MAX; i++)
		many[i] = ann[0];
	email.to = many;
	email.to_count = LLMQ_EMAIL_RECIPIENTS_MAX + 1;
	ok(!ask(email) && strstr(error, "more than 100") != NULL, "101 recipients are refused");
}

static void
test_envelope(void)
{
	static const char *const to[] = {"Ann <ann@example.org>", "bob@example.org", "a@[192.0.2.1]"};
	static const char *const cc[] = {"ann@EXAMPLE.org", "Ann@example.org"};
	static const char *const left[] = {"bob@example.org", "eve@example.org"};
	LlmqEmail email = plain;

	email.to = to;
	email.to_count = 3;
	email.cc = cc;
	email.cc_count = 2;
	ok(ask(email), "several recipients are taken");
	is_int(request.recipient_count, 4, "each gets it once; local parts have a case");
	is_string(request.recipients[3], "Ann@example.org", "... as it was written");
	email.remaining = left;
	email.remaining_count = 2;
	ok(ask(email) && request.recipient_count == 1, "those who have it already are left out");
	is_string(request.recipients[0], "bob@example.org", "... and nobody comes in");
	ok(strstr(request.message, "ann@EXAMPLE.org") != NULL, "... but the headers name all");
	email.remaining_count = 0;
	ok(!ask(email) && error != NULL, "somebody must be left");
}

static void
test_payload(void)
{
	static const char whole[] = "{\"to\": [\"a@b.test\", \"c@d.test\"], \"cc\": \"e@f.test\", "
								"\"subject\": \"x\", \"text\": \"y\\nz\"}";
	static const char *const refused[] = {"[]",
										  "{\"to\": 1}",
										  "{\"to\": [[]]}",
										  "{\"to\": \"a@b.test\", \"subject\": {}}",
										  "{",
										  "{\"text\": \"a\\u0000b\"}"};
	LlmqEmail email = plain;
	LlmqBuffer many;

	ok(llmq_email_read(arena, whole, strlen(whole), &email, &error), "a payload is read");
	ok(email.to_count == 2 && strcmp(email.to[1], "c@d.test") == 0, "to may be an array");
	ok(email.cc_count == 1 && strcmp(email.cc[0], "e@f.test") == 0, "cc may be a text");
	is_string(email.subject, "x", "the subject is read");
	is_string(email.text, "y\nz", "the text is read");
	ok(llmq_email_read(arena, "{}", 2, &email, &error) && email.text == NULL && email.to_count == 0,
	   "what is missing is not there");
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		ok(!llmq_email_read(arena, refused[i], strlen(refused[i]), &email, &error) && error != NULL,
		   "another payload is refused: %s", refused[i]);
	llmq_buffer_init(&many, 10000);
	llmq_buffer_append_string(&many, "{\"to\": [\"\"");
	for (int i = 0; i < LLMQ_EMAIL_RECIPIENTS_MAX; i++)
		llmq_buffer_append_string(&many, ",\"\"");
	llmq_buffer_append_string(&many, "]}");
	ok(!llmq_email_read(arena, many.data, many.len, &email, &error) &&
		   strstr(error, "more than 100") != NULL,
	   "101 recipients are refused before their addresses are read");
	llmq_buffer_free(&many);
}

static void
test_memory(void)
{
	static const char payload[] = "{\"to\": [\"Ann <ann@example.org>\"], \"text\": \"a\\nb\"}";
	bool written = false;
	bool silent = true;
	size_t room;

	for (room = 0; room < 20000 && !written; room += 4)
	{
		LlmqArena *small = llmq_arena_create(room);
		LlmqEmail email = plain;

		email.cc = ann;
		email.cc_count = 1;
		written = llmq_email_read(small, payload, sizeof(payload) - 1, &email, &error) &&
				  llmq_email_request(small, &email, &request, &error);
		silent = silent && error == NULL;
		llmq_arena_destroy(small);
	}
	ok(written && silent && room > 100,
	   "with too little memory there is no e-mail, and no sentence, however little it is");
}

/* -- The verdict --------------------------------------------------------------------- */

static LlmqSendVerdict verdict;

/* Judges answers to two recipients and to the message. */
static void
judge(int first, int second, int whole, LlmqTransferEnd end)
{
	static const char *const to[] = {"ann@example.org", "bob@example.org"};
	LlmqEmail email = plain;
	LlmqMailReply *reply;

	email.to = to;
	email.to_count = 2;
	ask(email);
	reply = llmq_mail_reply_create(arena, &request);
	reply->in_session = first > 0;
	reply->recipients[0] = (LlmqSmtpAnswer){first, "first"};
	reply->recipients[1] = (LlmqSmtpAnswer){second, "second"};
	reply->accepted = whole == 250;
	if (whole >= 400)
		reply->refusal = (LlmqSmtpAnswer){whole, "pass:word is wrong"};
	llmq_email_verdict(reply, end, "the detail", &verdict);
}

static void
test_verdicts(void)
{
	judge(250, 251, 250, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_SENT && verdict.message == NULL, "all that got it: sent");
	judge(250, 550, 250, LLMQ_END_COMPLETE);
	is_int(verdict.outcome, LLMQ_SEND_SENT, "one refused for good: sent");
	is_string(verdict.message,
			  "The server accepted the message, but not for all recipients: bob@example.org (550 "
			  "second)",
			  "... and named");
	judge(250, 451, 250, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.remaining_count == 1,
	   "one refused for a while: tried again");
	is_string(verdict.remaining[0], "bob@example.org", "... for that one only");
	is_int(verdict.code, 451, "... with the code");
	judge(550, 451, 0, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.remaining_count == 1 &&
		   strcmp(verdict.remaining[0], "bob@example.org") == 0,
	   "whoever was refused for good is not tried again");
	judge(550, 553, 0, LLMQ_END_COMPLETE);
	is_int(verdict.outcome, LLMQ_SEND_DEAD, "all refused for good: dead");
	judge(250, 250, 451, LLMQ_END_COMPLETE);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.remaining_count == 2,
	   "the message refused for a while: tried again for all");
	judge(250, 250, 554, LLMQ_END_COMPLETE);
	is_int(verdict.outcome, LLMQ_SEND_DEAD, "the message refused for good: dead");
	is_string(verdict.message, "The server refused the message: 554 *** is wrong",
			  "... in the server's words, without the password");
	judge(0, 0, 535, LLMQ_END_NOT_SENT);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.remaining_count == 2,
	   "a refused login: tried again");
	is_string(verdict.message, "The server refused the session: 535 *** is wrong", "... and said");
	judge(0, 0, 0, LLMQ_END_NOT_SENT);
	is_string(verdict.message, "The message could not be sent: the detail",
			  "no connection: tried again, with the detail");
	judge(250, 550, 0, LLMQ_END_RESET);
	ok(verdict.outcome == LLMQ_SEND_RETRY && verdict.remaining_count == 1,
	   "a connection that broke: tried again for those who may still get it");
	is_string(verdict.message,
			  "The connection ended before the server had accepted the message: the detail",
			  "... and said");
}

static void
test_many_refused(void)
{
	static char text[12][32];
	static const char *to[12];
	LlmqEmail email = plain;
	LlmqMailReply *reply;

	for (int i = 0; i < 12; i++)
	{
		snprintf(text[i], sizeof(text[i]), "u%d@example.org", i);
		to[i] = text[i];
	}
	email.to = to;
	email.to_count = 12;
	ask(email);
	reply = llmq_mail_reply_create(arena, &request);
	reply->in_session = true;
	for (int i = 0; i < 12; i++)
		reply->recipients[i] = (LlmqSmtpAnswer){550, "no"};
	llmq_email_verdict(reply, LLMQ_END_COMPLETE, NULL, &verdict);
	ok(strstr(verdict.message, "u9@example.org (550 no) and 2 more") != NULL,
	   "of many who were refused ten are named, and the others counted");
	judge(250, 250, 0, LLMQ_END_INTERRUPTED);
	is_string(verdict.message, "The delivery was interrupted: the detail",
			  "what we broke off ourselves is said to be so");
}

int
main(void)
{
	test_whole();
	test_names_and_subject();
	test_subjects();
	test_texts();
	test_keys();
	test_recipients_refused();
	test_refused();
	test_envelope();
	test_payload();
	test_memory();
	test_verdicts();
	test_many_refused();
	llmq_arena_destroy(arena);
	return tap_done();
}
