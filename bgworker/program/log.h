/*
 * log.h
 *		The program's log: lines on stderr, as text or as JSON.
 */
#ifndef LLMQ_LOG_H
#define LLMQ_LOG_H

#include <stdbool.h>

#include "base/log_level.h"

/*
 * Sets the format of lines, and the least level that is written.  name is that of the worker,
 * and must stay valid.
 */
extern void llmq_log_open(const char *name, bool json, LlmqLogLevel least);

/* Writes one line, without buffering. */
extern void llmq_log_write(LlmqLogLevel level, const char *message);

#endif /* LLMQ_LOG_H */
