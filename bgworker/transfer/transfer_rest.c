/*
 * transfer_rest.c
 *		Checks that nothing has arrived on an idle connection.
 *
 * HTTP/1.1 does not number answers.  What a server sends unasked, such as a second answer to
 * the previous request, would be taken for the answer to the next one.  libcurl (7.88) only
 * checks whether the connection is closed.  So a connection on which something waits to be read
 * is not used again.
 *
 * Before the request is written libcurl gives us only the local port, not its socket.  So the
 * pool remembers sockets by port.  One that was overwritten there counts as one on which
 * something arrived.
 */
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "transfer/transfer_private.h"

/* Returns the local port of an internet socket, or 0. */
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

/* Remembers the socket of a new connection.  libcurl may have tried several addresses at once. */
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
