/*
 * transfer_end_test.c
 *		Ends that wait to be taken, and what libcurl says in words and versions that no server
 *		here brings about.
 */
#define _GNU_SOURCE /* strcasestr, in http_stub.h */
#include <curl/curl.h>

#include "transfer/transfer_private.h"
#include "http_stub.h"

/* The end of a call that libcurl has ended so; `sent` says whether its request had gone out. */
static LlmqTransferResult
end_of(CURLcode code, const char *words, int status, bool sent)
{
	LlmqTransfer *transfer = calloc(1, sizeof(*transfer));
	LlmqTransferResult result;

	transfer->easy = curl_easy_init();
	transfer->connected = transfer->upload_waited = sent;
	transfer->status = status;
	snprintf(transfer->error_text, sizeof(transfer->error_text), "%s", words);
	llmq_end_by_curl(transfer, (int) code);
	result = transfer->result;
	curl_easy_cleanup(transfer->easy);
	free(transfer);
	return result;
}

static void
check(CURLcode code, const char *words, int status, LlmqTransferEnd end, const char *detail,
	  const char *sentence)
{
	LlmqTransferResult result = end_of(code, words, status, true);

	if (!ok(result.end == end && strstr(result.detail, detail) == result.detail, "%s", sentence))
		printf("# end %d: %s\n", result.end, result.detail);
}

/* Ends that nobody has taken yet: the abort of one must leave the others in the list. */
static void
test_abort_of_ended(int which)
{
	LlmqTransferPool *pool = pool_make(4);
	int64_t limit = now_us() + HANG_US;
	Call calls[3];
	int ended = 0;
	int results = 0;

	for (int i = 0; i < 3; i++)
	{
		call_prepare(&calls[i], "http://127.0.0.1:1/");
		call_start(&calls[i], pool, &patient);
	}
	while (ended < 3 && now_us() < limit)
	{
		struct pollfd waited = {.fd = llmq_transfer_pool_fd(pool), .events = POLLIN};

		poll(&waited, 1, 5);
		llmq_transfer_pool_dispatch(pool, now_us());
		ended = 0;
		for (int i = 0; i < 3; i++)
			ended += calls[i].transfer->phase == LLMQ_PHASE_ENDED;
	}
	is_int(llmq_transfer_pool_timeout(pool, now_us()), 0,
		   "ends that wait to be taken are due at once");
	llmq_transfer_abort(pool, calls[which].transfer);
	pool_collect(pool);
	for (int i = 0; i < 3; i++)
		results += i == which ? -calls[i].results : calls[i].results;
	is_int(results, 2, "one that is aborted even so gives no result, and the others do");
	call_free(&calls[which]);
	call_prepare(&calls[which], "http://127.0.0.1:1/");
	call_start(&calls[which], pool, &patient);
	ok(pool_run(pool, 1) && calls[which].results == 1, "and so does the next");
	llmq_transfer_pool_destroy(pool);
	for (int i = 0; i < 3; i++)
		call_free(&calls[i]);
}

int
main(void)
{
	for (int which = 0; which < 3; which++)
		test_abort_of_ended(which);
	check(CURLE_OK, "", 103, LLMQ_END_NO_RESPONSE, "connection closed without an answer",
		  "content after an interim answer is no answer");
	check(CURLE_RECV_ERROR, "Too large response headers: 400000 > 307200", 200,
		  LLMQ_END_HEADERS_LARGE, "headers larger than the limit",
		  "libcurl's own limit of headers is ours");
	check(CURLE_RECV_ERROR, "", 200, LLMQ_END_SHORT, "connection ended: ",
		  "an end without an error of the network is one by the other side: short of an answer");
	check(CURLE_RECV_ERROR, "", 0, LLMQ_END_NO_RESPONSE, "connection ended: ", "or without one");
	check(CURLE_OPERATION_TIMEDOUT, "", 0, LLMQ_END_TIMEOUT, "", "a clock of libcurl's is a clock");
	check(CURLE_HTTP2, "secret of a header", 200, LLMQ_END_RESET,
		  "connection broken: ", "what nobody has thought of is a broken connection");
	ok(strstr(end_of(CURLE_HTTP2, "secret of a header", 200, true).detail, "secret") == NULL,
	   "in words that hold no header");
	check(CURLE_RECV_ERROR,
		  "b\xC3\xBC"
		  "cher\x01",
		  0, LLMQ_END_NO_RESPONSE, "connection ended: b??cher?", "words are shown in ASCII");
	ok(end_of(CURLE_COULDNT_CONNECT, "", 0, false).detail[0] != '\0' &&
		   end_of(CURLE_COULDNT_CONNECT, "", 0, false).end == LLMQ_END_NOT_SENT,
	   "a failure without words has those of its code");
	return tap_done();
}
