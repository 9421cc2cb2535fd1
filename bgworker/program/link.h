/*
 * link.h
 *		The program's connection to its database, which is renewed whenever it breaks.
 *
 * Connecting resolves names and may wait for one dead host after another.  So a separate thread
 * does it, because the clocks of the calls under way must not stop.  Everything else happens in
 * the caller's thread.  The options are those of any libpq program, including environment,
 * service and password files, but the session must be able to write: a worker cannot use a
 * replica.
 */
#ifndef LLMQ_LINK_H
#define LLMQ_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "base/log_level.h"

/* The channel on which the server announces work; extension/wakeup.c has the same name. */
#define LLMQ_WAKE_CHANNEL "llmq_wake"

/* Whether we have a session of our own, or a pooler lends one for each transaction. */
typedef enum LlmqPooling
{
	LLMQ_POOLING_UNKNOWN, /* find out: a connection through a pooler counts as TRANSACTION */
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
 * Creates a link, and begins to connect at once.  The strings in options must outlive it.
 * Returns NULL, with a sentence in error, when the connection string cannot be read, or the
 * machine lacks resources.
 */
extern LlmqLink *llmq_link_create(const LlmqLinkOptions *options, char *error, size_t error_size);

/*
 * Closes and frees it; false if a thread is still connecting, so that everything must be left
 * until exit.
 */
extern bool llmq_link_destroy(LlmqLink *link);

/* Starts to connect when it is time, and handles the result. */
extern void llmq_link_dispatch(LlmqLink *link);

/* Returns the connection, in pipeline mode and non-blocking; NULL while there is none. */
extern PGconn *llmq_link_connection(const LlmqLink *link);

/* Closes a connection that has failed; a new one is opened soon. */
extern void llmq_link_lose(LlmqLink *link, const char *reason);

/* Returns whether the session listens for notifications; false while there is none. */
extern bool llmq_link_listens(const LlmqLink *link);

/* Returns a number that grows with each connection. */
extern unsigned llmq_link_generation(const LlmqLink *link);

/* Returns whether an attempt to connect has failed, and none has succeeded since. */
extern bool llmq_link_failing(const LlmqLink *link);

/*
 * These return what to wait for while there is no connection: a descriptor, or -1, and
 * microseconds.
 */
extern int llmq_link_fd(const LlmqLink *link);
extern int64_t llmq_link_timeout(const LlmqLink *link);

#endif /* LLMQ_LINK_H */
