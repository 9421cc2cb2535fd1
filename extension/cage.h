/*
 * cage.h
 *		Keeping what others' tables run when a row of llmq goes from llmq's rights.
 */
#ifndef LLMQ_CAGE_H
#define LLMQ_CAGE_H

/* Installs the hook; called once, from _PG_init. */
extern void llmq_cage_install(void);

/*
 * Makes all constraints of the present transaction immediate: at its commit nothing of
 * a user's is left to be fired.  What is deferred already is fired now, as the acting role.
 */
extern void llmq_cage_defer_nothing(void);

#endif /* LLMQ_CAGE_H */
