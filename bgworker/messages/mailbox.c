/*
 * mailbox.c
 *		The sender or a recipient of an e-mail.
 *
 * Addresses must be ones that every server accepts (RFC 5321, section 4.1.2, without quoted
 * local parts), except that dots are allowed anywhere in a local part, because some providers
 * have given out such addresses.
 */
#include "messages/mailbox.h"

#include <string.h>
#include <strings.h>

#define LETTERS_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* RFC 5321, 4.5.3.1; a path has 256 with its brackets. */
#define LOCAL_PART_MAX 64
#define ADDRESS_MAX	   254

/* A name must fit into a few lines. */
#define NAME_MAX_BYTES 300

static const char *find_bracket(const char *text);
static const char *read_name(LlmqArena *arena, const char *text, const char *end);
static const char *fault_of(const char *address);
static bool is_ascii(const char *text);
static bool is_domain(const char *domain);

bool
llmq_mailbox_parse(LlmqArena *arena, const char *text, LlmqMailbox *mailbox, const char **why)
{
	const char *bracket = find_bracket(text);
	size_t len = strlen(text);

	*why = NULL;
	for (const char *c = text; *c != '\0'; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7F)
			*why = "contains a control character";
	if (bracket != NULL && text[len - 1] != '>')
		*why = "is not an e-mail address, nor a name with one behind it in < and >";
	if (bracket != NULL && bracket - text > NAME_MAX_BYTES)
		*why = "has too long a name";
	if (*why != NULL)
		return false;
	mailbox->name = bracket != NULL ? read_name(arena, text, bracket) : NULL;
	mailbox->address = bracket != NULL ? llmq_arena_strndup(arena, bracket + 1,
															(size_t) (text + len - bracket - 2))
									   : llmq_arena_strdup(arena, text);
	if (mailbox->address == NULL || (bracket != NULL && mailbox->name == NULL))
		return false;
	if (mailbox->name != NULL && mailbox->name[0] == '\0')
		mailbox->name = NULL;
	*why = fault_of(mailbox->address);
	return *why == NULL;
}

const char *
llmq_mailbox_domain(const char *address)
{
	return strrchr(address, '@') + 1;
}

bool
llmq_mailbox_same(const char *a, const char *b)
{
	size_t local = (size_t) (llmq_mailbox_domain(a) - a);

	return (size_t) (llmq_mailbox_domain(b) - b) == local && memcmp(a, b, local) == 0 &&
		   strcasecmp(a + local, b + local) == 0;
}

/* Returns the < after a name, which may be quoted and contain one itself; NULL if there is none. */
static const char *
find_bracket(const char *text)
{
	bool quoted = false;

	for (; *text != '\0'; text++)
	{
		if (*text == '<' && !quoted)
			return text;
		if (*text == '"')
			quoted = !quoted;
		if (*text == '\\' && quoted && text[1] != '\0')
			text++;
	}
	return NULL;
}

/* Returns the name up to end, without its quotes and the spaces around it. */
static const char *
read_name(LlmqArena *arena, const char *text, const char *end)
{
	char *name = llmq_arena_alloc(arena, (size_t) (end - text) + 1);
	char *to = name;

	if (name == NULL)
		return NULL;
	while (text < end && *text == ' ')
		text++;
	while (end > text && end[-1] == ' ')
		end--;
	if (end - text < 2 || *text != '"' || end[-1] != '"')
	{
		memcpy(name, text, (size_t) (end - text));
		return name;
	}
	for (text++, end--; text < end; text++)
	{
		if (*text == '\\' && text + 1 < end)
			text++;
		*to++ = *text;
	}
	return name;
}

/* Returns what is wrong with an address; NULL if nothing is. */
static const char *
fault_of(const char *address)
{
	const char *at = strrchr(address, '@');

	if (!is_ascii(address))
		return "is an address that is not ASCII, which many servers do not take: write its domain "
			   "as xn--...";
	if (at == NULL || at == address ||
		strspn(address, LETTERS_DIGITS "!#$%&'*+-/=?^_`{|}~.") != (size_t) (at - address) ||
		!is_domain(at + 1))
		return "is not an e-mail address";
	if (at - address > LOCAL_PART_MAX || strlen(address) > ADDRESS_MAX)
		return "is longer than an e-mail address may be";
	return NULL;
}

static bool
is_ascii(const char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char) *text >= 0x80)
			return false;
	return true;
}

/* Returns whether domain is a host name, or a network address in [ and ]. */
static bool
is_domain(const char *domain)
{
	size_t len = strlen(domain);

	if (len > 2 && domain[0] == '[' && domain[len - 1] == ']')
		return strspn(domain + 1, LETTERS_DIGITS ".:-") == len - 2;
	return len > 0 && strspn(domain, LETTERS_DIGITS ".-") == len && domain[0] != '.' &&
		   domain[0] != '-' && domain[len - 1] != '.' && domain[len - 1] != '-' &&
		   strstr(domain, "..") == NULL;
}
