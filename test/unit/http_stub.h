/*
 * http_stub.h
 *		A scripted server on a loopback port, and a driver for a transfer pool.
 *
 * A script is a C function that is given one accepted connection; each runs in
 * a thread of its own and counts the requests it has read whole.  Nothing waits
 * for time to pass: time limits only catch hangs.
 */
#ifndef LLMQ_HTTP_STUB_H
#define LLMQ_HTTP_STUB_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dialects/reply.h"
#include "transfer/transfer.h"
#include "tap.h"

/* A test that takes longer has hung. */
#define HANG_US (20 * 1000000LL)

#define SECONDS(n) ((int64_t) ((n) *1e6))

/* The head of an answer that a streamed chat takes, without its end. */
#define OK_HEAD           \
	"HTTP/1.1 200 OK\r\n" \
	"Content-Type: text/event-stream\r\n"

typedef struct Stub Stub;
typedef void (*StubScript)(Stub *stub, int fd, int number);

struct Stub
{
	int listener;
	int port;
	StubScript script; /* NULL: connections are left in the backlog, unread */
	atomic_int connections;
	atomic_int requests; /* read whole */
	atomic_int running;	 /* scripts */
	atomic_int marks;	 /* for scripts to say that they got somewhere */
	pthread_t thread;
};

typedef struct StubConnection
{
	Stub *stub;
	int fd;
	int number; /* from 1 */
} StubConnection;

static inline int64_t
now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t) time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* Waits until *value has reached target; false when it does not. */
static inline bool
await(atomic_int *value, int target)
{
	int64_t limit = now_us() + HANG_US;

	while (atomic_load(value) < target && now_us() < limit)
		poll(NULL, 0, 1);
	return atomic_load(value) >= target;
}

/* -- What scripts do ------------------------------------------------------------ */

static inline void
send_bytes(int fd, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0)
	{
		ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		at += sent;
		len -= (size_t) sent;
	}
}

static inline void
send_text(int fd, const char *text)
{
	send_bytes(fd, text, strlen(text));
}

/* The number behind "Content-Length:" in a head that ends with a NUL. */
static inline size_t
announced_length(const char *head)
{
	const char *found = strcasestr(head, "\r\nContent-Length:");

	return found == NULL ? 0 : (size_t) strtoul(found + 17, NULL, 10);
}

/* Reads one request whole and counts it; false when the client has left. */
static inline bool
read_request(Stub *stub, int fd)
{
	char head[16384];
	size_t len = 0;
	size_t rest;
	char *end = NULL;

	while (end == NULL && len + 1 < sizeof(head))
	{
		ssize_t got = recv(fd, head + len, sizeof(head) - 1 - len, 0);

		if (got <= 0)
			return false;
		len += (size_t) got;
		head[len] = '\0';
		end = strstr(head, "\r\n\r\n");
	}
	if (end == NULL)
		return false;
	rest = announced_length(head) - (len - (size_t) (end + 4 - head));
	while (rest > 0)
	{
		ssize_t got = recv(fd, head, rest < sizeof(head) ? rest : sizeof(head), 0);

		if (got <= 0)
			return false;
		rest -= (size_t) got;
	}
	atomic_fetch_add(&stub->requests, 1);
	return true;
}

/* Keeps the connection until the client has left. */
static inline void
hold(int fd)
{
	char bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), 0) > 0)
		;
}

/* Makes the close that follows a RST. */
static inline void
reset_on_close(int fd)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* -- The server ------------------------------------------------------------------ */

static inline void *
stub_connection(void *argument)
{
	StubConnection *connection = argument;
	Stub *stub = connection->stub;
	struct timeval limit = {.tv_sec = HANG_US / 1000000};

	setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	stub->script(stub, connection->fd, connection->number);
	close(connection->fd);
	free(connection);
	atomic_fetch_sub(&stub->running, 1);
	return NULL;
}

static inline void *
stub_accept(void *argument)
{
	Stub *stub = argument;
	int fd;

	/* A test may take all descriptors away for a while. */
	while ((fd = accept(stub->listener, NULL, NULL)) >= 0 || errno == EMFILE)
	{
		StubConnection *connection = fd >= 0 ? malloc(sizeof(*connection)) : NULL;
		pthread_t thread;

		if (connection == NULL)
		{
			poll(NULL, 0, 1);
			continue;
		}
		connection->stub = stub;
		connection->fd = fd;
		connection->number = atomic_fetch_add(&stub->connections, 1) + 1;
		atomic_fetch_add(&stub->running, 1);
		pthread_create(&thread, NULL, stub_connection, connection);
		pthread_detach(thread);
	}
	return NULL;
}

static inline void
stub_start(Stub *stub, StubScript script)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);

	memset(stub, 0, sizeof(*stub));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	stub->script = script;
	stub->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bind(stub->listener, (struct sockaddr *) &address, sizeof(address));
	listen(stub->listener, 1024);
	getsockname(stub->listener, (struct sockaddr *) &address, &len);
	stub->port = ntohs(address.sin_port);
	if (script != NULL)
		pthread_create(&stub->thread, NULL, stub_accept, stub);
}

/* The clients must have left: scripts that hold wait for that. */
static inline void
stub_stop(Stub *stub)
{
	int64_t limit = now_us() + HANG_US;

	shutdown(stub->listener, SHUT_RDWR);
	if (stub->script != NULL)
		pthread_join(stub->thread, NULL);
	close(stub->listener);
	while (atomic_load(&stub->running) > 0 && now_us() < limit)
		poll(NULL, 0, 1);
}

/* -- The client -------------------------------------------------------------------- */

typedef struct Call
{
	char url[256];
	const char *headers[4];
	LlmqHttpRequest request;
	LlmqArena *arena;
	LlmqReply *reply;
	LlmqTransfer *transfer;
	char error[256];
	int results; /* how many came */
	LlmqTransferResult result;
	LlmqVerdict verdict;
	int64_t began_us;
	int64_t took_us;
} Call;

static const LlmqClocks patient = {.attempt_us = 15 * 1000000LL};

/* A call of a streamed chat, which both ends and counts as the reply sees it. */
static inline void
call_prepare(Call *call, const char *url)
{
	LlmqReplyOptions options = {.api = LLMQ_API_OPENAI_CHAT, .stream = true, .max_bytes = 1048576};

	memset(call, 0, sizeof(*call));
	snprintf(call->url, sizeof(call->url), "%s", url);
	call->headers[0] = "Content-Type: application/json";
	call->headers[1] = "Authorization: Bearer sekret";
	call->request.url = call->url;
	call->request.headers = call->headers;
	call->request.header_count = 2;
	call->request.body = "{}";
	call->request.body_len = 2;
	call->arena = llmq_arena_create(64 * 1048576);
	call->reply = llmq_reply_create(call->arena, &options);
}

static inline bool
call_start(Call *call, LlmqTransferPool *pool, const LlmqClocks *clocks)
{
	call->began_us = now_us();
	call->transfer = llmq_transfer_start(pool, &call->request, llmq_reply_sink(call->reply), clocks,
										 call, call->began_us, call->error, sizeof(call->error));
	return call->transfer != NULL;
}

static inline bool
call_begin(Call *call, LlmqTransferPool *pool, const Stub *stub, const LlmqClocks *clocks)
{
	char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/v1", stub->port);
	call_prepare(call, url);
	return call_start(call, pool, clocks);
}

static inline void
call_free(Call *call)
{
	llmq_reply_destroy(call->reply);
	llmq_arena_destroy(call->arena);
}

/* Hands out what has ended; the number of results. */
static inline int
pool_collect(LlmqTransferPool *pool)
{
	LlmqTransferResult result;
	int count = 0;

	for (; llmq_transfer_pool_next(pool, &result); count++)
	{
		Call *call = result.owner;

		call->results++;
		call->took_us = now_us() - call->began_us;
		call->result = result;
		llmq_reply_finish(call->reply, result.end, result.detail, 0, &call->verdict);
	}
	return count;
}

/* Waits once as a host does, then dispatches. */
static inline int
pool_turn(LlmqTransferPool *pool, int64_t longest_us)
{
	struct pollfd waited = {.fd = llmq_transfer_pool_fd(pool), .events = POLLIN};
	int64_t timeout = llmq_transfer_pool_timeout(pool, now_us());

	if (timeout < 0 || timeout > longest_us)
		timeout = longest_us;
	poll(&waited, 1, (int) ((timeout + 999) / 1000));
	llmq_transfer_pool_dispatch(pool, now_us());
	return pool_collect(pool);
}

/* Runs the pool until `wanted` transfers have ended; false when they do not. */
static inline bool
pool_run(LlmqTransferPool *pool, int wanted)
{
	int64_t limit = now_us() + HANG_US;

	while (wanted > 0 && now_us() < limit)
		wanted -= pool_turn(pool, 1000000);
	return wanted <= 0;
}

/* Runs the pool until a script has left `target` marks. */
static inline bool
pool_run_until(LlmqTransferPool *pool, atomic_int *value, int target)
{
	int64_t limit = now_us() + HANG_US;

	while (atomic_load(value) < target && now_us() < limit)
		pool_turn(pool, 5000);
	return atomic_load(value) >= target;
}

static inline LlmqTransferPool *
pool_make(int max_transfers)
{
	char error[256] = "";
	LlmqTransferPool *pool =
		llmq_transfer_pool_create(max_transfers, "llmq/test", error, sizeof(error));

	/* A proxy in the environment would stand between us and the stub. */
	unsetenv("http_proxy");
	unsetenv("https_proxy");
	unsetenv("all_proxy");
	if (pool == NULL)
	{
		printf("Bail out! %s\n", error);
		exit(1);
	}
	return pool;
}

#endif /* LLMQ_HTTP_STUB_H */
