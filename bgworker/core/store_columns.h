/*
 * store_columns.h
 *		The columns of what the store's operations return, by name.
 *
 * Each list generates the names in a statement (store.c) and the enumerators that read its
 * rows, LLMQ_CLAIM_JOB_ID and the like.  So the two always agree, and a column that has another
 * name in SQL is an error of the statement.  The functions in sql/worker/ say what the columns
 * mean.
 */
#ifndef LLMQ_STORE_COLUMNS_H
#define LLMQ_STORE_COLUMNS_H

/* COLUMN(separator, enumerator, name) */
#define LLMQ_HELLO_COLUMNS(COLUMN)   \
	COLUMN("", WORKER_ID, worker_id) \
	COLUMN(", ", STATE, state)       \
	COLUMN(", ", REASON, reason)

#define LLMQ_POLL_COLUMNS(COLUMN)    \
	COLUMN("", SEQ, seq)             \
	COLUMN(", ", QUEUE, queue)       \
	COLUMN(", ", TENANT, tenant)     \
	COLUMN(", ", PRIORITY, priority) \
	COLUMN(", ", CONTROL, control)   \
	COLUMN(", ", JOB_ID, job_id)     \
	COLUMN(", ", DELIVERY, delivery)

#define LLMQ_CLAIM_COLUMNS(COLUMN)                   \
	COLUMN("", SEQ, seq)                             \
	COLUMN(", ", JOB_ID, job_id)                     \
	COLUMN(", ", DELIVERY, delivery)                 \
	COLUMN(", ", COUNTED, counted)                   \
	COLUMN(", ", QUEUE, queue)                       \
	COLUMN(", ", PROMPT, prompt)                     \
	COLUMN(", ", SYSTEM, system)                     \
	COLUMN(", ", MESSAGES, messages)                 \
	COLUMN(", ", PARAMS, params)                     \
	COLUMN(", ", MODEL, model)                       \
	COLUMN(", ", POLICY, policy)                     \
	COLUMN(", ", IDEMPOTENCY_KEYS, idempotency_keys) \
	COLUMN(", ", TRACEPARENT, traceparent)

#define LLMQ_SETTLE_COLUMNS(COLUMN) \
	COLUMN("", JOB_ID, job_id)      \
	COLUMN(", ", VERDICT, verdict)

#define LLMQ_OUTBOX_COLUMNS(COLUMN)      \
	COLUMN("", TOPIC, topic)             \
	COLUMN(", ", ID, id)                 \
	COLUMN(", ", ATTEMPTS, attempts)     \
	COLUMN(", ", DEDUPE_KEY, dedupe_key) \
	COLUMN(", ", CREATED_AT, created_at) \
	COLUMN(", ", BODY, body)             \
	COLUMN(", ", REMAINING, remaining)   \
	COLUMN(", ", CLAIMED_AT, claimed_at) \
	COLUMN(", ", TRACEPARENT, traceparent)

#define LLMQ_OUTBOX_SETTLE_COLUMNS(COLUMN) \
	COLUMN("", ID, id)                     \
	COLUMN(", ", VERDICT, verdict)

#define LLMQ_DRAW_COLUMNS(COLUMN)            \
	COLUMN("", ENDPOINT, endpoint)           \
	COLUMN(", ", SLOTS, slots)               \
	COLUMN(", ", FROM_US, from_us)           \
	COLUMN(", ", INTERVAL_NS, interval_ns)   \
	COLUMN(", ", NEXT_US, next_us)           \
	COLUMN(", ", TOKENS, tokens)             \
	COLUMN(", ", TOKENS_IN_US, tokens_in_us) \
	COLUMN(", ", AGAIN_US, again_us)         \
	COLUMN(", ", MAY_PROBE, may_probe)       \
	COLUMN(", ", BREAKER, breaker)           \
	COLUMN(", ", BREAKER_IN, breaker_in)     \
	COLUMN(", ", BREAKER_TURNS, breaker_turns)

/* COLUMN for statements. */
#define LLMQ_COLUMN_NAME(separator, enumerator, name) separator #name

#define LLMQ_HELLO_COLUMN(separator, enumerator, name)		   LLMQ_HELLO_##enumerator,
#define LLMQ_POLL_COLUMN(separator, enumerator, name)		   LLMQ_POLL_##enumerator,
#define LLMQ_CLAIM_COLUMN(separator, enumerator, name)		   LLMQ_CLAIM_##enumerator,
#define LLMQ_SETTLE_COLUMN(separator, enumerator, name)		   LLMQ_SETTLE_##enumerator,
#define LLMQ_OUTBOX_COLUMN(separator, enumerator, name)		   LLMQ_OUTBOX_##enumerator,
#define LLMQ_OUTBOX_SETTLE_COLUMN(separator, enumerator, name) LLMQ_OUTBOX_SETTLE_##enumerator,
#define LLMQ_DRAW_COLUMN(separator, enumerator, name)		   LLMQ_DRAW_##enumerator,

enum LlmqHelloColumn
{
	LLMQ_HELLO_COLUMNS(LLMQ_HELLO_COLUMN)
};

enum LlmqPollColumn
{
	LLMQ_POLL_COLUMNS(LLMQ_POLL_COLUMN)
};

enum LlmqClaimColumn
{
	LLMQ_CLAIM_COLUMNS(LLMQ_CLAIM_COLUMN)
};

enum LlmqSettleColumn
{
	LLMQ_SETTLE_COLUMNS(LLMQ_SETTLE_COLUMN)
};

enum LlmqOutboxColumn
{
	LLMQ_OUTBOX_COLUMNS(LLMQ_OUTBOX_COLUMN)
};

enum LlmqOutboxSettleColumn
{
	LLMQ_OUTBOX_SETTLE_COLUMNS(LLMQ_OUTBOX_SETTLE_COLUMN)
};

enum LlmqDrawColumn
{
	LLMQ_DRAW_COLUMNS(LLMQ_DRAW_COLUMN)
};

#endif /* LLMQ_STORE_COLUMNS_H */
