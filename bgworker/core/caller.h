/*
 * caller.h
 *		Who a transfer is for: the first member of what a client makes transfers for.
 */
#ifndef LLMQ_CALLER_H
#define LLMQ_CALLER_H

#include "transfer/transfer.h"

typedef struct LlmqCaller LlmqCaller;

struct LlmqCaller
{
	void *client; /* LlmqJobs or LlmqRelay */

	/* Takes in the end of a transfer whose owner the caller is. */
	void (*ended)(void *client, LlmqCaller *caller, const LlmqTransferResult *result);
};

#endif /* LLMQ_CALLER_H */
