/*
 * metric_server.h
 *		Serves metrics over HTTP, for a Prometheus that scrapes llmq-worker.
 *
 * It has no thread and no loop: the program waits for its descriptor, and gives it turns.
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

/* Appends the text that is served; false when it cannot. */
typedef bool (*LlmqMetricWriter)(void *context, LlmqBuffer *text);

/*
 * Reads [ADDRESS:]PORT, where the address is one in numbers (of IPv6 in brackets), and loopback
 * if there is none; port 0 is any that is free.  False if it is no such thing.
 */
extern bool llmq_metric_address_read(const char *text, LlmqMetricAddress *address);

/*
 * Serves from now on.  place says where (a URL), or why not: then it returns NULL.
 */
extern LlmqMetricServer *
llmq_metric_server_start(const LlmqMetricAddress *address, LlmqMetricWriter write, void *context,
						 char *place, size_t place_size);
extern void llmq_metric_server_stop(LlmqMetricServer *server);

/* Readable when there is something to do; -1 without a server. */
extern int llmq_metric_server_fd(const LlmqMetricServer *server);

/* Microseconds until it wants a turn even so; INT64_MAX: never. */
extern int64_t llmq_metric_server_timeout(const LlmqMetricServer *server);

/* Does what there is to do. */
extern void llmq_metric_server_dispatch(LlmqMetricServer *server);

#endif /* LLMQ_METRIC_SERVER_H */
