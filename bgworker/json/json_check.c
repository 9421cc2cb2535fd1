/*
 * json_check.c
 *		Checks once that a text is valid JSON, so that slices of it can be trusted.
 *
 * It is a loop over tokens with a stack of open brackets instead of recursion, so that the
 * depth is bounded by a named limit and not by the thread's stack.
 */
#include "json/json_slice.h"

#include <string.h>

/* What may come next in the text. */
typedef enum Expect
{
	EXPECT_VALUE,
	EXPECT_VALUE_OR_END, /* after [ */
	EXPECT_KEY,
	EXPECT_KEY_OR_END, /* after { */
	EXPECT_COLON,
	EXPECT_COMMA_OR_END, /* after a value */
	EXPECT_NOTHING		 /* after the outermost value */
} Expect;

typedef struct Check
{
	const char *at;
	const char *end;
	Expect expect;
	size_t depth;
	char open[LLMQ_JSON_MAX_DEPTH];
} Check;

static void pass_space(Check *check);
static bool pass_token(Check *check);
static bool pass_open(Check *check, char bracket);
static bool pass_close(Check *check, char bracket);
static bool pass_scalar(Check *check);
static bool pass_string(Check *check);
static bool pass_escape(Check *check);
static bool pass_number(Check *check);
static bool pass_digits(Check *check);
static bool pass_word(Check *check, const char *word);
static Expect after_value(const Check *check);

bool
llmq_slice_parse(const char *text, size_t len, LlmqSlice *value)
{
	Check check;
	const char *start;

	check.at = text;
	check.end = text + len;
	check.expect = EXPECT_VALUE;
	check.depth = 0;
	pass_space(&check);
	start = check.at;
	while (check.expect != EXPECT_NOTHING)
	{
		pass_space(&check);
		if (check.at >= check.end || !pass_token(&check))
			return false;
	}
	value->at = start;
	value->len = (size_t) (check.at - start);
	pass_space(&check);
	return check.at == check.end;
}

static void
pass_space(Check *check)
{
	while (check->at < check->end && memchr(" \t\n\r", *check->at, 4) != NULL)
		check->at++;
}

static bool
pass_token(Check *check)
{
	char c = *check->at;
	bool key = check->expect == EXPECT_KEY || check->expect == EXPECT_KEY_OR_END;
	bool value = check->expect == EXPECT_VALUE || check->expect == EXPECT_VALUE_OR_END;

	if (c == '}' || c == ']')
		return pass_close(check, c);
	if (c == ',' && check->expect == EXPECT_COMMA_OR_END)
	{
		check->expect = check->open[check->depth - 1] == '{' ? EXPECT_KEY : EXPECT_VALUE;
		check->at++;
		return true;
	}
	if (c == ':' && check->expect == EXPECT_COLON)
	{
		check->expect = EXPECT_VALUE;
		check->at++;
		return true;
	}
	if (key && c == '"')
	{
		check->expect = EXPECT_COLON;
		return pass_string(check);
	}
	if (!value)
		return false;
	return c == '{' || c == '[' ? pass_open(check, c) : pass_scalar(check);
}

static bool
pass_open(Check *check, char bracket)
{
	if (check->depth == LLMQ_JSON_MAX_DEPTH)
		return false;
	check->open[check->depth++] = bracket;
	check->expect = bracket == '{' ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
	check->at++;
	return true;
}

static bool
pass_close(Check *check, char bracket)
{
	Expect empty = bracket == '}' ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
	char opening = bracket == '}' ? '{' : '[';

	if (check->expect != empty && check->expect != EXPECT_COMMA_OR_END)
		return false;
	if (check->depth == 0 || check->open[check->depth - 1] != opening)
		return false;
	check->depth--;
	check->expect = after_value(check);
	check->at++;
	return true;
}

static bool
pass_scalar(Check *check)
{
	check->expect = after_value(check);
	switch (*check->at)
	{
		case '"':
			return pass_string(check);
		case 't':
			return pass_word(check, "true");
		case 'f':
			return pass_word(check, "false");
		case 'n':
			return pass_word(check, "null");
		default:
			return pass_number(check);
	}
}

static bool
pass_string(Check *check)
{
	for (check->at++; check->at < check->end; check->at++)
	{
		check->at += llmq_slice_plain_length(check->at, (size_t) (check->end - check->at));
		if (check->at == check->end)
			return false;
		if (*check->at == '"')
		{
			check->at++;
			return true;
		}
		if (*check->at != '\\' || !pass_escape(check))
			return false;
	}
	return false;
}

/* Skips an escape and stops at its last byte. */
static bool
pass_escape(Check *check)
{
	if (++check->at >= check->end)
		return false;
	if (*check->at != 'u')
		return memchr("\"\\/bfnrt", *check->at, 8) != NULL;
	for (int i = 0; i < 4; i++)
		if (++check->at >= check->end || memchr("0123456789abcdefABCDEF", *check->at, 22) == NULL)
			return false;
	return true;
}

static bool
pass_number(Check *check)
{
	if (*check->at == '-')
		check->at++;
	if (check->at < check->end && *check->at == '0')
		check->at++;
	else if (!pass_digits(check))
		return false;
	if (check->at < check->end && *check->at == '.')
	{
		check->at++;
		if (!pass_digits(check))
			return false;
	}
	if (check->at < check->end && (*check->at | 0x20) == 'e')
	{
		check->at++;
		if (check->at < check->end && (*check->at == '+' || *check->at == '-'))
			check->at++;
		return pass_digits(check);
	}
	return true;
}

static bool
pass_digits(Check *check)
{
	const char *start = check->at;

	while (check->at < check->end && *check->at >= '0' && *check->at <= '9')
		check->at++;
	return check->at > start;
}

static bool
pass_word(Check *check, const char *word)
{
	size_t len = strlen(word);

	if ((size_t) (check->end - check->at) < len || memcmp(check->at, word, len) != 0)
		return false;
	check->at += len;
	return true;
}

static Expect
after_value(const Check *check)
{
	return check->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}
