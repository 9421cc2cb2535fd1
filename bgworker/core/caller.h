/*
 * caller.h
 *		The owner of a transfer: the first member of each thing that a client makes transfers
 *		for.
 */
#ifndef LLMQ_CALLER_H
#define LLMQ_CALLER_H

#include "transfer/transfer.h"

typedef struct LlmqCaller LlmqCaller;

struct LlmqCaller
{
	void *client; /* LlmqJobs or LlmqRelay */

	/* Handles the end of a transfer whose owner is this caller. */
	void (*ended)(void *client, LlmqCaller *caller, const LlmqTransferResult *result);
};

#endif /* LLMQ_CALLER_H */
