/*
 * transfer_state.h
 *		The pool, its slots, and what was seen of each call.  Private to the transfer
 *		layer, as transfer_private.h is.
 *
 * libcurl's handles are void pointers to it as to us, so that the files without
 * libcurl stay free of its header.
 */
#ifndef LLMQ_TRANSFER_STATE_H
#define LLMQ_TRANSFER_STATE_H

#include "base/heap.h"
#include "transfer/transfer.h"

struct curl_slist;

/* transfer_mail.c: what a transfer has that hands over an e-mail. */
typedef struct LlmqMailCall LlmqMailCall;

/* The size libcurl demands of an error buffer (CURL_ERROR_SIZE). */
#define LLMQ_CURL_ERROR_SIZE 256

typedef enum LlmqTransferPhase
{
	LLMQ_PHASE_FREE,
	LLMQ_PHASE_CONNECTING, /* resolving, connecting, TLS */
	LLMQ_PHASE_WAITING,	   /* the request goes out, or is out; nothing has come back */
	LLMQ_PHASE_RECEIVING,  /* from the first status line on */
	LLMQ_PHASE_ENDED	   /* waits for llmq_transfer_pool_next */
} LlmqTransferPhase;

typedef enum LlmqClockName
{
	LLMQ_CLOCK_ATTEMPT,
	LLMQ_CLOCK_CONNECT,
	LLMQ_CLOCK_FIRST_BYTE,
	LLMQ_CLOCK_IDLE
} LlmqClockName;

/* Hosts known to resolve, or being looked up, by hash. */
#define LLMQ_RESOLVE_MARKS 1024

/* Sockets that a transfer opens and that are remembered: the last ones. */
#define LLMQ_SOCKETS_NOTED 4

/* Sockets of connections that may be at rest, by their local port. */
#define LLMQ_REST_SOCKETS 4096

typedef struct LlmqResolveMark
{
	int64_t known_until_us;
	int lookups; /* transfers that are looking up */
} LlmqResolveMark;

/* A slot of the pool: it lives as long as the pool, and so does its handle. */
struct LlmqTransfer
{
	/* Kept from one call to the next. */
	LlmqTransferPool *pool;
	int index;				  /* in pool->slots */
	void *easy;				  /* libcurl's handle; NULL: to be made */
	char *url;				  /* what the handle was told last */
	int mark;				  /* of its host, in pool->marks */
	struct curl_slist *lines; /* header lines; they point into the request */
	int line_capacity;
	char error_text[LLMQ_CURL_ERROR_SIZE]; /* libcurl's words; may name hosts, no more */

	/* The call. */
	void *owner;
	LlmqSink *sink;		/* NULL: an e-mail */
	LlmqMailCall *mail; /* NULL: HTTP */
	LlmqClocks clocks;
	LlmqTransferPhase phase;
	int64_t started_us;
	int64_t phase_us;	  /* when the phase began; WAITING: when the request was out */
	int64_t last_byte_us; /* RECEIVING */
	LlmqHeapNode clock;	  /* its key is never later than the next expiry */
	bool ticking;		  /* clock is in the heap */

	/* What was seen. */
	bool parked;	/* waits for others to look up its host; not in the multi */
	bool resolving; /* counted in its mark */
	int sockets[LLMQ_SOCKETS_NOTED];
	int socket_count;	 /* opened for this call; 0: the connection was at rest before */
	bool spoken_out;	 /* on the connection that it was to use something waited to be read */
	bool connected;		 /* libcurl was about to write the request */
	bool uploading;		 /* part of the request waits for room in the socket */
	bool upload_waited;	 /* it did so once: bytes may be out that libcurl does not count */
	bool resend_stopped; /* libcurl wanted to send the request again */
	bool headers_whole;	 /* the empty line after the final status line's headers */
	bool headers_large;	 /* over our limit */
	bool undecodable;	 /* a Content-Encoding we did not offer */
	bool satisfied;		 /* the reply wants no more */
	bool too_large;		 /* because of its cap */
	bool unwatched;		 /* the kernel refused to watch a socket */
	bool stopping;		 /* in pool->stopping */
	int status;			 /* the last status line's, 0: none */
	int socket_errno;	 /* our own want of resources, 0: none */
	long request_base;	 /* bytes sent to a proxy before the request */
	long errno_before;	 /* libcurl's errno before the request */
	size_t header_bytes; /* over all answers of this call, interim ones too */

	LlmqTransferResult result;
	LlmqTransfer *next; /* in free, parked, or ended */
	LlmqTransfer *next_stopping;
};

struct LlmqTransferPool
{
	void *multi;
	int poller;
	int max_transfers;
	int slot_count;		  /* slots made so far */
	int live;			  /* started and not ended */
	LlmqTransfer **slots; /* max_transfers of them */
	LlmqHeap clocks;
	LlmqTransfer *free_slots; /* last in, first out: warm ones */
	LlmqTransfer *ended_first;
	LlmqTransfer *ended_last;
	LlmqTransfer *stopping;
	LlmqTransfer *parked_first;
	LlmqTransfer *parked_last;
	bool parking_changed; /* somebody parked may go on */
	LlmqResolveMark marks[LLMQ_RESOLVE_MARKS];
	int rest_sockets[LLMQ_REST_SOCKETS];
	int64_t now_us;		 /* of the call being served */
	int64_t curl_due_us; /* libcurl's own timer, -1: none */
	char *user_agent;
	const char *encodings; /* what is offered in Accept-Encoding */
};

#endif /* LLMQ_TRANSFER_STATE_H */
