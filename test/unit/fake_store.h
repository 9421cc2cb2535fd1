/*
 * fake_store.h
 *		A store in memory with jobs and outbox messages: what it holds, what it was asked, how its
 *		operations end, and a clock that a test moves.
 *
 *		fake_jobs.h		what it answers about jobs, and a provider on loopback
 *		fake_outbox.h	what it answers about messages, and a receiver on loopback
 *		fake_engine.h	its port, and the turns of an engine before it
 *		engine_jobs.h	for tests of jobs: start, run_until_settled
 *		relay_outbox.h	for tests of messages: start, run_until_settled
 *
 * Whoever includes one of them defines _GNU_SOURCE, for http_stub.h.
 */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include "engine/engine_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>

#include "http_stub.h"

#define JOBS_MAX	 300
#define MESSAGES_MAX 60 /* of most tests */
#define STORE_MAX	 100
#define COLUMNS_MAX	 13

/* A job of the store, by its seq: 1..JOBS_MAX. */
typedef struct FakeJob
{
	bool visible; /* its transaction has committed */
	bool claimed;
	bool poison;		/* a claim with it fails */
	bool locked;		/* a claim says that it is not to be had */
	bool spoils;		/* a settle with it fails */
	bool waits;			/* a settle with it runs into a lock */
	int claims;			/* that it was asked for in */
	int settles;		/* that it was in */
	int batch;			/* how many were in the last of them */
	bool raw;			/* one had its response as a string */
	const char *queue;	/* NULL: "q" */
	const char *params; /* or NULL */
	char outcome[16];	/* "": it is not settled */
	char error_class[32];
	char attempt_class[32]; /* of its first attempt */
	char said[32];			/* the text that it ended with */
	int attempts;
} FakeJob;

typedef enum Place
{
	NOWHERE, /* its transaction has not committed */
	PENDING,
	LEASED,
	SETTLED
} Place;

/* A message of the store, by its id: 1..STORE_MAX. */
typedef struct FakeMessage
{
	Place place;
	const char *topic;
	int attempts;
	bool spoils; /* a settle with it fails */
	bool poison; /* a claim of it fails, */
	bool broken; /* or does unless it is doubtful */
	int claims;
	int settles; /* that it was in */
	char outcome[16];
	int64_t delay_us;
	bool disables;
} FakeMessage;

/* For failing: every operation but hello. */
#define ALL_OPERATIONS LLMQ_OPERATIONS

/*
 * Long: all that tests tell the store, and all that it was asked, in one place.
 */
typedef struct FakeStore
{
	LlmqStore port;

	/* What it was asked. */
	LlmqOperation operation; /* under way, or the last one */
	bool under_way;
	int operations[LLMQ_OPERATIONS]; /* begun */
	json_t *params;					 /* of the operation: seqs, entries, topics */
	char said[4096];				 /* by the last DRAW, or jobs in hand by the last RECONCILE */
	char said_messages[256];		 /* messages in hand by the last RECONCILE */
	char reported[1024];			 /* by the last poll with a report */
	int clock_set;					 /* reports that said so */
	int in_flight_said;				 /* by the last heartbeat */
	int metrics;					 /* heartbeats that said what was counted */
	int64_t after;					 /* jobs of the poll under way: those behind this seq; */
	int64_t after_least;			 /* and of all polls since a test set these */
	int64_t after_most;

	/* How its operations end. */
	int failing; /* the operation that fails, as fails says, so often: */
	int failures;
	const char *fails;
	LlmqStoreStatus failure;
	bool loses;					/* the failing operation is done, and its answer lost */
	int lasts[LLMQ_OPERATIONS]; /* looks that the next such operation takes */
	LlmqStoreStatus (*fate)(LlmqRows *rows); /* how the operation ends; NULL: well */
	int64_t poll_cost_us;					 /* time that a poll takes */

	/* The session, and what polls say besides. */
	const char *worker; /* the id that hello gives */
	const char *hello;	/* the state that hello gives */
	const char *state;	/* that full polls tell; NULL until the next hello: the session is gone */
	bool forgotten;		/* heartbeats say until the next hello that the session is gone */
	const char *facts;	/* further members of full polls, with a comma in front */
	bool unreadable;	/* nobody can read what full polls say */
	int configs;		/* versions of the configuration */
	char config[16384]; /* the last one */
	char control[32768];

	/* Jobs. */
	FakeJob jobs[JOBS_MAX + 1];
	bool hands_out; /* claims return jobs; else they are somebody else's by then */
	bool silent;	/* settling says nothing of what it settled */
	int recall;		/* the job that is recalled with the next poll */
	int64_t next_xid;
	int64_t oldest_xid;
	char *tokens; /* that a draw brings, and what it says of the breaker: */
	bool may_probe;
	char *breaker;
	bool refuses_config;		/* nobody can read the configuration of the endpoint "e" */
	const char *of_endpoint;	/* further members of it, with a comma in front */
	const char *of_queue;		/* likewise of the queue "q" */
	const char *more_endpoints; /* a comma, and endpoints */

	/* Messages. */
	FakeMessage messages[STORE_MAX + 1];
	bool busy;		/* another worker has the topic */
	bool endless;	/* there are always more, and a claim is all that they need */
	bool adds;		/* a claim brings a message that nobody asked for */
	bool puts_back; /* what goes back is pending at once */
	bool poisoned;	/* the claim under way met a poisoned message */
	char *body;
	char *failed;  /* what became of messages that a claim has sent; NULL: sent */
	char *verdict; /* settling says this once: of verdict_of, or of the first message */
	int verdict_of;
	int verdict_names; /* and calls it so; 0: by its id */
	int64_t look_after;
	bool sweeps;   /* the poll under way is part of a sweep, */
	bool sweeping; /* and there are further pages, or were when the last one was read */
	char topics_after[24];
	int page_max; /* topics of a page; 0: no limit */
	bool more;	  /* the next look says that there is more */

	/* The destination of topics "hook*". */
	const char *kind;
	bool disabled;
	bool removed; /* it is not configured any more */
	int max_in_flight;
	int backoff_us;
	const char *credential;	 /* or NULL */
	int silent_destinations; /* further ones, "silent<n>" */

	/* Rows of the answer. */
	char text[JOBS_MAX + 1][64];
	char *cells[(JOBS_MAX + 2) * COLUMNS_MAX];
} FakeStore;

static FakeStore store;
static Stub stub; /* the provider, or the receiver */
static char last_log[512];
static int warnings;

/* ---- The clock ---------------------------------------------------------------------------- */

static int64_t moved_us;	  /* how far it was moved forward */
static int64_t wall_moved_us; /* the wall clock, beyond that */
static int64_t stopped_us;	  /* it stands there, but for what it is moved; 0: it runs */

static inline LlmqTime
read_clock(void)
{
	int64_t now = (stopped_us != 0 ? stopped_us : now_us()) + moved_us;

	return (LlmqTime){.mono_us = now, .wall_us = now + wall_moved_us};
}

/* ---- Answers ------------------------------------------------------------------------------ */

static inline void
keep_log(LlmqLogLevel level, const char *message)
{
	if (level != LLMQ_LOG_WARNING)
		return;
	snprintf(last_log, sizeof(last_log), "%s", message);
	warnings++;
}

static inline LlmqStoreStatus
fail(LlmqRows *rows, const char *sqlstate)
{
	snprintf(rows->sqlstate, sizeof(rows->sqlstate), "%s", sqlstate);
	snprintf(rows->error, sizeof(rows->error), "it was to be");
	return LLMQ_STORE_FAILED;
}

/* Has an operation fail so often, FAILED or AWAY; ALL_OPERATIONS: all but hello. */
static inline void
fail_next(int operation, int times, const char *sqlstate, LlmqStoreStatus status)
{
	store.failing = operation;
	store.failures = times;
	store.fails = sqlstate;
	store.failure = status;
	store.loses = false;
}

/* Has the next such operation be done, and its answer be lost. */
static inline void
lose_next(LlmqOperation operation)
{
	fail_next((int) operation, 1, "08006", LLMQ_STORE_AWAY);
	store.loses = true;
}

static inline bool
is_failing(void)
{
	return store.failures > 0 &&
		   (store.failing == (int) store.operation ||
			(store.failing == ALL_OPERATIONS && store.operation != LLMQ_OP_HELLO));
}

/* The operations that were begun, all together. */
static inline int
count_operations(void)
{
	int count = 0;

	for (int i = 0; i < LLMQ_OPERATIONS; i++)
		count += store.operations[i];
	return count;
}

static inline void
append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Adds to a text, as far as there is room. */
static inline void
append(char *text, size_t size, const char *format, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + len, size - len, format, args);
	va_end(args);
}

#define append_config(...)	append(store.config, sizeof(store.config), __VA_ARGS__)
#define append_control(...) append(store.control, sizeof(store.control), __VA_ARGS__)

#endif /* FAKE_STORE_H */
