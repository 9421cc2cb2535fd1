/*
 * main.c
 *		The engine's host outside of the server: llmq-worker.
 *
 * It waits for the engine's descriptor and the database's socket, and gives both their turns.
 * Signals are blocked except while it waits, so no thread of libcurl or libpq ever runs a
 * handler.  When it is told to end, it drains: nothing more is claimed, calls under way may
 * finish within a time limit, and everything else is given back at once.  After the limit, or
 * when it is told again, it ends the calls.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "base/hmac.h"
#include "program/log.h"
#include "base/machine.h"
#include "program/metric_server.h"
#include "program/options.h"
#include "program/store_libpq.h"

/* Descriptors for the log, the database, name servers, secrets, and readers of metrics. */
#define RESERVED_FILES 64

/* The poll interval of a worker without a session of its own, which nobody can wake. */
#define UNHEARD_POLL_US 1000000

/* How long a worker may take to give back what it has, after its calls were ended. */
#define STOP_LIMIT_US 5000000

/* With --once: how long the database may be away before the program ends. */
#define ONCE_LIMIT_US 10000000

typedef struct Program
{
	LlmqOptions options;
	LlmqLink *link;
	LlmqStore *store;
	LlmqEngine *engine;
	LlmqMetricServer *metrics; /* or NULL */
	int connections;		   /* what the limit of open files allows */
	bool heard;				   /* the database can wake this worker */
	int told;				   /* how many times it was told to end */
	int64_t stop_at_us;		   /* when calls are ended; INT64_MAX: it was not told to end */
	int64_t exit_at_us;		   /* when it ends, whatever is left */
	int64_t began_us;
} Program;

static volatile sig_atomic_t signals = 0;
static bool changed = false; /* the database has announced a change */

static void
note_signal(int number)
{
	signals++;
}

static void
install_signals(sigset_t *waiting)
{
	struct sigaction action = {.sa_handler = note_signal};
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigprocmask(SIG_BLOCK, &ours, waiting);
	sigdelset(waiting, SIGTERM);
	sigdelset(waiting, SIGINT);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static bool
take_changed(void)
{
	bool was = changed;

	changed = false;
	return was;
}

/* ---- Start --------------------------------------------------------------------------- */

static LlmqEngineOptions
engine_options(const Program *program)
{
	const LlmqOptions *options = &program->options;
	int64_t poll_us = options->poll_interval_us;

	if (!program->heard && poll_us > UNHEARD_POLL_US)
		poll_us = UNHEARD_POLL_US;
	return (LlmqEngineOptions){.name = options->name,
							   .kind = "program",
							   .pid = "0", /* the database identifies it by its session */
							   .max_in_flight = options->max_in_flight,
							   .max_connections = program->connections,
							   .poll_interval_us = poll_us,
							   .secrets_directory = options->secrets_directory,
							   .user_agent = "llmq/" LLMQ_VERSION,
							   .seed = llmq_machine_seed(),
							   .hmac = llmq_hmac_sha256,
							   .clock = llmq_machine_clock,
							   .log = llmq_log_write,
							   .changed = take_changed,
							   .queues = options->queue_count > 0 ? options->queues : NULL,
							   .heartbeat_idle = !program->heard};
}

static bool
write_metrics(void *context, LlmqBuffer *text)
{
	const Program *program = context;

	return llmq_engine_write_metrics(program->engine, text);
}

/* Starts to serve metrics, if asked to.  This comes first, because it may fail. */
static LlmqExit
start_metrics(Program *program)
{
	char place[256];
	char line[sizeof(place) + 32];

	if (program->options.metrics.length == 0)
		return LLMQ_EXIT_DONE;
	program->metrics = llmq_metric_server_start(&program->options.metrics, write_metrics, program,
												place, sizeof(place));
	if (program->metrics == NULL)
	{
		fprintf(stderr, "llmq-worker: %s\n", place);
		return LLMQ_EXIT_MACHINE;
	}
	snprintf(line, sizeof(line), "metrics are at %s", place);
	llmq_log_write(LLMQ_LOG_INFO, line);
	return LLMQ_EXIT_DONE;
}

static LlmqExit
start(Program *program)
{
	static const LlmqPooling pooling[] = {[LLMQ_POOLER_AUTO] = LLMQ_POOLING_UNKNOWN,
										  [LLMQ_POOLER_SESSION] = LLMQ_POOLING_SESSION,
										  [LLMQ_POOLER_TRANSACTION] = LLMQ_POOLING_TRANSACTION};
	LlmqLinkOptions link = {.conninfo = program->options.conninfo,
							.name = program->options.name,
							.pooling = pooling[program->options.pooler],
							.seed = llmq_machine_seed(),
							.log = llmq_log_write};
	LlmqEngineOptions options;
	char line[128];
	char error[512] = "out of memory";

	program->connections = llmq_machine_connections(program->options.max_in_flight, RESERVED_FILES);
	if (program->connections < program->options.max_in_flight)
	{
		snprintf(line, sizeof(line),
				 "at most %d calls at once instead of %d: the limit of open files is %d",
				 program->connections, program->options.max_in_flight,
				 program->connections + RESERVED_FILES);
		llmq_log_write(LLMQ_LOG_WARNING, line);
	}
	program->link = llmq_link_create(&link, error, sizeof(error));
	if (program->link == NULL)
	{
		fprintf(stderr, "llmq-worker: %s\n", error);
		return LLMQ_EXIT_USAGE;
	}
	options = engine_options(program);
	program->store = llmq_store_libpq_create(program->link);
	if (program->store != NULL)
		program->engine = llmq_engine_create(&options, program->store, error, sizeof(error));
	if (program->engine != NULL)
		return LLMQ_EXIT_DONE;
	fprintf(stderr, "llmq-worker: %s\n", error);
	return LLMQ_EXIT_MACHINE;
}

/* ---- Turns --------------------------------------------------------------------------- */

static int64_t
sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void
wait_for_something(Program *program, const sigset_t *waiting)
{
	int64_t now = llmq_machine_clock().mono_us;
	int64_t span =
		sooner(llmq_engine_timeout(program->engine), llmq_store_libpq_timeout(program->store));
	struct timespec timeout;
	struct pollfd ready[3];
	bool writes;

	span = sooner(span, llmq_metric_server_timeout(program->metrics));
	span = sooner(span, sooner(program->stop_at_us, program->exit_at_us) - now);
	if (program->options.once)
		span = sooner(span, UNHEARD_POLL_US);
	if (span < 0)
		span = 0;
	timeout = (struct timespec){span / 1000000, span % 1000000 * 1000};
	ready[0] = (struct pollfd){.fd = llmq_engine_fd(program->engine), .events = POLLIN};
	ready[1] = (struct pollfd){.fd = llmq_store_libpq_fd(program->store, &writes)};
	ready[1].events = writes ? POLLIN | POLLOUT : POLLIN;
	ready[2] = (struct pollfd){.fd = llmq_metric_server_fd(program->metrics),
							   .events = POLLIN}; /* or -1 */
	(void) ppoll(ready, 3, &timeout, waiting);
}

/*
 * Adapts to whether the session listens for notifications, which may change with each
 * connection.
 */
static void
hear_database(Program *program)
{
	int news = llmq_store_libpq_dispatch(program->store);
	bool heard = llmq_link_listens(program->link) || llmq_link_connection(program->link) == NULL;
	LlmqEngineOptions options;

	if ((news & LLMQ_NEWS_CHANGED) != 0)
		changed = true;
	if (news != 0)
		llmq_engine_wake(program->engine);
	if (heard == program->heard)
		return;
	program->heard = heard;
	options = engine_options(program);
	if (!llmq_engine_configure(program->engine, &options))
		llmq_log_write(LLMQ_LOG_WARNING, "out of memory");
}

static void
begin_to_end(Program *program, int64_t now)
{
	program->stop_at_us = now + program->options.drain_us;
	program->exit_at_us = program->stop_at_us + STOP_LIMIT_US;
	llmq_engine_drain(program->engine);
}

static void
obey_signals(Program *program)
{
	int64_t now = llmq_machine_clock().mono_us;
	int told = signals;

	if (told > program->told && program->told == 0)
	{
		llmq_log_write(LLMQ_LOG_INFO, "told to end: calls under way may finish");
		begin_to_end(program, now);
	}
	if (told > 1 && program->told < 2)
		program->stop_at_us = now;
	program->told = told;
	if (now < program->stop_at_us || llmq_engine_state(program->engine) >= LLMQ_ENGINE_STOPPING)
		return;
	llmq_log_write(LLMQ_LOG_INFO, "calls that are still under way are ended");
	program->exit_at_us = now + STOP_LIMIT_US;
	llmq_engine_stop(program->engine);
}

/* Checks whether there is a reason to end without being told. */
static void
look_around(Program *program)
{
	int64_t now = llmq_machine_clock().mono_us;

	if (program->options.once && program->stop_at_us == INT64_MAX &&
		llmq_engine_is_idle(program->engine))
		begin_to_end(program, now);
	if (llmq_engine_state(program->engine) == LLMQ_ENGINE_OUTDATED)
		program->exit_at_us = now;
	else if (program->options.once && llmq_engine_state(program->engine) != LLMQ_ENGINE_RUNNING &&
			 now - program->began_us > ONCE_LIMIT_US)
		program->exit_at_us = sooner(program->exit_at_us, now);
}

static LlmqExit
run(Program *program, const sigset_t *waiting)
{
	while (llmq_engine_state(program->engine) != LLMQ_ENGINE_STOPPED)
	{
		wait_for_something(program, waiting);
		obey_signals(program);
		hear_database(program);
		llmq_engine_dispatch(program->engine);
		llmq_metric_server_dispatch(program->metrics);
		look_around(program);
		if (llmq_machine_clock().mono_us >= program->exit_at_us)
			return llmq_engine_state(program->engine) == LLMQ_ENGINE_OUTDATED ? LLMQ_EXIT_OUTDATED
																			  : LLMQ_EXIT_AWAY;
	}
	return llmq_engine_store_failing(program->engine) ? LLMQ_EXIT_AWAY : LLMQ_EXIT_DONE;
}

int
main(int argc, char **argv)
{
	Program program = {.stop_at_us = INT64_MAX, .exit_at_us = INT64_MAX, .heard = true};
	sigset_t waiting;
	LlmqExit status;

	if (!llmq_options_read(&program.options, argc, argv, &status))
		return (int) status;
	llmq_log_open(program.options.name, program.options.log_json, program.options.log_level);
	install_signals(&waiting);
	program.began_us = llmq_machine_clock().mono_us;
	status = start_metrics(&program);
	if (status == LLMQ_EXIT_DONE)
		status = start(&program);
	if (status == LLMQ_EXIT_DONE)
		status = run(&program, &waiting);
	llmq_metric_server_stop(program.metrics);
	llmq_engine_destroy(program.engine);
	llmq_store_libpq_destroy(program.store);
	/* What a thread that is still connecting uses must not be freed. */
	if (program.link != NULL && !llmq_link_destroy(program.link))
		_exit((int) status);
	return (int) status;
}
