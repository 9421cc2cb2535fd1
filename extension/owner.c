/*
 * owner.c
 *		Acts as llmq's owner for a caller who has no rights on its tables.
 *
 * This is what SECURITY DEFINER does, except that the function can first note the role that
 * called it.  session_user would be a different role inside a user's own SECURITY DEFINER
 * function, and after SET ROLE.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "owner.h"

static Oid find_owner(Oid function);

LlmqOwnerCaller
llmq_owner_assume(Oid function)
{
	Oid owner = find_owner(function);
	LlmqOwnerCaller caller;

	GetUserIdAndSecContext(&caller.role, &caller.security_context);
	SetUserIdAndSecContext(owner, caller.security_context | SECURITY_LOCAL_USERID_CHANGE);
	return caller;
}

void
llmq_owner_leave(LlmqOwnerCaller caller)
{
	SetUserIdAndSecContext(caller.role, caller.security_context);
}

Datum
llmq_owner_name(Oid role)
{
	Name name = palloc0(sizeof(NameData));

	namestrcpy(name, GetUserNameFromId(role, false));
	return NameGetDatum(name);
}

static Oid
find_owner(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	return owner;
}
