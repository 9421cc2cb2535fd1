/*
 * transfer_rest_test.c
 *		Which connections at rest are used again.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */
#include "http_stub.h"

#include "transfer/transfer_private.h"

static void
keep_answering(Stub *stub, int fd, int number)
{
	while (read_request(stub, fd))
		send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
}

/* Moves a stub that has not been started to the loopback of IPv6; false: there is none. */
static bool
listen_on_six(Stub *stub)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t len = sizeof(address);

	memset(stub, 0, sizeof(*stub));
	stub->script = keep_answering;
	stub->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (stub->listener < 0 ||
		bind(stub->listener, (struct sockaddr *) &address, sizeof(address)) != 0 ||
		listen(stub->listener, 16) != 0)
		return false;
	getsockname(stub->listener, (struct sockaddr *) &address, &len);
	stub->port = ntohs(address.sin6_port);
	pthread_create(&stub->thread, NULL, stub_accept, stub);
	return true;
}

static void
test_six(void)
{
	LlmqTransferPool *pool;
	Stub stub;
	char url[64];

	if (!listen_on_six(&stub))
	{
		printf("# no IPv6 here\n");
		return;
	}
	pool = pool_make(4);
	snprintf(url, sizeof(url), "http://[::1]:%d/v1", stub.port);
	for (int i = 0; i < 3; i++)
	{
		Call call;

		call_prepare(&call, url);
		call_start(&call, pool, &patient);
		pool_run(pool, 1);
		call_free(&call);
	}
	is_int(atomic_load(&stub.requests), 3, "three calls over IPv6 are answered");
	is_int(atomic_load(&stub.connections), 1, "on one connection, which kept silent between them");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* A number of a socket may long be that of something else. */
static void
test_other_descriptors(void)
{
	LlmqTransferPool *pool = pool_make(4);
	int ends[2];

	pool->rest_sockets[7] = -1;
	ok(!llmq_rest_is_silent(pool, 7), "a descriptor that is closed is no connection at rest");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0)
	{
		pool->rest_sockets[7] = ends[0];
		ok(!llmq_rest_is_silent(pool, 7), "nor is a socket of another kind");
		close(ends[0]);
		close(ends[1]);
	}
	llmq_transfer_pool_destroy(pool);
}

int
main(void)
{
	test_six();
	test_other_descriptors();
	return tap_done();
}
