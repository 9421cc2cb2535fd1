/*
 * machine.c
 *		What both hosts ask of the machine: clocks, open files, randomness.
 */
#include "base/machine.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int64_t
microseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

LlmqTime
llmq_machine_clock(void)
{
	return (LlmqTime){microseconds(CLOCK_MONOTONIC), microseconds(CLOCK_REALTIME)};
}

int
llmq_machine_connections(int most, int reserved)
{
	struct rlimit limit;
	struct rlimit raised;
	rlim_t files = (rlim_t) most + (rlim_t) reserved;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return most;
	raised = (struct rlimit){limit.rlim_max, limit.rlim_max};
	if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
		limit = raised;
	if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < files)
		files = limit.rlim_cur;
	return files > (rlim_t) reserved ? (int) (files - (rlim_t) reserved) : 1;
}

uint64_t
llmq_machine_seed(void)
{
	LlmqTime now = llmq_machine_clock();
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t) sizeof(seed))
		seed = (uint64_t) now.wall_us ^ ((uint64_t) getpid() << 32);
	return seed;
}
