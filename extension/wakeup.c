/*
 * wakeup.c
 *		What a transaction has requested for its commit.
 *
 * The callbacks are registered once in each process, and cost a comparison when nothing was
 * requested, however much was submitted before.  NOTIFY, which can fail, is done before the
 * commit.  Nothing in the commit callback may throw, because the transaction has committed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/async.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

#include "launcher.h"
#include "settings.h"
#include "shared.h"
#include "wakeup.h"

/*
 * The channel on which programs listen; bgworker/program/link.h and sql/worker/program.sql
 * have the same name.
 */
#define WAKE_CHANNEL "llmq_wake"

/*
 * How full PostgreSQL's queue of notifications may get before ours are left out.  Once it is
 * full, commits with notifications fail.
 */
#define NOTIFY_ROOM 0.9

typedef struct Pending
{
	SubTransactionId level; /* the subtransaction that must commit; Invalid: not requested */
	uint32 order;			/* the later of start and stop wins */
} Pending;

static Pending pending[LLMQ_REQUESTS];
static uint32 last_order = 0;
static bool suggest = false; /* the launcher does not know this database */
static object_access_hook_type previous_access_hook = NULL;

static void at_transaction_end(XactEvent event, void *unused);
static void at_subtransaction_end(SubXactEvent event, SubTransactionId ended,
								  SubTransactionId parent, void *unused);
static void
at_object_access(ObjectAccessType access, Oid class, Oid object, int column, void *argument);
static bool anything_pending(void);
static void notify_programs(void);
static void carry_out(void);
static void start_workers(void);
static void clear(void);

void
llmq_wakeup_install(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
	previous_access_hook = object_access_hook;
	object_access_hook = at_object_access;
}

void
llmq_wakeup_request(LlmqRequest request)
{
	Pending *asked = &pending[request];
	LlmqSlot slot;

	llmq_shared_attach();
	asked->order = ++last_order;
	if (asked->level != InvalidSubTransactionId)
		return;
	asked->level = GetCurrentSubTransactionId();
	/* Nobody has told the launcher about this database, which may be a copy of another. */
	if (request == LLMQ_REQUEST_WAKE && !llmq_shared_look(MyDatabaseId, &slot))
		suggest = llmq_settings_serves(get_database_name(MyDatabaseId));
}

static bool
is_pending(LlmqRequest request)
{
	return pending[request].level != InvalidSubTransactionId;
}

bool
llmq_wakeup_is_requested(LlmqRequest request)
{
	return is_pending(request);
}

static void
at_transaction_end(XactEvent event, void *unused)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		notify_programs();
	else if (event == XACT_EVENT_COMMIT)
	{
		if (anything_pending())
			carry_out();
		clear();
	}
	else if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		clear();
}

bool
llmq_wakeup_may_notify(void)
{
	return DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) <=
		   NOTIFY_ROOM;
}

/*
 * Wakes workers outside of the server, if there are any; without this they look after a
 * poll_interval.  Commits that notify run one after the other.  A prepared transaction does not
 * get here, because it could not notify.
 */
static void
notify_programs(void)
{
	bool look = is_pending(LLMQ_REQUEST_LOOK);

	if ((look || is_pending(LLMQ_REQUEST_WAKE)) && !RecoveryInProgress() &&
		llmq_shared_has_listeners(MyDatabaseId) && llmq_wakeup_may_notify())
		Async_Notify(WAKE_CHANNEL, look ? "look" : "");
}

static void
carry_out(void)
{
	const Pending *start = &pending[LLMQ_REQUEST_START];
	const Pending *stop = &pending[LLMQ_REQUEST_STOP];
	bool started = start->level != InvalidSubTransactionId;
	bool stopped = stop->level != InvalidSubTransactionId;

	if (stopped && (!started || stop->order > start->order))
		llmq_shared_order_stop(MyDatabaseId);
	else if (started)
		start_workers();
	else if (suggest)
		llmq_shared_suggest(MyDatabaseId);
	if (is_pending(LLMQ_REQUEST_LOOK))
		llmq_shared_wake(MyDatabaseId, true);
	else if (is_pending(LLMQ_REQUEST_WAKE))
		llmq_shared_wake(MyDatabaseId, false);
	if (is_pending(LLMQ_REQUEST_SETTLE))
		llmq_shared_wake_callback_worker(MyDatabaseId);
}

/*
 * Starts workers, and says at commit how to make that permanent, because CREATE EXTENSION
 * hides messages of its script below WARNING.
 */
static void
start_workers(void)
{
	if (!llmq_shared_order_start(MyDatabaseId))
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("llmq serves at most %d databases of a server", LLMQ_MAX_DATABASES),
				 errhint("Name the databases to serve in llmq.databases.")));
	if (llmq_launcher_ensure() && !llmq_shared_launcher().preloaded)
		ereport(NOTICE, (errcode(ERRCODE_SUCCESSFUL_COMPLETION),
						 errmsg("llmq's workers run until the server restarts"),
						 errhint("Add llmq to shared_preload_libraries to have them start with "
								 "the server.")));
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId ended, SubTransactionId parent,
					  void *unused)
{
	int i;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	for (i = 0; i < LLMQ_REQUESTS; i++)
	{
		if (pending[i].level == ended)
			pending[i].level = event == SUBXACT_EVENT_COMMIT_SUB ? parent : InvalidSubTransactionId;
	}
}

/* Wakes all processes at DROP EXTENSION; they find nothing left to do and leave. */
static void
at_object_access(ObjectAccessType access, Oid class, Oid object, int column, void *argument)
{
	if (previous_access_hook)
		previous_access_hook(access, class, object, column, argument);
	if (access == OAT_DROP && class == ExtensionRelationId &&
		object == get_extension_oid("llmq", true))
	{
		llmq_wakeup_request(LLMQ_REQUEST_WAKE);
		llmq_wakeup_request(LLMQ_REQUEST_SETTLE);
	}
}

static bool
anything_pending(void)
{
	int i;

	for (i = 0; i < LLMQ_REQUESTS; i++)
	{
		if (is_pending(i))
			return true;
	}
	return false;
}

static void
clear(void)
{
	memset(pending, 0, sizeof(pending));
	suggest = false;
}
