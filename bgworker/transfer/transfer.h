/*
 * transfer.h
 *		HTTP calls and e-mails in flight; the only part that uses libcurl.
 *
 * One pollable descriptor stands for the sockets of all transfers; the host waits for it and
 * calls dispatch.  Nothing here blocks, exits or longjmps; libcurl's callbacks only record.
 * Signals are blocked around calls of libcurl, so that the threads it starts (the resolver)
 * never run a handler of the host.
 *
 * One transfer is at most one POST at the server: libcurl is kept from sending a request again
 * when a reused connection turns out to be dead, and redirects are not followed.
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
 * The time limits (clocks) of one transfer, in microseconds; 0 means no limit, but attempt_us
 * is required.  connect: until the connection, including TLS, is established.  first_byte: from
 * the sent request to the first byte of the answer.  idle: between two portions of bytes.
 * attempt: for the whole transfer.
 */
typedef struct LlmqClocks
{
	int64_t connect_us;
	int64_t first_byte_us;
	int64_t idle_us;
	int64_t attempt_us;
} LlmqClocks;

/* The result of a transfer that has ended. */
typedef struct LlmqTransferResult
{
	void *owner;		 /* as given to start */
	LlmqTransferEnd end; /* meaningful unless local_trouble */
	bool local_trouble;	 /* EMFILE, ENOMEM and the like before a byte was sent: no attempt */
	char detail[256];	 /* for people to read; never contains a secret */
} LlmqTransferResult;

/*
 * Creates a pool for at most max_transfers at once.  user_agent is copied.  Returns NULL, with a
 * text in error (error_size bytes), when libcurl or the kernel refuses.
 */
extern LlmqTransferPool *llmq_transfer_pool_create(int max_transfers, const char *user_agent,
												   char *error, size_t error_size);

/* Ends every transfer without a result and frees the pool. */
extern void llmq_transfer_pool_destroy(LlmqTransferPool *pool);

/* Returns the descriptor that becomes readable when dispatch has something to do. */
extern int llmq_transfer_pool_fd(const LlmqTransferPool *pool);

/*
 * Returns in how many microseconds dispatch must be called; -1: only when the descriptor is
 * readable.
 */
extern int64_t llmq_transfer_pool_timeout(const LlmqTransferPool *pool, int64_t now_us);

/*
 * Starts a call.  now_us is monotonic.  The strings of request and the sink must stay valid
 * until the transfer has ended; the sink is fed as bytes arrive.  Returns NULL, with the reason
 * in error, when the pool is full or libcurl refuses the request (the URL is neither http nor
 * https, or out of memory).
 */
extern LlmqTransfer *llmq_transfer_start(LlmqTransferPool *pool, const LlmqHttpRequest *request,
										 LlmqSink *sink, const LlmqClocks *clocks, void *owner,
										 int64_t now_us, char *error, size_t error_size);

/*
 * Starts to send an e-mail in the same way; reply is filled in as the server answers.  The
 * connect clock runs until the session is established (connection, TLS, greeting, login), and
 * the idle clock for each answer after that; first_byte is not used.  A message is sent once,
 * and never silently again.
 *
 * smtps:// uses TLS from the start.  smtp:// switches to TLS if the server offers it; with a
 * username TLS is required, because a password is never sent in clear text.  Certificates are
 * verified as for https.
 */
extern LlmqTransfer *
llmq_transfer_start_mail(LlmqTransferPool *pool, const LlmqMailRequest *request,
						 LlmqMailReply *reply, const LlmqClocks *clocks, void *owner,
						 int64_t now_us, char *error, size_t error_size);

/* Ends a transfer now: its connection is closed, and it gives no result. */
extern void llmq_transfer_abort(LlmqTransferPool *pool, LlmqTransfer *transfer);

/* Serves sockets and clocks; never blocks. */
extern void llmq_transfer_pool_dispatch(LlmqTransferPool *pool, int64_t now_us);

/* Takes the next ended transfer and frees it; false if there is none. */
extern bool llmq_transfer_pool_next(LlmqTransferPool *pool, LlmqTransferResult *result);

/* Returns the number of transfers that have started and not ended. */
extern int llmq_transfer_pool_count(const LlmqTransferPool *pool);

#endif /* LLMQ_TRANSFER_H */
