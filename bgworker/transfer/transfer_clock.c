/*
 * transfer_clock.c
 *		The clocks of transfers, in a heap of next expiries.
 *
 * Bytes arrive far more often than clocks run out, so a byte only updates the time in its
 * transfer.  The key in the heap may be too early, but never too late, and is corrected when it
 * comes to the top.
 */
#include "transfer/transfer_private.h"

/* Lowers *until to since + span if that clock is set. */
static void
consider(int64_t since, int64_t span, LlmqClockName name, int64_t *until, LlmqClockName *which)
{
	if (span <= 0 || since > INT64_MAX - span || since + span >= *until)
		return;
	*until = since + span;
	*which = name;
}

/*
 * Returns when the next clock of the transfer runs out.  While the server reads the request
 * slowly, only the attempt clock runs, because no byte of the answer can be expected before
 * the whole request was sent.  (A final status line ends that: the server has decided.)
 */
static int64_t
next_expiry(const LlmqTransfer *transfer, LlmqClockName *which)
{
	const LlmqClocks *clocks = &transfer->clocks;
	int64_t until = INT64_MAX;

	*which = LLMQ_CLOCK_ATTEMPT;
	consider(transfer->started_us, clocks->attempt_us, LLMQ_CLOCK_ATTEMPT, &until, which);
	if (transfer->phase == LLMQ_PHASE_CONNECTING)
		consider(transfer->phase_us, clocks->connect_us, LLMQ_CLOCK_CONNECT, &until, which);
	else if (transfer->phase == LLMQ_PHASE_WAITING && !transfer->uploading)
		consider(transfer->phase_us, clocks->first_byte_us, LLMQ_CLOCK_FIRST_BYTE, &until, which);
	else if (transfer->phase == LLMQ_PHASE_RECEIVING &&
			 (!transfer->uploading || transfer->status >= 200))
		consider(transfer->last_byte_us, clocks->idle_us, LLMQ_CLOCK_IDLE, &until, which);
	return until;
}

void
llmq_clock_add(LlmqTransfer *transfer)
{
	LlmqClockName which;

	transfer->clock.owner = transfer;
	transfer->clock.key = next_expiry(transfer, &which);
	llmq_heap_add(&transfer->pool->clocks, &transfer->clock);
	transfer->ticking = true;
}

void
llmq_clock_remove(LlmqTransfer *transfer)
{
	if (!transfer->ticking)
		return;
	llmq_heap_remove(&transfer->pool->clocks, &transfer->clock);
	transfer->ticking = false;
}

void
llmq_clock_changed(LlmqTransfer *transfer)
{
	LlmqClockName which;

	if (!transfer->ticking || next_expiry(transfer, &which) >= transfer->clock.key)
		return;
	llmq_clock_remove(transfer);
	llmq_clock_add(transfer);
}

LlmqTransfer *
llmq_clock_overdue(LlmqTransferPool *pool, int64_t now_us, LlmqClockName *which)
{
	LlmqHeapNode *top;

	while ((top = llmq_heap_top(&pool->clocks)) != NULL && top->key <= now_us)
	{
		LlmqTransfer *transfer = top->owner;

		if (next_expiry(transfer, which) <= now_us)
			return transfer;
		llmq_clock_remove(transfer);
		llmq_clock_add(transfer);
	}
	return NULL;
}

int64_t
llmq_clock_next(const LlmqTransferPool *pool)
{
	const LlmqHeapNode *top = llmq_heap_top(&pool->clocks);

	return top != NULL ? top->key : -1;
}
