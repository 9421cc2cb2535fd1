/*
 * settle.h
 *		Writes ended deliveries as the JSON that llmq.worker_settle takes.
 */
#ifndef LLMQ_SETTLE_H
#define LLMQ_SETTLE_H

#include <stdbool.h>

#include "base/buffer.h"
#include "jobs/job.h"

/* The largest text for one settle; PostgreSQL accepts values below 1 GB. */
#define LLMQ_SETTLE_MAX_BYTES ((size_t) 768 * 1024 * 1024)

/* A batch is complete when it has this many deliveries, or bytes. */
#define LLMQ_SETTLE_BATCH_JOBS	200
#define LLMQ_SETTLE_BATCH_BYTES ((size_t) 8 * 1024 * 1024)

/*
 * Appends a job as one object.  Returns false when the buffer's maximum is reached or when out
 * of memory; the buffer is then useless.
 */
extern bool llmq_settle_append(LlmqBuffer *buffer, const LlmqJob *job);

#endif /* LLMQ_SETTLE_H */
