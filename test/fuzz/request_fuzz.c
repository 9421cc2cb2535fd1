/*
 * request_fuzz.c
 *		The writers of requests: what a user submitted becomes one JSON body and
 *		clean header lines, or a sentence that says why not.
 *
 * Input: a byte that chooses the dialect, a byte of flags, then words that end in
 * NUL: url, headers, secret, idempotency key, prompt, system, messages, params,
 * model.  An empty word is none.  What PostgreSQL would not hand out (text that is
 * not UTF-8, JSON that is none) is passed over.
 */
#include "json/json_text.h"
#include "dialects/provider.h"
#include "fuzz.h"

#define WORDS	9
#define OUT_MAX ((size_t) 16 * 1024 * 1024)

/* Whether PostgreSQL could have given this as jsonb. */
static bool
is_jsonb(const char *text, char kind)
{
	LlmqBuffer jsonb;
	LlmqSlice value;
	bool same;

	if (text == NULL)
		return true;
	if (!llmq_slice_parse(text, strlen(text), &value) || llmq_slice_kind(value) != kind)
		return false;
	llmq_buffer_init(&jsonb, OUT_MAX);
	llmq_json_text_jsonb(&jsonb, value.at, value.len);
	same = jsonb.len == value.len && memcmp(jsonb.data, value.at, value.len) == 0;
	llmq_buffer_free(&jsonb);
	return same;
}

static void
claim_request(const LlmqHttpRequest *request)
{
	claim(request->body != NULL && strlen(request->body) == request->body_len,
		  "a body has the length that it says");
	claim_jsonb(request->body, "a body is JSON");
	claim(request->body[0] == '{', "and an object");
	for (int i = 0; i < request->header_count; i++)
	{
		claim(strpbrk(request->headers[i], "\r\n") == NULL, "a header is one line");
		claim(strchr(request->headers[i], ':') != NULL, "with a name");
	}
	claim(strpbrk(request->url, " \r\n") == NULL, "a url has no space");
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	FuzzInput input = {(const char *) bytes, len};
	LlmqTarget target = {.api = (LlmqApi) (fuzz_byte(&input) % (LLMQ_API_OPENAI_EMBEDDINGS + 1))};
	uint8_t flags = fuzz_byte(&input);
	LlmqArena *arena = llmq_arena_create(FUZZ_ARENA_BYTES);
	LlmqPrompt prompt;
	LlmqHttpRequest request;
	const char *error = NULL;
	char *words[WORDS];
	const char *given[WORDS];
	bool possible = true;

	for (int i = 0; i < WORDS; i++)
	{
		size_t word_len;

		words[i] = fuzz_word(&input, &word_len);
		given[i] = word_len > 0 ? words[i] : NULL;
		possible = possible && is_utf8(words[i], word_len);
	}
	target.url =
		given[0] != NULL && strpbrk(given[0], " \t\r\n\v\f#") == NULL ? given[0] : "http://a";
	target.headers = given[1];
	target.credential = given[2];
	target.idempotency_header = given[3] != NULL ? "Idempotency-Key" : NULL;
	target.idempotency_key = given[3];
	target.stream = (flags & 1) != 0;
	prompt = (LlmqPrompt){.prompt = given[4],
						  .system = given[5],
						  .messages = given[6],
						  .params = given[7],
						  .model = given[8]};
	possible =
		possible && is_jsonb(given[1], '{') && is_jsonb(given[6], '[') && is_jsonb(given[7], '{');
	if (possible && llmq_provider_request(arena, &target, &prompt, &request, &error))
		claim_request(&request);
	else if (possible)
	{
		claim(error != NULL && error[0] != '\0', "a refusal says why");
		claim_text(error, "in text");
	}
	for (int i = 0; i < WORDS; i++)
		free(words[i]);
	llmq_arena_destroy(arena);
	return 0;
}
