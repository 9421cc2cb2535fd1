/*
 * owner.h
 *		Acting as llmq's owner on behalf of a caller who has no rights on its tables.
 */
#ifndef LLMQ_OWNER_H
#define LLMQ_OWNER_H

/* Who acted before. */
typedef struct LlmqOwnerCaller
{
	Oid role; /* the one whose rights the call has */
	int security_context;
} LlmqOwnerCaller;

/*
 * Switches to the role that owns a function of llmq.  An error needs no switching
 * back: the end of the (sub)transaction does it.  Not to be held over a commit.
 */
extern LlmqOwnerCaller llmq_owner_assume(Oid function);

extern void llmq_owner_leave(LlmqOwnerCaller caller);

/* A role's name as a datum of type name, in the current memory context. */
extern Datum llmq_owner_name(Oid role);

#endif /* LLMQ_OWNER_H */
