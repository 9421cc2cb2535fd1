/*
 * transfer_poll.h
 *		One descriptor that stands for many sockets.
 *
 * This is a thin layer over epoll, so that only transfer_poll.c depends on the kernel: a
 * version for kqueue needs another transfer_poll.c with the same functions.
 */
#ifndef LLMQ_TRANSFER_POLL_H
#define LLMQ_TRANSFER_POLL_H

#include <stdbool.h>
#include <stdint.h>

#define LLMQ_POLL_IN  1
#define LLMQ_POLL_OUT 2
#define LLMQ_POLL_ERR 4

typedef struct LlmqPollEvent
{
	uint64_t tag; /* as given to set */
	int what;	  /* LLMQ_POLL_* */
} LlmqPollEvent;

/* Creates the descriptor; -1 with errno when the kernel refuses. */
extern int llmq_poll_create(void);

extern void llmq_poll_destroy(int poller);

/*
 * Watches fd for `want`, level-triggered; `known` says that it is watched already.  Returns
 * false with errno on failure.
 */
extern bool llmq_poll_set(int poller, int fd, int want, uint64_t tag, bool known);

/* Stops watching fd; it may be closed already. */
extern void llmq_poll_remove(int poller, int fd);

/* Fetches up to max events without waiting; returns their number. */
extern int llmq_poll_fetch(int poller, LlmqPollEvent *events, int max);

#endif /* LLMQ_TRANSFER_POLL_H */
