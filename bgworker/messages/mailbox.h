/*
 * mailbox.h
 *		The sender or a recipient of an e-mail: "ann@example.org" or "Ann <ann@example.org>".
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
 * Reads text as one mailbox.  Returns false with what is wrong in *why, as the end of a
 * sentence ("is not ..."), or with NULL there when out of memory.
 */
extern bool
llmq_mailbox_parse(LlmqArena *arena, const char *text, LlmqMailbox *mailbox, const char **why);

/* Returns the part of an address after the @. */
extern const char *llmq_mailbox_domain(const char *address);

/* Returns whether two addresses are the same; the case of their domains is ignored. */
extern bool llmq_mailbox_same(const char *a, const char *b);

#endif /* LLMQ_MAILBOX_H */
