/*
 * hint_fuzz.c
 *		Numbers, durations and dates in which providers say how long to wait.
 *
 * Input: a byte that chooses the unit, the text.
 */
#include "base/retry.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	FuzzInput input = {(const char *) bytes, len};
	int64_t unit = (fuzz_byte(&input) & 1) != 0 ? 1000 : 1000000;
	char *text = fuzz_copy(input.at, input.left);
	int64_t us = -1;
	int64_t same = -1;

	if (llmq_retry_parse_number(text, input.left, unit, &us))
	{
		claim(us >= 0 && us <= LLMQ_RETRY_HINT_BELIEVED_US, "a number is within bounds");
		claim(us % 1000 == 0, "and of whole milliseconds");
	}
	else
		claim(us == -1, "what is no number changes nothing");
	us = -1;
	if (llmq_retry_parse_duration(text, input.left, &us))
	{
		claim(us >= 0 && us <= LLMQ_RETRY_HINT_BELIEVED_US, "a duration is within bounds");
		claim(us % 1000 == 0, "and of whole milliseconds");
	}
	else
		claim(us == -1, "what is no duration changes nothing");
	us = -1;
	if (llmq_retry_parse_http_date(text, input.left, &us))
	{
		claim(us % 1000000 == 0, "a date is of whole seconds");
		claim(llmq_retry_parse_http_date(text, input.left, &same) && same == us,
			  "and always the same");
	}
	else
		claim(us == -1, "what is no date changes nothing");
	free(text);
	return 0;
}
