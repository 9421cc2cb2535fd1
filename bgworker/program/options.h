/*
 * options.h
 *		The command line of llmq-worker.
 */
#ifndef LLMQ_OPTIONS_H
#define LLMQ_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log_level.h"
#include "program/metric_server.h"

#define LLMQ_QUEUES_MAX 64

/* The exit status of the program; share/llmq-worker.1 lists them too. */
typedef enum LlmqExit
{
	LLMQ_EXIT_DONE = 0,		/* as asked; nothing is left in hand */
	LLMQ_EXIT_MACHINE = 1,	/* the machine lacks memory, descriptors, threads or a port */
	LLMQ_EXIT_USAGE = 2,	/* the command line or the connection string is wrong */
	LLMQ_EXIT_OUTDATED = 3, /* the database's llmq speaks another protocol */
	LLMQ_EXIT_AWAY = 4 /* the database was away; other workers take over later what was in hand */
} LlmqExit;

typedef enum LlmqPoolerOption
{
	LLMQ_POOLER_AUTO,
	LLMQ_POOLER_SESSION,
	LLMQ_POOLER_TRANSACTION
} LlmqPoolerOption;

typedef struct LlmqOptions
{
	const char *conninfo;
	char name[64];
	int max_in_flight;
	const char *queues[LLMQ_QUEUES_MAX + 1];
	int queue_count; /* 0: all */
	const char *secrets_directory;
	int64_t poll_interval_us;
	int64_t drain_us;
	LlmqMetricAddress metrics; /* length 0: they are not served */
	bool once;
	LlmqPoolerOption pooler;
	bool log_json;
	LlmqLogLevel log_level;
} LlmqOptions;

/*
 * Reads the command line, whose strings the options keep.  Returns false when the program has
 * printed everything and should end with *status.
 */
extern bool llmq_options_read(LlmqOptions *options, int argc, char **argv, LlmqExit *status);

#endif /* LLMQ_OPTIONS_H */
