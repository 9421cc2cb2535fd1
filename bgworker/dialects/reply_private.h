/*
 * reply_private.h
 *		What the parts of the reply share: the driver, the error reader, the judge.
 *
 * The driver (reply.c) turns bytes into JSON values for the dialect and notes
 * the first error object (reply_error.c).  The judge (reply_verdict.c) looks at
 * all of it once, when the transfer has ended.
 */
#ifndef LLMQ_REPLY_PRIVATE_H
#define LLMQ_REPLY_PRIVATE_H

#include "dialects/reply.h"
#include "dialects/reply_dialect.h"
#include "wire/sse.h"

/* Headers that are looked at. */
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
	LLMQ_HEADER_ANTHROPIC_REQUESTS, /* remaining, likewise below; its reset comes after it */
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

/* What an error object said (the README of the cases: "Error object"). */
typedef struct LlmqErrorObject
{
	bool found;
	LlmqErrorClass name_class; /* by the name table, NONE if no name is in it */
	int number;				   /* 400..599 in code or status, else 0 */
	bool quota;				   /* by name, number, quota id or message */
	bool context;			   /* the message has a context phrase */
	bool bare;				   /* a type invalid_request_error without a code */
	int64_t hint_us;		   /* RetryInfo, -1: none */
	const char *message;	   /* clean, NULL if there is none */
} LlmqErrorObject;

/* What became of the body as a whole document. */
typedef enum LlmqDocument
{
	LLMQ_DOCUMENT_NONE,		 /* it is none, or not JSON */
	LLMQ_DOCUMENT_SHAPELESS, /* JSON that has not the dialect's shape */
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
	int bom_seen;	   /* bytes of a byte order mark passed over, -1: the body has begun */
	char first;		   /* the first byte that is no white space, 0: none yet */
	LlmqBuffer body;   /* a document */
	LlmqSlice root;	   /* its value */
	LlmqSse sse;	   /* a stream */
	LlmqBuffer frames; /* its frames as a JSON array, for the verdict's response */
	bool any_frame;
	bool done;		/* nothing more is wanted */
	bool malformed; /* a frame was read that is no JSON or has not the dialect's shape */
	bool too_large; /* over the cap before the terminal marker */
	LlmqDocument document;
};

/* Tells whether a stream has said how it ends. */
extern bool llmq_reply_marker_read(const LlmqReply *reply);

/* Looks for an error object in a value and notes the first; false if there is none. */
extern bool llmq_reply_find_error(LlmqReply *reply, LlmqSlice root);

/* The class of the noted error, in a 2xx and in another answer. */
extern LlmqErrorClass llmq_reply_error_in_success(const LlmqReply *reply);
extern LlmqErrorClass llmq_reply_error_by_status(const LlmqReply *reply);

/* How long the provider asks us to wait, -1: it does not. */
extern int64_t llmq_reply_retry_hint(const LlmqReply *reply, int64_t now_us);

/*
 * The longest x-ratelimit-reset of a kind of which nothing remains, -1: of each
 * something does, or the headers do not say.
 */
extern int64_t llmq_reply_exhausted(const LlmqReply *reply);

/*
 * Sets left_calls and left_for_us by the limit that leaves least for its time; tokens are
 * reckoned in calls like this one.  The verdict's counts must be there.
 */
extern void llmq_reply_left(const LlmqReply *reply, LlmqVerdict *verdict, int64_t now_us);

/* Judges the answer and fills in the verdict. */
extern void llmq_reply_judge(LlmqReply *reply, LlmqTransferEnd end, const char *detail,
							 int64_t now_us, LlmqVerdict *verdict);

#endif /* LLMQ_REPLY_PRIVATE_H */
