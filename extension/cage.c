/*
 * cage.c
 *		Keeping what others' tables run when a row of llmq goes from llmq's rights.
 *
 * A role that was granted REFERENCES may have a foreign key to a table of llmq, and
 * any triggers on its own.  PostgreSQL makes the change that the key asks for as the owner of that
 * table, but before 18 it fires the triggers AFTER it as whoever deleted the row: llmq's owner,
 * mostly a superuser.  So the end of a statement of llmq's owner, where they are fired,
 * is run as the other table's owner when there is one.
 *
 * - It is a security-restricted operation: nobody comes back to llmq's rights from there,
 *   and nothing is deferred to a commit, which would be the session's.
 * - Settings go back to what they were.
 *
 * Triggers on tables of llmq itself are llmq's: TRIGGER is a right for superusers alone.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

#include "cage.h"

PG_FUNCTION_INFO_V1(llmq_cage_1);

static ExecutorFinish_hook_type next_hook = NULL;

static void finish(QueryDesc *query);
static void finish_as(QueryDesc *query, Oid role);
static void run_next(QueryDesc *query);
static Oid find_stranger(EState *estate);
static Oid add_strangers(Oid found, Relation relation, const TriggerDesc *triggers);
static Oid add_stranger(Oid found, Oid owner);
static Oid find_owner(Oid relation);

void
llmq_cage_install(void)
{
	next_hook = ExecutorFinish_hook;
	ExecutorFinish_hook = finish;
}

/*
 * cage_strangers(): the library is loaded when this is called, and so the hook is there.
 * What the caller's transaction has deferred is fired here, as at its commit: as the session.
 */
Datum
llmq_cage_1(PG_FUNCTION_ARGS)
{
	Oid user;
	int context;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(GetOuterUserId(), context | SECURITY_LOCAL_USERID_CHANGE);
	llmq_cage_defer_nothing();
	SetUserIdAndSecContext(user, context);
	PG_RETURN_VOID();
}

void
llmq_cage_defer_nothing(void)
{
	ConstraintsSetStmt *all = makeNode(ConstraintsSetStmt);

	AfterTriggerSetState(all);
}

/* -- the end of a statement ----------------------------------------------------------- */

static void
finish(QueryDesc *query)
{
	Oid stranger = find_stranger(query->estate);

	if (OidIsValid(stranger))
		finish_as(query, stranger);
	else
		run_next(query);
}

/* After an ERROR the end of the (sub)transaction gives user and settings back. */
static void
finish_as(QueryDesc *query, Oid role)
{
	Oid user;
	int context;
	int nest_level = NewGUCNestLevel();

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(role,
						   context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	run_next(query);
	SetUserIdAndSecContext(user, context);
	AtEOXact_GUC(false, nest_level);
}

static void
run_next(QueryDesc *query)
{
	if (next_hook != NULL)
		next_hook(query);
	else
		standard_ExecutorFinish(query);
}

/* -- strangers ------------------------------------------------------------------------ */

/* Whose triggers a statement may fire, if it is llmq's owner's and changes a table of llmq. */
static Oid
find_stranger(EState *estate)
{
	Oid found = InvalidOid;
	ListCell *cell;

	foreach (cell, estate->es_opened_result_relations)
	{
		ResultRelInfo *result = lfirst(cell);
		Relation relation = result->ri_RelationDesc;

		if (result->ri_TrigDesc != NULL &&
			(GetUserId() == relation->rd_rel->relowner || superuser()) &&
			RelationGetNamespace(relation) == get_namespace_oid("llmq", true))
			found = add_strangers(found, relation, result->ri_TrigDesc);
	}
	return found;
}

/* Of tables that refer to this one, or to one of the same owner that does. */
static Oid
add_strangers(Oid found, Relation relation, const TriggerDesc *triggers)
{
	int i;

	for (i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		Oid other = trigger->tgconstrrelid;
		Relation referring;

		if (!trigger->tgisinternal || RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK ||
			other == RelationGetRelid(relation))
			continue;
		if (find_owner(other) != relation->rd_rel->relowner)
		{
			found = add_stranger(found, find_owner(other));
			continue;
		}
		referring = RelationIdGetRelation(other);
		if (RelationIsValid(referring) && referring->trigdesc != NULL)
			found = add_strangers(found, referring, referring->trigdesc);
		if (RelationIsValid(referring))
			RelationClose(referring);
	}
	return found;
}

/*
 * Where there are several, none may run what is another's with its own rights: then it is a role
 * that may do next to nothing.
 */
static Oid
add_stranger(Oid found, Oid owner)
{
	if (!OidIsValid(owner) || superuser_arg(owner))
		return found;
	return !OidIsValid(found) || found == owner ? owner : ROLE_PG_CHECKPOINT;
}

static Oid
find_owner(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}
