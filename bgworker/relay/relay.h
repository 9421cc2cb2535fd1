/*
 * relay.h
 *		The relay: takes outbox messages to their destinations.
 *
 * The messages of a topic are claimed in the order of their ids, under leases, and sent over
 * the same transfer pool as the calls.  Of one topic, as many are sent at once as its
 * destination allows; by default one, which keeps their order.  What became of them is settled
 * in batches.  A message that fails goes back to the table until its backoff is over, so memory
 * never waits for it, and neither does any other message.
 *
 * Like ready jobs, pending messages are never searched from the start of an index: for each
 * topic the relay knows up to which id it has claimed.  Sweeps find messages below that id that
 * were committed late, and those whose topics found no place in memory.
 *
 *		relay_message.c messages in hand
 *		relay_topic.c topics: which are in memory, and whose turn it is
 *		relay_look.c  looks and sweeps
 *		relay_store.c claims and settling
 *		relay_send.c  one message as a webhook or an e-mail
 *		relay.c		  the way of a message to its destination and back
 */
#ifndef LLMQ_RELAY_H
#define LLMQ_RELAY_H

#include <jansson.h>

#include "base/buffer.h"
#include "relay/relay_state.h"

/* relay.c */
extern void llmq_relay_free(LlmqRelay *relay);
/*
 * Returns how many messages are in hand; while there are any, the worker must show that it is
 * alive.
 */
extern int llmq_relay_in_hand(const LlmqRelay *relay);
/* Starts all sends that can be started. */
extern void llmq_relay_start_due(LlmqRelay *relay);
/* Returns what is known about the destinations of a new configuration; NULL when out of memory. */
extern LlmqDestinationState *llmq_relay_carry_over(const LlmqRelay *relay, const LlmqConfig *fresh);
/* Puts that configuration into force: each topic is routed again.  Takes ownership of states. */
extern void llmq_relay_take_config(LlmqRelay *relay, LlmqDestinationState *states);
/* Adds a claimed message. */
extern void llmq_relay_enqueue(LlmqRelay *relay, LlmqTopic *topic, LlmqOutboxMessage *message);
/* Gives back queued messages that must not be sent at present. */
extern void llmq_relay_sort_out(LlmqRelay *relay);
/* Gives back queued messages, and ends sends that are under way. */
extern void llmq_relay_stop(LlmqRelay *relay);
/* Forgets everything, because the leases belong to another session. */
extern void llmq_relay_forget(LlmqRelay *relay);

/* relay_message.c */
extern void llmq_relay_leave_queue(LlmqRelay *relay, LlmqOutboxMessage *message);
/* Gives back the queued messages of a topic. */
extern void
llmq_relay_return_queue(LlmqRelay *relay, LlmqTopic *topic, int64_t delay_us, const char *reason);
/* Gives back all messages of a topic that are in hand, and claims no more of it for delay_us. */
extern void
llmq_relay_pause(LlmqRelay *relay, LlmqTopic *topic, int64_t delay_us, const char *reason);
extern void llmq_relay_end(LlmqRelay *relay, LlmqOutboxMessage *message, LlmqMessageOutcome outcome,
						   int64_t delay_us, const char *error);
extern void llmq_message_list_add(LlmqOutboxList *list, LlmqOutboxMessage *message);
extern void llmq_message_list_remove(LlmqOutboxList *list, LlmqOutboxMessage *message);
extern void llmq_message_list_free(LlmqOutboxList *list);
extern void llmq_message_destroy(LlmqOutboxMessage *message);

/* relay_topic.c */
extern LlmqTopic *llmq_relay_find_topic(const LlmqRelay *relay, const char *name);
/*
 * Notes that a topic has messages, the first of them with this id; `swept` says that a sweep
 * found it.
 */
extern void llmq_relay_note_topic(LlmqRelay *relay, const char *name, int64_t lowest, bool swept);
/* Returns whether a topic that had its turn should make room for others. */
extern bool llmq_relay_gives_way(const LlmqRelay *relay, const LlmqTopic *topic);
/* Moves the topics that had their turn behind the others. */
extern void llmq_relay_rotate(LlmqRelay *relay);
/* Forgets topics that have no message, or should make room. */
extern void llmq_relay_forget_idle(LlmqRelay *relay);
extern void llmq_relay_free_topics(LlmqRelay *relay);

/* relay_look.c: polls look for messages */
typedef struct LlmqRelayLook
{
	int64_t after;
	const char *topics_after; /* NULL: it does not sweep */
} LlmqRelayLook;

extern int64_t llmq_relay_look_due(const LlmqRelay *relay);
/* Sets what a poll that begins now should look at, in the form of llmq.worker_poll. */
extern void llmq_relay_begin_look(LlmqRelay *relay, bool full, LlmqRelayLook *look);
/* Handles the answer; control is NULL if it could not be read. */
extern void llmq_relay_complete_look(LlmqRelay *relay, const json_t *control);
extern void llmq_relay_fail_look(LlmqRelay *relay);
/* Forgets the tip, because in another session ids may begin anew. */
extern void llmq_relay_forget_tip(LlmqRelay *relay);
/* Makes a sweep begin at once, unless the poll under way begins one. */
extern void llmq_relay_sweep_afresh(LlmqRelay *relay);

/* relay_send.c: starts the transfer; false if the message has ended instead. */
extern bool llmq_relay_send(LlmqRelay *relay, LlmqOutboxMessage *message);
/* Judges the end of its transfer. */
extern void llmq_relay_judge(LlmqRelay *relay, LlmqOutboxMessage *message,
							 const LlmqTransferResult *result, LlmqSendVerdict *verdict);

/* relay_store.c */
extern int64_t llmq_relay_settle_due(const LlmqRelay *relay);
extern int64_t llmq_relay_claim_due(const LlmqRelay *relay);
extern void llmq_relay_begin_claim(LlmqRelay *relay);
extern void llmq_relay_complete_claim(LlmqRelay *relay, const LlmqRows *rows);
extern void llmq_relay_fail_claim(LlmqRelay *relay, const LlmqRows *rows);
/* Writes the ids of the messages in hand as an array literal. */
extern void llmq_relay_list_ids(const LlmqRelay *relay, LlmqBuffer *ids);
extern void llmq_relay_begin_settle(LlmqRelay *relay);
extern void llmq_relay_complete_settle(LlmqRelay *relay, const LlmqRows *rows);
extern void llmq_relay_fail_settle(LlmqRelay *relay, bool passes);

#endif /* LLMQ_RELAY_H */
