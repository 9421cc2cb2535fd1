/*
 * transfer.h
 *		HTTP calls and e-mails in flight: the only part that knows libcurl.
 *
 * All sockets of all transfers sit in one pollable descriptor; the host waits
 * on it and calls dispatch.  Nothing here blocks, exits or longjmps; libcurl's
 * callbacks only record.  Signals are blocked around libcurl calls, so that
 * threads it starts (the resolver) never run a handler of the host.
 *
 * One transfer is one POST at the server: libcurl's own re-send on a dead
 * reused connection is stopped, no redirect is followed.
 */
#ifndef LLMQ_TRANSFER_H
#define LLMQ_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/http_request.h"
#include "wire/sink.h"
#include "messages/smtp.h"

typedef struct LlmqTransferPool LlmqTransferPool;
typedef struct LlmqTransfer LlmqTransfer;

/*
 * The clocks of one transfer, in microseconds; 0 means none (attempt_us is
 * required).  connect: until the connection (with TLS) stands.  first_byte:
 * from the connection (request sent) to the first byte of the answer.  idle:
 * between two portions of bytes.  attempt: wall clock for everything.
 */
typedef struct LlmqClocks
{
	int64_t connect_us;
	int64_t first_byte_us;
	int64_t idle_us;
	int64_t attempt_us;
} LlmqClocks;

/* What became of a transfer that ended. */
typedef struct LlmqTransferResult
{
	void *owner;		 /* as given to start */
	LlmqTransferEnd end; /* meaningful unless local_trouble */
	bool
		local_trouble; /* EMFILE, ENOMEM and the like before a byte was sent: no attempt was made */
	char detail[256];  /* for people; never holds a secret */
} LlmqTransferResult;

/*
 * Makes a pool for at most max_transfers at once.  user_agent is copied.  NULL
 * when libcurl or the kernel refuses (error text in error, error_size bytes).
 */
extern LlmqTransferPool *llmq_transfer_pool_create(int max_transfers, const char *user_agent,
												   char *error, size_t error_size);

/* Ends every transfer without a result and frees the pool. */
extern void llmq_transfer_pool_destroy(LlmqTransferPool *pool);

/* The descriptor that becomes readable when dispatch has something to do. */
extern int llmq_transfer_pool_fd(const LlmqTransferPool *pool);

/* Microseconds until dispatch wants to be called, -1: not before the descriptor says so. */
extern int64_t llmq_transfer_pool_timeout(const LlmqTransferPool *pool, int64_t now_us);

/*
 * Starts a call.  now_us is monotonic.  request's strings and sink must stay
 * until the transfer has ended; sink is fed as bytes arrive.  NULL when the
 * pool is full or libcurl refuses the request (url of another scheme than http
 * and https, memory): error says why.
 */
extern LlmqTransfer *llmq_transfer_start(LlmqTransferPool *pool, const LlmqHttpRequest *request,
										 LlmqSink *sink, const LlmqClocks *clocks, void *owner,
										 int64_t now_us, char *error, size_t error_size);

/*
 * Starts to hand over an e-mail, likewise: reply is filled in as the server
 * answers.  connect is the clock until the session stands (connection, TLS,
 * greeting, login), idle that for each answer from then on; first_byte is
 * not used.  A message is said once, never silently again.
 *
 * smtps:// is TLS from the start.  smtp:// turns to TLS if the server offers it,
 * and must with a username: no password is sent in clear.  Certificates are
 * verified as for https.
 */
extern LlmqTransfer *
llmq_transfer_start_mail(LlmqTransferPool *pool, const LlmqMailRequest *request,
						 LlmqMailReply *reply, const LlmqClocks *clocks, void *owner,
						 int64_t now_us, char *error, size_t error_size);

/* Ends a transfer now: its connection is closed, no result will come for it. */
extern void llmq_transfer_abort(LlmqTransferPool *pool, LlmqTransfer *transfer);

/* Drives sockets and clocks; never blocks. */
extern void llmq_transfer_pool_dispatch(LlmqTransferPool *pool, int64_t now_us);

/* Takes the next ended transfer, which is freed by this; false when there is none. */
extern bool llmq_transfer_pool_next(LlmqTransferPool *pool, LlmqTransferResult *result);

/* Transfers that have started and not ended. */
extern int llmq_transfer_pool_count(const LlmqTransferPool *pool);

#endif /* LLMQ_TRANSFER_H */
