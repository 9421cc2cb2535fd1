/*
 * core.h
 *		What the clients of the engine share: jobs (jobs/jobs.h) and the relay (relay/relay.h).
 *
 * A client has work under leases: it looks for work, claims it, makes transfers for it and
 * settles it.  The clients know the core, but not each other.  The engine (engine/agenda.c)
 * knows all of them, and decides whose store operation is next.
 */
#ifndef LLMQ_CORE_H
#define LLMQ_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/retry.h"
#include "core/config.h"
#include "core/engine_options.h"
#include "core/metric.h"
#include "core/store.h"
#include "transfer/transfer.h"

/* Long enough for any integer in decimal. */
#define LLMQ_NUMBER_LENGTH 24

typedef struct LlmqCore
{
	LlmqEngineOptions options;
	LlmqEngineState state;
	LlmqTime now;
	LlmqRandom random;
	LlmqTransferPool *transfers;
	const LlmqConfig *config; /* NULL until the first full poll */
	LlmqMetrics metrics;
	char worker_id[LLMQ_NUMBER_LENGTH];

	/* The store: one operation at a time. */
	LlmqStore *store;
	bool operating; /* an operation is under way */
	LlmqOperation operation;
	LlmqOperation last_claim; /* LLMQ_OP_CLAIM and LLMQ_OP_CLAIM_MESSAGES take turns */
	int64_t began_us;
	int64_t store_at_us; /* after a failure: nothing before this */
	int store_failures;	 /* in a row */

	/* What the clients need from the next operations. */
	int64_t hello_at_us;
	bool woken;				 /* a poll is wanted now */
	int64_t full_poll_at_us; /* the next poll that looks at everything */
	int64_t last_full_poll_us;
	bool config_doubted; /* the next full poll reads the configuration even if it seems unchanged */
	bool heartbeat_shows_work; /* the last one said in_flight > 0, or leases came since */
	int64_t sure_us;		   /* when, at the latest, the database last saw a sign of life */
	int64_t reconcile_at_us;   /* when unknown leases are given back, or LLMQ_NEVER */
	bool reconcile_again;	   /* and once more later */
} LlmqCore;

/* Logs a line, truncated to about 1,200 bytes. */
extern void llmq_core_log(LlmqCore *core, LlmqLogLevel level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Begins an operation of the store; params are read before it returns. */
extern void llmq_core_begin(LlmqCore *core, LlmqOperation operation, const char *const *params);

/* Returns how many microseconds to wait after so many failures in a row. */
extern int64_t llmq_core_backoff(LlmqCore *core, int failures);

/* Makes the next full poll come at when_us at the latest. */
extern void llmq_core_poll_by(LlmqCore *core, int64_t when_us);

/*
 * Makes the worker say hello again, unless it is about to leave, because the database no
 * longer knows its session.
 */
extern void llmq_core_start_again(LlmqCore *core);

/*
 * Handles a connection that broke during a claim.  The worker may own leases that it does not
 * know, and as long as it lives no other worker may take them.  They are asked for at once, and
 * again when a claim that the server was still executing must have ended.
 */
extern void llmq_core_doubt_claim(LlmqCore *core);

/* Has a lease given back soon, because what was claimed does not fit into memory. */
extern void llmq_core_miss_lease(LlmqCore *core);

#endif /* LLMQ_CORE_H */
