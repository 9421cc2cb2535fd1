/*
 * send_verdict.h
 *		What came of one attempt to deliver an outbox message.
 *
 * webhook.h and email.h give it, the relay acts on it.
 */
#ifndef LLMQ_SEND_VERDICT_H
#define LLMQ_SEND_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

/* What a receiver says is kept up to this many bytes, cut at a character. */
#define LLMQ_SEND_MESSAGE_MAX 500

typedef enum LlmqSendOutcome
{
	LLMQ_SEND_SENT,
	LLMQ_SEND_RETRY,
	LLMQ_SEND_DEAD /* no further attempt would do */
} LlmqSendOutcome;

/* Strings are UTF-8 that PostgreSQL takes as text, and hold no secret. */
typedef struct LlmqSendVerdict
{
	LlmqSendOutcome outcome;
	bool disable;			/* the receiver is gone: nothing should be sent there any more */
	int64_t retry_after_us; /* the receiver's retry hint, -1: none (always -1 unless RETRY) */
	int code;				/* what the receiver answered (HTTP, SMTP), 0: nothing */
	const char *message;	/* a sentence on what went wrong; NULL: nothing did, or memory is out */
	const char **remaining; /* RETRY of an e-mail: who has yet to get it */
	int remaining_count;
} LlmqSendVerdict;

/* What the relay makes of a message that it has claimed. */
typedef enum LlmqMessageOutcome
{
	LLMQ_MESSAGE_SENT,
	LLMQ_MESSAGE_RETRY,	 /* the attempt failed; another one after delay_us */
	LLMQ_MESSAGE_DEAD,	 /* failed for good */
	LLMQ_MESSAGE_RETURN, /* no attempt was made, or none that counts */
	LLMQ_MESSAGE_OUTCOMES
} LlmqMessageOutcome;

/* The word for an outcome, in llmq.worker_settle_messages and in metrics. */
extern const char *llmq_message_outcome_name(LlmqMessageOutcome outcome);

/*
 * Makes a sentence of ours and a stranger's words (len bytes, which may be any)
 * into text that may be stored: "sentence: words".  secret, or NULL, is hidden.
 */
extern const char *llmq_send_verdict_message(LlmqArena *arena, const char *sentence,
											 const char *words, size_t len, const char *secret);

#endif /* LLMQ_SEND_VERDICT_H */
