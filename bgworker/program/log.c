/*
 * log.c
 *		The program's log: lines on stderr, as text or as JSON.
 *
 * Each line is written at once, so that lines of several processes do not mix.
 */
#include "program/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "json/json_write.h"
#include "base/machine.h"
#include "base/text.h"

#define LINE_MAX_BYTES 8192

static struct
{
	const char *name;
	bool json;
	LlmqLogLevel least;
} settings = {.name = "llmq-worker", .least = LLMQ_LOG_INFO};

static const char *const level_names[] = {
	[LLMQ_LOG_DEBUG] = "debug",
	[LLMQ_LOG_INFO] = "info",
	[LLMQ_LOG_WARNING] = "warning",
};

void
llmq_log_open(const char *name, bool json, LlmqLogLevel least)
{
	settings.name = name;
	settings.json = json;
	settings.least = least;
}

/* Formats the time as in RFC 3339, in UTC. */
static void
format_time(char *text, size_t size)
{
	int64_t now = llmq_machine_clock().wall_us;
	time_t seconds = (time_t) (now / 1000000);
	struct tm parts;
	size_t length;

	gmtime_r(&seconds, &parts);
	length = strftime(text, size, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text + length, size - length, ".%03dZ", (int) (now / 1000 % 1000));
}

void
llmq_log_write(LlmqLogLevel level, const char *message)
{
	char when[40];
	LlmqBuffer line;

	if (level < settings.least)
		return;
	format_time(when, sizeof(when));
	llmq_buffer_init(&line, LINE_MAX_BYTES);
	if (settings.json)
	{
		llmq_write_open(&line, '{');
		llmq_write_member_text(&line, "time", when);
		llmq_write_member_text(&line, "level", level_names[level]);
		llmq_write_member_text(&line, "worker", settings.name);
		llmq_write_member_text(&line, "message", message);
		llmq_write_close(&line, '}');
	}
	else
		llmq_buffer_printf(&line, "%s %s: %s", when, level_names[level], message);
	llmq_buffer_append_char(&line, '\n');
	if (line.len > 0)
		(void) !write(STDERR_FILENO, line.data, line.len);
	llmq_buffer_free(&line);
}
