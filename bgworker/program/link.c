/*
 * link.c
 *		The program's connection to its database, which is renewed whenever it breaks.
 *
 * The thread that connects owns `fresh` and `error` until it has written to the pipe and is
 * joined; nothing else is shared with it.  It always ends by itself, since there is a time
 * limit for connecting to each host, and for each statement that sets up a session.
 */
#include "program/link.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/retry.h"

/* The time between two attempts to connect, with jitter. */
#define RECONNECT_FIRST_US 100000
#define RECONNECT_MAX_US   2000000

/* The limit for a statement that sets up a session. */
#define SETUP_LIMIT_MS 5000

#define ERROR_MAX 512

/* PgBouncer's error for a startup parameter that it does not know. */
#define UNSUPPORTED "unsupported startup parameter"

/*
 * Defaults for options that the connection string or the environment may override.  With them a
 * dead host or network is noticed within seconds, well within the lifetime of a lease, and
 * settings of the role or the database do no harm.
 */
static const struct
{
	const char *keyword;
	const char *variable; /* the environment variable, or NULL */
	const char *value;
} defaults[] = {
	{"connect_timeout", "PGCONNECT_TIMEOUT", "5"},
	{"keepalives_idle", NULL, "5"},
	{"keepalives_interval", NULL, "2"},
	{"keepalives_count", NULL, "3"},
	{"tcp_user_timeout", NULL, "10000"},
	{"options", "PGOPTIONS",
	 "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed "
	 "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 "
	 "-c idle_session_timeout=0"},
};

#define DEFAULTS	(sizeof(defaults) / sizeof(defaults[0]))
#define KEYWORD_MAX (DEFAULTS + 6)

/*
 * 17 has this limit, and it would end the session.  One that is set for the database or the
 * role is meant for others.
 */
#define LIFT_TRANSACTION_TIMEOUT                           \
	"SELECT pg_catalog.set_config(name, '0', false) FROM " \
	"pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'transaction_timeout'"

/*
 * Sets up a session of our own: it listens for notifications, commits each transaction
 * whatever its role's settings are, and lets the server notice when this host is gone.
 */
#define SET_UP_SESSION                                                            \
	"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, " \
	"READ WRITE; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; "  \
	"SET tcp_keepalives_count = 3; LISTEN " LLMQ_WAKE_CHANNEL ";" LIFT_TRANSACTION_TIMEOUT

struct LlmqLink
{
	LlmqLinkOptions options;
	const char *keywords[KEYWORD_MAX];
	const char *values[KEYWORD_MAX];
	char application[64];
	LlmqRandom random;

	PGconn *conn; /* NULL: none */
	bool listens;
	unsigned generation;
	int failures;
	int64_t connect_at_us;

	bool connecting; /* the thread runs */
	pthread_t thread;
	int pipe[2];
	PGconn *fresh; /* owned by the thread */
	bool fresh_listens;
	char error[ERROR_MAX];
};

static bool check_conninfo(const char *conninfo, char *error, size_t error_size);
static void choose_options(LlmqLink *link);
static void start_thread(LlmqLink *link);
static void *run_thread(void *argument);
static bool connect_session(LlmqLink *link);
static void take_connection(LlmqLink *link);

LlmqLink *
llmq_link_create(const LlmqLinkOptions *options, char *error, size_t error_size)
{
	LlmqLink *link;

	if (!check_conninfo(options->conninfo, error, error_size))
		return NULL;
	link = calloc(1, sizeof(*link));
	if (link == NULL || pipe2(link->pipe, O_CLOEXEC) != 0)
	{
		snprintf(error, error_size, "out of memory or file descriptors");
		free(link);
		return NULL;
	}
	link->options = *options;
	llmq_random_seed(&link->random, options->seed);
	choose_options(link);
	start_thread(link);
	return link;
}

bool
llmq_link_destroy(LlmqLink *link)
{
	if (link->connecting)
		return false;
	PQfinish(link->conn);
	close(link->pipe[0]);
	close(link->pipe[1]);
	free(link);
	return true;
}

void
llmq_link_dispatch(LlmqLink *link)
{
	struct pollfd ready = {.fd = link->pipe[0], .events = POLLIN};

	if (link->connecting)
	{
		if (poll(&ready, 1, 0) == 1)
			take_connection(link);
	}
	else if (link->conn == NULL && llmq_machine_clock().mono_us >= link->connect_at_us)
		start_thread(link);
}

PGconn *
llmq_link_connection(const LlmqLink *link)
{
	return link->conn;
}

bool
llmq_link_listens(const LlmqLink *link)
{
	return link->conn != NULL && link->listens;
}

unsigned
llmq_link_generation(const LlmqLink *link)
{
	return link->generation;
}

bool
llmq_link_failing(const LlmqLink *link)
{
	return link->failures > 0;
}

int
llmq_link_fd(const LlmqLink *link)
{
	return link->connecting ? link->pipe[0] : -1;
}

int64_t
llmq_link_timeout(const LlmqLink *link)
{
	int64_t now = llmq_machine_clock().mono_us;

	if (link->connecting || link->conn != NULL)
		return INT64_MAX;
	return link->connect_at_us > now ? link->connect_at_us - now : 0;
}

/* ---- Breaking and waiting ------------------------------------------------------------ */

static void
say(LlmqLink *link, LlmqLogLevel level, const char *what, const char *detail)
{
	char line[ERROR_MAX + 128];
	size_t length = strcspn(detail, "\n"); /* libpq's messages end with one */

	snprintf(line, sizeof(line), "%s%s%.*s", what, length > 0 ? ": " : "", (int) length, detail);
	link->options.log(level, line);
}

/*
 * Sets the time of the next attempt.  Many workers lose the same server at once, so they return
 * spread over time.
 */
static void
wait_to_connect(LlmqLink *link)
{
	link->connect_at_us =
		llmq_machine_clock().mono_us + RECONNECT_FIRST_US / 2 +
		llmq_retry_backoff(&link->random, RECONNECT_FIRST_US, RECONNECT_MAX_US, link->failures);
}

void
llmq_link_lose(LlmqLink *link, const char *reason)
{
	if (link->conn == NULL)
		return;
	say(link, LLMQ_LOG_WARNING, "the connection to the database is lost", reason);
	PQfinish(link->conn);
	link->conn = NULL;
	link->failures = 0;
	wait_to_connect(link);
}

/* ---- Options ------------------------------------------------------------------------- */

static bool
check_conninfo(const char *conninfo, char *error, size_t error_size)
{
	char *message = NULL;
	PQconninfoOption *parsed;

	if (strchr(conninfo, '=') == NULL && strstr(conninfo, "://") == NULL)
		return true; /* the name of a database */
	parsed = PQconninfoParse(conninfo, &message);
	if (parsed == NULL)
		snprintf(error, error_size, "%.*s", message == NULL ? 0 : (int) strcspn(message, "\n"),
				 message == NULL ? "" : message);
	PQconninfoFree(parsed);
	PQfreemem(message);
	return parsed != NULL;
}

static void
add_option(LlmqLink *link, int *count, const char *keyword, const char *value)
{
	link->keywords[*count] = keyword;
	link->values[(*count)++] = value;
}

/*
 * Puts the options in order, where later ones win: our defaults, the connection string, and
 * what we require.
 */
static void
choose_options(LlmqLink *link)
{
	int count = 0;

	snprintf(link->application, sizeof(link->application), "llmq-worker %s", link->options.name);
	for (size_t i = 0; i < DEFAULTS; i++)
	{
		if (defaults[i].variable == NULL || getenv(defaults[i].variable) == NULL)
			add_option(link, &count, defaults[i].keyword, defaults[i].value);
	}
	add_option(link, &count, "fallback_application_name", link->application);
	add_option(link, &count, "dbname", link->options.conninfo);
	add_option(link, &count, "client_encoding", "UTF8");
	add_option(link, &count, "target_session_attrs", "read-write");
	add_option(link, &count, NULL, NULL);
}

/* ---- Connecting ---------------------------------------------------------------------- */

static void
start_thread(LlmqLink *link)
{
	link->connecting = pthread_create(&link->thread, NULL, run_thread, link) == 0;
	if (!link->connecting)
	{
		link->failures++;
		wait_to_connect(link);
	}
}

/* Logs what the server sends unasked, which libpq would otherwise print. */
static void
hear_notice(void *argument, const char *message)
{
	LlmqLink *link = argument;
	bool matters = strncmp(message, "WARNING", 7) == 0 || strncmp(message, "FATAL", 5) == 0;

	say(link, matters ? LLMQ_LOG_WARNING : LLMQ_LOG_DEBUG, "the server says", message);
}

static void
take_connection(LlmqLink *link)
{
	char byte;

	(void) !read(link->pipe[0], &byte, 1);
	pthread_join(link->thread, NULL);
	link->connecting = false;
	if (link->fresh == NULL)
	{
		if (link->failures++ == 0)
			say(link, LLMQ_LOG_WARNING, "the database cannot be reached", link->error);
		wait_to_connect(link);
		return;
	}
	link->conn = link->fresh;
	link->fresh = NULL;
	link->listens = link->fresh_listens;
	if (link->generation++ > 0 || link->failures > 0)
		say(link, LLMQ_LOG_INFO, "connected to the database again", "");
	link->failures = 0;
	if (!link->listens && link->options.pooling == LLMQ_POOLING_UNKNOWN)
		say(link, LLMQ_LOG_WARNING, "the connection goes through a pooler",
			"new jobs are looked for once a second; if the pooler gives each client a session, "
			"--pooler=session lets the database wake this worker");
}

/* ---- In the thread ------------------------------------------------------------------- */

/* Leaves out "options", which a pooler may refuse. */
static void
forget_options(LlmqLink *link)
{
	for (int i = 0; link->keywords[i] != NULL; i++)
	{
		if (strcmp(link->keywords[i], "options") == 0)
			link->values[i] = NULL;
	}
}

static void *
run_thread(void *argument)
{
	LlmqLink *link = argument;

	link->error[0] = '\0';
	link->fresh = PQconnectdbParams(link->keywords, link->values, 1);
	if (PQstatus(link->fresh) != CONNECTION_OK &&
		strstr(PQerrorMessage(link->fresh), UNSUPPORTED) != NULL)
	{
		PQfinish(link->fresh);
		forget_options(link);
		link->fresh = PQconnectdbParams(link->keywords, link->values, 1);
	}
	if (!connect_session(link))
	{
		if (link->error[0] == '\0')
			snprintf(link->error, sizeof(link->error), "%s",
					 link->fresh == NULL ? "out of memory" : PQerrorMessage(link->fresh));
		PQfinish(link->fresh);
		link->fresh = NULL;
	}
	(void) !write(link->pipe[1], "", 1);
	return NULL;
}

/*
 * Runs statements, for SETUP_LIMIT_MS at most; returns the last result if all succeeded, or
 * NULL.
 */
static PGresult *
run_statements(LlmqLink *link, const char *statements)
{
	PGresult *last = NULL;
	PGresult *next;

	if (!PQsendQuery(link->fresh, statements))
		return NULL;
	for (;;)
	{
		struct pollfd ready = {.fd = PQsocket(link->fresh), .events = POLLIN};

		while (!PQisBusy(link->fresh))
		{
			next = PQgetResult(link->fresh);
			if (next == NULL)
				return last;
			PQclear(last);
			last = next;
			if (PQresultStatus(last) == PGRES_FATAL_ERROR)
			{
				snprintf(link->error, sizeof(link->error), "%s", PQresultErrorMessage(last));
				PQclear(last);
				return NULL;
			}
		}
		if (poll(&ready, 1, SETUP_LIMIT_MS) != 1)
			snprintf(link->error, sizeof(link->error), "the server does not answer");
		else if (PQconsumeInput(link->fresh))
			continue;
		PQclear(last);
		return NULL;
	}
}

/* Returns whether the process that serves us is not the one that this connection was told about. */
static bool
goes_through_pooler(LlmqLink *link, bool *known)
{
	PGresult *result = run_statements(link, "SELECT pg_catalog.pg_backend_pid()");
	bool differs = false;

	*known = result != NULL && PQntuples(result) == 1;
	if (*known)
		differs = strtol(PQgetvalue(result, 0, 0), NULL, 10) != PQbackendPID(link->fresh);
	PQclear(result);
	return differs;
}

/* Turns a connection into a session; false if that fails, or there is no connection. */
static bool
connect_session(LlmqLink *link)
{
	bool known;
	PGresult *result;

	if (PQstatus(link->fresh) != CONNECTION_OK)
		return false;
	PQsetNoticeProcessor(link->fresh, hear_notice, link);
	link->fresh_listens = link->options.pooling == LLMQ_POOLING_SESSION;
	if (link->options.pooling == LLMQ_POOLING_UNKNOWN)
	{
		link->fresh_listens = !goes_through_pooler(link, &known);
		if (!known)
			return false;
	}
	if (link->fresh_listens)
	{
		result = run_statements(link, SET_UP_SESSION);
		PQclear(result);
		if (result == NULL)
			return false;
	}
	return PQsetnonblocking(link->fresh, 1) == 0 && PQenterPipelineMode(link->fresh) == 1;
}
