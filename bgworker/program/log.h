/*
 * log.h
 *		The program's log: lines on stderr, as text or as JSON.
 */
#ifndef LLMQ_LOG_H
#define LLMQ_LOG_H

#include <stdbool.h>

#include "base/log_level.h"

/* Says how lines look and which are left out; name is the worker's, and must outlive all. */
extern void llmq_log_open(const char *name, bool json, LlmqLogLevel least);

/* Writes one line, at once. */
extern void llmq_log_write(LlmqLogLevel level, const char *message);

#endif /* LLMQ_LOG_H */
