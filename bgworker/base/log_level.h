/*
 * log_level.h
 *		How much what is logged matters.  Where it is written, the host knows.
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
