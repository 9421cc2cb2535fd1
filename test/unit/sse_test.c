/*
 * sse_test.c
 *		Streams are split into the same frames however they arrive.
 */
#include "wire/sse.h"
#include "tap.h"

#define FRAMES_MAX 4096

typedef struct Seen
{
	char text[FRAMES_MAX]; /* the frames as [a][b], a cut one as (c) */
	size_t len;
	int wanted; /* frames to take */
} Seen;

static bool
take(void *user, char *data, size_t len, bool whole)
{
	Seen *seen = user;

	seen->len += (size_t) snprintf(seen->text + seen->len, sizeof(seen->text) - seen->len,
								   whole ? "[%.*s]" : "(%.*s)", (int) len, data);
	return --seen->wanted > 0;
}

static void
split(const char *body, bool json_lines, size_t portion, int wanted, Seen *seen)
{
	size_t len = strlen(body);
	LlmqSse sse;

	memset(seen, 0, sizeof(*seen));
	seen->wanted = wanted;
	llmq_sse_init(&sse, json_lines, 1000, take, seen);
	for (size_t at = 0; at < len; at += portion)
	{
		if (!llmq_sse_feed(&sse, body + at, len - at < portion ? len - at : portion))
		{
			llmq_sse_free(&sse);
			return;
		}
	}
	llmq_sse_end(&sse);
	llmq_sse_free(&sse);
}

static void
frames_are(const char *body, bool json_lines, const char *expected, const char *sentence)
{
	size_t wrong = 0;
	Seen seen;

	for (size_t portion = 1; portion <= strlen(body) + 1 && wrong == 0; portion++)
	{
		split(body, json_lines, portion, 1000, &seen);
		if (strcmp(seen.text, expected) != 0)
			wrong = portion;
	}
	if (!ok(wrong == 0, "%s", sentence))
		printf("#      got: %s (in portions of %zu)\n# expected: %s\n", seen.text, wrong, expected);
}

static void
test_events(void)
{
	frames_are("data: a\n\ndata: b\n\n", false, "[a][b]", "events end at an empty line");
	frames_are("data: a\r\rdata: b\r\r", false, "[a][b]", "lines may end in CR");
	frames_are("data: a\r\n\r\ndata: b\r\n\r\n", false, "[a][b]", "lines may end in CR LF");
	frames_are("data: a\r\n\ndata: b\n\r\n", false, "[a][b]", "line ends may be mixed");
	frames_are("data: a\r\ndata: b\r\n\r\n", false, "[a\nb]",
			   "a CR and its LF end one line, though they come apart");
	frames_are("data:a\n\ndata:  b\n\n", false, "[a][ b]", "one space behind the colon is dropped");
	frames_are("data: a\ndata: b\n\n", false, "[a\nb]", "data lines are joined by LF");
	frames_are(": ping\n\ndata: a\n:\n: data: x\n\n", false, "[a]", "comments are no data");
	frames_are("event: e\nid: 1\nretry: 5\ndata: a\nx: y\nid\n\n", false, "[a]",
			   "other fields are passed over");
	frames_are("database: a\n\ndata\n\n dat: a\n\n", false, "[]",
			   "only the field data is data, also without a colon");
	frames_are("\n\n\n", false, "", "empty lines make no event");
	frames_are("data: \n\ndata:\n\n", false, "[][]", "empty data is an event");
	frames_are("data: a\n\ndata: b\n", false, "[a](b)", "an event without its empty line is cut");
	frames_are("data: a\n\ndata: b", false, "[a](b)", "an event without its line end is cut");
	frames_are("data: a\n\nda", false, "[a]", "a cut field name is nothing");
	frames_are("{\"error\":\n1}\n\n", false, "", "a JSON document has no events");
}

static void
test_lines(void)
{
	frames_are("{1}\n{2}\n", true, "[{1}][{2}]", "a line is a frame");
	frames_are("{1}\r\n\r\n{2}\r{3}\n", true, "[{1}][{2}][{3}]", "empty lines are no frames");
	frames_are("{1}\n{2", true, "[{1}]({2)", "a line without its end is cut");
	frames_are("", true, "", "no line is no frame");
}

static void
test_limits(void)
{
	Seen seen;
	LlmqSse sse;

	split("data: a\n\ndata: b\n\n", false, 1000, 1, &seen);
	is_string(seen.text, "[a]", "a taker that wants no more gets no more");
	llmq_sse_init(&sse, false, 8, take, &seen);
	ok(!llmq_sse_feed(&sse, "data: 0123456789", 16) && llmq_sse_failed(&sse),
	   "a line beyond the maximum is a failure");
	llmq_sse_end(&sse);
	is_string(seen.text, "[a]", "a failed splitter gives nothing at the end");
	llmq_sse_free(&sse);
}

int
main(void)
{
	test_events();
	test_lines();
	test_limits();
	return tap_done();
}
