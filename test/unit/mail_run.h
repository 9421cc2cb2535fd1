/*
 * mail_run.h
 *		Sends e-mails through a transfer pool, and says what came of them.
 */
#ifndef LLMQ_MAIL_RUN_H
#define LLMQ_MAIL_RUN_H

#include "messages/email.h"
#include "http_stub.h"

#define ARENA_BYTES ((size_t) 64 * 1048576)

typedef struct Mail
{
	LlmqArena *arena;
	LlmqMailRequest request;
	LlmqMailReply *reply;
	LlmqTransfer *transfer;
	bool ended;
	LlmqTransferResult result;
	LlmqSendVerdict verdict;
	char url[64];
	char error[256];
} Mail;

static LlmqTransferPool *pool;

/* Begins an e-mail to up to three recipients (NULL: fewer). */
static inline bool
mail_begin(Mail *mail, const char *scheme, int port, const LlmqEmail *given, const char *const *to)
{
	LlmqEmail email = *given;
	const char *error = NULL;

	memset(mail, 0, sizeof(*mail));
	snprintf(mail->url, sizeof(mail->url), "%s://127.0.0.1:%d", scheme, port);
	mail->arena = llmq_arena_create(ARENA_BYTES);
	email.url = mail->url;
	email.to = to;
	while (email.to_count < 3 && to[email.to_count] != NULL)
		email.to_count++;
	if (email.sender == NULL)
		email.sender = "robot@example.com";
	email.id = "msg_1";
	if (!llmq_email_request(mail->arena, &email, &mail->request, &error))
	{
		printf("# %s\n", error);
		return false;
	}
	mail->reply = llmq_mail_reply_create(mail->arena, &mail->request);
	return true;
}

static inline bool
mail_start(Mail *mail, const LlmqClocks *clocks)
{
	mail->transfer = llmq_transfer_start_mail(pool, &mail->request, mail->reply, clocks, mail,
											  now_us(), mail->error, sizeof(mail->error));
	return mail->transfer != NULL;
}

/* Takes what has ended; results of HTTP calls go to their calls. */
static inline void
collect(Mail *mail, Call *call)
{
	LlmqTransferResult result;

	while (llmq_transfer_pool_next(pool, &result))
	{
		if (result.owner == call)
		{
			call->results++;
			call->result = result;
			continue;
		}
		mail->ended = true;
		mail->result = result;
		llmq_email_verdict(mail->reply, result.end, result.detail, &mail->verdict);
	}
}

/* Waits once as a host does, then dispatches. */
static inline void
turn(Mail *mail, Call *call, int64_t longest_us)
{
	struct pollfd waited = {.fd = llmq_transfer_pool_fd(pool), .events = POLLIN};
	int64_t timeout = llmq_transfer_pool_timeout(pool, now_us());

	if (timeout < 0 || timeout > longest_us)
		timeout = longest_us;
	poll(&waited, 1, (int) ((timeout + 999) / 1000));
	llmq_transfer_pool_dispatch(pool, now_us());
	collect(mail, call);
}

static inline bool
mail_run(Mail *mail)
{
	int64_t limit = now_us() + HANG_US;

	while (!mail->ended && now_us() < limit)
		turn(mail, NULL, 1000000);
	return mail->ended;
}

static inline void
mail_free(Mail *mail)
{
	llmq_arena_destroy(mail->arena);
}

/* Sends an e-mail and checks what came of it. */
static inline LlmqSendVerdict
check_mail(Mail *mail, const char *scheme, int port, const LlmqEmail *email, const char *const *to,
		   LlmqTransferEnd end, LlmqSendOutcome outcome, const char *sentence)
{
	bool started = mail_begin(mail, scheme, port, email, to) && mail_start(mail, &patient);

	if (!ok(started && mail_run(mail) && mail->result.end == end &&
				mail->verdict.outcome == outcome,
			"%s", sentence))
		printf("# end %d, outcome %d: %s (%s)\n", mail->result.end, mail->verdict.outcome,
			   mail->verdict.message, mail->error);
	return mail->verdict;
}

static const LlmqEmail hello = {.subject = "Hello", .text = ".dot\n..\nend", .text_len = 11};

static const char *const ann[] = {"ann@example.org", NULL};

#endif /* LLMQ_MAIL_RUN_H */
