/*
 * transfer_state.h
 *		The pool, its slots, and what was observed of each call.  Private to the transfer layer,
 *		like transfer_private.h.
 *
 * libcurl's handles are void pointers in its own header too, so files that do not call libcurl
 * need not include that.
 */
#ifndef LLMQ_TRANSFER_STATE_H
#define LLMQ_TRANSFER_STATE_H

#include "base/heap.h"
#include "transfer/transfer.h"

struct curl_slist;

/* transfer_mail.c: the state of a transfer that sends an e-mail. */
typedef struct LlmqMailCall LlmqMailCall;

/* The size that libcurl requires for an error buffer (CURL_ERROR_SIZE). */
#define LLMQ_CURL_ERROR_SIZE 256

typedef enum LlmqTransferPhase
{
	LLMQ_PHASE_FREE,
	LLMQ_PHASE_CONNECTING, /* resolving, connecting, TLS */
	LLMQ_PHASE_WAITING,	   /* the request is being sent or was sent; nothing has come back yet */
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

/* How many of the sockets that a transfer opened are remembered: the last ones. */
#define LLMQ_SOCKETS_NOTED 4

/* Sockets of connections that may be idle, by their local port. */
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
	void *easy;				  /* libcurl's handle; NULL: to be created */
	char *url;				  /* the URL that the handle has */
	int mark;				  /* the mark of its host, in pool->marks */
	struct curl_slist *lines; /* header lines; they point into the request */
	int line_capacity;
	char error_text[LLMQ_CURL_ERROR_SIZE]; /* libcurl's message; no secrets */

	/* The call. */
	void *owner;
	LlmqSink *sink;		/* NULL: an e-mail */
	LlmqMailCall *mail; /* NULL: HTTP */
	LlmqClocks clocks;
	LlmqTransferPhase phase;
	int64_t started_us;
	int64_t phase_us;	  /* when the phase began; WAITING: when the request was sent */
	int64_t last_byte_us; /* RECEIVING */
	LlmqHeapNode clock;	  /* its key is never later than the next expiry */
	bool ticking;		  /* clock is in the heap */

	/* What was seen. */
	bool parked;	/* waits for others to look up its host; not in the multi */
	bool resolving; /* counted in its mark */
	int sockets[LLMQ_SOCKETS_NOTED];
	int socket_count; /* opened for this call; 0: it reuses an idle connection */
	bool spoken_out;  /* something had arrived on its idle connection */
	bool connected;	  /* libcurl was about to write the request */
	bool uploading;	  /* part of the request waits for room in the socket */
	bool
		upload_waited; /* it did so once, so bytes may have been sent that libcurl does not count */
	bool resend_stopped; /* libcurl wanted to send the request again */
	bool headers_whole;	 /* the empty line after the final status line's headers */
	bool headers_large;	 /* over our limit */
	bool undecodable;	 /* a Content-Encoding that we did not offer */
	bool satisfied;		 /* the reply needs no more */
	bool too_large;		 /* because of its cap */
	bool unwatched;		 /* the kernel refused to watch a socket */
	bool stopping;		 /* in pool->stopping */
	int status;			 /* of the last status line; 0: none */
	int socket_errno;	 /* an error because our own resources ran out; 0: none */
	long request_base;	 /* bytes sent to a proxy before the request */
	long errno_before;	 /* libcurl's errno before the request */
	size_t header_bytes; /* of all answers of this call, including interim ones */

	LlmqTransferResult result;
	LlmqTransfer *next; /* in free, parked, or ended */
	LlmqTransfer *next_stopping;
};

struct LlmqTransferPool
{
	void *multi;
	int poller;
	int max_transfers;
	int slot_count;		  /* slots created so far */
	int live;			  /* started and not ended */
	LlmqTransfer **slots; /* max_transfers of them */
	LlmqHeap clocks;
	LlmqTransfer *free_slots; /* last in, first out, so that the warm ones are reused */
	LlmqTransfer *ended_first;
	LlmqTransfer *ended_last;
	LlmqTransfer *stopping;
	LlmqTransfer *parked_first;
	LlmqTransfer *parked_last;
	bool parking_changed; /* a parked transfer may go on */
	LlmqResolveMark marks[LLMQ_RESOLVE_MARKS];
	int rest_sockets[LLMQ_REST_SOCKETS];
	int64_t now_us;		 /* of the call being served */
	int64_t curl_due_us; /* libcurl's own timer; -1: none */
	char *user_agent;
	const char *encodings; /* what is offered in Accept-Encoding */
};

#endif /* LLMQ_TRANSFER_STATE_H */
