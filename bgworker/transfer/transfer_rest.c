/*
 * transfer_rest.c
 *		Whether a connection at rest has kept silent.
 *
 * HTTP/1.1 numbers no answers: what a server says before it is asked, a second answer
 * to the request before say, would be taken for the answer to the next one.  libcurl
 * (7.88) looks only whether the connection is closed.  So a connection on which
 * something waits to be read is not used again.
 *
 * libcurl does not tell its socket before the request is written, only the local port.
 * Therefore the pool remembers sockets by port; one that was overwritten there is as
 * good as one that spoke.
 */
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "transfer/transfer_private.h"

/* The local port of a socket of the internet, or 0. */
static int
local_port_of(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	memset(&address, 0, sizeof(address));
	if (getsockname(fd, (struct sockaddr *) &address, &size) != 0)
		return 0;
	if (address.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *) &address)->sin_port);
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *) &address)->sin6_port);
	return 0;
}

/* libcurl may have tried several addresses at once. */
void
llmq_rest_note_connected(LlmqTransfer *transfer, int local_port)
{
	for (int i = 0; i < LLMQ_SOCKETS_NOTED; i++)
		if (i < transfer->socket_count && local_port_of(transfer->sockets[i]) == local_port)
			transfer->pool->rest_sockets[local_port % LLMQ_REST_SOCKETS] = transfer->sockets[i];
}

bool
llmq_rest_is_silent(const LlmqTransferPool *pool, int local_port)
{
	struct pollfd waited = {.fd = pool->rest_sockets[local_port % LLMQ_REST_SOCKETS],
							.events = POLLIN};

	return local_port_of(waited.fd) == local_port && poll(&waited, 1, 0) == 0;
}
