/*
 * engine_jobs.h
 *		An engine before jobs: real calls to a server on loopback, and the fake store.
 */
#ifndef ENGINE_JOBS_H
#define ENGINE_JOBS_H

#include "fake_engine.h"

static inline LlmqEngine *
start(bool hands_out, int jobs)
{
	LlmqEngine *engine = start_engine(answer);

	store.hands_out = hands_out;
	show_jobs(1, jobs);
	return engine;
}

static inline void
run_until_settled(LlmqEngine *engine, int jobs)
{
	int64_t limit = now_us() + HANG_US;
	int settled = 0;

	while (settled < jobs && now_us() < limit)
	{
		turn(engine);
		settled = 0;
		for (int i = 1; i <= JOBS_MAX; i++)
			settled += store.jobs[i].outcome[0] != '\0';
	}
}

#endif /* ENGINE_JOBS_H */
