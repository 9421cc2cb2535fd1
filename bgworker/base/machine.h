/*
 * machine.h
 *		What both hosts ask of the machine: clocks, open files, randomness.
 */
#ifndef LLMQ_MACHINE_H
#define LLMQ_MACHINE_H

#include <stdint.h>

#include "base/clock.h"

/* Returns the time that the engine is given. */
extern LlmqTime llmq_machine_clock(void);

/*
 * Raises the soft limit of open files to the hard one.  Returns how many connections that
 * allows when `reserved` descriptors are kept for other uses: at least 1, at most `most`.
 */
extern int llmq_machine_connections(int most, int reserved);

/* Returns a number that differs from process to process. */
extern uint64_t llmq_machine_seed(void);

#endif /* LLMQ_MACHINE_H */
