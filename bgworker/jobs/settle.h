/*
 * settle.h
 *		Writes ended deliveries as the JSON that llmq.worker_settle takes.
 */
#ifndef LLMQ_SETTLE_H
#define LLMQ_SETTLE_H

#include <stdbool.h>

#include "base/buffer.h"
#include "jobs/job.h"

/* The largest text of one settle; PostgreSQL takes values below 1 GB. */
#define LLMQ_SETTLE_MAX_BYTES ((size_t) 768 * 1024 * 1024)

/* A batch is closed when it holds this many deliveries, or bytes. */
#define LLMQ_SETTLE_BATCH_JOBS	200
#define LLMQ_SETTLE_BATCH_BYTES ((size_t) 8 * 1024 * 1024)

/*
 * Appends a job as one object.  False when the buffer's maximum is reached or
 * memory is out; the buffer is then of no more use.
 */
extern bool llmq_settle_append(LlmqBuffer *buffer, const LlmqJob *job);

#endif /* LLMQ_SETTLE_H */
