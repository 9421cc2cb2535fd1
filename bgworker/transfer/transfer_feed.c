/*
 * transfer_feed.c
 *		What libcurl's callbacks record about one transfer.
 *
 * Callbacks run inside libcurl: they record, feed the sink, and return.  They never end a
 * transfer themselves; they make libcurl end it by returning a short count, or leave that to
 * dispatch (stop_soon).
 */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/*
 * The limit for all headers of a call.  libcurl limits one line (to 100 kB, with "out of
 * memory") and since 8.3.0 (in Debian since 7.88.1) all together, to 300 kB.  Ours is a little
 * lower, so that it is reached first and can be named.
 */
#define HEADERS_MAX (296 * 1024)

/* The encodings that we accept; libcurl would also decode others (zstd) that were not offered. */
static const char *const known_encodings[] = {"identity", "gzip", "x-gzip", "deflate", "br"};

static int on_request(void *user, char *peer, char *local, int peer_port, int local_port);
static curl_socket_t on_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address);
static size_t on_header(char *bytes, size_t size, size_t count, void *user);
static size_t on_body(char *bytes, size_t size, size_t count, void *user);

bool
llmq_feed_attach(LlmqTransfer *transfer)
{
	CURL *easy = transfer->easy;

	return curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error_text) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_request) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_PREREQDATA, transfer) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer) == CURLE_OK;
}

void
llmq_feed_stop_soon(LlmqTransfer *transfer)
{
	if (transfer->stopping)
		return;
	transfer->stopping = true;
	transfer->next_stopping = transfer->pool->stopping;
	transfer->pool->stopping = transfer;
}

/*
 * Is called when libcurl has a connection and is about to write the request.  A second call
 * means that a reused connection failed during the first.  If any byte was sent then, the
 * server may have acted on it, and we stop here.  If none was (the very first write failed),
 * this is still the first request.
 *
 * A connection on which the server has sent something unasked is not used: see
 * transfer_rest.c, and restart in transfer.c.
 */
static int
on_request(void *user, char *peer, char *local, int peer_port, int local_port)
{
	LlmqTransfer *transfer = user;

	if (transfer->resend_stopped || llmq_end_request_sent(transfer))
	{
		transfer->resend_stopped = true;
		return CURL_PREREQFUNC_ABORT;
	}
	if (transfer->socket_count > 0)
		llmq_rest_note_connected(transfer, local_port);
	else if (!llmq_rest_is_silent(transfer->pool, local_port))
	{
		transfer->spoken_out = true;
		return CURL_PREREQFUNC_ABORT;
	}
	curl_easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &transfer->request_base);
	curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &transfer->errno_before);
	llmq_resolve_end(transfer, true);
	transfer->connected = true;
	transfer->uploading = false;
	transfer->phase = LLMQ_PHASE_WAITING;
	transfer->phase_us = transfer->pool->now_us;
	llmq_clock_changed(transfer);
	return CURL_PREREQFUNC_OK;
}

/*
 * Opens a socket for libcurl.  After the request was sent, libcurl can only want one to send it
 * again.
 */
static curl_socket_t
on_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
	LlmqTransfer *transfer = user;
	int type = address->socktype;
	int fd;

	if (llmq_end_request_sent(transfer))
	{
		transfer->resend_stopped = true;
		return CURL_SOCKET_BAD;
	}
	llmq_resolve_end(transfer, true);
	if (transfer->phase == LLMQ_PHASE_WAITING)
	{
		transfer->phase = LLMQ_PHASE_CONNECTING;
		transfer->phase_us = transfer->pool->now_us;
		llmq_clock_changed(transfer);
	}
#ifdef SOCK_CLOEXEC
	type |= SOCK_CLOEXEC;
#endif
	fd = socket(address->family, type, address->protocol);
	if (fd >= 0)
	{
		transfer->socket_errno = 0;
		transfer->sockets[transfer->socket_count++ % LLMQ_SOCKETS_NOTED] = fd;
	}
	else if (llmq_end_is_local(errno))
		transfer->socket_errno = errno;
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* Returns the status in a line like "HTTP/1.1 200 OK"; 0 if it is not a status line. */
static int
status_of(const char *line, size_t len)
{
	const char *space;
	int status = 0;

	if (len < 5 || strncasecmp(line, "HTTP/", 5) != 0)
		return 0;
	space = memchr(line, ' ', len);
	if (space == NULL)
		return 0;
	while (space < line + len && *space == ' ')
		space++;
	for (; space < line + len && *space >= '0' && *space <= '9' && status < 1000; space++)
		status = status * 10 + (*space - '0');
	return status;
}

static void
read_status(LlmqTransfer *transfer, int status)
{
	transfer->status = status;
	transfer->undecodable = false;
	transfer->phase = LLMQ_PHASE_RECEIVING;
	transfer->last_byte_us = transfer->pool->now_us;
	llmq_clock_changed(transfer);
	transfer->sink->status(transfer->sink, status);
}

static bool
is_known_encoding(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(known_encodings) / sizeof(known_encodings[0]); i++)
	{
		if (strlen(known_encodings[i]) == len && strncasecmp(known_encodings[i], name, len) == 0)
			return true;
	}
	return len == 0;
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Removes white space at both ends. */
static void
trim(const char **text, size_t *len)
{
	while (*len > 0 && is_space((*text)[*len - 1]))
		(*len)--;
	while (*len > 0 && is_space((*text)[0]))
	{
		(*text)++;
		(*len)--;
	}
}

static bool
are_known_encodings(const char *list, size_t len)
{
	const char *end = list + len;

	while (list < end)
	{
		const char *comma = memchr(list, ',', (size_t) (end - list));
		const char *name = list;
		size_t name_len = (size_t) ((comma != NULL ? comma : end) - list);

		trim(&name, &name_len);
		if (!is_known_encoding(name, name_len))
			return false;
		list = comma != NULL ? comma + 1 : end;
	}
	return true;
}

/* Reads a header or a trailer; a line without a colon (an obsolete continuation) is ignored. */
static void
read_header(LlmqTransfer *transfer, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	const char *value;
	size_t name_len;
	size_t value_len;

	if (colon == NULL || is_space(line[0]))
		return;
	value = colon + 1;
	value_len = (size_t) (line + len - value);
	name_len = (size_t) (colon - line);
	trim(&line, &name_len);
	trim(&value, &value_len);
	if (!transfer->headers_whole && name_len == strlen("content-encoding") &&
		strncasecmp(line, "content-encoding", name_len) == 0 &&
		!are_known_encodings(value, value_len))
		transfer->undecodable = true;
	transfer->sink->header(transfer->sink, line, name_len, value, value_len);
}

/*
 * Takes one header line or trailer.  The empty line after an interim answer does not complete
 * the headers.
 */
static size_t
on_header(char *bytes, size_t size, size_t count, void *user)
{
	LlmqTransfer *transfer = user;
	size_t len = size * count;
	int status;

	transfer->header_bytes += len;
	if (transfer->header_bytes > HEADERS_MAX)
	{
		transfer->headers_large = true;
		return 0;
	}
	if (transfer->satisfied)
		return len;
	status = transfer->headers_whole ? 0 : status_of(bytes, len);
	if (status > 0)
		read_status(transfer, status);
	else if (len > 0 && (bytes[0] == '\r' || bytes[0] == '\n'))
		transfer->headers_whole = transfer->headers_whole || transfer->status >= 200;
	else
		read_header(transfer, bytes, len);
	return len;
}

/*
 * Takes decoded bytes of the body.  When the sink is done, the bytes that libcurl still has are
 * taken and dropped until dispatch ends the transfer.  Often they are the last chunk, and then
 * the connection can be reused.
 */
static size_t
on_body(char *bytes, size_t size, size_t count, void *user)
{
	LlmqTransfer *transfer = user;
	size_t len = size * count;

	if (transfer->satisfied)
		return len;
	if (transfer->undecodable)
		return 0;
	switch (transfer->sink->body(transfer->sink, bytes, len))
	{
		case LLMQ_FEED_MORE:
			return len;
		case LLMQ_FEED_DONE:
			transfer->satisfied = true;
			llmq_feed_stop_soon(transfer);
			return len;
		case LLMQ_FEED_TOO_LARGE:
			break;
	}
	transfer->satisfied = true;
	transfer->too_large = true;
	return 0;
}
