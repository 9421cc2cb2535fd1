/*
 * link.h
 *		The program's connection to its database, made again whenever it breaks.
 *
 * Connecting resolves names and may wait for one dead host after another, so it is
 * done by a thread of its own: the calls under way have clocks that must not stop.
 * Everything else happens in the caller's thread.  The same options as for any libpq
 * program hold, environment, service and password files too, but the session must be
 * one that can write: a worker has no business on a replica.
 */
#ifndef LLMQ_LINK_H
#define LLMQ_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "base/log_level.h"

/* Where the server says that there is work; extension/wakeup.c has the same name. */
#define LLMQ_WAKE_CHANNEL "llmq_wake"

/* A session that is not the server's own, but lent by a pooler for one transaction each. */
typedef enum LlmqPooling
{
	LLMQ_POOLING_UNKNOWN, /* find out: what goes through a pooler is taken for TRANSACTION */
	LLMQ_POOLING_SESSION,
	LLMQ_POOLING_TRANSACTION
} LlmqPooling;

typedef struct LlmqLinkOptions
{
	const char *conninfo; /* or "" */
	const char *name;	  /* of the worker, for application_name */
	LlmqPooling pooling;
	uint64_t seed;
	void (*log)(LlmqLogLevel level, const char *message);
} LlmqLinkOptions;

typedef struct LlmqLink LlmqLink;

/*
 * Makes a link, and begins to connect at once.  Options' strings must outlive it.
 * NULL, with a sentence in error, when the connection string cannot be read, or the
 * machine refuses.
 */
extern LlmqLink *llmq_link_create(const LlmqLinkOptions *options, char *error, size_t error_size);

/* Closes and frees it; false if a thread still connects, and all must be left to exit. */
extern bool llmq_link_destroy(LlmqLink *link);

/* Looks whether it is time to connect, and what came of that. */
extern void llmq_link_dispatch(LlmqLink *link);

/* The connection, in pipeline mode and non-blocking; NULL while there is none. */
extern PGconn *llmq_link_connection(const LlmqLink *link);

/* Closes a connection that has failed; another one is made soon. */
extern void llmq_link_lose(LlmqLink *link, const char *reason);

/* Whether the session hears notifications; also false while there is none. */
extern bool llmq_link_listens(const LlmqLink *link);

/* A number that grows with each connection. */
extern unsigned llmq_link_generation(const LlmqLink *link);

/* Whether an attempt to connect has failed, and none succeeded since. */
extern bool llmq_link_failing(const LlmqLink *link);

/* What to wait for while there is no connection: a descriptor, or -1, and microseconds. */
extern int llmq_link_fd(const LlmqLink *link);
extern int64_t llmq_link_timeout(const LlmqLink *link);

#endif /* LLMQ_LINK_H */
