/*
 * machine.h
 *		What both hosts ask of the machine: clocks, open files, chance.
 */
#ifndef LLMQ_MACHINE_H
#define LLMQ_MACHINE_H

#include <stdint.h>

#include "base/clock.h"

/* The engine's clock. */
extern LlmqTime llmq_machine_clock(void);

/*
 * Raises the soft limit of open files to the hard one.  Returns how many connections it
 * allows when `reserved` descriptors are kept for other things: 1 at least, `most` at most.
 */
extern int llmq_machine_connections(int most, int reserved);

/* A number that differs from process to process. */
extern uint64_t llmq_machine_seed(void);

#endif /* LLMQ_MACHINE_H */
