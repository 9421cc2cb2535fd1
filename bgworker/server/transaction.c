/*
 * transaction.c
 *		Runs one transaction of a background worker, and returns its ERROR as a value.
 *
 * A worker has answers in hand that were paid for, and must survive a failed statement.
 * Signals interrupt nothing between transactions, where an ERROR would end the process.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "../extension/cage.h"
#include "server/transaction.h"

/* True while a transaction is under way, which an ERROR may end. */
static volatile sig_atomic_t interruptible = false;

static void handle_cancel(SIGNAL_ARGS);
static void handle_urgent_end(SIGNAL_ARGS);

void
llmq_transaction_install_signals(bool urgent)
{
	pqsignal(SIGINT, handle_cancel);
	pqsignal(SIGTERM, urgent ? handle_urgent_end : SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	ConfigReloadPending = true; /* a SIGHUP that came before this was lost */
}

/* Runs work() in a transaction; this is the only PG_TRY of the workers. */
ErrorData *
llmq_transaction_run(void (*work)(void *argument), void *argument, MemoryContext context)
{
	MemoryContext caller = CurrentMemoryContext;
	ErrorData *volatile error = NULL;

	interruptible = true;
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		llmq_cage_defer_nothing();
		work(argument);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		/*
		 * Timeouts that work() has armed must not fire during the abort, or in the next
		 * transaction.
		 */
		disable_all_timeouts(false);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		HOLD_INTERRUPTS();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	interruptible = false;
	QueryCancelPending = false; /* it came too late */
	MemoryContextSwitchTo(caller);
	return error;
}

/* Handles SIGINT, which lock_timeout and the callback's timeout send too. */
static void
handle_cancel(SIGNAL_ARGS)
{
	if (interruptible)
		StatementCancelHandler(postgres_signal_arg);
}

static void
handle_urgent_end(SIGNAL_ARGS)
{
	if (interruptible)
		die(postgres_signal_arg);
	else
		SignalHandlerForShutdownRequest(postgres_signal_arg);
}
