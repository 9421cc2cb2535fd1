/*
 * cases.h
 *		Runs the provider cases of test/cases as pure code.
 *
 * Plays the transfer layer: what the stub of a case would send is fed to a
 * reply, decoded, in portions, and the end is told as transfer_end.c tells it.
 */
#ifndef LLMQ_CASES_H
#define LLMQ_CASES_H

#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

#include "json/json_slice.h"
#include "json/json_text.h"
#include "dialects/reply.h"
#include "base/retry.h"
#include "tap.h"

#define CASE_ARENA_BYTES ((size_t) 256 * 1024 * 1024)
#define CASE_BODY_CAP	 1048576
#define CASE_HEADERS_MAX (296 * 1024)

/* Thu, 15 Jan 2026 10:00:00 GMT, for dates without a Date. */
#define CASE_NOW_US (INT64_C(1768471200) * 1000000)

static const char *const case_files[] = {
	"openai_chat", "openai_responses",	"anthropic_messages", "gemini",
	"ollama_chat", "openai_embeddings", "retry_after",		  "transport",
};

#define CASE_FILES (sizeof(case_files) / sizeof(case_files[0]))

/* How the body is cut before it is fed. */
typedef enum CasePortions
{
	CASE_AS_SENT,
	CASE_WHOLE,
	CASE_BYTES,
	CASE_RANDOM
} CasePortions;

typedef struct CasePiece
{
	char *bytes;
	size_t len;
} CasePiece;

/* A case, and the body that its stub sends. */
typedef struct Case
{
	LlmqArena *arena;
	char *id;
	LlmqSlice response;
	LlmqSlice request;
	LlmqSlice expect;
	LlmqReplyOptions options;
	int64_t timeout_ms;
	CasePiece *pieces;
	size_t piece_count;
	bool change_header_case;
	CasePortions portions;
	LlmqRandom random; /* for CASE_RANDOM */
} Case;

static inline char *
case_string(LlmqArena *arena, LlmqSlice string)
{
	size_t len;

	return llmq_slice_kind(string) == '"' ? llmq_slice_decode(arena, string, &len) : NULL;
}

static inline int64_t
case_integer(LlmqSlice object, const char *name, int64_t otherwise)
{
	int64_t number;

	return llmq_json_text_integer(llmq_slice_member(object, name), &number) ? number : otherwise;
}

/* Reads a whole file into the arena; the test ends if it is not there. */
static inline char *
case_read_file(LlmqArena *arena, const char *name, size_t *len)
{
	char *path = llmq_arena_printf(arena, "test/cases/%s.json", name);
	FILE *file = fopen(path, "rb");
	char *text;

	if (file == NULL)
	{
		printf("Bail out! cannot open %s\n", path);
		exit(1);
	}
	fseek(file, 0, SEEK_END);
	*len = (size_t) ftell(file);
	rewind(file);
	text = llmq_arena_alloc(arena, *len + 1);
	if (fread(text, 1, *len, file) != *len)
		exit(1);
	fclose(file);
	return text;
}

static inline int
case_base64_value(char c)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c != '\0' ? strchr(letters, c) : NULL;

	return at == NULL ? -1 : (int) (at - letters);
}

static inline size_t
case_decode_base64(char *bytes)
{
	size_t len = 0;
	unsigned bits = 0;
	int have = 0;

	for (const char *at = bytes; case_base64_value(*at) >= 0; at++)
	{
		bits = bits << 6 | (unsigned) case_base64_value(*at);
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		bytes[len++] = (char) (bits >> have & 0xFF);
	}
	return len;
}

static inline void
case_add_piece(Case *it, LlmqSlice string, bool base64)
{
	CasePiece *piece = &it->pieces[it->piece_count++];

	piece->bytes = llmq_slice_decode(it->arena, string, &piece->len);
	if (base64)
		piece->len = case_decode_base64(piece->bytes);
}

static inline void
case_add_repeated(Case *it, LlmqSlice repeat)
{
	LlmqSliceWalk walk = llmq_slice_walk(repeat);
	CasePiece *piece;
	LlmqSlice element;
	int64_t times;
	char *unit;
	size_t len;

	if (!llmq_slice_next(&walk, &element))
		return;
	unit = llmq_slice_decode(it->arena, element, &len);
	llmq_slice_next(&walk, &element);
	llmq_json_text_integer(element, &times);
	piece = &it->pieces[it->piece_count++];
	piece->len = len * (size_t) times;
	piece->bytes = llmq_arena_alloc(it->arena, piece->len + 1);
	for (int64_t i = 0; i < times; i++)
		memcpy(piece->bytes + (size_t) i * len, unit, len);
}

static inline void
case_load_body(Case *it)
{
	static const char *const names[] = {"body", "body_base64", "chunks", "chunks_base64"};
	LlmqSlice body[4];
	size_t count = 2;

	for (int i = 0; i < 4; i++)
	{
		body[i] = llmq_slice_member(it->response, names[i]);
		count += llmq_slice_count(body[i]);
	}
	it->pieces = llmq_arena_alloc(it->arena, count * sizeof(*it->pieces));
	it->piece_count = 0;
	case_add_repeated(it, llmq_slice_member(it->response, "body_repeat"));
	for (int i = 0; i < 4; i++)
	{
		LlmqSliceWalk walk = llmq_slice_walk(body[i]);
		LlmqSlice chunk;

		if (llmq_slice_kind(body[i]) == '"')
			case_add_piece(it, body[i], i == 1);
		while (llmq_slice_next(&walk, &chunk))
			case_add_piece(it, chunk, i == 3);
	}
}

static inline void
case_load(Case *it, LlmqArena *arena, LlmqSlice from)
{
	LlmqSlice inputs;

	memset(it, 0, sizeof(*it));
	it->arena = arena;
	it->id = case_string(arena, llmq_slice_member(from, "id"));
	it->response = llmq_slice_member(from, "response");
	it->request = llmq_slice_member(from, "request");
	it->expect = llmq_slice_member(from, "expect");
	it->timeout_ms = case_integer(from, "timeout_ms", 5000);
	if (!llmq_api_find(case_string(arena, llmq_slice_member(from, "api")), &it->options.api))
		exit(1);
	it->options.stream = llmq_slice_kind(llmq_slice_member(from, "stream")) == 't';
	it->options.max_bytes = CASE_BODY_CAP;
	inputs = llmq_slice_member(it->request, "inputs");
	it->options.embedding_inputs = (int) llmq_slice_count(inputs);
	it->options.embedding_array = it->options.embedding_inputs > 1;
	it->options.embedding_dimensions = (int) case_integer(it->request, "dimensions", 0);
	case_load_body(it);
}

/* Feeds bytes in the portions asked for. */
static inline LlmqFeed
case_feed(Case *it, LlmqReply *reply, const char *bytes, size_t len)
{
	LlmqFeed feed = LLMQ_FEED_MORE;
	size_t step = it->portions == CASE_BYTES ? 1 : len;

	for (size_t at = 0; at < len && feed == LLMQ_FEED_MORE; at += step)
	{
		if (it->portions == CASE_RANDOM)
			step = 1 + (size_t) llmq_random_upto(&it->random, len > 10000 ? 50000 : 40);
		feed = llmq_reply_body(reply, bytes + at, len - at < step ? len - at : step);
	}
	return feed;
}

/* Undoes gzip; false if it is none. */
static inline bool
case_feed_gzip(Case *it, LlmqReply *reply, z_stream *zip, const CasePiece *piece, LlmqFeed *feed)
{
	char out[16384];

	zip->next_in = (unsigned char *) piece->bytes;
	zip->avail_in = (unsigned) piece->len;
	do
	{
		int result;

		zip->next_out = (unsigned char *) out;
		zip->avail_out = sizeof(out);
		result = inflate(zip, Z_SYNC_FLUSH);
		if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
			return false;
		*feed = case_feed(it, reply, out, sizeof(out) - zip->avail_out);
	} while (*feed == LLMQ_FEED_MORE && zip->avail_out == 0);
	return true;
}

static inline void
case_feed_header(Case *it, LlmqReply *reply, LlmqSlice header)
{
	LlmqSliceWalk walk = llmq_slice_walk(header);
	LlmqSlice name = {NULL, 0};
	LlmqSlice value = {NULL, 0};
	char *name_text;
	char *value_text;

	llmq_slice_next(&walk, &name);
	llmq_slice_next(&walk, &value);
	name_text = case_string(it->arena, name);
	value_text = case_string(it->arena, value);
	for (size_t i = 0; it->change_header_case && name_text[i] != '\0'; i++)
	{
		if (strchr("-0123456789", name_text[i]) == NULL && i % 2 == 0)
			name_text[i] ^= 0x20;
	}
	llmq_reply_header(reply, name_text, strlen(name_text), value_text, strlen(value_text));
}

/* The value of a header of the case, NULL if it has none. */
static inline char *
case_header(Case *it, const char *wanted)
{
	LlmqSliceWalk walk = llmq_slice_walk(llmq_slice_member(it->response, "headers"));
	LlmqSlice header;

	while (llmq_slice_next(&walk, &header))
	{
		LlmqSliceWalk pair = llmq_slice_walk(header);
		LlmqSlice part;

		llmq_slice_next(&pair, &part);
		if (strcasecmp(case_string(it->arena, part), wanted) != 0)
			continue;
		llmq_slice_next(&pair, &part);
		return case_string(it->arena, part);
	}
	return NULL;
}

static inline void
case_feed_head(Case *it, LlmqReply *reply, LlmqSlice head)
{
	LlmqSliceWalk walk = llmq_slice_walk(llmq_slice_member(head, "headers"));
	LlmqSlice header;

	llmq_reply_status(reply, (int) case_integer(head, "status", 0));
	while (llmq_slice_next(&walk, &header))
		case_feed_header(it, reply, header);
}

/* The end when the connection did what the case says. */
static inline LlmqTransferEnd
case_end(Case *it, size_t sent)
{
	char *end = case_string(it->arena, llmq_slice_member(it->response, "end"));
	char *length = case_header(it, "content-length");
	bool chunked = case_header(it, "transfer-encoding") != NULL;

	if (strcmp(end, "reset") == 0)
		return LLMQ_END_RESET;
	if (strcmp(end, "short") == 0)
		return LLMQ_END_SHORT;
	if (length != NULL && strtoull(length, NULL, 10) <= sent)
		return LLMQ_END_COMPLETE;
	if (strcmp(end, "hang") == 0)
		return LLMQ_END_TIMEOUT;
	if (strcmp(end, "close") == 0 && (chunked || length != NULL))
		return LLMQ_END_SHORT;
	return LLMQ_END_COMPLETE;
}

/* Feeds the body until the reply has enough, the clock runs out, or the body ends. */
static inline LlmqTransferEnd
case_feed_body(Case *it, LlmqReply *reply)
{
	int64_t elapsed_ms = case_integer(it->response, "delay_ms", 0);
	int64_t delay_ms = case_integer(it->response, "chunk_delay_ms", 0);
	char *encoding = case_header(it, "content-encoding");
	LlmqTransferEnd end = LLMQ_END_COMPLETE;
	LlmqFeed feed = LLMQ_FEED_MORE;
	size_t sent = 0;
	z_stream zip;

	memset(&zip, 0, sizeof(zip));
	inflateInit2(&zip, 47);
	for (size_t i = 0; i < it->piece_count && end == LLMQ_END_COMPLETE; i++)
	{
		CasePiece *piece = &it->pieces[i];

		if (i > 0)
			elapsed_ms += delay_ms;
		sent += piece->len;
		if (elapsed_ms > it->timeout_ms)
			end = LLMQ_END_TIMEOUT;
		else if (encoding == NULL || strcasecmp(encoding, "identity") == 0)
			feed = case_feed(it, reply, piece->bytes, piece->len);
		else if (strcasecmp(encoding, "gzip") != 0 ||
				 !case_feed_gzip(it, reply, &zip, piece, &feed))
			end = LLMQ_END_BAD_ENCODING;
		if (feed != LLMQ_FEED_MORE)
			end = LLMQ_END_STOPPED;
	}
	inflateEnd(&zip);
	return end == LLMQ_END_COMPLETE ? case_end(it, sent) : end;
}

static inline LlmqTransferEnd
case_play(Case *it, LlmqReply *reply)
{
	LlmqSliceWalk interim = llmq_slice_walk(llmq_slice_member(it->response, "interim"));
	LlmqSliceWalk repeated = llmq_slice_walk(llmq_slice_member(it->response, "header_repeat"));
	int64_t status = case_integer(it->response, "status", 0);
	LlmqSlice part;
	int64_t times = 0;

	if (llmq_slice_given(llmq_slice_member(it->response, "connect")))
		return LLMQ_END_NOT_SENT;
	while (llmq_slice_next(&interim, &part))
		case_feed_head(it, reply, part);
	if (status == 0)
		return case_end(it, 0) == LLMQ_END_COMPLETE ? LLMQ_END_NO_RESPONSE : case_end(it, 0);
	case_feed_head(it, reply, it->response);
	while (llmq_slice_next(&repeated, &part))
		llmq_json_text_integer(part, &times);
	if (times > CASE_HEADERS_MAX)
		return LLMQ_END_HEADERS_LARGE;
	if (status == 204 || status == 304)
		return LLMQ_END_COMPLETE;
	return case_feed_body(it, reply);
}

static inline void
case_difference(LlmqBuffer *why, const char *field, const char *got, const char *expected)
{
	if (got == NULL || expected == NULL ? got != expected : strcmp(got, expected) != 0)
		llmq_buffer_printf(why, " %s: got %.200s, expected %.200s;", field,
						   got != NULL ? got : "null", expected != NULL ? expected : "null");
}

static inline void
case_difference_number(LlmqBuffer *why, const char *field, int64_t got, int64_t expected)
{
	if (got != expected)
		llmq_buffer_printf(why, " %s: got %lld, expected %lld;", field, (long long) got,
						   (long long) expected);
}

/* Compares an array literal with the vectors expected, number by number. */
static inline void
case_difference_vectors(LlmqBuffer *why, const char *literal, LlmqSlice expected)
{
	LlmqSliceWalk vectors = llmq_slice_walk(expected);
	LlmqSlice vector;
	const char *at = literal;

	if (llmq_slice_given(expected) != (literal != NULL))
	{
		llmq_buffer_printf(why, " embedding: got %.200s;", literal != NULL ? literal : "null");
		return;
	}
	while (at != NULL && llmq_slice_next(&vectors, &vector))
	{
		LlmqSliceWalk numbers = llmq_slice_walk(vector);
		LlmqSlice number;

		while (llmq_slice_next(&numbers, &number))
		{
			double wanted = 0;
			char *end;
			double got;

			at += strspn(at, "{},");
			got = strtod(at, &end);
			llmq_json_text_real(number, &wanted);
			if (end == at || fabs(got - wanted) > 1e-6 * fabs(wanted))
				llmq_buffer_printf(why, " embedding: got %.40s;", at);
			at = end;
		}
	}
	if (at != NULL && at[strspn(at, "}")] != '\0')
		llmq_buffer_printf(why, " embedding: too long;");
}

static inline void
case_compare(Case *it, const LlmqVerdict *verdict, LlmqBuffer *why)
{
	LlmqSlice expect = it->expect;
	int64_t retry_ms = verdict->retry_after_us < 0 ? -1 : verdict->retry_after_us / 1000;

#define EXPECTED(name) case_string(it->arena, llmq_slice_member(expect, name))
	case_difference(why, "outcome", llmq_outcome_name(verdict->outcome), EXPECTED("outcome"));
	case_difference(why, "class", llmq_error_name(verdict->error_class), EXPECTED("error_class"));
	case_difference(why, "text", verdict->text, EXPECTED("text"));
	case_difference(why, "finish_reason", verdict->finish_reason, EXPECTED("finish_reason"));
	case_difference(why, "model", verdict->model, EXPECTED("model"));
	case_difference(why, "billing", llmq_billing_name(verdict->billing), EXPECTED("billing"));
#undef EXPECTED
	case_difference_number(why, "retry_after_ms", retry_ms,
						   case_integer(expect, "retry_after_ms", -1));
	case_difference_number(why, "input_tokens", verdict->input_tokens,
						   case_integer(expect, "input_tokens", -1));
	case_difference_number(why, "output_tokens", verdict->output_tokens,
						   case_integer(expect, "output_tokens", -1));
	case_difference_number(why, "cached_tokens", verdict->cached_tokens,
						   case_integer(expect, "cached_tokens", -1));
	case_difference_vectors(why, verdict->embedding, llmq_slice_member(expect, "embeddings"));
	/* What every verdict must have. */
	if ((verdict->error_message != NULL) != (verdict->error_class != LLMQ_ERROR_NONE))
		llmq_buffer_printf(why, " a message stands beside every error and nowhere else;");
	if (verdict->error_message != NULL && strlen(verdict->error_message) > LLMQ_ERROR_MESSAGE_MAX)
		llmq_buffer_printf(why, " the message is too long;");
	if ((verdict->response != NULL) !=
		(verdict->error_class == LLMQ_ERROR_NONE || verdict->error_class == LLMQ_ERROR_TRUNCATED))
		llmq_buffer_printf(why, " the response stands beside an answer and nowhere else;");
}

/* Runs a case; what differs from its expectation is added to why. */
static inline void
case_run(Case *it, CasePortions portions, LlmqBuffer *why)
{
	LlmqArena *arena = llmq_arena_create(CASE_ARENA_BYTES);
	LlmqReply *reply = llmq_reply_create(arena, &it->options);
	LlmqVerdict verdict;
	LlmqSlice json;

	it->portions = portions;
	llmq_reply_finish(reply, case_play(it, reply), NULL, CASE_NOW_US, &verdict);
	llmq_reply_destroy(reply);
	case_compare(it, &verdict, why);
	if (verdict.response != NULL &&
		!llmq_slice_parse(verdict.response, strlen(verdict.response), &json))
		llmq_buffer_printf(why, " the response is not JSON;");
	llmq_arena_destroy(arena);
}

#endif /* LLMQ_CASES_H */
