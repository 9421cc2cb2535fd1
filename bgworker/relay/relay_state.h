/*
 * relay_state.h
 *		What the relay knows: topics, messages in hand, and what it has learned of destinations.
 */
#ifndef LLMQ_RELAY_STATE_H
#define LLMQ_RELAY_STATE_H

#include "base/arena.h"
#include "core/caller.h"
#include "core/core.h"
#include "messages/email.h"
#include "messages/send_verdict.h"
#include "messages/webhook.h"

/*
 * Sends under way at once.  Of those that all share, a destination may have as many as it
 * leaves free, and one more than it has answered in a row: one that is new, or that let a
 * send run out of time, has one.  The others are reserved: each destination that answers may
 * have one of them, so that those that hang, however many, keep it from nothing.
 */
#define LLMQ_RELAY_SHARED		 64
#define LLMQ_RELAY_RESERVED		 32
#define LLMQ_RELAY_MAX_IN_FLIGHT (LLMQ_RELAY_SHARED + LLMQ_RELAY_RESERVED)

/*
 * Topics with messages that are held in memory; a destination may have as many of them as it
 * leaves free, so that no one takes all.  Those that find no place wait in the table.
 */
#define LLMQ_RELAY_TOPICS_MAX 2000

typedef struct LlmqOutboxMessage
{
	LlmqCaller caller;
	struct LlmqOutboxMessage *previous;
	struct LlmqOutboxMessage *next;
	struct LlmqTopic *topic; /* until it has ended */
	LlmqArena *arena;
	int64_t id;
	int64_t claimed_us; /* tells this claim from others, see llmq.worker_settle_messages */
	int attempts;		/* before this one */
	const char *dedupe_key;
	int64_t created_us;		 /* wall clock */
	const char *traceparent; /* whose trace it belongs to, or NULL */
	const char *body; /* webhook: as it is sent; email: an object, see llmq.worker_claim_messages */
	size_t body_len;
	const char *remaining; /* email: JSON array of those who have not got it yet; NULL: all */

	/* Under way. */
	LlmqTransfer *transfer;
	int64_t started_us;
	LlmqHttpRequest request;
	LlmqWebhookReply *reply;
	LlmqMailRequest mail;
	LlmqMailReply *mail_reply; /* NULL: it is a webhook */

	/* Ended. */
	LlmqMessageOutcome outcome;
	int64_t delay_us;
	const char *error; /* for llmq.outbox.last_error, or NULL */
	bool disables;	   /* the receiver wants no more */
	int settle_failures;
	int64_t settle_at_us;
	bool solo; /* settles alone, so that it spoils no batch */
} LlmqOutboxMessage;

typedef struct LlmqOutboxList
{
	LlmqOutboxMessage *head;
	LlmqOutboxMessage *tail;
	int count;
} LlmqOutboxList;

/* A topic that has messages. */
typedef struct LlmqTopic
{
	struct LlmqTopic *next;
	struct LlmqTopic *next_in_bucket;
	char *name;
	const LlmqDestination *destination; /* NULL: there is none now */
	int64_t after;						/* of its pending messages all up to here were claimed */
	bool more;							/* there may be some behind that */
	int64_t claim_at_us;				/* none is claimed before */
	LlmqOutboxList queue;				/* claimed, to be sent in this order */
	LlmqDestinationKind kind;			/* that their bodies were made for */
	int in_flight;
	int claiming;  /* how many were asked for in the claim under way; 0: it is not part of it */
	int claimed;   /* how many came */
	bool served;   /* had its turn, and goes behind the others */
	bool had_turn; /* was claimed from, since it is known */
	bool suspect;  /* it was part of a claim that failed, and is claimed from alone */
} LlmqTopic;

/* What the relay has learned of a destination; but for what it holds, a change of the configuration
 * keeps it. */
typedef struct LlmqDestinationState
{
	int in_flight; /* messages of this worker */
	int answered;  /* attempts in a row that did not run out of time, as far as that counts */
	int topics;	   /* of those held in memory */
	bool gone;	   /* its receiver wants no more, which the configuration will say soon */
	/* Topics with messages: */
	int swept;		/* the sweep has come to so many */
	int left_out;	/* so many found no place since it began, */
	int first_left; /* the first of them as the sweep counts; 0: none */
	int waiting;	/* in the sweep before */
	int resume;		/* those before this one had their chance in the sweep before */
} LlmqDestinationState;

typedef struct LlmqRelay
{
	LlmqCore *core;
	LlmqDestinationState *destinations;		   /* by the number of the destination */
	LlmqTopic *topics;						   /* whose turn was longest ago first */
	LlmqTopic *buckets[LLMQ_RELAY_TOPICS_MAX]; /* the same by name */
	int topic_count;
	LlmqOutboxList in_flight;
	LlmqOutboxList ended;
	LlmqOutboxList settling; /* the batch under way */
	int queued;
	size_t queued_bytes;   /* of their bodies */
	int64_t tip;		   /* the highest id that was looked at */
	bool sweep_wanted;	   /* somebody may have committed late */
	int64_t sweep_next_us; /* no sweep begins before; its cost is bounded by that */
	char *swept_to;		   /* a sweep is under way, and goes on behind this topic; or NULL */
	bool polling_sweep;	   /* the poll under way is part of a sweep */
	bool knows_tip;		   /* a whole sweep has shown which topics have messages up to the tip */
	bool topics_left;	   /* there was no place for one more topic */
} LlmqRelay;

static inline LlmqDestinationState *
llmq_relay_state_of(const LlmqRelay *relay, const LlmqDestination *destination)
{
	return &relay->destinations[destination->number];
}

/* Whether messages can be sent to a destination now; NULL is none. */
static inline bool
llmq_relay_is_open(const LlmqRelay *relay, const LlmqDestination *destination)
{
	return destination != NULL && destination->enabled &&
		   !llmq_relay_state_of(relay, destination)->gone;
}

#endif /* LLMQ_RELAY_STATE_H */
