/*
 * transfer_resolve.c
 *		Limits how many transfers look up the same host at once.
 *
 * libcurl uses a thread and two descriptors for every look-up, even when a thousand transfers
 * ask for the same host.  So only a few look up a host at a time; the others are parked,
 * outside libcurl but with their clocks running, until one of them has an address, which
 * libcurl then caches for a minute.  A host that is an address, or is already known, delays a
 * transfer by one dispatch at most.
 *
 * Hosts share marks by their hash; two that collide merely wait for each other.  So an array is
 * enough, and no hash table of a library is needed.
 */
#include <string.h>

#include <curl/curl.h>

#include "transfer/transfer_private.h"

/* More than one, so that many calls fail together if a host does not resolve. */
#define LOOKUPS_PER_HOST 8

/*
 * libcurl 8.20 and later take the threads from a pool of 20, where those that wait for a dead
 * name server would delay all other hosts.  This number allows for several rounds of abandoned
 * look-ups of a dozen such hosts.
 */
#define LOOKUP_THREADS 512L

/* Shorter than libcurl caches an address (60 s). */
#define KNOWN_FOR_US ((int64_t) 30 * 1000000)

/* Makes libcurl start threads on demand, and not wait at the end for those of a stuck resolver. */
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

/* Counts the transfer as one that looks up its host, if there are not too many. */
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

/* Removes the element that *link points to. */
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

/*
 * Calls admit for each parked transfer that may look up its host now, and is no longer parked
 * then.
 */
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
