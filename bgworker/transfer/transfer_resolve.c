/*
 * transfer_resolve.c
 *		Not everyone asks for the same address at once.
 *
 * libcurl starts a thread and two descriptors for every look-up and does not
 * notice that a thousand transfers ask for one host.  So at most a few look up a
 * host at a time; the others are parked, outside libcurl but with their clocks
 * running, until one of those has an address, which libcurl then remembers for a
 * minute.  A host that is an address, or known, holds nobody up for longer than
 * one dispatch.
 *
 * Hosts share marks by hash: two that collide only wait for each other.
 */
#include <string.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/* More than one, so that a host that does not resolve fails many calls in one go. */
#define LOOKUPS_PER_HOST 8

/*
 * libcurl 8.20 and later take the threads from a pool of 20, where those that a
 * dead name server holds would keep all other hosts waiting.  This many are
 * several rounds of look-ups, given up by their clocks, of a dozen such hosts.
 */
#define LOOKUP_THREADS 512L

/* Less than libcurl remembers an address (60 s). */
#define KNOWN_FOR_US ((int64_t) 30 * 1000000)

/* Has libcurl start threads at need, and not wait for those of a stuck resolver at the end. */
bool
llmq_resolve_set_up(LlmqTransferPool *pool)
{
#if LIBCURL_VERSION_NUM >= 0x081400
	return curl_multi_setopt(pool->multi, CURLMOPT_RESOLVE_THREADS_MAX, LOOKUP_THREADS) ==
			   CURLM_OK &&
		   curl_multi_setopt(pool->multi, CURLMOPT_QUICK_EXIT, 1L) == CURLM_OK;
#else
	return true;
#endif
}

int
llmq_resolve_mark_of(const char *url)
{
	const char *host = strstr(url, "://");
	size_t len;
	uint32_t hash = 2166136261u; /* FNV-1a */

	host = host != NULL ? host + 3 : url;
	len = strcspn(host, "/?#");
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) host[i]) * 16777619u;
	return (int) (hash % LLMQ_RESOLVE_MARKS);
}

static LlmqResolveMark *
mark(const LlmqTransfer *transfer)
{
	return &transfer->pool->marks[transfer->mark];
}

/* Counts the transfer in as one that looks up, if it may. */
bool
llmq_resolve_begin(LlmqTransfer *transfer)
{
	LlmqResolveMark *host = mark(transfer);

	if (transfer->pool->now_us >= host->known_until_us && host->lookups >= LOOKUPS_PER_HOST)
		return false;
	host->lookups++;
	transfer->resolving = true;
	return true;
}

void
llmq_resolve_end(LlmqTransfer *transfer, bool found)
{
	LlmqTransferPool *pool = transfer->pool;

	if (!transfer->resolving)
		return;
	transfer->resolving = false;
	mark(transfer)->lookups--;
	if (found)
		mark(transfer)->known_until_us = pool->now_us + KNOWN_FOR_US;
	pool->parking_changed = true;
}

void
llmq_resolve_park(LlmqTransfer *transfer)
{
	LlmqTransferPool *pool = transfer->pool;

	transfer->parked = true;
	transfer->next = NULL;
	if (pool->parked_last != NULL)
		pool->parked_last->next = transfer;
	else
		pool->parked_first = transfer;
	pool->parked_last = transfer;
}

/* Takes out what *link points to. */
static void
unlink_parked(LlmqTransferPool *pool, LlmqTransfer **link, LlmqTransfer *before)
{
	LlmqTransfer *transfer = *link;

	*link = transfer->next;
	if (pool->parked_last == transfer)
		pool->parked_last = before;
	transfer->parked = false;
}

void
llmq_resolve_unpark(LlmqTransfer *transfer)
{
	LlmqTransfer **link = &transfer->pool->parked_first;
	LlmqTransfer *before = NULL;

	for (; *link != transfer; link = &(*link)->next)
		before = *link;
	unlink_parked(transfer->pool, link, before);
}

/* Calls admit for each parked transfer that may look up now; it is parked no more by then. */
void
llmq_resolve_admit(LlmqTransferPool *pool, void (*admit)(LlmqTransfer *transfer))
{
	LlmqTransfer **link = &pool->parked_first;
	LlmqTransfer *before = NULL;

	if (!pool->parking_changed)
		return;
	pool->parking_changed = false;
	while (*link != NULL)
	{
		LlmqTransfer *transfer = *link;

		if (llmq_resolve_begin(transfer))
		{
			unlink_parked(pool, link, before);
			admit(transfer);
		}
		else
		{
			before = transfer;
			link = &transfer->next;
		}
	}
}
