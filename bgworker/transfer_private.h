/*
 * transfer_private.h
 *		What the files of the transfer layer share; nobody else includes it.
 *
 *		transfer.c		 pool, start, abort, dispatch
 *		transfer_slot.c	 handles, and the way of a request into one
 *		transfer_resolve.c who may look up a host
 *		transfer_rest.c	 whether a connection at rest has kept silent
 *		transfer_mail.c	 e-mails, once libcurl has opened the session
 *		transfer_feed.c	 what libcurl's callbacks record
 *		transfer_end.c	 how a transfer ended, told from what libcurl says
 *		transfer_clock.c the clocks, without libcurl
 *		transfer_poll.c	 the descriptor, without libcurl
 *
 * libcurl's handles are void pointers to it as to us, so that the files without
 * libcurl stay free of its header.
 */
#ifndef LLMQ_TRANSFER_PRIVATE_H
#define LLMQ_TRANSFER_PRIVATE_H

#include "heap.h"
#include "transfer.h"

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
