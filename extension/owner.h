/*
 * owner.h
 *		Acts as llmq's owner for a caller who has no rights on its tables.
 */
#ifndef LLMQ_OWNER_H
#define LLMQ_OWNER_H

/* The caller. */
typedef struct LlmqOwnerCaller
{
	Oid role; /* the one whose rights the call has */
	int security_context;
} LlmqOwnerCaller;

/*
 * Switches to the role that owns a function of llmq.  After an error the end of the
 * (sub)transaction switches back.  Must not be kept over a commit.
 */
extern LlmqOwnerCaller llmq_owner_assume(Oid function);

extern void llmq_owner_leave(LlmqOwnerCaller caller);

/* Returns a role's name as a datum of type name, in the current memory context. */
extern Datum llmq_owner_name(Oid role);

#endif /* LLMQ_OWNER_H */
