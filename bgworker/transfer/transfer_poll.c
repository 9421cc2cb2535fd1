/*
 * transfer_poll.c
 *		One descriptor that stands for many sockets: epoll.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transfer/transfer_poll.h"

/* The most events that one system call fetches; the caller may ask for fewer. */
#define FETCH_MAX 256

int
llmq_poll_create(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

void
llmq_poll_destroy(int poller)
{
	if (poller >= 0)
		close(poller);
}

bool
llmq_poll_set(int poller, int fd, int want, uint64_t tag, bool known)
{
	struct epoll_event event = {.events = 0, .data.u64 = tag};
	int rc;

	if (want & LLMQ_POLL_IN)
		event.events |= EPOLLIN;
	if (want & LLMQ_POLL_OUT)
		event.events |= EPOLLOUT;
	rc = epoll_ctl(poller, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
	/*
	 * A descriptor that was closed without our knowledge has left the set, and its number may
	 * be in use again.
	 */
	if (rc != 0 && known && errno == ENOENT)
		rc = epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
	else if (rc != 0 && !known && errno == EEXIST)
		rc = epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
	return rc == 0;
}

void
llmq_poll_remove(int poller, int fd)
{
	struct epoll_event unused = {.events = 0};

	epoll_ctl(poller, EPOLL_CTL_DEL, fd, &unused);
}

int
llmq_poll_fetch(int poller, LlmqPollEvent *events, int max)
{
	struct epoll_event raw[FETCH_MAX];
	int count = epoll_wait(poller, raw, max < FETCH_MAX ? max : FETCH_MAX, 0);

	for (int i = 0; i < count; i++)
	{
		events[i].tag = raw[i].data.u64;
		events[i].what = 0;
		if (raw[i].events & EPOLLIN)
			events[i].what |= LLMQ_POLL_IN;
		if (raw[i].events & EPOLLOUT)
			events[i].what |= LLMQ_POLL_OUT;
		if (raw[i].events & (EPOLLERR | EPOLLHUP))
			events[i].what |= LLMQ_POLL_ERR;
	}
	return count < 0 ? 0 : count;
}
