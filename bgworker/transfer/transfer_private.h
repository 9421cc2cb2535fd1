/*
 * transfer_private.h
 *		What the files of the transfer layer share; nobody else includes it.  Each calls
 *		those below it:
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

/* transfer_slot.c.  A slot with a handle, or NULL: all are in use, or memory is out. */
extern LlmqTransfer *llmq_slot_take(LlmqTransferPool *pool, bool for_mail);
/* Gives back a slot that is in no list and whose handle is not in the multi. */
extern void llmq_slot_release(LlmqTransfer *transfer);
/* Tells the handle what to send; false with an error text. */
extern bool llmq_slot_set_request(LlmqTransfer *transfer, const LlmqHttpRequest *request,
								  char *error, size_t error_size);
/* Tells the handle where to send it; false with an error text. */
extern bool
llmq_slot_set_url(LlmqTransfer *transfer, const char *url, char *error, size_t error_size);
/* Has the handle make a connection of its own for the request, which nothing of it has left. */
extern bool llmq_slot_set_fresh(LlmqTransfer *transfer);
/* Forgets the call before and starts the clocks. */
extern void llmq_slot_begin(LlmqTransfer *transfer, const LlmqClocks *clocks, int64_t now_us);

/* transfer_clock.c: a heap of next expiries.  A clock that moves away costs nothing until it is
 * looked at; one that comes nearer must be announced by changed(). */
extern void llmq_clock_add(LlmqTransfer *transfer);
extern void llmq_clock_changed(LlmqTransfer *transfer);
extern void llmq_clock_remove(LlmqTransfer *transfer);
/* A transfer one of whose clocks has run out at now_us, or NULL. */
extern LlmqTransfer *
llmq_clock_overdue(LlmqTransferPool *pool, int64_t now_us, LlmqClockName *which);
/* When to look again; -1: never. */
extern int64_t llmq_clock_next(const LlmqTransferPool *pool);

/* transfer_resolve.c */
extern int llmq_resolve_mark_of(const char *url);
extern bool llmq_resolve_set_up(LlmqTransferPool *pool);
/* Counts a transfer in among those that look up its host; false: it has to be parked. */
extern bool llmq_resolve_begin(LlmqTransfer *transfer);
/* It has an address (found), or has ended; may be called again. */
extern void llmq_resolve_end(LlmqTransfer *transfer, bool found);
extern void llmq_resolve_park(LlmqTransfer *transfer);
extern void llmq_resolve_unpark(LlmqTransfer *transfer);
/* Gives back those that may go on now, counted in. */
extern void llmq_resolve_admit(LlmqTransferPool *pool, void (*admit)(LlmqTransfer *transfer));

/* transfer_rest.c */
extern void llmq_rest_note_connected(LlmqTransfer *transfer, int local_port);
/* Tells whether nothing has come on a connection that was made and noted before. */
extern bool llmq_rest_is_silent(const LlmqTransferPool *pool, int local_port);

/* transfer_mail.c.  Makes a new handle one for an e-mail; false when libcurl refuses. */
extern bool llmq_mail_set_constants(LlmqTransfer *transfer);
extern void llmq_mail_forget(LlmqTransfer *transfer);
/* Tells the handle, which has its url, what to send; false with an error text. */
extern bool llmq_mail_set_request(LlmqTransfer *transfer, const LlmqMailRequest *request,
								  LlmqMailReply *reply, char *error, size_t error_size);
/* The session stands: the talk begins.  False: it has ended, and the result is filled in. */
extern bool llmq_mail_begin(LlmqTransfer *transfer);
/* Its socket is ready; likewise. */
extern bool llmq_mail_serve(LlmqTransfer *transfer);
/* Its socket is watched no more; ignores a transfer that is no e-mail. */
extern void llmq_mail_leave(LlmqTransfer *transfer);
extern bool llmq_mail_is_talking(const LlmqTransfer *transfer);
/* Tells whether the talk goes over this descriptor, which libcurl then knows nothing of. */
extern bool llmq_mail_owns(const LlmqTransfer *transfer, int fd);

/* transfer_feed.c: sets the callbacks of a new handle; false when libcurl refuses. */
extern bool llmq_feed_attach(LlmqTransfer *transfer);
/* Has dispatch end the transfer after the current call of libcurl. */
extern void llmq_feed_stop_soon(LlmqTransfer *transfer);

/* transfer_end.c: fill in transfer->result; the handle is still in the multi. */
extern void llmq_end_by_curl(LlmqTransfer *transfer, int curl_code);
extern void llmq_end_by_clock(LlmqTransfer *transfer, LlmqClockName which);
extern bool llmq_end_request_sent(LlmqTransfer *transfer);
/* Says whether errno value `error` is a want of our own: descriptors, memory. */
extern bool llmq_end_is_local(int error);

#endif /* LLMQ_TRANSFER_PRIVATE_H */
