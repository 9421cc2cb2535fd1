/*
 * core.c
 *		What the clients of the engine share.
 */
#include "core/core.h"

#include <stdarg.h>
#include <stdio.h>

#define BACKOFF_FIRST_US 100000
#define BACKOFF_MAX_US	 5000000

/*
 * After this time a lease without room in memory is given back; there may be memory again by
 * then.
 */
#define MISSED_WAIT_US 1000000

#define LOG_LINE_MAX 1200

void
llmq_core_log(LlmqCore *core, LlmqLogLevel level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	core->options.log(level, line);
}

void
llmq_core_begin(LlmqCore *core, LlmqOperation operation, const char *const *params)
{
	core->operating = true;
	core->operation = operation;
	core->began_us = core->now.mono_us;
	if (operation == LLMQ_OP_CLAIM || operation == LLMQ_OP_CLAIM_MESSAGES)
		core->last_claim = operation;
	core->store->begin(core->store, operation, params);
}

int64_t
llmq_core_backoff(LlmqCore *core, int failures)
{
	return BACKOFF_FIRST_US / 2 +
		   llmq_retry_backoff(&core->random, BACKOFF_FIRST_US, BACKOFF_MAX_US, failures);
}

void
llmq_core_poll_by(LlmqCore *core, int64_t when_us)
{
	if (core->full_poll_at_us > when_us)
		core->full_poll_at_us = when_us;
}

void
llmq_core_start_again(LlmqCore *core)
{
	if (core->state >= LLMQ_ENGINE_DRAINING)
		return;
	core->state = LLMQ_ENGINE_STARTING;
	core->hello_at_us = core->now.mono_us;
}

void
llmq_core_doubt_claim(LlmqCore *core)
{
	core->reconcile_at_us = core->now.mono_us;
	core->reconcile_again = true;
}

void
llmq_core_miss_lease(LlmqCore *core)
{
	if (core->reconcile_at_us > core->now.mono_us + MISSED_WAIT_US)
		core->reconcile_at_us = core->now.mono_us + MISSED_WAIT_US;
}
