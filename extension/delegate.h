/*
 * delegate.h
 *		Running the SQL function that stands behind a C function.
 */
#ifndef LLMQ_DELEGATE_H
#define LLMQ_DELEGATE_H

#include "fmgr.h"

/*
 * Calls llmq.<name><suffix>, where <name> is that of the function being called,
 * with the same arguments; with a valid role, that role's name comes before them.
 * Returns its value, or fills the caller's tuplestore if the function returns a set.
 */
extern Datum llmq_delegate_run(FunctionCallInfo fcinfo, const char *suffix, Oid role);

#endif /* LLMQ_DELEGATE_H */
