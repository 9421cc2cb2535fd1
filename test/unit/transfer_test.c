/*
 * transfer_test.c
 *		How transfers end: what is sent, what comes back, and what it is called.
 */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "http_stub.h"

#define FRAME "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"
#define DONE                                                                          \
	"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" \
	"data: [DONE]\n\n"

/* FRAME is 58 bytes long. */
#define FRAME_LENGTH "58"
#define FRAME_CHUNK	 "3a\r\n" FRAME "\r\n"

/* The frame, compressed. */
static const char gzip_frame[] =
	"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x0d\xc8\xc1\x09\x80\x30\x0c\x05\xd0\x7b\xa7\x90\x7f"
	"\x76\x82\xac\x22\x22\xa1\x8d\x34\x20\x89\x98\xdc\x4a\x77\xb7\xef\xf8\x1a\x27\xd3\x36\x50\xbb"
	"\x6b\x95\x00\x1d\x03\x4d\x9e\x64\xd0\x4a\xb7\x14\x4b\x10\xba\x62\xee\xb8\xd5\x34\xfa\xf5\x09"
	"\x87\xdb\xda\x48\x7f\x31\xcf\x59\xca\x0f\x36\x14\x47\xbf\x47\x00\x00\x00";

/* -- Answers that are a fixed string and an ending ------------------------------- */

typedef enum Ending
{
	FIN,
	RST,
	HOLD
} Ending;

typedef struct Scene
{
	const char *sentence;
	const char *bytes;
	Ending ending;
	LlmqTransferEnd end;
	int status;
	int body_bytes;
	const char *detail; /* its beginning */
} Scene;

static const Scene scenes[] = {
	{"an answer with a length is complete",
	 OK_HEAD "Content-Length: " FRAME_LENGTH "\r\n\r\n" FRAME, HOLD, LLMQ_END_COMPLETE, 200, 58,
	 ""},
	{"an answer in chunks is complete",
	 OK_HEAD "Transfer-Encoding: chunked\r\n\r\n" FRAME_CHUNK "0\r\n\r\n", HOLD, LLMQ_END_COMPLETE,
	 200, 58, ""},
	{"an answer that ends with the connection is complete", OK_HEAD "\r\n" FRAME, FIN,
	 LLMQ_END_COMPLETE, 200, 58, ""},
	{"an HTTP/1.0 answer is complete", "HTTP/1.0 200 OK\r\n\r\n" FRAME, FIN, LLMQ_END_COMPLETE, 200,
	 58, ""},
	{"an old continuation of a header is passed over",
	 OK_HEAD "X-Folded: a\r\n b\r\nContent-Length: " FRAME_LENGTH "\r\n\r\n" FRAME, HOLD,
	 LLMQ_END_COMPLETE, 200, 58, ""},
	{"a header that begins as a status line does is a header",
	 OK_HEAD "HTTP/:1\r\nContent-Length: " FRAME_LENGTH "\r\n\r\n" FRAME, HOLD, LLMQ_END_COMPLETE,
	 200, 58, ""},
	{"an answer without a body is complete", "HTTP/1.1 204 No Content\r\n\r\n", HOLD,
	 LLMQ_END_COMPLETE, 204, 0, ""},
	{"an interim answer is followed by the real one",
	 "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK_HEAD "Content-Length: " FRAME_LENGTH
	 "\r\n\r\n" FRAME,
	 HOLD, LLMQ_END_COMPLETE, 200, 58, ""},
	{"trailers belong to a complete answer",
	 OK_HEAD "Transfer-Encoding: chunked\r\n\r\n" FRAME_CHUNK "0\r\nX-Late: 1\r\n\r\n", HOLD,
	 LLMQ_END_COMPLETE, 200, 58, ""},
	{"a FIN before the announced length is short", OK_HEAD "Content-Length: 200\r\n\r\n" FRAME, FIN,
	 LLMQ_END_SHORT, 200, 58, "connection closed before the announced end"},
	{"a FIN between chunks is short", OK_HEAD "Transfer-Encoding: chunked\r\n\r\n" FRAME_CHUNK, FIN,
	 LLMQ_END_SHORT, 200, 58, "connection closed before the announced end"},
	{"a FIN within a chunk is short", OK_HEAD "Transfer-Encoding: chunked\r\n\r\n3a\r\ndata: ", FIN,
	 LLMQ_END_SHORT, 200, 6, "connection closed before the announced end"},
	{"a FIN within the headers is short", "HTTP/1.1 200 OK\r\nContent-Ty", FIN, LLMQ_END_SHORT, 200,
	 0, "connection closed within the headers"},
	{"a FIN after the request is no response", "", FIN, LLMQ_END_NO_RESPONSE, 0, 0,
	 "connection closed without an answer"},
	{"a FIN within the status line is no response", "HTTP/1.", FIN, LLMQ_END_NO_RESPONSE, 0, 0,
	 "connection closed without an answer"},
	{"a FIN after an interim answer is no response", "HTTP/1.1 103 Early Hints\r\n\r\n", FIN,
	 LLMQ_END_NO_RESPONSE, 0, 0, "connection closed without an answer"},
	{"bytes that are not HTTP are no response", "SSH-2.0-OpenSSH_9.2\r\n\r\n", FIN,
	 LLMQ_END_NO_RESPONSE, 0, 0, "the answer is not HTTP"},
	{"a RST after the request is a reset", "", RST, LLMQ_END_RESET, 0, 0,
	 "connection broken: Recv failure: Connection reset by peer"},
	{"an encoding nobody offered is a bad encoding",
	 OK_HEAD "Content-Encoding: zstd\r\nContent-Length: 4\r\n\r\nabcd", HOLD, LLMQ_END_BAD_ENCODING,
	 200, 0, "unreadable answer"},
	{"an unknown encoding among known ones is a bad encoding",
	 OK_HEAD "content-encoding: gzip, rot13\r\nContent-Length: 4\r\n\r\nabcd", HOLD,
	 LLMQ_END_BAD_ENCODING, 200, 0, "unreadable answer"},
	{"a plain body that is said to be compressed is a bad encoding",
	 OK_HEAD "Content-Encoding: gzip\r\nContent-Length: " FRAME_LENGTH "\r\n\r\n" FRAME, HOLD,
	 LLMQ_END_BAD_ENCODING, 200, 0, "unreadable answer"},
	{"chunks without a length are a bad encoding",
	 OK_HEAD "Transfer-Encoding: chunked\r\n\r\nxyz\r\n" FRAME, HOLD, LLMQ_END_BAD_ENCODING, 200, 0,
	 "broken chunks"},
	{"a chunk's length of too many digits is a bad encoding",
	 OK_HEAD "Transfer-Encoding: chunked\r\n\r\n000000000000000000000000003a\r\n" FRAME, HOLD,
	 LLMQ_END_BAD_ENCODING, 200, 0, "broken chunks"},
	{"a chunk longer than its length is a bad encoding",
	 OK_HEAD "Transfer-Encoding: chunked\r\n\r\n3a\r\n" FRAME "more\r\n", HOLD,
	 LLMQ_END_BAD_ENCODING, 200, 58, "broken chunks"},
	{"a redirect is an answer, not a way",
	 "HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", HOLD,
	 LLMQ_END_COMPLETE, 307, 0, ""},
	{"a demand for a password is an answer",
	 "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", HOLD,
	 LLMQ_END_COMPLETE, 401, 0, ""},
	{"a stream that says it is done ends although the connection stays", OK_HEAD "\r\n" FRAME DONE,
	 HOLD, LLMQ_END_STOPPED, 200, -1, ""},
};

static const Scene *scene;

static void
play_scene(Stub *stub, int fd, int number)
{
	if (!read_request(stub, fd))
		return;
	send_text(fd, scene->bytes);
	if (scene->ending == RST)
		reset_on_close(fd);
	if (scene->ending == HOLD)
		while (read_request(stub, fd))
			;
}

static void
check_scene(const Scene *played)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;
	Call call;

	scene = played;
	stub_start(&stub, play_scene);
	call_begin(&call, pool, &stub, &patient);
	if (!ok(pool_run(pool, 1) && call.result.end == scene->end, "%s", scene->sentence))
		printf("# end %d instead of %d: %s\n", call.result.end, scene->end, call.result.detail);
	is_int(call.verdict.http_status, scene->status, "... with its status");
	if (scene->body_bytes >= 0)
		is_int((int64_t) call.verdict.bytes_in, scene->body_bytes, "... and its body");
	if (!ok(strncmp(call.result.detail, scene->detail, strlen(scene->detail)) == 0 &&
				(scene->detail[0] == '\0') == (call.result.detail[0] == '\0'),
			"... and its words"))
		printf("# detail: %s\n", call.result.detail);
	is_int(atomic_load(&stub.requests), 1, "... after one request");
	ok(!call.result.local_trouble, "... and no trouble of our own");
	llmq_transfer_pool_destroy(pool);
	call_free(&call);
	stub_stop(&stub);
}

/* -- Answers that need a script of their own --------------------------------------- */

/* Plays a script for one call and checks how it ended; the verdict goes to the caller. */
static LlmqVerdict
check_script(StubScript script, LlmqTransferEnd end, const char *sentence)
{
	LlmqTransferPool *pool = pool_make(4);
	LlmqVerdict verdict;
	Stub stub;
	Call call;

	stub_start(&stub, script);
	call_begin(&call, pool, &stub, &patient);
	if (!ok(pool_run(pool, 1) && call.result.end == end, "%s", sentence))
		printf("# end %d instead of %d: %s\n", call.result.end, end, call.result.detail);
	verdict = call.verdict;
	verdict.request_id = NULL;
	llmq_transfer_pool_destroy(pool);
	call_free(&call);
	stub_stop(&stub);
	return verdict;
}

static void
reset_in_body(Stub *stub, int fd, int number)
{
	read_request(stub, fd);
	send_text(fd, OK_HEAD "Content-Length: 200\r\n\r\n" FRAME);
	reset_on_close(fd);
}

static void
compressed(Stub *stub, int fd, int number)
{
	char head[128];

	read_request(stub, fd);
	snprintf(head, sizeof(head), OK_HEAD "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
			 sizeof(gzip_frame) - 1);
	send_text(fd, head);
	send_bytes(fd, gzip_frame, sizeof(gzip_frame) - 1);
	hold(fd);
}

static void
long_header(Stub *stub, int fd, int number)
{
	char *value = malloc(400001);

	memset(value, 'x', 400000);
	value[400000] = '\0';
	read_request(stub, fd);
	send_text(fd, OK_HEAD "X-Long: ");
	send_text(fd, value);
	send_text(fd, "\r\nContent-Length: 0\r\n\r\n");
	hold(fd);
	free(value);
}

static void
many_headers(Stub *stub, int fd, int number)
{
	read_request(stub, fd);
	send_text(fd, OK_HEAD);
	for (int i = 0; i < 20000; i++)
		send_text(fd, "X-Many: 0123456789\r\n");
	send_text(fd, "Content-Length: 0\r\n\r\n");
	hold(fd);
}

static void
endless_body(Stub *stub, int fd, int number)
{
	static const char zeros[65536];
	struct pollfd left = {.fd = fd, .events = POLLIN};

	read_request(stub, fd);
	send_text(fd, OK_HEAD "\r\n");
	while (poll(&left, 1, 0) == 0)
		send_bytes(fd, zeros, sizeof(zeros));
}

/* A stream that is done, and goes on: in one piece, with a trailer. */
static void
done_and_more(Stub *stub, int fd, int number)
{
	char text[1024];

	read_request(stub, fd);
	snprintf(text, sizeof(text),
			 OK_HEAD "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n%s0\r\nX-Late: 1\r\n\r\n",
			 strlen(DONE), DONE, FRAME_CHUNK);
	send_text(fd, text);
	hold(fd);
}

static void
test_scripts(void)
{
	LlmqVerdict verdict;

	check_script(reset_in_body, LLMQ_END_RESET, "a RST within the body is a reset");
	verdict = check_script(compressed, LLMQ_END_COMPLETE, "a compressed body is undone");
	is_int((int64_t) verdict.bytes_in, 71, "... and counted as what it holds");
	verdict = check_script(done_and_more, LLMQ_END_STOPPED, "what follows the end is not read");
	is_int(verdict.error_class, LLMQ_ERROR_EMPTY_RESPONSE, "... neither frame nor trailer");
	check_script(long_header, LLMQ_END_HEADERS_LARGE, "a header line of 400 kB is too large");
	check_script(many_headers, LLMQ_END_HEADERS_LARGE, "400 kB of headers are too large");
	check_script(endless_body, LLMQ_END_STOPPED, "a body over the cap is stopped");
}

/* Two are enough to ask; the resolver that has none does not say why it failed. */
static void
test_resolver_without_descriptors(void)
{
	LlmqTransferPool *pool = pool_make(4);
	struct rlimit old;
	struct rlimit none;
	Call call;

	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = (rlim_t) dup(0) + 2;
	close((int) none.rlim_cur - 2);
	call_prepare(&call, "http://no-such-host.invalid/");
	setrlimit(RLIMIT_NOFILE, &none);
	call_start(&call, pool, &patient);
	pool_run(pool, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	ok(call.result.end == LLMQ_END_NOT_SENT && call.result.local_trouble,
	   "a name that nobody can be asked for want of descriptors is trouble of our own");
	llmq_transfer_pool_destroy(pool);
	call_free(&call);
}

/* -- Connections used again ----------------------------------------------------------- */

static void
keep_answering(Stub *stub, int fd, int number)
{
	while (read_request(stub, fd))
		send_text(fd, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n" FRAME_CHUNK "0\r\n\r\n");
}

/* Runs one call to its end; the end. */
static LlmqTransferEnd
one_call(LlmqTransferPool *pool, const Stub *stub)
{
	LlmqTransferEnd end;
	Call call;

	call_begin(&call, pool, stub, &patient);
	pool_run(pool, 1);
	end = call.result.end;
	call_free(&call);
	return end;
}

static void
test_keep_alive(void)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;
	int complete = 0;

	stub_start(&stub, keep_answering);
	for (int i = 0; i < 20; i++)
		complete += one_call(pool, &stub) == LLMQ_END_COMPLETE;
	is_int(complete, 20, "twenty calls after another are answered");
	is_int(atomic_load(&stub.requests), 20, "... by twenty requests");
	is_int(atomic_load(&stub.connections), 1, "... on one connection");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

static void
end_in_one_piece(Stub *stub, int fd, int number)
{
	while (read_request(stub, fd))
		send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n");
}

static void
test_done_keeps_alive(void)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;

	stub_start(&stub, end_in_one_piece);
	is_int(one_call(pool, &stub), LLMQ_END_STOPPED, "a reply that is done stops its transfer");
	one_call(pool, &stub);
	is_int(atomic_load(&stub.connections), 1,
		   "a stream whose end came with its last event leaves its connection usable");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

static bool drop_with_reset;

/* Answers once; reads a second request on the same connection and closes. */
static void
drop_second(Stub *stub, int fd, int number)
{
	if (!read_request(stub, fd))
		return;
	send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
	read_request(stub, fd);
	if (drop_with_reset)
		reset_on_close(fd);
}

static void
test_dropped_connection(bool reset)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;
	Call call;

	drop_with_reset = reset;
	stub_start(&stub, drop_second);
	one_call(pool, &stub);
	call_begin(&call, pool, &stub, &patient);
	pool_run(pool, 1);
	ok(call.result.end == LLMQ_END_NO_RESPONSE || (reset && call.result.end == LLMQ_END_RESET),
	   "a reused connection closed after the request (%s) is no response", reset ? "RST" : "FIN");
	is_int(atomic_load(&stub.requests), 2, "... and the request was not sent again");
	is_int(atomic_load(&stub.connections), 1, "... not even a connection was made for it");
	printf("# detail: %s\n", call.result.detail);
	call_free(&call);
	is_int(one_call(pool, &stub), LLMQ_END_COMPLETE, "... and the next call is none the worse");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

static void
answer_and_leave(Stub *stub, int fd, int number)
{
	if (read_request(stub, fd))
		send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
	shutdown(fd, SHUT_RDWR);
	atomic_fetch_add(&stub->marks, 1);
}

/* The FIN is there before the second call: libcurl sees it and takes a new connection. */
static void
test_idle_connection_closed(void)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;

	stub_start(&stub, answer_and_leave);
	one_call(pool, &stub);
	await(&stub.marks, 1);
	is_int(one_call(pool, &stub), LLMQ_END_COMPLETE,
		   "a connection closed while at rest costs the next call nothing");
	is_int(atomic_load(&stub.requests), 2, "... and no second request");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* Answers a first request, and then once more; all others are told that it is no. */
static void
answer_twice(Stub *stub, int fd, int number)
{
	if (number == 1 && read_request(stub, fd))
	{
		send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
		await(&stub->marks, 1);
		send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
		atomic_fetch_add(&stub->marks, 1);
	}
	while (read_request(stub, fd))
		send_text(fd, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
}

static void
test_surplus_answer(void)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;
	Call call;

	stub_start(&stub, answer_twice);
	one_call(pool, &stub);
	atomic_fetch_add(&stub.marks, 1);
	await(&stub.marks, 2);
	call_begin(&call, pool, &stub, &patient);
	pool_run(pool, 1);
	is_int(call.result.end, LLMQ_END_COMPLETE,
		   "a server that answered twice answers the next call");
	is_int(call.verdict.http_status, 404, "... whose answer is its own, not the surplus one");
	is_int(atomic_load(&stub.requests), 2, "... which was sent once");
	is_int(atomic_load(&stub.connections), 2, "... over a new connection");
	call_free(&call);
	one_call(pool, &stub);
	is_int(atomic_load(&stub.connections), 2, "... that is used again");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

static void
test_own_connection(void)
{
	LlmqTransferPool *pool = pool_make(4);
	Stub stub;
	Call call;

	stub_start(&stub, keep_answering);
	one_call(pool, &stub);
	call_prepare(&call, "");
	snprintf(call.url, sizeof(call.url), "http://127.0.0.1:%d/v1", stub.port);
	call.request.own_connection = true;
	call_start(&call, pool, &patient);
	pool_run(pool, 1);
	call_free(&call);
	is_int(atomic_load(&stub.connections), 2, "a request may have a connection of its own");
	one_call(pool, &stub);
	is_int(atomic_load(&stub.connections), 2, "... that nobody else gets");
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* -- Nothing was sent ------------------------------------------------------------------- */

static void
check_not_sent(const char *url, const char *sentence)
{
	LlmqTransferPool *pool = pool_make(4);
	Call call;

	call_prepare(&call, url);
	call_start(&call, pool, &patient);
	ok(pool_run(pool, 1) && call.result.end == LLMQ_END_NOT_SENT, "%s was not sent", sentence);
	ok(!call.result.local_trouble, "... which is no trouble of our own");
	ok(call.result.detail[0] != '\0' && strstr(call.result.detail, "sekret") == NULL,
	   "... and is told without the secrets of the url");
	printf("# detail: %s\n", call.result.detail);
	call_free(&call);
	llmq_transfer_pool_destroy(pool);
}

static void
test_refused(void)
{
	char url[128];
	Stub stub;

	stub_start(&stub, NULL);
	stub_stop(&stub);
	snprintf(url, sizeof(url), "http://user:sekret@127.0.0.1:%d/?key=sekret", stub.port);
	check_not_sent(url, "a call to a port nobody listens on");
	check_not_sent("http://user:sekret@no-such-host.invalid/?key=sekret", "a call to no host");
}

static void
answer_plainly(Stub *stub, int fd, int number)
{
	char bytes[512];

	if (recv(fd, bytes, sizeof(bytes), 0) > 0)
		send_text(fd, "HTTP/1.0 400 Bad Request\r\n\r\n");
}

static void
test_tls_against_plain(void)
{
	char url[128];
	Stub stub;

	stub_start(&stub, answer_plainly);
	snprintf(url, sizeof(url), "https://127.0.0.1:%d/?key=sekret", stub.port);
	check_not_sent(url, "a TLS call to a port without TLS");
	stub_stop(&stub);
}

static void
test_refused_at_start(void)
{
	static const char *const urls[] = {"file:///etc/passwd", "smtp://127.0.0.1/", "no url", "",
									   "http://"};
	LlmqTransferPool *pool = pool_make(1);
	Call call;

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
	{
		call_prepare(&call, urls[i]);
		ok(!call_start(&call, pool, &patient) && call.error[0] != '\0',
		   "the url \"%s\" is refused at once", urls[i]);
		call_free(&call);
	}
	call_prepare(&call, "http://127.0.0.1:1/");
	ok(!call_start(&call, pool, &(LlmqClocks){.idle_us = 1}) && call.error[0] != '\0',
	   "so is a call without a clock for the whole attempt");
	call_free(&call);
	is_int(llmq_transfer_pool_count(pool), 0, "... and leaves nothing in flight");
	llmq_transfer_pool_destroy(pool);
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		check_scene(&scenes[i]);
	test_scripts();
	test_keep_alive();
	test_done_keeps_alive();
	test_dropped_connection(false);
	test_dropped_connection(true);
	test_idle_connection_closed();
	test_surplus_answer();
	test_own_connection();
	test_resolver_without_descriptors();
	test_refused();
	test_tls_against_plain();
	test_refused_at_start();
	return tap_done();
}
