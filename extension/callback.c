/*
 * callback.c
 *		Runs a user's on_complete function with the rights of the role that submitted the job.
 *
 * The process may do everything, and the function is somebody else's code.  It must not get
 * more rights than its role has, and must leave nothing behind:
 *
 * - SET ROLE could be reset from inside.  So the user id is switched as a SECURITY
 *   DEFINER function switches it, and SECURITY_RESTRICTED_OPERATION refuses RESET ROLE,
 *   SET SESSION AUTHORIZATION, temporary tables, LISTEN, PREPARE and their like.
 * - Policies and functions of others may trust session_user and is_superuser.  So the
 *   session is the role's as well.  Nothing of PostgreSQL's gives that back: we do, when it is
 *   over and when the transaction aborts.
 * - A trigger that is deferred would fire at commit, as us.  So all constraints of our
 *   transactions are immediate (cage.c), and a restricted operation may defer none.
 * - Settings go back to what they were, also those made without LOCAL; locks of the
 *   session are let go of.
 * - It cannot commit: a function that is called by SELECT never can.
 * - statement_timeout does nothing in a background worker; its timer is armed here.  And
 *   a function that catches the cancellation ends the process: nothing less ends it.
 *
 * After an ERROR nothing needs to be undone: the end of the transaction restores user id and
 * settings.
 */
#include "postgres.h"

#include <limits.h>
#include <signal.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "callback.h"
#include "compat.h"
#include "settings.h"

/* Whose the session was; its user and the acting one are the same, in no security context. */
typedef struct Session
{
	Oid role; /* InvalidOid: no callback has it */
	bool is_superuser;
} Session;

/* A function can catch its cancellation.  If it goes on for this long, the process is ended. */
#define STUBBORN_MS 2000

static char *server_search_path = NULL;
static Session lent = {InvalidOid, false};
static TimeoutId stubborn_timeout;
static volatile sig_atomic_t stubborn = false;

static Oid find_role(const char *name);
static void configure(const LlmqCallback *callback);
static void set_locally(const char *name, const char *value);
static char *find_function(const char *signature);
static void lend_session(Oid role);
static void take_session_back(void);
static void take_back_at_abort(XactEvent event, void *argument);
static void call(const char *function, Datum argument);
static void arm_timeout(void);
static void disarm_timeout(void);
static void end_process(void);

void
llmq_callback_prepare(void)
{
	const char *value = GetConfigOption("search_path", true, false);

	server_search_path = MemoryContextStrdup(TopMemoryContext, value == NULL ? "" : value);
	stubborn_timeout = RegisterTimeout(USER_TIMEOUT, end_process);
	RegisterXactCallback(take_back_at_abort, NULL);
}

bool
llmq_callback_was_stubborn(void)
{
	return stubborn;
}

void
llmq_callback_run(const LlmqCallback *callback)
{
	Oid role = find_role(callback->role);
	int nest_level;

	nest_level = NewGUCNestLevel();
	configure(callback);
	lend_session(role);
	arm_timeout();
	call(find_function(callback->function), callback->argument);
	disarm_timeout();
	take_session_back();
	AtEOXact_GUC(false, nest_level);
	LockReleaseSession(USER_LOCKMETHOD);
}

/* -- before ------------------------------------------------------------------------ */

static Oid
find_role(const char *name)
{
	Oid role = get_role_oid(name, true);

	if (!OidIsValid(role))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("role \"%s\", which submitted the job, does not exist", name),
						errhint("on_complete runs with the rights of that role.")));
	return role;
}

/* Sets what a session of the role would have; only the timeout limits waits for locks. */
static void
configure(const LlmqCallback *callback)
{
	set_locally("search_path",
				callback->search_path != NULL ? callback->search_path : server_search_path);
	set_locally("lock_timeout", "0");
}

static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/*
 * Returns the quoted name of the function with this signature.  Exactly this one must exist, or
 * the parser would choose another of that name with an argument that jsonb can be cast to.
 */
static char *
find_function(const char *signature)
{
	const Oid argument = JSONBOID;
	const char *arguments = strrchr(signature, '(');
	char *name;

	if (arguments == NULL)
		elog(ERROR, "\"%s\" is no signature", signature);
	name = pnstrdup(signature, arguments - signature);
	(void) LookupFuncName(llmq_compat_split_name(name), 1, &argument, false);
	return name;
}

/* -- the session ------------------------------------------------------------------- */

static void
lend_session(Oid role)
{
	bool is_superuser = superuser_arg(role);

	lent = (Session){GetSessionUserId(), superuser_arg(GetSessionUserId())};
	SetSessionAuthorization(role, is_superuser);
	SetUserIdAndSecContext(role, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

/* Looks nothing up: the transaction may have failed. */
static void
take_session_back(void)
{
	SetUserIdAndSecContext(lent.role, 0);
	SetSessionAuthorization(lent.role, lent.is_superuser);
	lent.role = InvalidOid;
}

static void
take_back_at_abort(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_ABORT && OidIsValid(lent.role))
		take_session_back();
}

/* -- the call ---------------------------------------------------------------------- */

static void
call(const char *function, Datum argument)
{
	Oid types[] = {JSONBOID};
	Datum values[] = {argument};
	char *statement = psprintf("SELECT %s($1)", function);

	SPI_connect();
	if (SPI_execute_with_args(statement, 1, types, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "%s did not answer", function);
	SPI_finish();
}

/* The timer sends SIGINT, as pg_cancel_backend() does. */
static void
arm_timeout(void)
{
	if (llmq_callback_timeout <= 0)
		return;
	enable_timeout_after(STATEMENT_TIMEOUT, llmq_callback_timeout);
	enable_timeout_after(stubborn_timeout,
						 Min(llmq_callback_timeout, INT_MAX - STUBBORN_MS) + STUBBORN_MS);
}

/* Disarms the timer, so that a function that has ended in time is not cancelled afterwards. */
static void
disarm_timeout(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	disable_timeout(stubborn_timeout, false);
	QueryCancelPending = false;
}

/* Asks the process to end, as pg_terminate_backend() does; runs in a signal handler. */
static void
end_process(void)
{
	stubborn = true;
	InterruptPending = true;
	ProcDiePending = true;
	SetLatch(MyLatch);
}
