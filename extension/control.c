/*
 * control.c
 *		Starts, stops and wakes the workers of a database, from SQL.
 *
 * Everything takes effect when the transaction commits, so CREATE EXTENSION in one that rolls
 * back starts nothing.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "service.h"
#include "shared.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(llmq_start_worker_1);
PG_FUNCTION_INFO_V1(llmq_stop_worker_1);
PG_FUNCTION_INFO_V1(llmq_wake_worker_1);
PG_FUNCTION_INFO_V1(llmq_wake_settler_1);
PG_FUNCTION_INFO_V1(llmq_note_listeners_1);
PG_FUNCTION_INFO_V1(llmq_may_notify_1);

/* start_worker(): true if no worker runs yet. */
Datum
llmq_start_worker_1(PG_FUNCTION_ARGS)
{
	LlmqService service;

	if (IsBinaryUpgrade)
		PG_RETURN_BOOL(false);
	llmq_wakeup_request(LLMQ_REQUEST_START);
	service = llmq_service_judge();
	if (service != LLMQ_SERVICE_RUNNING && service != LLMQ_SERVICE_STARTING)
		llmq_service_warn(service); /* a setting prevents it */
	PG_RETURN_BOOL(llmq_shared_count_workers(MyDatabaseId) == 0);
}

/* stop_worker(): true if a worker runs. */
Datum
llmq_stop_worker_1(PG_FUNCTION_ARGS)
{
	if (IsBinaryUpgrade)
		PG_RETURN_BOOL(false);
	llmq_wakeup_request(LLMQ_REQUEST_STOP);
	PG_RETURN_BOOL(llmq_shared_count_workers(MyDatabaseId) > 0);
}

Datum
llmq_wake_worker_1(PG_FUNCTION_ARGS)
{
	if (!IsBinaryUpgrade)
		llmq_wakeup_request(LLMQ_REQUEST_LOOK);
	PG_RETURN_VOID();
}

Datum
llmq_wake_settler_1(PG_FUNCTION_ARGS)
{
	if (!IsBinaryUpgrade)
		llmq_wakeup_request(LLMQ_REQUEST_SETTLE);
	PG_RETURN_VOID();
}

/*
 * note_listeners(are_there bool): takes effect at once, because a commit that notifies in vain
 * does no harm.
 */
Datum
llmq_note_listeners_1(PG_FUNCTION_ARGS)
{
	llmq_shared_note_listeners(MyDatabaseId, PG_GETARG_BOOL(0));
	PG_RETURN_VOID();
}

/* may_notify(): whether there is room for notifications (wakeup.h). */
Datum
llmq_may_notify_1(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(llmq_wakeup_may_notify());
}
