/*
 * transfer.c
 *		HTTP calls and e-mails in flight, over libcurl's multi interface.
 *
 * The pool has slots.  A slot keeps its libcurl handle from call to call, so that options
 * common to all calls are set once.  A slot is free, in flight (in the multi and in the heap of
 * clocks), or ended (in the list of results).
 *
 * Invariants: handles are added to and removed from the multi only in start, abort, destroy,
 * and in dispatch outside of libcurl, never in a callback.  Every call that may run libcurl's
 * machinery is between block_signals and restore_signals.  Writing to a closed TLS connection
 * raises SIGPIPE, which libcurl with NOSIGNAL leaves to its user.  If the process has not
 * chosen a handler, we make it ignore the signal.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "transfer/transfer_poll.h"
#include "transfer/transfer_private.h"

#define EVENTS_MAX 256

/* Tag of a socket that belongs to no slot (when libcurl closes a cached connection). */
#define NO_SLOT UINT32_MAX

static void block_signals(sigset_t *saved);
static void restore_signals(const sigset_t *saved);
static bool start_libcurl(void);
static int on_watch(CURL *easy, curl_socket_t fd, int what, void *user, void *known);
static int on_timer(CURLM *multi, long timeout_ms, void *user);
static bool enter_flight(LlmqTransfer *transfer);
static void leave_flight(LlmqTransfer *transfer);
static void admit_parked(LlmqTransfer *transfer);
static void serve_sockets(LlmqTransferPool *pool);
static void serve_curl_timer(LlmqTransferPool *pool);
static void take_finished(LlmqTransferPool *pool);
static void end_stopping(LlmqTransferPool *pool);
static void end_overdue(LlmqTransferPool *pool);

/* -- The pool ------------------------------------------------------------------- */

/*
 * Returns the encodings to offer, which are those that libcurl can decode: not every build has
 * brotli.
 */
static const char *
offered_encodings(void)
{
	const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);

	return (info->features & CURL_VERSION_BROTLI) != 0 ? "gzip, deflate, br" : "gzip, deflate";
}

static bool
set_multi(LlmqTransferPool *pool)
{
	CURLM *multi = pool->multi;

	return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_watch) == CURLM_OK &&
		   curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, pool) == CURLM_OK &&
		   curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer) == CURLM_OK &&
		   curl_multi_setopt(multi, CURLMOPT_TIMERDATA, pool) == CURLM_OK &&
		   curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long) CURLPIPE_NOTHING) == CURLM_OK &&
		   curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) pool->max_transfers) == CURLM_OK &&
		   llmq_resolve_set_up(pool);
}

LlmqTransferPool *
llmq_transfer_pool_create(int max_transfers, const char *user_agent, char *error, size_t error_size)
{
	LlmqTransferPool *pool;
	sigset_t saved;

	block_signals(&saved);
	pool = max_transfers > 0 ? calloc(1, sizeof(*pool)) : NULL;
	if (pool != NULL)
	{
		pool->poller = llmq_poll_create();
		pool->max_transfers = max_transfers;
		pool->curl_due_us = -1;
		pool->slots = calloc((size_t) max_transfers, sizeof(LlmqTransfer *));
		pool->user_agent = strdup(user_agent);
		pool->multi = start_libcurl() ? curl_multi_init() : NULL;
		pool->encodings = offered_encodings();
		if (pool->poller < 0 || pool->slots == NULL ||
			!llmq_heap_reserve(&pool->clocks, max_transfers) || pool->user_agent == NULL ||
			pool->multi == NULL || !set_multi(pool))
		{
			llmq_transfer_pool_destroy(pool);
			pool = NULL;
		}
	}
	restore_signals(&saved);
	if (pool == NULL)
		snprintf(error, error_size, "could not start libcurl: out of memory or file descriptors");
	return pool;
}

void
llmq_transfer_pool_destroy(LlmqTransferPool *pool)
{
	sigset_t saved;

	if (pool == NULL)
		return;
	block_signals(&saved);
	for (int i = 0; i < pool->slot_count; i++)
	{
		LlmqTransfer *transfer = pool->slots[i];

		if (transfer->phase != LLMQ_PHASE_FREE && transfer->phase != LLMQ_PHASE_ENDED)
			leave_flight(transfer);
		curl_easy_cleanup(transfer->easy);
		llmq_mail_forget(transfer);
		free(transfer->url);
		free(transfer->lines);
		free(transfer);
	}
	if (pool->multi != NULL)
		curl_multi_cleanup(pool->multi);
	restore_signals(&saved);
	llmq_poll_destroy(pool->poller);
	free(pool->slots);
	llmq_heap_free(&pool->clocks);
	free(pool->user_agent);
	free(pool);
}

int
llmq_transfer_pool_fd(const LlmqTransferPool *pool)
{
	return pool->poller;
}

int
llmq_transfer_pool_count(const LlmqTransferPool *pool)
{
	return pool->live;
}

int64_t
llmq_transfer_pool_timeout(const LlmqTransferPool *pool, int64_t now_us)
{
	int64_t due = llmq_clock_next(pool);

	if (pool->ended_first != NULL)
		return 0;
	if (pool->curl_due_us >= 0 && (due < 0 || pool->curl_due_us < due))
		due = pool->curl_due_us;
	if (due < 0)
		return -1;
	return due > now_us ? due - now_us : 0;
}

/* -- One call --------------------------------------------------------------------- */

/* Takes a slot for a call with these clocks; NULL with an error text if there is none. */
static LlmqTransfer *
take_slot(LlmqTransferPool *pool, bool for_mail, const LlmqClocks *clocks, int64_t now_us,
		  char *error, size_t error_size)
{
	LlmqTransfer *transfer;

	pool->now_us = now_us;
	if (clocks->attempt_us <= 0)
	{
		snprintf(error, error_size, "a transfer needs an attempt clock");
		return NULL;
	}
	transfer = llmq_slot_take(pool, for_mail);
	if (transfer == NULL)
		snprintf(error, error_size, "no free transfer, or no memory for one");
	return transfer;
}

/* Starts a slot whose request is set, or releases it if `ready` is false. */
static LlmqTransfer *
launch(LlmqTransfer *transfer, bool ready, const LlmqClocks *clocks, void *owner, char *error,
	   size_t error_size)
{
	LlmqTransferPool *pool = transfer->pool;

	if (ready)
	{
		transfer->owner = owner;
		llmq_slot_begin(transfer, clocks, pool->now_us);
		ready = enter_flight(transfer);
		if (!ready)
			snprintf(error, error_size, "libcurl refused the transfer");
	}
	if (!ready)
	{
		llmq_slot_release(transfer);
		return NULL;
	}
	pool->live++;
	llmq_clock_add(transfer);
	return transfer;
}

LlmqTransfer *
llmq_transfer_start(LlmqTransferPool *pool, const LlmqHttpRequest *request, LlmqSink *sink,
					const LlmqClocks *clocks, void *owner, int64_t now_us, char *error,
					size_t error_size)
{
	LlmqTransfer *transfer;
	sigset_t saved;

	block_signals(&saved);
	transfer = take_slot(pool, false, clocks, now_us, error, error_size);
	if (transfer != NULL)
	{
		bool ready = llmq_slot_set_request(transfer, request, error, error_size);

		transfer->sink = sink;
		transfer = launch(transfer, ready, clocks, owner, error, error_size);
	}
	restore_signals(&saved);
	return transfer;
}

LlmqTransfer *
llmq_transfer_start_mail(LlmqTransferPool *pool, const LlmqMailRequest *request,
						 LlmqMailReply *reply, const LlmqClocks *clocks, void *owner,
						 int64_t now_us, char *error, size_t error_size)
{
	LlmqTransfer *transfer;
	sigset_t saved;

	block_signals(&saved);
	transfer = take_slot(pool, true, clocks, now_us, error, error_size);
	if (transfer != NULL)
	{
		bool ready = llmq_slot_set_url(transfer, request->url, error, error_size) &&
					 llmq_mail_set_request(transfer, request, reply, error, error_size);

		transfer->sink = NULL;
		transfer = launch(transfer, ready, clocks, owner, error, error_size);
	}
	restore_signals(&saved);
	return transfer;
}

void
llmq_transfer_abort(LlmqTransferPool *pool, LlmqTransfer *transfer)
{
	sigset_t saved;

	block_signals(&saved);
	if (transfer->phase == LLMQ_PHASE_ENDED)
	{
		LlmqTransfer **link = &pool->ended_first;
		LlmqTransfer *before = NULL;

		for (; *link != transfer; link = &(*link)->next)
			before = *link;
		*link = transfer->next;
		if (pool->ended_last == transfer)
			pool->ended_last = before;
	}
	else
		leave_flight(transfer);
	llmq_slot_release(transfer);
	restore_signals(&saved);
}

void
llmq_transfer_pool_dispatch(LlmqTransferPool *pool, int64_t now_us)
{
	sigset_t saved;

	pool->now_us = now_us;
	block_signals(&saved);
	serve_sockets(pool);
	serve_curl_timer(pool);
	take_finished(pool);
	end_stopping(pool);
	end_overdue(pool);
	llmq_resolve_admit(pool, admit_parked);
	restore_signals(&saved);
}

bool
llmq_transfer_pool_next(LlmqTransferPool *pool, LlmqTransferResult *result)
{
	LlmqTransfer *transfer = pool->ended_first;

	if (transfer == NULL)
		return false;
	pool->ended_first = transfer->next;
	if (pool->ended_first == NULL)
		pool->ended_last = NULL;
	*result = transfer->result;
	llmq_slot_release(transfer);
	return true;
}

/* -- Process-wide matters ---------------------------------------------------------- */

/*
 * Blocks the signals that a thread of libcurl could receive instead of the host.  Signals for
 * faults stay unblocked, because they go to the thread that causes them.
 */
static void
block_signals(sigset_t *saved)
{
	sigset_t blocked;

	sigfillset(&blocked);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGILL);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGABRT);
	sigdelset(&blocked, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &blocked, saved);
}

static void
restore_signals(const sigset_t *saved)
{
	pthread_sigmask(SIG_SETMASK, saved, NULL);
}

/* Creates libcurl's global state, once; it is never freed. */
static bool
start_libcurl(void)
{
	static bool started = false;
	struct sigaction action;

	if (started)
		return true;
	started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
	return started;
}

/* -- What libcurl asks of its host --------------------------------------------------- */

/*
 * Notes when the socket of a transfer has no room for the rest of the request (see
 * next_expiry): libcurl then watches both directions.
 */
static void
note_upload(LlmqTransfer *transfer, int what)
{
	bool uploading = (what & CURL_POLL_OUT) != 0;

	if (!transfer->connected || transfer->phase == LLMQ_PHASE_CONNECTING ||
		uploading == transfer->uploading)
		return;
	transfer->uploading = uploading;
	if (uploading)
		transfer->upload_waited = true;
	else if (transfer->phase == LLMQ_PHASE_WAITING)
		transfer->phase_us = transfer->pool->now_us;
	else
		transfer->last_byte_us = transfer->pool->now_us;
	llmq_clock_changed(transfer);
}

/*
 * Watches a socket.  It never returns failure, because libcurl would then give up all
 * transfers, not only this one.
 */
static int
on_watch(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
	LlmqTransferPool *pool = user;
	LlmqTransfer *transfer = NULL;
	uint64_t tag = (uint64_t) NO_SLOT << 32 | (uint32_t) fd;
	int want =
		((what & CURL_POLL_IN) ? LLMQ_POLL_IN : 0) | ((what & CURL_POLL_OUT) ? LLMQ_POLL_OUT : 0);

	if (what == CURL_POLL_REMOVE)
	{
		llmq_poll_remove(pool->poller, fd);
		return 0;
	}
	if (easy != NULL)
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **) &transfer);
	if (transfer != NULL)
	{
		tag = (uint64_t) transfer->index << 32 | (uint32_t) fd;
		note_upload(transfer, what);
	}
	if (llmq_poll_set(pool->poller, fd, want, tag, known != NULL))
		curl_multi_assign(pool->multi, fd, pool);
	else if (transfer != NULL)
	{
		transfer->unwatched = true;
		llmq_feed_stop_soon(transfer);
	}
	return 0;
}

static int
on_timer(CURLM *multi, long timeout_ms, void *user)
{
	LlmqTransferPool *pool = user;

	pool->curl_due_us = timeout_ms < 0 ? -1 : pool->now_us + (int64_t) timeout_ms * 1000;
	return 0;
}

/* -- A transfer's way in and out -------------------------------------------------------------- */

/* Hands the transfer to libcurl, or parks it. */
static bool
enter_flight(LlmqTransfer *transfer)
{
	if (!llmq_resolve_begin(transfer))
	{
		llmq_resolve_park(transfer);
		return true;
	}
	if (curl_multi_add_handle(transfer->pool->multi, transfer->easy) == CURLM_OK)
		return true;
	llmq_resolve_end(transfer, false);
	return false;
}

/* Takes the transfer back from libcurl, which closes its connection unless it is idle. */
static void
leave_flight(LlmqTransfer *transfer)
{
	llmq_mail_leave(transfer);
	if (transfer->parked)
		llmq_resolve_unpark(transfer);
	else
		curl_multi_remove_handle(transfer->pool->multi, transfer->easy);
	llmq_resolve_end(transfer, false);
	llmq_clock_remove(transfer);
	transfer->pool->live--;
}

/* Appends the transfer, whose result is filled in, to the results. */
static void
end_flight(LlmqTransfer *transfer)
{
	LlmqTransferPool *pool = transfer->pool;

	leave_flight(transfer);
	transfer->phase = LLMQ_PHASE_ENDED;
	transfer->next = NULL;
	if (pool->ended_last != NULL)
		pool->ended_last->next = transfer;
	else
		pool->ended_first = transfer;
	pool->ended_last = transfer;
}

static void
admit_parked(LlmqTransfer *transfer)
{
	if (curl_multi_add_handle(transfer->pool->multi, transfer->easy) == CURLM_OK)
		return;
	llmq_end_by_curl(transfer, (int) CURLE_OUT_OF_MEMORY);
	end_flight(transfer);
}

static void
serve_socket(LlmqTransferPool *pool, const LlmqPollEvent *event)
{
	uint32_t index = (uint32_t) (event->tag >> 32);
	int fd = (int) (event->tag & UINT32_MAX);
	int what = ((event->what & LLMQ_POLL_IN) ? CURL_CSELECT_IN : 0) |
			   ((event->what & LLMQ_POLL_OUT) ? CURL_CSELECT_OUT : 0) |
			   ((event->what & LLMQ_POLL_ERR) ? CURL_CSELECT_ERR : 0);
	int running;

	/*
	 * The time is recorded here and not in libcurl's callbacks, so that a header line that
	 * arrives byte by byte does not count as silence.
	 */
	if (index < (uint32_t) pool->slot_count && (event->what & LLMQ_POLL_IN))
		pool->slots[index]->last_byte_us = pool->now_us;
	if (index < (uint32_t) pool->slot_count && llmq_mail_owns(pool->slots[index], fd))
	{
		if (!llmq_mail_serve(pool->slots[index]))
			end_flight(pool->slots[index]);
		return;
	}
	curl_multi_socket_action(pool->multi, fd, what, &running);
}

/*
 * Serves all sockets that are ready.  This comes before the clocks are checked, so that bytes
 * that arrived in time count even if the host was late.
 */
static void
serve_sockets(LlmqTransferPool *pool)
{
	LlmqPollEvent events[EVENTS_MAX];
	int rounds = pool->max_transfers / EVENTS_MAX + 1;
	int count;

	do
	{
		count = llmq_poll_fetch(pool->poller, events, EVENTS_MAX);
		for (int i = 0; i < count; i++)
			serve_socket(pool, &events[i]);
	} while (count == EVENTS_MAX && --rounds > 0);
}

static void
serve_curl_timer(LlmqTransferPool *pool)
{
	int running;

	if (pool->curl_due_us < 0 || pool->curl_due_us > pool->now_us)
		return;
	pool->curl_due_us = -1;
	curl_multi_socket_action(pool->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/*
 * Restarts a transfer over a new connection, when nothing was sent because the old one was
 * unusable.
 */
static bool
restart(LlmqTransfer *transfer)
{
	transfer->spoken_out = false;
	llmq_resolve_end(transfer, true);
	curl_multi_remove_handle(transfer->pool->multi, transfer->easy);
	return llmq_slot_set_fresh(transfer) && enter_flight(transfer);
}

static void
take_finished(LlmqTransferPool *pool)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(pool->multi, &left)) != NULL)
	{
		LlmqTransfer *transfer = NULL;
		CURLcode code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **) &transfer);
		if (transfer->spoken_out && restart(transfer))
			continue;
		if (code == CURLE_OK && transfer->mail != NULL)
		{
			if (llmq_mail_begin(transfer))
				continue;
		}
		else
			llmq_end_by_curl(transfer, (int) code);
		end_flight(transfer);
	}
}

/* Ends the transfers that libcurl would continue, but that should stop. */
static void
end_stopping(LlmqTransferPool *pool)
{
	LlmqTransfer *transfer = pool->stopping;

	pool->stopping = NULL;
	for (; transfer != NULL; transfer = transfer->next_stopping)
	{
		if (transfer->phase == LLMQ_PHASE_ENDED)
			continue;
		llmq_end_by_curl(transfer, (int) CURLE_OUT_OF_MEMORY);
		end_flight(transfer);
	}
}

static void
end_overdue(LlmqTransferPool *pool)
{
	LlmqTransfer *transfer;
	LlmqClockName which;

	while ((transfer = llmq_clock_overdue(pool, pool->now_us, &which)) != NULL)
	{
		llmq_end_by_clock(transfer, which);
		end_flight(transfer);
	}
}
