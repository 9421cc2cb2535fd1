/*
 * debug_point.c
 *		Named places where a test can stop a process and kill it.
 *
 * The test kills from outside, with kill(2): an exit() in here would run the
 * callbacks that a real crash does not.
 */
#include "postgres.h"

#ifdef LLMQ_DEBUG_POINTS

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "debug_point.h"

#define LOOK_INTERVAL_MS 5

static char *llmq_debug_point = NULL;

static bool write_pid(const char *path);

void
llmq_debug_point_define(void)
{
	DefineCustomStringVariable("llmq.debug_point", "Stops a process of llmq at a named place.",
							   "For tests of crashes. Empty: nowhere.", &llmq_debug_point, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

void
llmq_debug_point_reach(const char *name)
{
	char path[MAXPGPATH];

	if (llmq_debug_point == NULL || strcmp(llmq_debug_point, name) != 0)
		return;
	snprintf(path, sizeof(path), "%s/llmq_debug_point.%s", DataDir, name);
	if (!write_pid(path))
		return;
	while (access(path, F_OK) == 0)
	{
		/* When the postmaster was the one killed, nobody else would end this process. */
		if (WaitLatch(NULL, WL_TIMEOUT | WL_POSTMASTER_DEATH, LOOK_INTERVAL_MS, PG_WAIT_EXTENSION) &
			WL_POSTMASTER_DEATH)
			_exit(2);
	}
}

static bool
write_pid(const char *path)
{
	char text[32];
	int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	bool written;

	if (file < 0)
		return false;
	snprintf(text, sizeof(text), "%d\n", MyProcPid);
	written = write(file, text, strlen(text)) == (ssize_t) strlen(text);
	close(file);
	return written;
}

#endif /* LLMQ_DEBUG_POINTS */
