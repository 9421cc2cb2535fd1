/*
 * log_level.h
 *		Severities of log messages.  The host decides where they are written.
 */
#ifndef LLMQ_LOG_LEVEL_H
#define LLMQ_LOG_LEVEL_H

typedef enum LlmqLogLevel
{
	LLMQ_LOG_DEBUG,
	LLMQ_LOG_INFO,
	LLMQ_LOG_WARNING
} LlmqLogLevel;

#endif /* LLMQ_LOG_LEVEL_H */
