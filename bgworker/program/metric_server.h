/*
 * metric_server.h
 *		Serves metrics over HTTP, for a Prometheus that scrapes llmq-worker.
 *
 * It has no thread and no loop of its own: the program waits for its descriptor, and gives it
 * turns.
 */
#ifndef LLMQ_METRIC_SERVER_H
#define LLMQ_METRIC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buffer.h"

typedef struct LlmqMetricAddress
{
	struct sockaddr_storage address;
	socklen_t length; /* 0: none */
} LlmqMetricAddress;

typedef struct LlmqMetricServer LlmqMetricServer;

/* Appends the text that is served; false if that fails. */
typedef bool (*LlmqMetricWriter)(void *context, LlmqBuffer *text);

/*
 * Reads [ADDRESS:]PORT.  The address is numeric (IPv6 in brackets), and loopback if it is
 * missing; port 0 means any free port.  Returns false if text does not have this form.
 */
extern bool llmq_metric_address_read(const char *text, LlmqMetricAddress *address);

/* Starts to serve.  place gets the URL, or the reason why it failed; then NULL is returned. */
extern LlmqMetricServer *
llmq_metric_server_start(const LlmqMetricAddress *address, LlmqMetricWriter write, void *context,
						 char *place, size_t place_size);
extern void llmq_metric_server_stop(LlmqMetricServer *server);

/* Returns a descriptor that is readable when there is something to do; -1 without a server. */
extern int llmq_metric_server_fd(const LlmqMetricServer *server);

/* Returns in how many microseconds it needs a turn anyway; INT64_MAX: never. */
extern int64_t llmq_metric_server_timeout(const LlmqMetricServer *server);

/* Does everything that can be done now. */
extern void llmq_metric_server_dispatch(LlmqMetricServer *server);

#endif /* LLMQ_METRIC_SERVER_H */
