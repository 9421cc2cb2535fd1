/*
 * mailbox.h
 *		Whom an e-mail is from or for: "ann@example.org" or "Ann <ann@example.org>".
 */
#ifndef LLMQ_MAILBOX_H
#define LLMQ_MAILBOX_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct LlmqMailbox
{
	const char *name; /* any UTF-8 without control characters; NULL: none */
	const char *address;
} LlmqMailbox;

/*
 * Reads text as one mailbox.  False with what is wrong with it in *why, as the
 * end of a sentence ("is not ..."); NULL in it: memory is out.
 */
extern bool
llmq_mailbox_parse(LlmqArena *arena, const char *text, LlmqMailbox *mailbox, const char **why);

/* The part of an address behind the @. */
extern const char *llmq_mailbox_domain(const char *address);

/* Tells whether two addresses are one: their domains are compared without case. */
extern bool llmq_mailbox_same(const char *a, const char *b);

#endif /* LLMQ_MAILBOX_H */
