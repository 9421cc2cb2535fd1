/*
 * reply_hint.c
 *		Finds the retry hint: how long a provider asks us to wait.
 *
 * The places are tried in the order of test/cases/README.md ("Delay").  A value that cannot be
 * read, is negative or absurd is ignored.
 */
#include "dialects/reply_private.h"

#include <string.h>

#include "base/retry.h"

#define US_PER_MS	  INT64_C(1000)
#define US_PER_SECOND INT64_C(1000000)

/* Reads a header as a number of units. */
static bool
read_number(const LlmqReply *reply, LlmqHeader header, int64_t unit_us, int64_t *us)
{
	const char *value = reply->headers[header];

	return value != NULL && llmq_retry_parse_number(value, strlen(value), unit_us, us);
}

int64_t
llmq_reply_retry_hint(const LlmqReply *reply, int64_t now_us)
{
	int64_t us;

	if (read_number(reply, LLMQ_HEADER_RETRY_AFTER_MS, US_PER_MS, &us))
		return us;
	if (llmq_retry_parse_after(reply->headers[LLMQ_HEADER_RETRY_AFTER],
							   reply->headers[LLMQ_HEADER_DATE], now_us, &us))
		return us;
	if (reply->error.found && reply->error.hint_us >= 0)
		return reply->error.hint_us;
	return reply->status == 429 ? llmq_reply_exhausted(reply) : -1;
}

/*
 * Looks at the resets of the kinds of which nothing remains; the others do not mean that we
 * must wait.
 */
int64_t
llmq_reply_exhausted(const LlmqReply *reply)
{
	static const struct
	{
		LlmqHeader remaining;
		LlmqHeader reset;
	} kinds[] = {
		{LLMQ_HEADER_REMAINING_REQUESTS, LLMQ_HEADER_RESET_REQUESTS},
		{LLMQ_HEADER_REMAINING_TOKENS, LLMQ_HEADER_RESET_TOKENS},
	};
	int64_t longest = -1;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		const char *reset = reply->headers[kinds[i].reset];
		int64_t remaining;
		int64_t us;

		if (reset == NULL || !read_number(reply, kinds[i].remaining, US_PER_SECOND, &remaining) ||
			remaining != 0)
			continue;
		if ((read_number(reply, kinds[i].reset, US_PER_SECOND, &us) ||
			 llmq_retry_parse_duration(reset, strlen(reset), &us)) &&
			us > longest)
			longest = us;
	}
	return longest;
}

/*
 * Reads how long it takes until a full limit is available again: a duration, or a time by our
 * clock or the answer's.
 */
static bool
read_reset(const LlmqReply *reply, LlmqHeader header, int64_t now_us, int64_t *us)
{
	const char *value = reply->headers[header];
	int64_t date = now_us;

	if (value == NULL)
		return false;
	if (read_number(reply, header, US_PER_SECOND, us) ||
		llmq_retry_parse_duration(value, strlen(value), us))
		return true;
	if (!llmq_retry_parse_timestamp(value, strlen(value), us))
		return false;
	if (reply->headers[LLMQ_HEADER_DATE] != NULL)
		(void) llmq_retry_parse_http_date(reply->headers[LLMQ_HEADER_DATE],
										  strlen(reply->headers[LLMQ_HEADER_DATE]), &date);
	*us = *us > date ? *us - date : 0;
	return *us <= LLMQ_RETRY_HINT_BELIEVED_US;
}

void
llmq_reply_left(const LlmqReply *reply, LlmqVerdict *verdict, int64_t now_us)
{
	int64_t input = verdict->input_tokens > 0 ? verdict->input_tokens : 1;
	int64_t output = verdict->output_tokens > 0 ? verdict->output_tokens : 0;
	const struct
	{
		LlmqHeader remaining;
		LlmqHeader reset;
		int64_t of_a_call;
	} kinds[] = {
		{LLMQ_HEADER_REMAINING_REQUESTS, LLMQ_HEADER_RESET_REQUESTS, 1},
		{LLMQ_HEADER_REMAINING_TOKENS, LLMQ_HEADER_RESET_TOKENS, input + output},
		{LLMQ_HEADER_ANTHROPIC_REQUESTS, LLMQ_HEADER_ANTHROPIC_REQUESTS_RESET, 1},
		{LLMQ_HEADER_ANTHROPIC_TOKENS, LLMQ_HEADER_ANTHROPIC_TOKENS_RESET, input + output},
		{LLMQ_HEADER_ANTHROPIC_INPUT, LLMQ_HEADER_ANTHROPIC_INPUT_RESET, input},
		{LLMQ_HEADER_ANTHROPIC_OUTPUT, LLMQ_HEADER_ANTHROPIC_OUTPUT_RESET, output + 1},
	};

	verdict->left_calls = -1;
	verdict->left_for_us = 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		int64_t remaining;
		int64_t reset;

		/* The count is read in millionths, like a duration. */
		if (!read_number(reply, kinds[i].remaining, US_PER_SECOND, &remaining) ||
			!read_reset(reply, kinds[i].reset, now_us, &reset))
			continue;
		remaining = remaining / US_PER_SECOND / kinds[i].of_a_call;
		/* The slowest pace counts. */
		if (verdict->left_calls < 0 || (double) reset * (double) (verdict->left_calls + 1) >
										   (double) verdict->left_for_us * (double) (remaining + 1))
		{
			verdict->left_calls = remaining;
			verdict->left_for_us = reset;
		}
	}
}
