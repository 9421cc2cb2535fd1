/*
 * breaker_test.c
 *		When a breaker opens, who may try the endpoint again, and when it closes.
 */
#include "limits/breaker.h"
#include "tap.h"

#define S	 INT64_C(1000000)
#define HOUR (3600 * S)

static const int64_t now = 1000 * S;
static const int64_t cooldown = 30 * S;

/* So few calls that their share says nothing. */
static void
test_row(void)
{
	LlmqBreaker breaker = {0};
	bool opened = false;

	for (int i = 0; i < 4; i++)
		opened = opened || llmq_breaker_note(&breaker, true, 5, now);
	ok(!opened, "four failures are not five");
	ok(llmq_breaker_note(&breaker, true, 5, now), "the fifth in a row opens");
	llmq_breaker_clear(&breaker);
	for (int i = 0; i < 4; i++)
		opened = opened || llmq_breaker_note(&breaker, true, 5, now);
	ok(!opened, "what was forgotten does not count");
	llmq_breaker_note(&breaker, false, 5, now);
	for (int i = 0; i < 4; i++)
		opened = opened || llmq_breaker_note(&breaker, true, 5, now + S);
	ok(!opened, "a success in between begins the row anew");
	llmq_breaker_clear(&breaker);
	ok(llmq_breaker_note(&breaker, true, 1, now + S), "a limit of one opens with the first");
}

/* Whether it ever opens in an hour of calls, three a second, of which a share fails, never two in a
 * row more than the share makes necessary. */
static bool
opens_in_an_hour(int failing, int of)
{
	LlmqBreaker breaker = {0};
	int count = 0;

	for (int64_t at = now; at < now + HOUR; at += S / 3)
		if (llmq_breaker_note(&breaker, count++ % of < failing, 5, at))
			return true;
	return false;
}

static void
test_minute(void)
{
	LlmqBreaker breaker = {0};
	int64_t at = now;

	ok(!opens_in_an_hour(1, 3), "one of three calls of an hour may fail");
	ok(!opens_in_an_hour(2, 5), "two of five may");
	ok(opens_in_an_hour(3, 5), "three of five are a majority");
	for (int i = 0; i < 8; i++)
		llmq_breaker_note(&breaker, i % 3 != 0, 5, at);
	at += 61 * S;
	llmq_breaker_note(&breaker, false, 5, at);
	ok(!llmq_breaker_note(&breaker, true, 5, at), "what is older than a minute does not count");
}

static void
test_mark(void)
{
	LlmqBreakerMark mark = {0};
	int64_t turns;

	ok(!llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now),
	   "closed: there is nothing to probe");
	llmq_breaker_take(&mark, LLMQ_BREAKER_FAILED, cooldown, now);
	is_int(mark.state, LLMQ_BREAKER_OPEN, "a worker with too many failures opens it for all");
	is_int(mark.until_us, now + cooldown, "for the cooldown");
	llmq_breaker_take(&mark, LLMQ_BREAKER_FAILED, cooldown, now + 20 * S);
	is_int(mark.until_us, now + cooldown, "calls that were under way do not prolong it");
	ok(!llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now + 29 * S),
	   "no probe before its end");
	ok(llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now + 30 * S), "then one");
	ok(!llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now + 31 * S), "and one only");
	is_int(mark.state, LLMQ_BREAKER_HALF_OPEN, "meanwhile it is half-open");
	llmq_breaker_take(&mark, LLMQ_BREAKER_FAILED, cooldown, now + 40 * S);
	is_int(mark.until_us, now + 70 * S, "a probe that fails opens it for another cooldown");
	is_int(mark.opened_us, now, "and it is known since when");
	ok(llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now + 70 * S),
	   "after which one may try again");
	ok(llmq_breaker_take(&mark, LLMQ_BREAKER_MAY_PROBE, cooldown, now + 131 * S),
	   "a probe that never came back is another's");
	turns = mark.turns;
	llmq_breaker_take(&mark, LLMQ_BREAKER_WORKED, cooldown, now + 132 * S);
	is_int(mark.state, LLMQ_BREAKER_CLOSED, "one that works closes it");
	ok(mark.turns > turns, "each change of state is a turn");
}

int
main(void)
{
	test_row();
	test_minute();
	test_mark();
	return tap_done();
}
