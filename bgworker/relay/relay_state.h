/*
 * relay_state.h
 *		The state of the relay: topics, messages in hand, and what it has learned about
 *		destinations.
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
 * How many sends may be in flight at once.  Of the shared ones, a destination may use as many
 * as it leaves free, but only one more than it has answered in a row: a destination that is
 * new, or whose last send timed out, gets one.  The reserved ones are for destinations that
 * answer, one for each, so that destinations that hang, however many, cannot block them.
 */
#define LLMQ_RELAY_SHARED		 64
#define LLMQ_RELAY_RESERVED		 32
#define LLMQ_RELAY_MAX_IN_FLIGHT (LLMQ_RELAY_SHARED + LLMQ_RELAY_RESERVED)

/*
 * How many topics with messages are held in memory.  A destination may use as many places as it
 * leaves free, so that none takes them all.  Topics without a place wait in the table.
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
	int64_t claimed_us; /* distinguishes this claim from others, see llmq.worker_settle_messages */
	int attempts;		/* before this one */
	const char *dedupe_key;
	int64_t created_us;		 /* wall clock */
	const char *traceparent; /* the trace that it belongs to, or NULL */
	const char *body;		 /* webhook: as sent; email: see llmq.worker_claim_messages */
	size_t body_len;
	const char *remaining; /* email: JSON array of those who have not got it yet; NULL: all */

	/* Under way. */
	LlmqTransfer *transfer;
	int64_t started_us;
	LlmqHttpRequest request;
	LlmqWebhookReply *reply;
	LlmqMailRequest mail;
	LlmqMailReply *mail_reply; /* NULL for a webhook */

	/* Ended. */
	LlmqMessageOutcome outcome;
	int64_t delay_us;
	const char *error; /* for llmq.outbox.last_error, or NULL */
	bool disables;	   /* the receiver asked for nothing more */
	int settle_failures;
	int64_t settle_at_us;
	bool solo; /* is settled alone, so that it cannot make a batch fail */
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
	int64_t after;						/* its pending messages up to this id were claimed */
	bool more;							/* there may be some above that */
	int64_t claim_at_us;				/* no claim before this */
	LlmqOutboxList queue;				/* claimed, to be sent in this order */
	LlmqDestinationKind kind;			/* the kind that their bodies were written for */
	int in_flight;
	int claiming;  /* how many the current claim asked for; 0: the topic is not part of it */
	int claimed;   /* how many came */
	bool served;   /* had its turn, and moves behind the others */
	bool had_turn; /* was claimed from since it is in memory */
	bool suspect;  /* it was part of a claim that failed, and is claimed from alone */
} LlmqTopic;

/*
 * What the relay has learned about a destination.  A change of the configuration keeps
 * everything except the counts of topics and messages.
 */
typedef struct LlmqDestinationState
{
	int in_flight; /* messages of this worker */
	int answered;  /* attempts in a row that did not time out, up to where it makes a difference */
	int topics;	   /* how many of those in memory */
	bool gone;	   /* its receiver asked for nothing more; the configuration will say so soon */
	/* Topics with messages: */
	int swept;		/* how many the sweep has reached */
	int left_out;	/* how many found no place since it began, */
	int first_left; /* the position of the first of them in the sweep; 0: none */
	int waiting;	/* in the sweep before */
	int resume;		/* topics before this one had their chance in the previous sweep */
} LlmqDestinationState;

typedef struct LlmqRelay
{
	LlmqCore *core;
	LlmqDestinationState *destinations; /* by the number of the destination */
	LlmqTopic *topics;					/* in the order of their turns, the longest ago first */
	LlmqTopic *buckets[LLMQ_RELAY_TOPICS_MAX]; /* the same topics by a hash of their name */
	int topic_count;
	LlmqOutboxList in_flight;
	LlmqOutboxList ended;
	LlmqOutboxList settling; /* the batch under way */
	int queued;
	size_t queued_bytes;   /* of their bodies */
	int64_t tip;		   /* the highest id that was seen */
	bool sweep_wanted;	   /* messages may have been committed late */
	int64_t sweep_next_us; /* no sweep begins before this, which limits their cost */
	char *swept_to; /* the topic after which the current sweep continues; NULL: none is under way */
	bool polling_sweep; /* the poll under way is part of a sweep */
	bool knows_tip;		/* a complete sweep has shown which topics have messages up to the tip */
	bool topics_left;	/* there was no place for a topic */
} LlmqRelay;

static inline LlmqDestinationState *
llmq_relay_state_of(const LlmqRelay *relay, const LlmqDestination *destination)
{
	return &relay->destinations[destination->number];
}

/* Returns whether messages can be sent to a destination now; it may be NULL. */
static inline bool
llmq_relay_is_open(const LlmqRelay *relay, const LlmqDestination *destination)
{
	return destination != NULL && destination->enabled &&
		   !llmq_relay_state_of(relay, destination)->gone;
}

#endif /* LLMQ_RELAY_STATE_H */
