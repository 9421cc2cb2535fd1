/*
 * delegate.h
 *		Running the SQL function that stands behind a C function.
 */
#ifndef LLMQ_DELEGATE_H
#define LLMQ_DELEGATE_H

#include "fmgr.h"

/*
 * The schema of the functions that are not for users: llmq_internal, or llmq as long as the SQL
 * is that of a release before 0.3.0.  It changes with ALTER EXTENSION UPDATE, so a plan that
 * names it is kept for one of the two only.
 */
extern const char *llmq_delegate_schema(void);

/*
 * Waits for an update of the extension that is under way, and keeps others waiting until
 * llmq_delegate_allow_update() or the end of the transaction: a function that had begun before an
 * update would not find those that the update moves.  Nothing on a standby, where none can be.
 */
extern void llmq_delegate_hold_off_update(void);

extern void llmq_delegate_allow_update(void);

/*
 * Calls the function <name><suffix> of that schema, where <name> is that of the function being
 * called, with the same arguments; with a valid role, that role's name comes before them.
 * Returns its value, or fills the caller's tuplestore if the function returns a set.
 */
extern Datum llmq_delegate_run(FunctionCallInfo fcinfo, const char *suffix, Oid role);

#endif /* LLMQ_DELEGATE_H */
