/*
 * transfer_end.c
 *		Determines how a transfer ended, from libcurl's result and from what was observed.
 *
 * Whether an attempt can have cost money depends on whether a byte of the request was sent.
 * libcurl counts the bytes that it gave to the kernel (CURLINFO_REQUEST_SIZE); those before
 * the pre-request callback went to a proxy.  It does not count what it writes after the socket
 * was full at the first write, so a request that had to wait for room counts as sent.  Bytes
 * that the kernel accepted and never delivered count as sent too, because nobody can know.  If
 * a reused connection is found dead before the first write, libcurl replaces it without a
 * trace.  If one refuses the first write, libcurl replaces it too, and the second pre-request
 * callback finds that nothing was sent.
 *
 * Details are for people to read.  libcurl's own messages are passed on only for failures of
 * network and TLS, where they name hosts and system errors; others may quote headers or the
 * URL.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/* The size to which libcurl's buffer may have grown at its limit for one header line. */
#define HEADER_LINE_PROBE (256 * 1024)

/* How many descriptors may be needed at once to resolve a name and open one connection. */
#define DESCRIPTOR_PROBE 4

static void
say(LlmqTransfer *transfer, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool
llmq_end_is_local(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
		   error == EAGAIN;
}

bool
llmq_end_request_sent(LlmqTransfer *transfer)
{
	long size = 0;

	if (transfer->mail != NULL)
		return llmq_mail_is_talking(transfer);
	if (!transfer->connected)
		return false;
	if (transfer->upload_waited)
		return true;
	curl_easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &size);
	return size > transfer->request_base;
}

/* Writes the detail; bytes that are not printable ASCII become question marks. */
static void
say(LlmqTransfer *transfer, const char *format, ...)
{
	char *detail = transfer->result.detail;
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(transfer->result.detail), format, args);
	va_end(args);
	for (; *detail != '\0'; detail++)
	{
		if (*detail < 0x20 || *detail > 0x7e)
			*detail = '?';
	}
}

/* Returns a text for a code: libcurl's message where it is known to contain no secret. */
static const char *
words(const LlmqTransfer *transfer, CURLcode code)
{
	switch (code)
	{
		case CURLE_COULDNT_RESOLVE_HOST:
		case CURLE_COULDNT_RESOLVE_PROXY:
		case CURLE_COULDNT_CONNECT:
		case CURLE_SSL_CONNECT_ERROR:
		case CURLE_PEER_FAILED_VERIFICATION:
		case CURLE_SSL_CACERT_BADFILE:
		case CURLE_SEND_ERROR:
		case CURLE_RECV_ERROR:
			if (transfer->error_text[0] != '\0')
				return transfer->error_text;
			break;
		case CURLE_USE_SSL_FAILED:
			return "the server does not offer TLS, and a password is not sent in clear text";
		default:
			break;
	}
	return curl_easy_strerror(code);
}

/* Returns whether the process has no descriptors left for a connection. */
static bool
out_of_descriptors(void)
{
	int fds[DESCRIPTOR_PROBE];
	int count = 0;

	while (count < DESCRIPTOR_PROBE)
	{
		fds[count] = socket(AF_UNIX, SOCK_STREAM, 0);
		if (fds[count] < 0)
			break;
		count++;
	}
	for (int i = 0; i < count; i++)
		close(fds[i]);
	return count < DESCRIPTOR_PROBE;
}

/* Returns whether there is enough memory for the longest header line. */
static bool
is_memory_left(void)
{
	/* volatile, so that the compiler does not remove the pair */
	void *volatile probe = malloc(HEADER_LINE_PROBE);
	bool left = probe != NULL;

	free(probe);
	return left;
}

/*
 * Returns whether nothing was sent because this machine lacked resources.  A refused connection
 * is never that.  A failed look-up or an unreadable certificate file is, if descriptors are
 * short; libcurl does not pass on why those failed.
 */
static bool
is_local_trouble(const LlmqTransfer *transfer, CURLcode code)
{
	if (transfer->socket_errno != 0 || transfer->unwatched || code == CURLE_OUT_OF_MEMORY)
		return true;
	if (code == CURLE_COULDNT_RESOLVE_HOST &&
		strstr(transfer->error_text, "thread failed to start") != NULL)
		return true;
	return code != CURLE_COULDNT_CONNECT && out_of_descriptors();
}

static void
end_not_sent(LlmqTransfer *transfer, CURLcode code)
{
	transfer->result.end = LLMQ_END_NOT_SENT;
	transfer->result.local_trouble = is_local_trouble(transfer, code);
	if (transfer->socket_errno == EMFILE || transfer->socket_errno == ENFILE)
		say(transfer, "no file descriptor left for a connection");
	else if (transfer->result.local_trouble)
		say(transfer, "out of resources: %s", words(transfer, code));
	else
		say(transfer, "%s", words(transfer, code));
}

/*
 * Sets the end of a transfer that libcurl considers successful.  It does so even if the
 * connection was closed within the headers or after an interim answer.
 */
static LlmqTransferEnd
end_clean(LlmqTransfer *transfer)
{
	if (transfer->headers_whole)
		return LLMQ_END_COMPLETE;
	if (transfer->status >= 200)
	{
		say(transfer, "connection closed within the headers");
		return LLMQ_END_SHORT;
	}
	say(transfer, "connection closed without an answer");
	return LLMQ_END_NO_RESPONSE;
}

/*
 * Returns whether libcurl failed to read chunks, which only its message shows: in 7.88 all
 * such messages end with "in chunked-encoding", while 8.7 and later have other messages for a
 * length ("chunk hex-length ...", "invalid chunk size").  With the messages of a future version
 * this would count as a connection that ended, which is retried too, and libcurl's message
 * would be passed on.
 */
static bool
is_chunk_trouble(const LlmqTransfer *transfer)
{
	return strstr(transfer->error_text, "chunk") != NULL;
}

/*
 * Sets the end after a failure to read or write.  With a new errno the network failed (RST).
 * Without one, libcurl means an answer with invalid framing, or TLS that ended without a
 * close_notify, which counts as a FIN.
 */
static LlmqTransferEnd
end_broken(LlmqTransfer *transfer, CURLcode code)
{
	long error = 0;

	curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &error);
	if (error != 0 && error != transfer->errno_before)
	{
		say(transfer, "connection broken: %s", words(transfer, code));
		return LLMQ_END_RESET;
	}
	if (strncmp(transfer->error_text, "Too large response headers", 26) == 0)
	{
		say(transfer, "headers larger than the limit");
		return LLMQ_END_HEADERS_LARGE;
	}
	if (is_chunk_trouble(transfer))
	{
		say(transfer, "broken chunks");
		return LLMQ_END_BAD_ENCODING;
	}
	say(transfer, "connection ended: %s", words(transfer, code));
	return transfer->status >= 200 ? LLMQ_END_SHORT : LLMQ_END_NO_RESPONSE;
}

/*
 * Sets the end after "out of memory", which within the headers means a header line above
 * libcurl's limit.
 */
static LlmqTransferEnd
end_without_memory(LlmqTransfer *transfer)
{
	if (!transfer->headers_whole && is_memory_left())
	{
		say(transfer, "a header line larger than the limit");
		return LLMQ_END_HEADERS_LARGE;
	}
	say(transfer, "out of memory while the answer was read");
	return LLMQ_END_RESET;
}

/*
 * Sets the end after an answer that libcurl cannot read: malformed headers, or a broken
 * encoding.
 */
static LlmqTransferEnd
end_unreadable(LlmqTransfer *transfer, CURLcode code)
{
	if (transfer->status >= 200)
	{
		say(transfer, "unreadable answer: %s", words(transfer, code));
		return LLMQ_END_BAD_ENCODING;
	}
	say(transfer, "the answer is not HTTP");
	return LLMQ_END_NO_RESPONSE;
}

static LlmqTransferEnd
end_after_send(LlmqTransfer *transfer, CURLcode code)
{
	switch (code)
	{
		case CURLE_OK:
			return end_clean(transfer);
		case CURLE_PARTIAL_FILE:
			say(transfer, "connection closed before the announced end");
			return LLMQ_END_SHORT;
		case CURLE_GOT_NOTHING:
			say(transfer, "connection closed without an answer");
			return LLMQ_END_NO_RESPONSE;
		case CURLE_OPERATION_TIMEDOUT:
			say(transfer, "%s", words(transfer, code));
			return LLMQ_END_TIMEOUT;
		case CURLE_OUT_OF_MEMORY:
#if LIBCURL_VERSION_NUM >= 0x080600
		case CURLE_TOO_LARGE:
#endif
			return end_without_memory(transfer);
		case CURLE_SEND_ERROR:
		case CURLE_RECV_ERROR:
			return end_broken(transfer, code);
		case CURLE_BAD_CONTENT_ENCODING:
		case CURLE_WRITE_ERROR:
		case CURLE_WEIRD_SERVER_REPLY:
		case CURLE_UNSUPPORTED_PROTOCOL:
			return end_unreadable(transfer, code);
		default:
			say(transfer, "connection broken: %s", words(transfer, code));
			return LLMQ_END_RESET;
	}
}

void
llmq_end_by_curl(LlmqTransfer *transfer, int curl_code)
{
	LlmqTransferResult *result = &transfer->result;
	CURLcode code = (CURLcode) curl_code;

	if (transfer->satisfied)
	{
		result->end = LLMQ_END_STOPPED;
		if (transfer->too_large)
			say(transfer, "answer larger than its limit");
	}
	else if (transfer->headers_large)
	{
		result->end = LLMQ_END_HEADERS_LARGE;
		say(transfer, "headers larger than the limit");
	}
	else if (transfer->resend_stopped)
	{
		result->end = LLMQ_END_NO_RESPONSE;
		say(transfer, "a reused connection was closed after the request had been sent");
	}
	else if (!llmq_end_request_sent(transfer))
		end_not_sent(transfer, code);
	else
		result->end = end_after_send(transfer, code);
}

void
llmq_end_by_clock(LlmqTransfer *transfer, LlmqClockName which)
{
	const LlmqClocks *clocks = &transfer->clocks;
	bool sent = llmq_end_request_sent(transfer);

	transfer->result.end = sent ? LLMQ_END_TIMEOUT : LLMQ_END_NOT_SENT;
	switch (which)
	{
		case LLMQ_CLOCK_CONNECT:
			say(transfer, "no connection within %g s", (double) clocks->connect_us / 1e6);
			break;
		case LLMQ_CLOCK_FIRST_BYTE:
			say(transfer, "no byte within %g s", (double) clocks->first_byte_us / 1e6);
			break;
		case LLMQ_CLOCK_IDLE:
			say(transfer, "no further byte within %g s", (double) clocks->idle_us / 1e6);
			break;
		case LLMQ_CLOCK_ATTEMPT:
			say(transfer, sent ? "no whole answer within %g s" : "no connection within %g s",
				(double) clocks->attempt_us / 1e6);
			break;
	}
}
