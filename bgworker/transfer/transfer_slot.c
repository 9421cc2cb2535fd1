/*
 * transfer_slot.c
 *		The slots of the pool, each with a libcurl handle, and how a request is put into one.
 *
 * Options common to all calls are set once for each handle and never reset, because a reset
 * would cost more than the rest of a call to a nearby provider.  Each call sets the URL (if it
 * changed), the header lines and the body, neither of which is copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/* For CURLOPT_QUICK_EXIT: without it, ending a transfer waits for a stuck resolver. */
#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87.0 or newer is required"
#endif

/* A connection that was idle for longer is not reused. */
#define CONNECTION_MAX_IDLE_S 60L

/* libcurl's own time limit for connecting, which must not be reached before our connect clock. */
#define CONNECT_NEVER_S (24L * 3600L)

/* After this time, a certificate authority that an operator has added is known. */
#define AUTHORITIES_MAX_AGE_S 300L

/* Seconds without traffic after which the kernel checks whether the peer is alive. */
#define KEEPALIVE_S 30L

/* -- Slots ------------------------------------------------------------------------- */

/*
 * Makes libcurl read the certificates of the authorities once, and not at every TLS
 * connection, which would block the loop for 20 ms.  libcurl caches them only if they come from
 * a bundle alone, and Debian's builds also name a directory.
 */
static bool
set_authorities(CURL *easy)
{
	const char *bundle = curl_version_info(CURLVERSION_NOW)->cainfo;

	if (bundle != NULL && access(bundle, R_OK) == 0 &&
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) != CURLE_OK)
		return false;
	return curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, AUTHORITIES_MAX_AGE_S) == CURLE_OK;
}

/* Sets the options common to all HTTP calls, once for each handle. */
static bool
set_http_constants(LlmqTransfer *transfer)
{
	CURL *easy = transfer->easy;
	const char *agent = transfer->pool->user_agent;
	const char *encodings = transfer->pool->encodings;

	return curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, CONNECTION_MAX_IDLE_S) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, encodings) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_USERAGENT, agent) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK;
}

/* Sets the options common to all transfers. */
static bool
set_constants(LlmqTransfer *transfer, bool for_mail)
{
	CURL *easy = transfer->easy;

	return curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_NEVER_S) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S) == CURLE_OK &&
		   curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S) == CURLE_OK &&
		   set_authorities(easy) && llmq_feed_attach(transfer) &&
		   (for_mail ? llmq_mail_set_constants(transfer) : set_http_constants(transfer));
}

/* Frees the handle, so that the next call gets a new one. */
static void
drop_handle(LlmqTransfer *transfer)
{
	curl_easy_cleanup(transfer->easy);
	transfer->easy = NULL;
	llmq_mail_forget(transfer);
	free(transfer->url);
	transfer->url = NULL;
}

static LlmqTransfer *
make_slot(LlmqTransferPool *pool)
{
	LlmqTransfer *transfer;

	if (pool->slot_count == pool->max_transfers)
		return NULL;
	transfer = calloc(1, sizeof(*transfer));
	if (transfer == NULL)
		return NULL;
	transfer->pool = pool;
	transfer->index = pool->slot_count;
	pool->slots[pool->slot_count++] = transfer;
	return transfer;
}

/* Returns a slot with a handle, or NULL if all are in use or when out of memory. */
LlmqTransfer *
llmq_slot_take(LlmqTransferPool *pool, bool for_mail)
{
	LlmqTransfer *transfer = pool->free_slots;

	if (transfer != NULL)
		pool->free_slots = transfer->next;
	else
		transfer = make_slot(pool);
	if (transfer == NULL || (transfer->easy != NULL && !for_mail))
		return transfer;
	drop_handle(transfer);
	transfer->easy = curl_easy_init();
	if (transfer->easy != NULL && set_constants(transfer, for_mail))
		return transfer;
	drop_handle(transfer);
	llmq_slot_release(transfer);
	return NULL;
}

/*
 * Releases a slot.  A handle that had a system error is not used again, because libcurl keeps
 * the errno, and the end of the next call would be judged by it.  Neither is the handle of an
 * e-mail, which has other options.
 */
void
llmq_slot_release(LlmqTransfer *transfer)
{
	LlmqTransferPool *pool = transfer->pool;
	long error = 0;

	if (transfer->easy != NULL)
		curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &error);
	if (error != 0 || transfer->mail != NULL)
		drop_handle(transfer);
	transfer->phase = LLMQ_PHASE_FREE;
	transfer->next = pool->free_slots;
	pool->free_slots = transfer;
}

/* -- A request's way in -------------------------------------------------------------- */

/*
 * Returns whether the URL can be called at all, which libcurl itself would report only in
 * dispatch.
 */
static bool
is_callable(const char *text, bool for_mail)
{
	CURLU *url = curl_url();
	char *scheme = NULL;
	bool callable = false;

	if (url != NULL && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK &&
		curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK)
		callable = strcmp(scheme, for_mail ? "smtp" : "http") == 0 ||
				   strcmp(scheme, for_mail ? "smtps" : "https") == 0;
	curl_free(scheme);
	curl_url_cleanup(url);
	return callable;
}

/* Sets the URL, unless it is the one of the previous call, as it usually is. */
bool
llmq_slot_set_url(LlmqTransfer *transfer, const char *url, char *error, size_t error_size)
{
	if (transfer->url != NULL && strcmp(transfer->url, url) == 0)
		return true;
	free(transfer->url);
	transfer->url = NULL;
	if (!is_callable(url, transfer->mail != NULL))
	{
		snprintf(error, error_size, "the url is malformed, or its scheme is not %s",
				 transfer->mail != NULL ? "smtp or smtps" : "http or https");
		return false;
	}
	transfer->url = strdup(url);
	if (transfer->url == NULL || curl_easy_setopt(transfer->easy, CURLOPT_URL, url) != CURLE_OK)
	{
		snprintf(error, error_size, "out of memory");
		free(transfer->url);
		transfer->url = NULL;
		return false;
	}
	transfer->mark = llmq_resolve_mark_of(url);
	return true;
}

/*
 * Links the header lines without copying them, and appends ours.  One of ours removes libcurl's
 * "Expect: 100-continue", which would delay the body of a large request by a round trip, or by
 * a second.
 */
static bool
set_lines(LlmqTransfer *transfer, const LlmqHttpRequest *request)
{
	static char no_expect[] = "Expect:";
	static char no_reuse[] = "Connection: close";
	int count = request->header_count;
	int own = request->own_connection ? 2 : 1;

	if (count + own > transfer->line_capacity)
	{
		struct curl_slist *lines =
			realloc(transfer->lines, (size_t) (count + own) * sizeof(struct curl_slist));

		if (lines == NULL)
			return false;
		transfer->lines = lines;
		transfer->line_capacity = count + own;
	}
	for (int i = 0; i < count + own; i++)
	{
		transfer->lines[i].data = i < count	   ? (char *) request->headers[i]
								  : i == count ? no_expect
											   : no_reuse;
		transfer->lines[i].next = i + 1 < count + own ? &transfer->lines[i + 1] : NULL;
	}
	return curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->lines) == CURLE_OK;
}

bool
llmq_slot_set_request(LlmqTransfer *transfer, const LlmqHttpRequest *request, char *error,
					  size_t error_size)
{
	CURL *easy = transfer->easy;
	const char *body = request->body != NULL ? request->body : "";
	curl_off_t len = request->body != NULL ? (curl_off_t) request->body_len : 0;

	if (!llmq_slot_set_url(transfer, request->url, error, error_size))
		return false;
	if (set_lines(transfer, request) &&
		curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long) request->own_connection) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, (long) request->own_connection) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, len) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body) == CURLE_OK)
		return true;
	snprintf(error, error_size, "out of memory");
	return false;
}

bool
llmq_slot_set_fresh(LlmqTransfer *transfer)
{
	return curl_easy_setopt(transfer->easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK;
}

void
llmq_slot_begin(LlmqTransfer *transfer, const LlmqClocks *clocks, int64_t now_us)
{
	transfer->clocks = *clocks;
	transfer->phase = LLMQ_PHASE_CONNECTING;
	transfer->started_us = now_us;
	transfer->phase_us = now_us;
	transfer->last_byte_us = now_us;
	transfer->parked = false;
	transfer->resolving = false;
	transfer->socket_count = 0;
	transfer->spoken_out = false;
	transfer->connected = false;
	transfer->uploading = false;
	transfer->upload_waited = false;
	transfer->resend_stopped = false;
	transfer->headers_whole = false;
	transfer->headers_large = false;
	transfer->undecodable = false;
	transfer->satisfied = false;
	transfer->too_large = false;
	transfer->unwatched = false;
	transfer->stopping = false;
	transfer->status = 0;
	transfer->socket_errno = 0;
	transfer->request_base = 0;
	transfer->errno_before = 0;
	transfer->header_bytes = 0;
	transfer->error_text[0] = '\0';
	transfer->result.owner = transfer->owner;
	transfer->result.end = LLMQ_END_COMPLETE;
	transfer->result.local_trouble = false;
	transfer->result.detail[0] = '\0';
}
