/*
 * reply_private.h
 *		What the parts of the reply share: the driver, the reader of errors, the judge.
 *
 * The driver (reply.c) turns bytes into JSON values for the dialect and records the first
 * error object (reply_error.c).  The judge (reply_verdict.c) evaluates everything once, when
 * the transfer has ended.
 */
#ifndef LLMQ_REPLY_PRIVATE_H
#define LLMQ_REPLY_PRIVATE_H

#include "dialects/reply.h"
#include "dialects/reply_dialect.h"
#include "wire/sse.h"

/* The headers that are read. */
typedef enum LlmqHeader
{
	LLMQ_HEADER_DATE,
	LLMQ_HEADER_RETRY_AFTER,
	LLMQ_HEADER_RETRY_AFTER_MS,
	LLMQ_HEADER_SHOULD_RETRY,
	LLMQ_HEADER_REMAINING_REQUESTS,
	LLMQ_HEADER_REMAINING_TOKENS,
	LLMQ_HEADER_RESET_REQUESTS,
	LLMQ_HEADER_RESET_TOKENS,
	LLMQ_HEADER_ANTHROPIC_REQUESTS, /* what remains, as below; its reset follows it */
	LLMQ_HEADER_ANTHROPIC_REQUESTS_RESET,
	LLMQ_HEADER_ANTHROPIC_TOKENS,
	LLMQ_HEADER_ANTHROPIC_TOKENS_RESET,
	LLMQ_HEADER_ANTHROPIC_INPUT,
	LLMQ_HEADER_ANTHROPIC_INPUT_RESET,
	LLMQ_HEADER_ANTHROPIC_OUTPUT,
	LLMQ_HEADER_ANTHROPIC_OUTPUT_RESET,
	LLMQ_HEADER_REQUEST_ID, /* under several names, in order of preference */
	LLMQ_HEADER_REQUEST_ID_LAST = LLMQ_HEADER_REQUEST_ID + 5,
	LLMQ_HEADERS
} LlmqHeader;

/* What an error object says (see "Error object" in test/cases/README.md). */
typedef struct LlmqErrorObject
{
	bool found;
	LlmqErrorClass name_class; /* by the table of names; NONE if no name is in it */
	int number;				   /* 400..599 in code or status, else 0 */
	bool quota;				   /* by name, number, quota id or message */
	bool context;			   /* the message has a context phrase */
	bool bare;				   /* a type invalid_request_error without a code */
	int64_t hint_us;		   /* RetryInfo, -1: none */
	const char *message;	   /* clean, NULL if there is none */
} LlmqErrorObject;

/* The result of reading the body as a whole document. */
typedef enum LlmqDocument
{
	LLMQ_DOCUMENT_NONE,		 /* there is none, or it is not JSON */
	LLMQ_DOCUMENT_SHAPELESS, /* JSON that does not have the dialect's shape */
	LLMQ_DOCUMENT_READ
} LlmqDocument;

struct LlmqReply
{
	LlmqSink sink; /* first: a sink is cast to its reply */
	LlmqReplyOptions options;
	const LlmqReplyDialect *dialect;
	LlmqAnswer answer;
	LlmqErrorObject error;

	/* The head. */
	int status;
	const char *headers[LLMQ_HEADERS];

	/* The body. */
	bool streamed; /* a stream was asked for, and the dialect has one */
	size_t bytes_in;
	int bom_seen;	 /* how many bytes of a byte order mark were skipped; -1: the body has begun */
	char first;		 /* the first byte that is not white space; 0: none yet */
	LlmqBuffer body; /* a document */
	LlmqSlice root;	 /* its value */
	LlmqSse sse;	 /* a stream */
	LlmqBuffer frames; /* its frames as a JSON array, for the verdict's response */
	bool any_frame;
	bool done;		/* nothing more is needed */
	bool malformed; /* a frame was not JSON, or did not have the dialect's shape */
	bool too_large; /* over the cap before the terminal marker */
	LlmqDocument document;
};

/* Returns whether the end marker of a stream was read. */
extern bool llmq_reply_marker_read(const LlmqReply *reply);

/* Looks for an error object in a value and records the first one; false if there is none. */
extern bool llmq_reply_find_error(LlmqReply *reply, LlmqSlice root);

/* These return the class of the recorded error, in a 2xx and in another answer. */
extern LlmqErrorClass llmq_reply_error_in_success(const LlmqReply *reply);
extern LlmqErrorClass llmq_reply_error_by_status(const LlmqReply *reply);

/* Returns how long the provider asks us to wait; -1: it does not. */
extern int64_t llmq_reply_retry_hint(const LlmqReply *reply, int64_t now_us);

/*
 * Returns the longest x-ratelimit-reset of the kinds of which nothing remains; -1 if something
 * remains of each, or the headers do not say.
 */
extern int64_t llmq_reply_exhausted(const LlmqReply *reply);

/*
 * Sets left_calls and left_for_us from the limit that allows the slowest pace.  Tokens are
 * converted into calls like this one, so the verdict's counts must be set already.
 */
extern void llmq_reply_left(const LlmqReply *reply, LlmqVerdict *verdict, int64_t now_us);

/* Judges the answer and fills in the verdict. */
extern void llmq_reply_judge(LlmqReply *reply, LlmqTransferEnd end, const char *detail,
							 int64_t now_us, LlmqVerdict *verdict);

#endif /* LLMQ_REPLY_PRIVATE_H */
