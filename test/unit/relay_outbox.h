/*
 * relay_outbox.h
 *		An engine before outbox messages: real webhooks to a server on loopback, and the fake store.
 */
#ifndef RELAY_OUTBOX_H
#define RELAY_OUTBOX_H

#include "fake_engine.h"

/* So many messages of a topic. */
static inline LlmqEngine *
start(const char *topic, int messages)
{
	LlmqEngine *engine = start_engine(receive);

	for (int id = 1; id <= messages; id++)
		add_message(id, topic);
	return engine;
}

static inline void
run_until_settled(LlmqEngine *engine, int messages)
{
	int64_t limit = now_us() + HANG_US;

	while (count(SETTLED) < messages && now_us() < limit)
		turn(engine);
}

#endif /* RELAY_OUTBOX_H */
