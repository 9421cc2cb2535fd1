/*
 * transfer_poll.h
 *		One descriptor that stands for many sockets.
 *
 * A thin layer over epoll, so that the transfer layer names no kernel: a kqueue
 * version is a second transfer_poll.c behind the same five functions.
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

/* Makes the descriptor; -1 with errno when the kernel refuses. */
extern int llmq_poll_create(void);

extern void llmq_poll_destroy(int poller);

/* Watches fd for `want`, level-triggered; known: it is watched already.  False with errno. */
extern bool llmq_poll_set(int poller, int fd, int want, uint64_t tag, bool known);

/* Watches fd no more; a descriptor that is closed already is no fault. */
extern void llmq_poll_remove(int poller, int fd);

/* Fetches up to max events without waiting; the number of them. */
extern int llmq_poll_fetch(int poller, LlmqPollEvent *events, int max);

#endif /* LLMQ_TRANSFER_POLL_H */
