/*
 * caller.h
 *		Who a transfer is for: the first member of what the engine makes transfers for.
 */
#ifndef LLMQ_CALLER_H
#define LLMQ_CALLER_H

#include "transfer/transfer.h"

struct LlmqEngine;

typedef struct LlmqCaller
{
	/* Takes in the end of a transfer whose owner the caller is. */
	void (*ended)(struct LlmqEngine *engine, struct LlmqCaller *caller,
				  const LlmqTransferResult *result);
} LlmqCaller;

#endif /* LLMQ_CALLER_H */
