/*
 * variants_test.c
 *		What the rules say cannot change an outcome does not: 20 variants of each case.
 *
 * Each has its keys in another order, other white space, fields that nobody
 * knows, letters escaped, other portions, and other letters in header names.
 */
#include "cases.h"

#define VARIANTS	20
#define MEMBERS_MAX 64
#define BODY_MAX	((size_t) 16 * 1024 * 1024)

/* Values that would mean something elsewhere. */
static const char *const unknown_values[] = {
	"null",
	"true",
	"-0.5e3",
	"1e999999",
	"\"text \\ud83d\"",
	"[]",
	"{\"error\":{\"code\":\"insufficient_quota\"},\"finish_reason\":\"length\"}",
	"[[{\"text\":\"no\",\"content\":\"no\"}]]",
};

typedef struct Rewrite
{
	LlmqRandom *random;
	LlmqBuffer *out;
	bool lines; /* no line end may be added */
	int unknown;
} Rewrite;

static void rewrite_value(Rewrite *re, LlmqSlice value);

static bool
chance(Rewrite *re, int of)
{
	return llmq_random_upto(re->random, of - 1) == 0;
}

static void
add_space(Rewrite *re)
{
	static const char *const spaces[] = {" ", "  ", "\t", "\n", "\r\n  "};

	if (chance(re, 4))
		llmq_buffer_append_string(re->out, spaces[llmq_random_upto(re->random, re->lines ? 2 : 4)]);
}

/* Writes a string with some of its letters escaped. */
static void
rewrite_string(Rewrite *re, LlmqSlice string)
{
	for (size_t i = 0; i < string.len; i++)
	{
		char c = string.at[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		if (c == '\\')
		{
			size_t len = string.at[i + 1] == 'u' ? 6 : 2;

			llmq_buffer_append(re->out, string.at + i, len);
			i += len - 1;
		}
		else if (letter && chance(re, 30))
			llmq_buffer_printf(re->out, "\\u%04X", (unsigned) c);
		else
			llmq_buffer_append_char(re->out, c);
	}
}

static void
add_unknown(Rewrite *re)
{
	size_t count = sizeof(unknown_values) / sizeof(unknown_values[0]);

	llmq_buffer_printf(re->out, "\"zz_unknown_%d\":%s", re->unknown++,
					   unknown_values[llmq_random_upto(re->random, (int64_t) count - 1)]);
}

static bool
same(LlmqSlice a, LlmqSlice b)
{
	return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* Collects the members of an object in a random order; of equal names the order stays. */
static size_t
shuffled(Rewrite *re, LlmqSlice object, LlmqSlice members[][2])
{
	LlmqSliceWalk walk = llmq_slice_walk(object);
	LlmqSlice key;
	LlmqSlice value;
	size_t count = 0;
	bool twins = false;

	while (count < MEMBERS_MAX && llmq_slice_next_member(&walk, &key, &value))
	{
		for (size_t i = 0; i < count; i++)
			twins = twins || same(members[i][0], key);
		members[count][0] = key;
		members[count++][1] = value;
	}
	for (size_t i = count; !twins && i > 1; i--)
	{
		size_t j = (size_t) llmq_random_upto(re->random, (int64_t) i - 1);

		for (int k = 0; k < 2; k++)
		{
			LlmqSlice kept = members[i - 1][k];

			members[i - 1][k] = members[j][k];
			members[j][k] = kept;
		}
	}
	return count;
}

static void
rewrite_object(Rewrite *re, LlmqSlice object)
{
	LlmqSlice members[MEMBERS_MAX][2];
	size_t count = shuffled(re, object, members);
	bool any = false;

	llmq_buffer_append_char(re->out, '{');
	for (size_t i = 0; i <= count; i++)
	{
		if (chance(re, 3))
		{
			if (any)
				llmq_buffer_append_char(re->out, ',');
			add_space(re);
			add_unknown(re);
			any = true;
		}
		add_space(re);
		if (i == count)
			break;
		if (any)
			llmq_buffer_append_char(re->out, ',');
		add_space(re);
		rewrite_string(re, members[i][0]);
		add_space(re);
		llmq_buffer_append_char(re->out, ':');
		rewrite_value(re, members[i][1]);
		any = true;
	}
	llmq_buffer_append_char(re->out, '}');
}

static void
rewrite_array(Rewrite *re, LlmqSlice array)
{
	LlmqSliceWalk walk = llmq_slice_walk(array);
	char separator = '[';
	LlmqSlice element;

	while (llmq_slice_next(&walk, &element))
	{
		llmq_buffer_append_char(re->out, separator);
		rewrite_value(re, element);
		separator = ',';
	}
	if (separator == '[')
		llmq_buffer_append_char(re->out, '[');
	llmq_buffer_append_char(re->out, ']');
}

static void
rewrite_value(Rewrite *re, LlmqSlice value)
{
	add_space(re);
	switch (llmq_slice_kind(value))
	{
		case '{':
			rewrite_object(re, value);
			break;
		case '[':
			rewrite_array(re, value);
			break;
		case '"':
			rewrite_string(re, value);
			break;
		default:
			llmq_buffer_append(re->out, value.at, value.len);
			break;
	}
	add_space(re);
}

/* Rewrites a line, without its end, if it is data or a line of JSON. */
static void
rewrite_line(Rewrite *re, const char *line, size_t len)
{
	size_t lead = len >= 5 && memcmp(line, "data:", 5) == 0 ? 5 : 0;
	LlmqSlice value;

	/* White space at the very start of a line of data would be a part of it. */
	if (!llmq_slice_parse(line + lead, len - lead, &value) || llmq_slice_kind(value) != '{')
	{
		llmq_buffer_append(re->out, line, len);
		return;
	}
	llmq_buffer_append(re->out, line, lead);
	rewrite_value(re, value);
}

static void
rewrite_piece(Rewrite *re, const CasePiece *piece)
{
	size_t start = 0;

	for (size_t at = 0; at <= piece->len; at++)
	{
		if (at < piece->len && piece->bytes[at] != '\n' && piece->bytes[at] != '\r')
			continue;
		rewrite_line(re, piece->bytes + start, at - start);
		if (at < piece->len)
			llmq_buffer_append_char(re->out, piece->bytes[at]);
		start = at + 1;
	}
}

/* Rewrites a body that is one document, or else each of its pieces. */
static void
rewrite_body(Case *it, LlmqRandom *random)
{
	CasePiece *first = &it->pieces[0];
	bool document;
	LlmqBuffer out;
	LlmqSlice root;
	Rewrite re = {.random = random, .out = &out};
	size_t bom;

	if (it->piece_count == 0 || case_header(it, "content-encoding") != NULL ||
		case_header(it, "content-length") != NULL)
		return;
	bom = first->len >= 3 && memcmp(first->bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
	document = it->piece_count == 1 && it->options.api != LLMQ_API_OLLAMA_CHAT &&
			   llmq_slice_parse(first->bytes + bom, first->len - bom, &root);
	re.lines = !document;
	llmq_buffer_init(&out, BODY_MAX);
	for (size_t i = 0; i < it->piece_count; i++)
	{
		CasePiece *piece = &it->pieces[i];

		llmq_buffer_reset(&out);
		llmq_buffer_append(&out, piece->bytes, bom);
		if (document)
			rewrite_value(&re, root);
		else
			rewrite_piece(&re, piece);
		piece->bytes = llmq_arena_strndup(it->arena, out.data, out.len);
		piece->len = out.len;
	}
	llmq_buffer_free(&out);
}

static void
run_variants(const char *file, int number, LlmqSlice from)
{
	LlmqBuffer why;
	int failed = 0;
	char *id = NULL;

	llmq_buffer_init(&why, 100000);
	for (int i = 1; i <= VARIANTS && failed == 0; i++)
	{
		LlmqArena *arena = llmq_arena_create(CASE_ARENA_BYTES);
		Case it;

		case_load(&it, arena, from);
		if (id == NULL)
			id = strdup(it.id);
		llmq_random_seed(&it.random, (uint64_t) (number * 1000 + i));
		rewrite_body(&it, &it.random);
		it.change_header_case = true;
		case_run(&it, CASE_RANDOM, &why);
		failed = why.len > 0 ? i : 0;
		for (size_t k = 0; failed && k < it.piece_count; k++)
			printf("# %.*s\n", (int) it.pieces[k].len, it.pieces[k].bytes);
		llmq_arena_destroy(arena);
	}
	if (!ok(failed == 0, "%d variants of %s", VARIANTS, id != NULL ? id : file))
		printf("# variant %d:%s\n", failed, llmq_buffer_string(&why));
	llmq_buffer_free(&why);
	free(id);
}

int
main(void)
{
	int number = 0;

	for (size_t i = 0; i < CASE_FILES; i++)
	{
		LlmqArena *arena = llmq_arena_create(CASE_ARENA_BYTES);
		LlmqSliceWalk walk;
		LlmqSlice list = {NULL, 0};
		LlmqSlice from;
		size_t len;
		char *text = case_read_file(arena, case_files[i], &len);

		llmq_slice_parse(text, len, &list);
		walk = llmq_slice_walk(list);
		while (llmq_slice_next(&walk, &from))
			run_variants(case_files[i], ++number, from);
		llmq_arena_destroy(arena);
	}
	return tap_done();
}
