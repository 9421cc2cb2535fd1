/*
 * transfer_private.h
 *		What the files of the transfer layer share; no other file includes it.  Each calls those
 *		below it:
 *
 *		transfer.c		 pool, start, abort, dispatch
 *		transfer_slot.c	 handles, and the way of a request into one
 *		transfer_feed.c	 what libcurl's callbacks record
 *		transfer_end.c	 how a transfer ended, told from what libcurl says
 *		transfer_mail.c	 e-mails, once libcurl has opened the session
 *		transfer_resolve.c who may look up a host
 *		transfer_rest.c	 whether a connection at rest has kept silent
 *		transfer_clock.c the clocks, without libcurl
 *		transfer_poll.c	 the descriptor, without libcurl
 */
#ifndef LLMQ_TRANSFER_PRIVATE_H
#define LLMQ_TRANSFER_PRIVATE_H

#include "transfer/transfer_state.h"

/*
 * transfer_slot.c: returns a slot with a handle, or NULL if all are in use or when out of
 * memory.
 */
extern LlmqTransfer *llmq_slot_take(LlmqTransferPool *pool, bool for_mail);
/* Releases a slot that is in no list and whose handle is not in the multi. */
extern void llmq_slot_release(LlmqTransfer *transfer);
/* Tells the handle what to send; false with an error text. */
extern bool llmq_slot_set_request(LlmqTransfer *transfer, const LlmqHttpRequest *request,
								  char *error, size_t error_size);
/* Tells the handle where to send it; false with an error text. */
extern bool
llmq_slot_set_url(LlmqTransfer *transfer, const char *url, char *error, size_t error_size);
/* Makes the handle open a new connection for the request, of which nothing was sent yet. */
extern bool llmq_slot_set_fresh(LlmqTransfer *transfer);
/* Clears the state of the previous call and starts the clocks. */
extern void llmq_slot_begin(LlmqTransfer *transfer, const LlmqClocks *clocks, int64_t now_us);

/*
 * transfer_clock.c: a heap of next expiries.  A clock that is postponed costs nothing until it
 * is checked; one that moves closer must be announced with changed().
 */
extern void llmq_clock_add(LlmqTransfer *transfer);
extern void llmq_clock_changed(LlmqTransfer *transfer);
extern void llmq_clock_remove(LlmqTransfer *transfer);
/* Returns a transfer with a clock that has run out at now_us, or NULL. */
extern LlmqTransfer *
llmq_clock_overdue(LlmqTransferPool *pool, int64_t now_us, LlmqClockName *which);
/* Returns when to check again; -1: never. */
extern int64_t llmq_clock_next(const LlmqTransferPool *pool);

/* transfer_resolve.c */
extern int llmq_resolve_mark_of(const char *url);
extern bool llmq_resolve_set_up(LlmqTransferPool *pool);
/* Counts a transfer among those that look up its host; false if it has to be parked. */
extern bool llmq_resolve_begin(LlmqTransfer *transfer);
/*
 * Ends the look-up: the transfer has an address (`found`), or has ended.  May be called
 * repeatedly.
 */
extern void llmq_resolve_end(LlmqTransfer *transfer, bool found);
extern void llmq_resolve_park(LlmqTransfer *transfer);
extern void llmq_resolve_unpark(LlmqTransfer *transfer);
/* Calls admit for the parked transfers that may go on now, which are counted. */
extern void llmq_resolve_admit(LlmqTransferPool *pool, void (*admit)(LlmqTransfer *transfer));

/* transfer_rest.c */
extern void llmq_rest_note_connected(LlmqTransfer *transfer, int local_port);
/* Returns whether nothing has arrived on a connection that was recorded before. */
extern bool llmq_rest_is_silent(const LlmqTransferPool *pool, int local_port);

/* transfer_mail.c: sets up a new handle for e-mails; false when libcurl refuses. */
extern bool llmq_mail_set_constants(LlmqTransfer *transfer);
extern void llmq_mail_forget(LlmqTransfer *transfer);
/* Tells the handle, which has its URL, what to send; false with an error text. */
extern bool llmq_mail_set_request(LlmqTransfer *transfer, const LlmqMailRequest *request,
								  LlmqMailReply *reply, char *error, size_t error_size);
/*
 * Begins the conversation when the session is established.  Returns false if it has ended; then
 * the result is filled in.
 */
extern bool llmq_mail_begin(LlmqTransfer *transfer);
/* Serves the socket, which is ready; returns false in the same case. */
extern bool llmq_mail_serve(LlmqTransfer *transfer);
/* Stops watching the socket; does nothing if the transfer is not an e-mail. */
extern void llmq_mail_leave(LlmqTransfer *transfer);
extern bool llmq_mail_is_talking(const LlmqTransfer *transfer);
/* Returns whether the conversation uses this descriptor, which libcurl then does not watch. */
extern bool llmq_mail_owns(const LlmqTransfer *transfer, int fd);

/* transfer_feed.c: sets the callbacks of a new handle; false when libcurl refuses. */
extern bool llmq_feed_attach(LlmqTransfer *transfer);
/* Has dispatch end the transfer after the current call of libcurl. */
extern void llmq_feed_stop_soon(LlmqTransfer *transfer);

/* transfer_end.c: these fill in transfer->result; the handle is still in the multi. */
extern void llmq_end_by_curl(LlmqTransfer *transfer, int curl_code);
extern void llmq_end_by_clock(LlmqTransfer *transfer, LlmqClockName which);
extern bool llmq_end_request_sent(LlmqTransfer *transfer);
/* Returns whether the errno value `error` is a lack of our own resources: descriptors, memory. */
extern bool llmq_end_is_local(int error);

#endif /* LLMQ_TRANSFER_PRIVATE_H */
