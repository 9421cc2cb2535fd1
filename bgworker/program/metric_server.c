/*
 * metric_server.c
 *		Serves metrics over HTTP, for a Prometheus that scrapes llmq-worker.
 *
 * libmicrohttpd handles HTTP.  It is a small server that many programs of this kind use, and
 * one of our own would have to be just as careful with hostile input.  It runs in the program's
 * only loop, over an epoll descriptor, like the engine, so the metrics are current without a
 * lock or a snapshot.
 */
#include "program/metric_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/metric.h"

/* More than there are scrapers and people with curl; further connections wait to be accepted. */
#define CONNECTIONS_MAX 16

/* A connection that is idle for this long is closed; scrapers with a longer interval reconnect. */
#define IDLE_SECONDS 30u

/* The memory of one connection, which limits what it can send. */
#define CONNECTION_BYTES ((size_t) 16 * 1024)

#define LOOPBACK "127.0.0.1"

/* The longest address and port in numbers, with brackets. */
#define ADDRESS_LENGTH 64

#define TEXT_FORMAT "text/plain; version=0.0.4; charset=utf-8"

struct LlmqMetricServer
{
	struct MHD_Daemon *daemon;
	LlmqMetricWriter write;
	void *context;
};

/* ---- The address ----------------------------------------------------------------------- */

/* Splits the text into host and port; the host is "" if there is none. */
static bool
split(const char *text, char *host, char **port)
{
	char *colon;

	snprintf(host, ADDRESS_LENGTH, "%s", text);
	if (strlen(text) >= ADDRESS_LENGTH)
		return false;
	colon = strrchr(host, ':');
	*port = colon == NULL ? host : colon + 1;
	if (colon == NULL)
		return true;
	*colon = '\0';
	if (host[0] != '[')
		return strchr(host, ':') == NULL;
	if (colon[-1] != ']')
		return false;
	colon[-1] = '\0';
	memmove(host, host + 1, strlen(host)); /* including its NUL */
	return true;
}

bool
llmq_metric_address_read(const char *text, LlmqMetricAddress *address)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
							 .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char host[ADDRESS_LENGTH];
	char *port;

	if (!split(text, host, &port) || port[0] == '\0' || port[strspn(port, "0123456789")] != '\0' ||
		strlen(port) > 5 || strtol(port, NULL, 10) > UINT16_MAX)
		return false;
	if (getaddrinfo(port == host || host[0] == '\0' ? LOOPBACK : host, port, &hints, &found) != 0)
		return false;
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->length = found->ai_addrlen;
	freeaddrinfo(found);
	return true;
}

/* Writes an address in the form of a URL. */
static void
describe(const LlmqMetricAddress *address, const char *before, const char *after, char *text,
		 size_t size)
{
	char host[ADDRESS_LENGTH] = "?";
	char port[8] = "?";
	bool six = address->address.ss_family == AF_INET6;

	(void) getnameinfo((const struct sockaddr *) &address->address, address->length, host,
					   sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(text, size, "%s%s%s%s:%s%s", before, six ? "[" : "", host, six ? "]" : "", port,
			 after);
}

/* ---- Answers --------------------------------------------------------------------------- */

static enum MHD_Result
respond(struct MHD_Connection *connection, unsigned status, const char *header, const char *value,
		const char *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		strlen(body), (void *) (uintptr_t) body, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result = MHD_NO;

	if (response == NULL)
		return MHD_NO; /* the connection is closed */
	if (MHD_add_response_header(response, header, value) == MHD_YES)
		result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result
respond_metrics(LlmqMetricServer *server, struct MHD_Connection *connection)
{
	enum MHD_Result result;
	LlmqBuffer text;

	llmq_buffer_init(&text, LLMQ_METRIC_MAX_BYTES);
	if (server->write(server->context, &text))
		result = respond(connection, MHD_HTTP_OK, MHD_HTTP_HEADER_CONTENT_TYPE, TEXT_FORMAT,
						 llmq_buffer_string(&text));
	else
		result = respond(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, MHD_HTTP_HEADER_CONTENT_TYPE,
						 "text/plain", "out of memory\n");
	llmq_buffer_free(&text);
	return result;
}

/* Answers a request whose headers have arrived; one with a body is refused before that is read. */
static enum MHD_Result
answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
	   const char *version, const char *body, size_t *body_size, void **request)
{
	/* libmicrohttpd leaves out the body in an answer to HEAD. */
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, MHD_HTTP_HEADER_ALLOW, "GET, HEAD",
					   "metrics are read with GET\n");
	if (strcmp(url, "/metrics") != 0)
		return respond(connection, MHD_HTTP_NOT_FOUND, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain",
					   "there is nothing but /metrics\n");
	return respond_metrics(context, connection);
}

/* ---- The server ------------------------------------------------------------------------ */

/* Returns a listening socket, or -1; bound is its address. */
static int
listen_on(const LlmqMetricAddress *address, LlmqMetricAddress *bound)
{
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error;

	*bound = *address;
	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
		bind(fd, (const struct sockaddr *) &address->address, address->length) == 0 &&
		listen(fd, CONNECTIONS_MAX) == 0 &&
		getsockname(fd, (struct sockaddr *) &bound->address, &bound->length) == 0)
		return fd;
	error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}

LlmqMetricServer *
llmq_metric_server_start(const LlmqMetricAddress *address, LlmqMetricWriter write, void *context,
						 char *place, size_t place_size)
{
	LlmqMetricServer *server = calloc(1, sizeof(*server));
	LlmqMetricAddress bound;
	char where[ADDRESS_LENGTH + 8];
	int fd;

	if (server != NULL && (fd = listen_on(address, &bound)) >= 0)
	{
		server->write = write;
		server->context = context;
		server->daemon = MHD_start_daemon(
			MHD_USE_EPOLL, 0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET, fd,
			MHD_OPTION_CONNECTION_LIMIT, (unsigned) CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
			IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_END);
		if (server->daemon != NULL)
		{
			describe(&bound, "http://", "/metrics", place, place_size);
			return server;
		}
		errno = ENOMEM;
		close(fd);
	}
	describe(address, "", "", where, sizeof(where));
	snprintf(place, place_size, "cannot serve metrics on %s: %s", where, strerror(errno));
	free(server);
	return NULL;
}

void
llmq_metric_server_stop(LlmqMetricServer *server)
{
	if (server == NULL)
		return;
	MHD_stop_daemon(server->daemon);
	free(server);
}

int
llmq_metric_server_fd(const LlmqMetricServer *server)
{
	const union MHD_DaemonInfo *info =
		server == NULL ? NULL : MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);

	return info == NULL ? -1 : info->epoll_fd;
}

int64_t
llmq_metric_server_timeout(const LlmqMetricServer *server)
{
	MHD_UNSIGNED_LONG_LONG milliseconds;

	if (server == NULL || MHD_get_timeout(server->daemon, &milliseconds) != MHD_YES)
		return INT64_MAX;
	return (int64_t) milliseconds * 1000;
}

void
llmq_metric_server_dispatch(LlmqMetricServer *server)
{
	if (server != NULL)
		(void) MHD_run(server->daemon);
}
