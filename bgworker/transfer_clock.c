/*
 * transfer_clock.c
 *		The clocks of transfers: a binary heap of next expiries.
 *
 * Bytes arrive far more often than clocks run out.  So a byte only stamps its
 * transfer; the heap's key may be too early, never too late, and is made right
 * when it comes to the top.
 */
#include "transfer_private.h"

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
 * The next moment at which a clock of the transfer runs out.  While the server
 * reads the request slowly only the attempt clock runs: neither the first byte
 * nor the next one can be asked for before the request is out.  (A final status
 * line ends that: the server has made up its mind.)
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

static void
place(LlmqTransferPool *pool, int index, LlmqTransfer *transfer)
{
	pool->heap[index] = transfer;
	transfer->heap_index = index;
}

static void
sift_up(LlmqTransferPool *pool, int index)
{
	LlmqTransfer *transfer = pool->heap[index];

	while (index > 0 && pool->heap[(index - 1) / 2]->wake_us > transfer->wake_us)
	{
		place(pool, index, pool->heap[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	place(pool, index, transfer);
}

static void
sift_down(LlmqTransferPool *pool, int index)
{
	LlmqTransfer *transfer = pool->heap[index];

	for (;;)
	{
		int child = 2 * index + 1;

		if (child + 1 < pool->heap_count &&
			pool->heap[child + 1]->wake_us < pool->heap[child]->wake_us)
			child++;
		if (child >= pool->heap_count || pool->heap[child]->wake_us >= transfer->wake_us)
			break;
		place(pool, index, pool->heap[child]);
		index = child;
	}
	place(pool, index, transfer);
}

void
llmq_clock_add(LlmqTransfer *transfer)
{
	LlmqTransferPool *pool = transfer->pool;
	LlmqClockName which;

	transfer->wake_us = next_expiry(transfer, &which);
	place(pool, pool->heap_count++, transfer);
	sift_up(pool, transfer->heap_index);
}

void
llmq_clock_changed(LlmqTransfer *transfer)
{
	LlmqClockName which;
	int64_t until = next_expiry(transfer, &which);

	if (transfer->heap_index < 0 || until >= transfer->wake_us)
		return;
	transfer->wake_us = until;
	sift_up(transfer->pool, transfer->heap_index);
}

void
llmq_clock_remove(LlmqTransfer *transfer)
{
	LlmqTransferPool *pool = transfer->pool;
	int index = transfer->heap_index;
	LlmqTransfer *last;

	if (index < 0)
		return;
	transfer->heap_index = -1;
	last = pool->heap[--pool->heap_count];
	if (last == transfer)
		return;
	place(pool, index, last);
	sift_up(pool, index);
	sift_down(pool, last->heap_index);
}

LlmqTransfer *
llmq_clock_overdue(LlmqTransferPool *pool, int64_t now_us, LlmqClockName *which)
{
	while (pool->heap_count > 0 && pool->heap[0]->wake_us <= now_us)
	{
		LlmqTransfer *transfer = pool->heap[0];

		transfer->wake_us = next_expiry(transfer, which);
		if (transfer->wake_us <= now_us)
			return transfer;
		sift_down(pool, 0);
	}
	return NULL;
}

int64_t
llmq_clock_next(const LlmqTransferPool *pool)
{
	return pool->heap_count > 0 ? pool->heap[0]->wake_us : -1;
}
