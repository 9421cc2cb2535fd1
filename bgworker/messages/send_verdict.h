/*
 * send_verdict.h
 *		The verdict on one attempt to send an outbox message.
 *
 * webhook.h and email.h give it.
 */
#ifndef LLMQ_SEND_VERDICT_H
#define LLMQ_SEND_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

/* What a receiver says is kept up to this many bytes; no character is cut. */
#define LLMQ_SEND_MESSAGE_MAX 500

typedef enum LlmqSendOutcome
{
	LLMQ_SEND_SENT,
	LLMQ_SEND_RETRY,
	LLMQ_SEND_DEAD /* no further attempt could succeed */
} LlmqSendOutcome;

/* Strings are UTF-8 that PostgreSQL accepts as text, and contain no secret. */
typedef struct LlmqSendVerdict
{
	LlmqSendOutcome outcome;
	bool disable;			/* the receiver is gone, and nothing more should be sent there */
	int64_t retry_after_us; /* the receiver's retry hint; -1 if none, and always -1 unless RETRY */
	int code;			 /* the code that the receiver answered with (HTTP, SMTP); 0: no answer */
	const char *message; /* a sentence on what went wrong; NULL: nothing did, or out of memory */
	const char **remaining; /* RETRY of an e-mail: who has yet to get it */
	int remaining_count;
} LlmqSendVerdict;

/* What becomes of a message that was claimed. */
typedef enum LlmqMessageOutcome
{
	LLMQ_MESSAGE_SENT,
	LLMQ_MESSAGE_RETRY,	 /* the attempt failed; another one after delay_us */
	LLMQ_MESSAGE_DEAD,	 /* failed for good */
	LLMQ_MESSAGE_RETURN, /* no attempt was made, or none that counts */
	LLMQ_MESSAGE_OUTCOMES
} LlmqMessageOutcome;

/* Returns the name of an outcome in llmq.worker_settle_messages and in metrics. */
extern const char *llmq_message_outcome_name(LlmqMessageOutcome outcome);

/*
 * Joins a sentence of ours and the words of a receiver (any len bytes) to text that may be
 * stored: "sentence: words".  The secret, unless it is NULL, is hidden.
 */
extern const char *llmq_send_verdict_message(LlmqArena *arena, const char *sentence,
											 const char *words, size_t len, const char *secret);

#endif /* LLMQ_SEND_VERDICT_H */
