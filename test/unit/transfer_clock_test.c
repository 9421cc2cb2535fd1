/*
 * transfer_clock_test.c
 *		Time and want: clocks, many transfers at once, a stuck resolver, abort,
 *		and a process without descriptors.
 *
 * getaddrinfo is replaced for the whole program: the hosts of stuck.test (which
 * then are not found) and crowd.test (which is the loopback) resolve when the
 * test says so, and not before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>

#include "http_stub.h"

/* More than the kernel takes into its buffers at once. */
#define UPLOAD ((size_t) 32 * 1048576)

/* -- The stuck resolver ------------------------------------------------------------ */

static atomic_int resolver_released;
static atomic_int resolver_entered;
static atomic_int resolver_left;
static atomic_int resolver_blocks_sigterm;
static atomic_int crowd_entered;
static atomic_int crowd_released;

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
		dlsym(RTLD_NEXT, "getaddrinfo");
	sigset_t mask;

	if (hints != NULL && hints->ai_family == AF_INET6)
		return EAI_NONAME; /* newer libcurls ask for each family by itself: counted once */
	if (node != NULL && strcmp(node, "crowd.test") == 0)
	{
		atomic_fetch_add(&crowd_entered, 1);
		await(&crowd_released, 1);
		return real("127.0.0.1", service, hints, result);
	}
	if (node == NULL || strstr(node, "stuck.test") == NULL)
		return real(node, service, hints, result);
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	atomic_store(&resolver_blocks_sigterm, sigismember(&mask, SIGTERM));
	atomic_fetch_add(&resolver_entered, 1);
	await(&resolver_released, 1);
	atomic_fetch_add(&resolver_left, 1);
	return EAI_NONAME;
}

/* -- Scripts ------------------------------------------------------------------------ */

static void
say_nothing(Stub *stub, int fd, int number)
{
	read_request(stub, fd);
	hold(fd);
	atomic_fetch_add(&stub->marks, 1);
}

static void
stall_in_body(Stub *stub, int fd, int number)
{
	read_request(stub, fd);
	send_text(fd, OK_HEAD "Content-Length: 100\r\n\r\n: ping\n\n");
	hold(fd);
}

/* One byte every 20 ms, for ever. */
static void
drip(Stub *stub, int fd, int number)
{
	struct pollfd left = {.fd = fd, .events = POLLIN};

	read_request(stub, fd);
	send_text(fd, OK_HEAD "\r\n");
	while (poll(&left, 1, 20) == 0)
		send_text(fd, ":");
}

static void
drip_headers(Stub *stub, int fd, int number)
{
	struct pollfd left = {.fd = fd, .events = POLLIN};

	read_request(stub, fd);
	send_text(fd, OK_HEAD "X-Slow: ");
	while (poll(&left, 1, 20) == 0)
		send_text(fd, "x");
}

/*
 * Reads 20 kB every 5 ms for half a second, then the rest at once: what is left
 * in the kernel's buffers at the end is soon gone, so that the request is out
 * late whatever their size.
 */
static void
read_slowly(Stub *stub, int fd, int number)
{
	static char bytes[20 * 1024];
	size_t wanted = UPLOAD;

	for (int turn = 0; wanted > 0; turn++)
	{
		ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

		if (got <= 0)
			return;
		wanted -= (size_t) got < wanted ? (size_t) got : wanted;
		if (turn < 100)
			poll(NULL, 0, 5);
	}
	atomic_fetch_add(&stub->requests, 1);
	send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
	hold(fd);
}

/* Until the test has seen enough: a FIN would not get past what is not read. */
static void
never_read(Stub *stub, int fd, int number)
{
	await(&stub->marks, 1);
}

/* A head and the beginning of a body, before the request was read. */
static void
answer_unread(Stub *stub, int fd, int number)
{
	send_text(fd, OK_HEAD "Content-Length: 100\r\n\r\nbegin");
	await(&stub->marks, 1);
}

static void
answer_after_100ms(Stub *stub, int fd, int number)
{
	read_request(stub, fd);
	poll(NULL, 0, 100);
	send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
	hold(fd);
}

static void
answer(Stub *stub, int fd, int number)
{
	while (read_request(stub, fd))
		send_text(fd, OK_HEAD "Content-Length: 0\r\n\r\n");
}

/* -- One clock at a time --------------------------------------------------------------- */

typedef struct ClockCase
{
	const char *sentence;
	StubScript script;
	const char *scheme;
	LlmqClocks clocks;
	LlmqTransferEnd end;
	int64_t after_us;
	const char *detail;
} ClockCase;

static const ClockCase clock_cases[] = {
	{"the attempt clock ends a silent server",
	 say_nothing,
	 "http",
	 {.attempt_us = SECONDS(0.2)},
	 LLMQ_END_TIMEOUT,
	 SECONDS(0.2),
	 "no whole answer within 0.2 s"},
	{"the first-byte clock ends a silent server",
	 say_nothing,
	 "http",
	 {.first_byte_us = SECONDS(0.15), .idle_us = SECONDS(0.05), .attempt_us = SECONDS(15)},
	 LLMQ_END_TIMEOUT,
	 SECONDS(0.15),
	 "no byte within 0.15 s"},
	{"the idle clock ends a stalled body",
	 stall_in_body,
	 "http",
	 {.first_byte_us = SECONDS(10), .idle_us = SECONDS(0.15), .attempt_us = SECONDS(15)},
	 LLMQ_END_TIMEOUT,
	 SECONDS(0.15),
	 "no further byte within 0.15 s"},
	{"the attempt clock ends a server that drips",
	 drip,
	 "http",
	 {.first_byte_us = SECONDS(5), .idle_us = SECONDS(5), .attempt_us = SECONDS(0.4)},
	 LLMQ_END_TIMEOUT,
	 SECONDS(0.4),
	 "no whole answer within 0.4 s"},
	{"the attempt clock ends a server that drips a header",
	 drip_headers,
	 "http",
	 {.first_byte_us = SECONDS(5), .idle_us = SECONDS(0.3), .attempt_us = SECONDS(0.8)},
	 LLMQ_END_TIMEOUT,
	 SECONDS(0.8),
	 "no whole answer within 0.8 s"},
	{"the connect clock ends a TLS handshake without an answer",
	 say_nothing,
	 "https",
	 {.connect_us = SECONDS(0.15), .first_byte_us = SECONDS(0.05), .attempt_us = SECONDS(15)},
	 LLMQ_END_NOT_SENT,
	 SECONDS(0.15),
	 "no connection within 0.15 s"},
	{"the attempt clock ends a TLS handshake too",
	 say_nothing,
	 "https",
	 {.connect_us = SECONDS(15), .attempt_us = SECONDS(0.15)},
	 LLMQ_END_NOT_SENT,
	 SECONDS(0.15),
	 "no connection within 0.15 s"},
};

static void
check_clock(const ClockCase *tried)
{
	LlmqTransferPool *pool = pool_make(2);
	char url[64];
	Stub stub;
	Call call;

	stub_start(&stub, tried->script);
	snprintf(url, sizeof(url), "%s://127.0.0.1:%d/", tried->scheme, stub.port);
	call_prepare(&call, url);
	call_start(&call, pool, &tried->clocks);
	ok(pool_run(pool, 1) && call.result.end == tried->end, "%s", tried->sentence);
	is_string(call.result.detail, tried->detail, "... and says which clock it was");
	ok(call.took_us >= tried->after_us, "... not before its time");
	ok(!call.result.local_trouble, "... which is no trouble of our own");
	llmq_transfer_pool_destroy(pool);
	call_free(&call);
	stub_stop(&stub);
}

/* -- Slow uploads ------------------------------------------------------------------------ */

static char last_detail[256];

static void
check_upload(StubScript script, const LlmqClocks *clocks, LlmqTransferEnd end, const char *sentence)
{
	LlmqTransferPool *pool = pool_make(2);
	char *body = calloc(1, UPLOAD);
	char url[64];
	Stub stub;
	Call call;

	stub_start(&stub, script);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", stub.port);
	call_prepare(&call, url);
	call.request.body = body;
	call.request.body_len = UPLOAD;
	call_start(&call, pool, clocks);
	ok(pool_run(pool, 1) && call.result.end == end, "%s", sentence);
	snprintf(last_detail, sizeof(last_detail), "%s", call.result.detail);
	atomic_store(&stub.marks, 1);
	printf("# after %.3f s: end %d %s\n", (double) call.took_us / 1e6, call.result.end,
		   call.result.detail);
	llmq_transfer_pool_destroy(pool);
	call_free(&call);
	stub_stop(&stub);
	free(body);
}

static void
test_uploads(void)
{
	LlmqClocks clocks = {.first_byte_us = SECONDS(0.2), .idle_us = SECONDS(0.2)};

	clocks.attempt_us = SECONDS(15);
	check_upload(read_slowly, &clocks, LLMQ_END_COMPLETE,
				 "a request read slowly is not held against the first byte");
	clocks.attempt_us = SECONDS(0.4);
	check_upload(never_read, &clocks, LLMQ_END_TIMEOUT,
				 "a request that is not read ends by the attempt clock");
	is_string(last_detail, "no whole answer within 0.4 s", "... and says so");
	clocks.attempt_us = SECONDS(15);
	check_upload(answer_unread, &clocks, LLMQ_END_TIMEOUT,
				 "one that was answered unread ends by the idle clock");
	is_string(last_detail, "no further byte within 0.2 s", "... and says so");
}

/* -- Many at once -------------------------------------------------------------------------- */

static void
test_parallel(void)
{
	enum
	{
		COUNT = 200
	};
	LlmqTransferPool *pool = pool_make(COUNT);
	Call *calls = calloc(COUNT, sizeof(Call));
	int complete = 0;
	int64_t began = now_us();
	Call extra;
	Stub stub;

	stub_start(&stub, answer_after_100ms);
	for (int i = 0; i < COUNT; i++)
		call_begin(&calls[i], pool, &stub, &patient);
	is_int(llmq_transfer_pool_count(pool), COUNT, "two hundred calls are in flight at once");
	ok(!call_begin(&extra, pool, &stub, &patient), "... and one more is refused");
	call_free(&extra);
	pool_run(pool, COUNT);
	for (int i = 0; i < COUNT; i++)
	{
		complete += calls[i].results == 1 && calls[i].result.end == LLMQ_END_COMPLETE;
		call_free(&calls[i]);
	}
	printf("# 200 calls of 100 ms: %.3f s\n", (double) (now_us() - began) / 1e6);
	is_int(complete, COUNT, "... each ends once, complete");
	ok(now_us() - began < COUNT * SECONDS(0.1) / 4, "... and they do not wait for each other");
	is_int(llmq_transfer_pool_count(pool), 0, "... and none is left");
	free(calls);
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* Clocks of many transfers, given a time that jumps: they end in the order of their clocks. */
static void
test_order_of_clocks(void)
{
	enum
	{
		COUNT = 300
	};
	LlmqTransferPool *pool = pool_make(COUNT);
	Call *calls = calloc(COUNT, sizeof(Call));
	LlmqTransferResult result;
	int64_t base = now_us();
	int in_time = 0;
	Stub stub;

	stub_start(&stub, NULL);
	for (int i = 0; i < COUNT; i++)
	{
		LlmqClocks clocks = {.attempt_us = SECONDS(1000 + (i * 7919) % COUNT)};

		call_begin(&calls[i], pool, &stub, &clocks);
		calls[i].began_us += clocks.attempt_us;
	}
	for (int second = 0; second < COUNT; second++)
	{
		int64_t now = base + SECONDS(1001 + second);
		int ended = 0;

		llmq_transfer_pool_dispatch(pool, now);
		while (llmq_transfer_pool_next(pool, &result))
		{
			ended++;
			in_time += ((Call *) result.owner)->began_us <= now;
		}
		in_time -= ended != 1;
	}
	is_int(in_time, COUNT, "three hundred clocks run out each at its second");
	is_int(llmq_transfer_pool_timeout(pool, now_us()), -1, "a pool at rest asks for no wake-up");
	for (int i = 0; i < COUNT; i++)
		call_free(&calls[i]);
	free(calls);
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* -- Abort ------------------------------------------------------------------------------------ */

static void
test_abort(void)
{
	LlmqTransferPool *pool = pool_make(2);
	LlmqTransferResult result;
	Stub stub;
	Call call;
	Call other;

	stub_start(&stub, say_nothing);
	call_begin(&call, pool, &stub, &patient);
	pool_run_until(pool, &stub.requests, 1);
	llmq_transfer_abort(pool, call.transfer);
	ok(await(&stub.marks, 1), "an abort closes the connection at once");
	is_int(llmq_transfer_pool_count(pool), 0, "... leaves nothing in flight");
	llmq_transfer_pool_dispatch(pool, now_us());
	ok(!llmq_transfer_pool_next(pool, &result), "... and gives no result");
	call_free(&call);

	call_begin(&call, pool, &stub, &(LlmqClocks){.attempt_us = 1});
	call_begin(&other, pool, &stub, &(LlmqClocks){.attempt_us = 2});
	llmq_transfer_pool_dispatch(pool, now_us() + 10);
	llmq_transfer_abort(pool, call.transfer);
	ok(llmq_transfer_pool_next(pool, &result) && result.owner == &other &&
		   !llmq_transfer_pool_next(pool, &result),
	   "an abort takes back a result that was not fetched");
	call_free(&call);
	call_free(&other);
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* -- A resolver that hangs --------------------------------------------------------------------- */

/* Lets all go that hang in it: this many. */
static void
release_resolver(int count)
{
	atomic_store(&resolver_released, 1);
	await(&resolver_left, count);
	atomic_store(&resolver_released, 0);
	atomic_store(&resolver_entered, 0);
	atomic_store(&resolver_left, 0);
}

static void
test_stuck_resolver(void)
{
	LlmqTransferPool *pool = pool_make(4);
	LlmqClocks brief = {.connect_us = SECONDS(0.15), .attempt_us = SECONDS(15)};
	sigset_t mask;
	int64_t began;
	Stub stub;
	Call stuck;
	Call aborted;
	Call other;

	stub_start(&stub, answer);
	call_prepare(&stuck, "http://stuck.test/");
	call_prepare(&aborted, "http://stuck.test/");
	call_start(&stuck, pool, &brief);
	call_start(&aborted, pool, &patient);
	pool_run_until(pool, &resolver_entered, 2);
	call_begin(&other, pool, &stub, &patient);
	pool_run(pool, 2);
	is_int(other.result.end, LLMQ_END_COMPLETE, "a stuck resolver does not hold up other calls");
	is_int(stuck.result.end, LLMQ_END_NOT_SENT, "... its own call ends by the connect clock");
	is_string(stuck.result.detail, "no connection within 0.15 s", "... and says so");
	ok(!stuck.result.local_trouble, "... which is no trouble of our own");
	is_int(atomic_load(&resolver_blocks_sigterm), 1, "... its thread takes no signal");
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	is_int(sigismember(&mask, SIGTERM), 0, "... and ours still does");
	began = now_us();
	llmq_transfer_abort(pool, aborted.transfer);
	ok(now_us() - began < HANG_US / 4, "an abort does not wait for the resolver");
	call_start(&aborted, pool, &patient);
	pool_run_until(pool, &resolver_entered, 3);
	began = now_us();
	llmq_transfer_pool_destroy(pool);
	ok(now_us() - began < HANG_US / 4, "the end of the pool does not wait for the resolver");
	is_int(atomic_load(&resolver_left), 0, "... which was stuck all the time");
	release_resolver(3);
	call_free(&stuck);
	call_free(&aborted);
	call_free(&other);
	stub_stop(&stub);
}

static void
test_stuck_hosts(void)
{
	enum
	{
		COUNT = 60
	};
	LlmqTransferPool *pool = pool_make(COUNT + 1);
	Call *calls = calloc(COUNT + 1, sizeof(Call));
	char url[64];
	Stub stub;

	stub_start(&stub, answer);
	for (int i = 0; i < COUNT; i++)
	{
		snprintf(url, sizeof(url), "http://%d.stuck.test/", i);
		call_prepare(&calls[i], url);
		call_start(&calls[i], pool, &patient);
	}
	ok(pool_run_until(pool, &resolver_entered, COUNT), "sixty hosts are looked up at once");
	snprintf(url, sizeof(url), "http://localhost:%d/", stub.port);
	call_prepare(&calls[COUNT], url);
	call_start(&calls[COUNT], pool, &patient);
	pool_run(pool, 1);
	is_int(calls[COUNT].result.end, LLMQ_END_COMPLETE, "... and none of them holds up another one");
	llmq_transfer_pool_destroy(pool);
	release_resolver(COUNT);
	for (int i = 0; i <= COUNT; i++)
		call_free(&calls[i]);
	free(calls);
	stub_stop(&stub);
}

/* A hundred calls of one host, whose address nobody knows yet, and one that is aborted. */
static void
test_crowd_at_resolver(void)
{
	enum
	{
		COUNT = 100
	};
	LlmqTransferPool *pool = pool_make(COUNT + 1);
	Call *calls = calloc(COUNT + 1, sizeof(Call));
	int complete = 0;
	char url[64];
	Stub stub;

	stub_start(&stub, answer);
	snprintf(url, sizeof(url), "http://crowd.test:%d/", stub.port);
	for (int i = 0; i <= COUNT; i++)
	{
		call_prepare(&calls[i], url);
		call_start(&calls[i], pool, &patient);
	}
	llmq_transfer_abort(pool, calls[COUNT].transfer);
	pool_run_until(pool, &crowd_entered, 8);
	atomic_store(&crowd_released, 1);
	ok(pool_run(pool, COUNT), "a hundred calls of a host that resolves slowly all end");
	for (int i = 0; i < COUNT; i++)
		complete += calls[i].result.end == LLMQ_END_COMPLETE;
	is_int(complete, COUNT, "... complete");
	is_int(atomic_load(&crowd_entered), 8, "... after eight look-ups");
	is_int(atomic_load(&stub.requests), COUNT, "... and a request each");
	for (int i = 0; i <= COUNT; i++)
		call_free(&calls[i]);
	free(calls);
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

/* -- No descriptors ------------------------------------------------------------------------------
 */

static void
check_shortage(LlmqTransferPool *pool, const char *url)
{
	struct rlimit old;
	struct rlimit none;
	Call call;
	int next = dup(0);

	close(next);
	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = (rlim_t) next;
	call_prepare(&call, url);
	setrlimit(RLIMIT_NOFILE, &none);
	call_start(&call, pool, &patient);
	pool_run(pool, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	ok(call.results == 1 && call.result.local_trouble,
	   "without descriptors a call of %s was not attempted", url);
	printf("# detail: %s\n", call.result.detail);
	call_free(&call);
}

static void
test_shortage(void)
{
	LlmqTransferPool *pool = pool_make(2);
	char url[64];
	Stub stub;
	Call call;

	stub_start(&stub, answer);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", stub.port);
	check_shortage(pool, url);
	check_shortage(pool, "http://localhost:1/");
	check_shortage(pool, "https://somewhere.invalid/");
	call_prepare(&call, url);
	call_start(&call, pool, &patient);
	pool_run(pool, 1);
	is_int(call.result.end, LLMQ_END_COMPLETE, "with descriptors again, calls are made again");
	is_int(atomic_load(&stub.requests), 1, "... and only those reached the server");
	call_free(&call);
	llmq_transfer_pool_destroy(pool);
	stub_stop(&stub);
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(clock_cases) / sizeof(clock_cases[0]); i++)
		check_clock(&clock_cases[i]);
	test_uploads();
	test_parallel();
	test_order_of_clocks();
	test_abort();
	test_stuck_resolver();
	test_stuck_hosts();
	test_crowd_at_resolver();
	test_shortage();
	return tap_done();
}
