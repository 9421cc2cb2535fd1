/*
 * launcher.h
 *		The launcher: the one process that starts the workers of all databases.
 */
#ifndef LLMQ_LAUNCHER_H
#define LLMQ_LAUNCHER_H

/* Registers the launcher with the server that is starting; called from _PG_init. */
extern void llmq_launcher_register(void);

/*
 * Starts a launcher if none runs; false, with a WARNING, if the server has no process left.
 * Throws nothing after llmq_shared_attach().
 */
extern bool llmq_launcher_ensure(void);

extern PGDLLEXPORT void llmq_launcher_main(Datum argument);

#endif /* LLMQ_LAUNCHER_H */
