/*
 * debug_point.c
 *		Named points where a test can stop a process and kill it.
 *
 * The test kills from outside, with kill(2), because an exit() here would run callbacks that
 * do not run after a real crash.
 */
#include "postgres.h"

#ifdef LLMQ_DEBUG_POINTS

#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "debug_point.h"

#define LOOK_INTERVAL_MS 5

static void write_pid(const char *path);

void
llmq_debug_point_reach(const char *format, ...)
{
	char name[NAMEDATALEN];
	char armed[MAXPGPATH];
	char reached[MAXPGPATH];
	va_list args;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	snprintf(armed, sizeof(armed), "%s/llmq_debug_point.%s", DataDir, name);
	snprintf(reached, sizeof(reached), "%s.reached", armed);
	/* If several processes come by, only one succeeds. */
	if (rename(armed, reached) != 0)
		return;
	write_pid(reached);
	while (access(reached, F_OK) == 0)
	{
		/* If the postmaster was killed, nothing else would end this process. */
		if (WaitLatch(NULL, WL_TIMEOUT | WL_POSTMASTER_DEATH, LOOK_INTERVAL_MS, PG_WAIT_EXTENSION) &
			WL_POSTMASTER_DEATH)
			_exit(2);
	}
}

static void
write_pid(const char *path)
{
	char text[32];
	int file = open(path, O_WRONLY, 0);

	snprintf(text, sizeof(text), "%d\n", MyProcPid);
	if (file < 0 || write(file, text, strlen(text)) != (ssize_t) strlen(text))
		elog(WARNING, "could not write \"%s\": %m", path);
	if (file >= 0)
		close(file);
}

#endif /* LLMQ_DEBUG_POINTS */
