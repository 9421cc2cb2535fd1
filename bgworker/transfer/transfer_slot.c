/*
 * transfer_slot.c
 *		Slots of the pool: a libcurl handle each, and how a request gets into it.
 *
 * What holds for every call is set once per handle, and never reset: a reset
 * would cost more than all the rest of a call to a near provider.  Per call
 * there are the url (if it changed), the header lines, which are not copied,
 * and the body, which is not copied either.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/* CURLOPT_QUICK_EXIT: without it a stuck resolver holds whoever ends its transfer. */
#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87.0 or newer is required"
#endif

/* A connection that has idled for longer is not trusted with a request. */
#define CONNECTION_MAX_IDLE_S 60L

/* Our own connect clock is the one that counts; libcurl's must not be earlier. */
#define CONNECT_NEVER_S (24L * 3600L)

/* A certificate authority that an operator adds is known after this time. */
#define AUTHORITIES_MAX_AGE_S 300L

/* Seconds of silence after which the kernel asks whether the peer still lives. */
#define KEEPALIVE_S 30L

/* -- Slots ------------------------------------------------------------------------- */

/*
 * Has libcurl read the certificates of the authorities once, not at every TLS
 * connection (20 ms of a loop that must not stand still).  It keeps them only
 * if they come from the bundle alone, and Debian's builds name a folder too.
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

/* What holds for every HTTP call; set once per handle, as are the other two. */
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

/* What holds for every transfer. */
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

/* The handle does not go on to the next call. */
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

/* A slot with a handle, or NULL: all are in use, or memory is out. */
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
 * A handle that has met a system error is not used again: libcurl does not
 * forget the errno, and the next call's end is told by it.  Nor is an e-mail's,
 * which has other constants.
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

/* Tells whether the url can be called at all; libcurl itself would say so only in dispatch. */
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

/* Most calls of a slot go where the one before went. */
bool
llmq_slot_set_url(LlmqTransfer *transfer, const char *url, char *error, size_t error_size)
{
	if (transfer->url != NULL && strcmp(transfer->url, url) == 0)
		return true;
	free(transfer->url);
	transfer->url = NULL;
	if (!is_callable(url, transfer->mail != NULL))
	{
		snprintf(error, error_size, "the url is malformed, or of another scheme than %s",
				 transfer->mail != NULL ? "smtp and smtps" : "http and https");
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
 * Strings the header lines together without copying them, ours behind them.  One
 * takes back libcurl's "Expect: 100-continue", which would cost a large request a
 * round trip, or a second, before its body.
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
