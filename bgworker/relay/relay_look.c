/*
 * relay_look.c
 *		How the relay finds out about messages.
 *
 * A look is part of every poll: it reads llmq.message_pending above the tip.  A sweep goes
 * through the topics that have pending messages, from the first to the last, one page with
 * each poll.
 */
#include "relay/relay.h"

#include <stdlib.h>
#include <string.h>

/* Sweeps begin at least this far apart, and take no more than a tenth of the time. */
#define SWEEP_PAUSE_US	   1000000
#define SWEEP_PAUSE_FACTOR 10

/* Returns when the relay needs a poll. */
int64_t
llmq_relay_look_due(const LlmqRelay *relay)
{
	return relay->sweep_wanted || relay->swept_to != NULL ? relay->sweep_next_us : LLMQ_NEVER;
}

static void
begin_sweep(LlmqRelay *relay)
{
	for (int i = 0; i < llmq_config_destination_count(relay->core->config); i++)
	{
		LlmqDestinationState *state = &relay->destinations[i];

		if (state->waiting < state->left_out)
			state->waiting = state->left_out;
		state->swept = state->left_out = state->first_left = 0;
	}
}

static void
end_sweep(LlmqRelay *relay)
{
	for (int i = 0; i < llmq_config_destination_count(relay->core->config); i++)
	{
		LlmqDestinationState *state = &relay->destinations[i];

		/* All topics after the one where it resumed have a place; next come those before it. */
		if (state->resume > 0 && state->first_left == 0)
			relay->sweep_wanted = true;
		state->resume = state->first_left;
		state->waiting = state->left_out;
		state->left_out = 0;
	}
	relay->knows_tip = true;
}

void
llmq_relay_begin_look(LlmqRelay *relay, bool full, LlmqRelayLook *look)
{
	bool begins;

	relay->polling_sweep = (full || relay->sweep_wanted || relay->swept_to != NULL) &&
						   relay->core->now.mono_us >= relay->sweep_next_us;
	begins = relay->polling_sweep && relay->swept_to == NULL;
	if (begins)
		begin_sweep(relay);
	/*
	 * Whoever wakes us may have committed messages with lower ids than others that were seen
	 * before.
	 */
	relay->sweep_wanted = !begins && (relay->sweep_wanted || relay->core->woken);
	look->after = begins ? -1 : relay->tip;
	look->topics_after = begins ? "" : relay->polling_sweep ? relay->swept_to : NULL;
}

/* Handles a poll that failed. */
void
llmq_relay_fail_look(LlmqRelay *relay)
{
	relay->sweep_wanted |= relay->polling_sweep;
}

void
llmq_relay_sweep_afresh(LlmqRelay *relay)
{
	relay->knows_tip = false;
	if (relay->polling_sweep && relay->swept_to == NULL)
		return;
	free(relay->swept_to);
	relay->swept_to = NULL;
	relay->polling_sweep = false;
	relay->sweep_wanted = true;
	relay->sweep_next_us = 0;
}

/* Takes a page of the sweep: topics and their lowest ids, in order. */
static void
take_page(LlmqRelay *relay, const json_t *messages)
{
	const json_t *page = json_object_get(messages, "page");
	int64_t pause = (relay->core->now.mono_us - relay->core->began_us) * SWEEP_PAUSE_FACTOR;
	const char *name = NULL;
	const json_t *entry;
	size_t i;

	json_array_foreach(page, i, entry)
	{
		name = json_string_value(json_array_get(entry, 0));
		llmq_relay_note_topic(relay, name, json_integer_value(json_array_get(entry, 1)), true);
	}
	free(relay->swept_to);
	relay->swept_to = NULL;
	if (json_is_true(json_object_get(messages, "page_full")) && name != NULL)
	{
		relay->swept_to = strdup(name);
		relay->sweep_wanted |= relay->swept_to == NULL; /* out of memory: begin again */
	}
	else
	{
		end_sweep(relay);
		if (pause < SWEEP_PAUSE_US)
			pause = SWEEP_PAUSE_US;
	}
	relay->sweep_next_us = relay->core->now.mono_us + pause;
}

void
llmq_relay_complete_look(LlmqRelay *relay, const json_t *control)
{
	json_t *messages = json_object_get(control, "messages");
	int64_t tip = json_integer_value(json_object_get(messages, "tip"));
	const char *name;
	const json_t *lowest;

	if (control == NULL)
	{
		llmq_relay_fail_look(relay);
		return;
	}
	if (json_is_true(json_object_get(control, "sweep")))
		llmq_relay_sweep_afresh(relay);
	if (relay->polling_sweep)
		take_page(relay, messages);
	if (tip > relay->tip)
		relay->tip = tip;
	json_object_foreach(json_object_get(messages, "topics"), name, lowest)
		llmq_relay_note_topic(relay, name, json_integer_value(lowest), false);
	llmq_relay_rotate(relay);
	llmq_relay_forget_idle(relay);
	if (json_is_true(json_object_get(messages, "more")))
		relay->core->woken = true;
}

void
llmq_relay_forget_tip(LlmqRelay *relay)
{
	relay->tip = 0;
	llmq_relay_sweep_afresh(relay);
}
