/*
 * email_verdict.c
 *		Judges an attempt to send an e-mail.
 */
#include "messages/email.h"

#include <string.h>

#include "base/buffer.h"

/* How many refused recipients are named, and how many bytes of the server's answer are shown. */
#define NAMED_MAX		10
#define NAMED_WORDS_MAX 80

#define WORDS_MAX_BYTES 65536

static bool list_remaining(const LlmqMailReply *reply, LlmqSendVerdict *verdict);
static const char *explain(const LlmqMailReply *reply, LlmqTransferEnd end, const char *detail,
						   LlmqSendVerdict *verdict, LlmqBuffer *words);
static int name_refused(const LlmqMailReply *reply, LlmqBuffer *words);
static const char *words_for(LlmqTransferEnd end);

static bool
is_good(int code)
{
	return code >= 200 && code <= 299;
}

static bool
is_for_good(int code)
{
	return code >= 500 && code <= 599;
}

void
llmq_email_verdict(const LlmqMailReply *reply, LlmqTransferEnd end, const char *detail,
				   LlmqSendVerdict *verdict)
{
	LlmqBuffer words;
	const char *sentence;

	memset(verdict, 0, sizeof(*verdict));
	verdict->retry_after_us = -1;
	if (list_remaining(reply, verdict))
		verdict->outcome = LLMQ_SEND_RETRY;
	else
		verdict->outcome = reply->accepted ? LLMQ_SEND_SENT : LLMQ_SEND_DEAD;
	llmq_buffer_init(&words, WORDS_MAX_BYTES);
	sentence = explain(reply, end, detail, verdict, &words);
	if (sentence != NULL)
		verdict->message =
			llmq_send_verdict_message(reply->arena, sentence, llmq_buffer_string(&words), words.len,
									  reply->request->password);
	llmq_buffer_free(&words);
}

/* Returns whether a recipient may still get the message. */
static bool
may_get_it(const LlmqMailReply *reply, int i)
{
	int code = reply->recipients[i].code;

	return !is_for_good(code) && !(reply->accepted && is_good(code));
}

/* Lists the recipients who may still get the message; false if there are none. */
static bool
list_remaining(const LlmqMailReply *reply, LlmqSendVerdict *verdict)
{
	const LlmqMailRequest *request = reply->request;

	if (reply->in_session && is_for_good(reply->refusal.code))
		return false;
	verdict->remaining = reply->remaining;
	for (int i = 0; i < request->recipient_count; i++)
		if (may_get_it(reply, i))
			verdict->remaining[verdict->remaining_count++] = request->recipients[i];
	return verdict->remaining_count > 0;
}

/*
 * Returns a sentence on what went wrong, and adds what others said about it; NULL if nothing
 * did.
 */
static const char *
explain(const LlmqMailReply *reply, LlmqTransferEnd end, const char *detail,
		LlmqSendVerdict *verdict, LlmqBuffer *words)
{
	const LlmqSmtpAnswer *refusal = &reply->refusal;

	verdict->code = refusal->code;
	if (refusal->code > 0 && (end == LLMQ_END_COMPLETE || end == LLMQ_END_NOT_SENT))
	{
		llmq_buffer_printf(words, "%d %s", refusal->code,
						   refusal->text != NULL ? refusal->text : "");
		return reply->in_session ? "The server refused the message"
								 : "The server refused the session";
	}
	if (end != LLMQ_END_COMPLETE)
	{
		llmq_buffer_append_string(words, detail != NULL ? detail : "");
		return words_for(end);
	}
	verdict->code = name_refused(reply, words);
	if (verdict->code == 0)
		return NULL;
	return reply->accepted ? "The server accepted the message, but not for all recipients"
						   : "The server refused every recipient";
}

/* Adds the refused recipients; returns the code of the first one, 0 if there are none. */
static int
name_refused(const LlmqMailReply *reply, LlmqBuffer *words)
{
	int first = 0;
	int count = 0;

	for (int i = 0; i < reply->request->recipient_count; i++)
	{
		const LlmqSmtpAnswer *answer = &reply->recipients[i];

		if (is_good(answer->code))
			continue;
		if (first == 0)
			first = answer->code;
		if (++count <= NAMED_MAX)
			llmq_buffer_printf(words, "%s%s (%d %.*s)", count > 1 ? ", " : "",
							   reply->request->recipients[i], answer->code, NAMED_WORDS_MAX,
							   answer->text != NULL ? answer->text : "");
	}
	if (count > NAMED_MAX)
		llmq_buffer_printf(words, " and %d more", count - NAMED_MAX);
	return first;
}

static const char *
words_for(LlmqTransferEnd end)
{
	switch (end)
	{
		case LLMQ_END_NOT_SENT:
			return "The message could not be sent";
		case LLMQ_END_TIMEOUT:
			return "The server did not answer in time";
		case LLMQ_END_INTERRUPTED:
			return "The delivery was interrupted";
		default:
			return "The connection ended before the server had accepted the message";
	}
}
