/*
 * sse_fuzz.c
 *		The splitter of streams: portions make no difference, frames are bounded.
 *
 * Input: a byte of flags, a byte that says how to cut, the body.
 */
#include "wire/sse.h"
#include "fuzz.h"

#define FRAME_MAX 4096

typedef struct Seen
{
	LlmqBuffer frames; /* each with whether it was whole, and its length */
} Seen;

static bool
take(void *user, char *data, size_t len, bool whole)
{
	Seen *seen = user;

	claim(data[len] == '\0', "a frame is NUL-ended");
	claim(len <= FRAME_MAX, "a frame is no longer than its limit");
	llmq_buffer_printf(&seen->frames, "%d %zu ", whole, len);
	llmq_buffer_append(&seen->frames, data, len);
	memset(data, 'x', len);
	return len != 7;
}

/* Feeds the body in portions of 1 to most bytes; returns whether the splitter failed. */
static bool
split(Seen *seen, bool json_lines, FuzzInput body, size_t most)
{
	LlmqSse sse;
	bool go_on = true;
	bool failed;
	size_t size = 0;

	llmq_buffer_init(&seen->frames, (size_t) 16 * 1024 * 1024);
	llmq_sse_init(&sse, json_lines, FRAME_MAX, take, seen);
	while (go_on && body.left > 0)
	{
		size = size % most + 1;
		if (size > body.left)
			size = body.left;
		go_on = llmq_sse_feed(&sse, body.at, size);
		body.at += size;
		body.left -= size;
	}
	if (go_on)
		llmq_sse_end(&sse);
	failed = llmq_sse_failed(&sse);
	llmq_sse_free(&sse);
	return failed;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	FuzzInput input = {(const char *) bytes, len};
	bool json_lines = (fuzz_byte(&input) & 1) != 0;
	size_t most = fuzz_byte(&input) % 64 + 1;
	char *copy = fuzz_copy(input.at, input.left);
	Seen whole;
	Seen cut;
	bool whole_failed;
	bool cut_failed;

	input.at = copy;
	whole_failed = split(&whole, json_lines, input, input.left + 1);
	cut_failed = split(&cut, json_lines, input, most);
	claim(whole_failed == cut_failed, "portions do not decide whether a line is too long");
	claim(whole.frames.len == cut.frames.len &&
			  (whole.frames.len == 0 ||
			   memcmp(whole.frames.data, cut.frames.data, whole.frames.len) == 0),
		  "portions make no difference to the frames");
	llmq_buffer_free(&whole.frames);
	llmq_buffer_free(&cut.frames);
	free(copy);
	return 0;
}
