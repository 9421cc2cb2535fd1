/*
 * transfer_mail.c
 *		E-mails in flight.
 *
 * libcurl opens the session: it connects, switches to TLS, greets and logs in, and is told to
 * stop there (CURLOPT_CONNECT_ONLY).  From then on we watch its socket, and smtp.c holds the
 * conversation over it.  If libcurl itself sent the mail, it would block, along with all other
 * transfers, until the server has answered to the message, and again to QUIT.
 *
 * Each mail has its own handle and connection, which end with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "transfer/transfer_poll.h"
#include "transfer/transfer_private.h"

/* How much is read at a time. */
#define CHUNK_BYTES 4096

/* libcurl's own time limit for an answer, which must not be reached before ours. */
#define ANSWER_NEVER_S (24L * 3600L)

struct LlmqMailCall
{
	LlmqMailReply *reply;
	LlmqSmtpReader reader; /* until the session is established */
	LlmqSmtp smtp;		   /* from then on */
	bool talking;
	curl_socket_t fd;
	bool watched;
};

static size_t on_answer(char *bytes, size_t size, size_t count, void *user);
static bool set_mail(LlmqTransfer *transfer, const LlmqMailRequest *request);
static bool hear(LlmqTransfer *transfer);
static bool speak(LlmqTransfer *transfer, bool *blocked);
static bool watch(LlmqTransfer *transfer, bool blocked);
static bool end_talk(LlmqTransfer *transfer, LlmqTransferEnd end, const char *detail);

bool
llmq_mail_set_request(LlmqTransfer *transfer, const LlmqMailRequest *request, LlmqMailReply *reply,
					  char *error, size_t error_size)
{
	transfer->mail->reply = reply;
	if (set_mail(transfer, request))
		return true;
	snprintf(error, error_size, "out of memory");
	return false;
}

bool
llmq_mail_set_constants(LlmqTransfer *transfer)
{
	CURL *easy = transfer->easy;

	transfer->mail = calloc(1, sizeof(*transfer->mail));
	if (transfer->mail == NULL)
		return false;
	return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "smtp,smtps") == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_SERVER_RESPONSE_TIMEOUT, ANSWER_NEVER_S) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_answer) == CURLE_OK;
}

void
llmq_mail_forget(LlmqTransfer *transfer)
{
	free(transfer->mail);
	transfer->mail = NULL;
}

/*
 * Sets the options for a mail.  TLS is required with a login, because a password is not sent in
 * clear text.
 */
static bool
set_mail(LlmqTransfer *transfer, const LlmqMailRequest *request)
{
	CURL *easy = transfer->easy;
	long tls = request->username != NULL ? CURLUSESSL_ALL : CURLUSESSL_TRY;

	if (curl_easy_setopt(easy, CURLOPT_USE_SSL, tls) != CURLE_OK)
		return false;
	if (request->username == NULL)
		return true;
	return curl_easy_setopt(easy, CURLOPT_USERNAME, request->username) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_PASSWORD,
							request->password != NULL ? request->password : "") == CURLE_OK;
}

/* Records what the server answers while the session is opened, if it refuses something. */
static size_t
on_answer(char *bytes, size_t size, size_t count, void *user)
{
	LlmqTransfer *transfer = user;
	LlmqMailCall *mail = transfer->mail;
	size_t len = size * count;

	for (size_t i = 0; i < len; i++)
	{
		int code = llmq_smtp_read(&mail->reader, bytes[i]);
		LlmqSmtpAnswer answer;

		if (code <= 0)
			continue;
		answer = llmq_smtp_take(&mail->reader, code, mail->reply->arena);
		if (code < 400)
			answer = (LlmqSmtpAnswer){0, NULL};
		mail->reply->refusal = answer;
	}
	return len;
}

bool
llmq_mail_is_talking(const LlmqTransfer *transfer)
{
	return transfer->mail != NULL && transfer->mail->talking;
}

bool
llmq_mail_owns(const LlmqTransfer *transfer, int fd)
{
	return llmq_mail_is_talking(transfer) && transfer->mail->fd == fd;
}

bool
llmq_mail_begin(LlmqTransfer *transfer)
{
	LlmqMailCall *mail = transfer->mail;

	if (curl_easy_getinfo(transfer->easy, CURLINFO_ACTIVESOCKET, &mail->fd) != CURLE_OK ||
		mail->fd == CURL_SOCKET_BAD)
		return end_talk(transfer, LLMQ_END_NOT_SENT, "the connection was lost");
	mail->talking = true;
	transfer->phase = LLMQ_PHASE_RECEIVING;
	transfer->last_byte_us = transfer->pool->now_us;
	llmq_clock_changed(transfer);
	llmq_smtp_begin(&mail->smtp, mail->reply);
	return llmq_mail_serve(transfer);
}

bool
llmq_mail_serve(LlmqTransfer *transfer)
{
	bool blocked;

	if (!hear(transfer) || !speak(transfer, &blocked))
		return false;
	if (llmq_smtp_is_over(&transfer->mail->smtp))
		return end_talk(transfer, LLMQ_END_COMPLETE, "");
	if (!watch(transfer, blocked))
		return end_talk(transfer, LLMQ_END_RESET, "could not watch the socket");
	return true;
}

void
llmq_mail_leave(LlmqTransfer *transfer)
{
	LlmqMailCall *mail = transfer->mail;

	if (mail == NULL)
		return;
	if (mail->watched)
		llmq_poll_remove(transfer->pool->poller, mail->fd);
	mail->watched = false;
	mail->talking = false;
}

/* Reads what has arrived; false if the transfer has ended. */
static bool
hear(LlmqTransfer *transfer)
{
	LlmqMailCall *mail = transfer->mail;
	char bytes[CHUNK_BYTES];

	while (!llmq_smtp_is_over(&mail->smtp))
	{
		size_t len = 0;
		CURLcode code = curl_easy_recv(transfer->easy, bytes, sizeof(bytes), &len);

		if (code == CURLE_AGAIN)
			return true;
		if (code != CURLE_OK)
			return end_talk(transfer, LLMQ_END_RESET, "connection broken");
		if (len == 0)
			return end_talk(transfer, LLMQ_END_NO_RESPONSE,
							mail->smtp.end_said ? "connection closed after the message"
												: "connection closed before the message was sent");
		transfer->last_byte_us = transfer->pool->now_us;
		if (!llmq_smtp_input(&mail->smtp, bytes, len))
			return end_talk(transfer, LLMQ_END_NO_RESPONSE, "the server does not speak SMTP");
	}
	return true;
}

/* Writes what is to be sent; false if the transfer has ended. */
static bool
speak(LlmqTransfer *transfer, bool *blocked)
{
	LlmqSmtp *smtp = &transfer->mail->smtp;
	const char *bytes;
	size_t len;

	*blocked = false;
	while (bytes = llmq_smtp_output(smtp, &len), len > 0)
	{
		size_t sent = 0;
		CURLcode code = curl_easy_send(transfer->easy, bytes, len, &sent);

		if (code == CURLE_AGAIN)
			*blocked = true;
		else if (code != CURLE_OK && !llmq_smtp_is_over(smtp))
			return end_talk(transfer, LLMQ_END_RESET, "connection broken");
		if (code != CURLE_OK)
			break;
		transfer->last_byte_us = transfer->pool->now_us;
		llmq_smtp_written(smtp, sent);
	}
	return true;
}

static bool
watch(LlmqTransfer *transfer, bool blocked)
{
	LlmqMailCall *mail = transfer->mail;
	uint64_t tag = (uint64_t) transfer->index << 32 | (uint32_t) mail->fd;
	bool known = mail->watched;

	mail->watched = llmq_poll_set(transfer->pool->poller, mail->fd,
								  LLMQ_POLL_IN | (blocked ? LLMQ_POLL_OUT : 0), tag, known);
	return mail->watched;
}

/* Fills in the result; always returns false. */
static bool
end_talk(LlmqTransfer *transfer, LlmqTransferEnd end, const char *detail)
{
	transfer->result.end = end;
	snprintf(transfer->result.detail, sizeof(transfer->result.detail), "%s", detail);
	return false;
}
