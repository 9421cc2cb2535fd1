#!/usr/bin/python3
"""A stand-in for a model provider: real HTTP/1.1 on loopback, scriptable, and its own witness.

It answers in six dialects (answers.py) unless a rule says otherwise (script.py).  Every request is
one line in the log once it has been read completely, and one more when its answer is finished or
the client has left.  Tests take their verdict from this log, never from what the client says of
itself.  No secret is ever logged: of a header that carries one, only whether it is the expected.

A request belongs to a job: the name in "[job:NAME]" in its last user message, else its
idempotency header, else the message itself.

Control (JSON, not logged): POST /_control/script [rule, ...], POST /_control/release {"hold": NAME},
POST /_control/quota (quota.py), POST /_control/reset, GET /_control/state, GET /_control/log?since=LINES.

    provider.py --port-file F --log F [--port N] [--host ADDRESS] [--script F] [--token-file F] [--bodies]
        [--certificate F]

It ends on SIGTERM, and when its parent is gone.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import ssl
import struct
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True      # nothing is left behind in the source tree

import answers      # noqa: E402
import quota        # noqa: E402
import script       # noqa: E402

MAX_HEAD = 1 << 18
MAX_BODY = 1 << 26
SECRET_HEADERS = {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
JOB_MARK = re.compile(r"\[job:([^\]\s]+)\]")
RESET_AFTER = 0.1
SLOW_BUFFER = 1 << 20       # what the kernel may take in of a request that is read slowly
SLOW_REST = 6 << 20         # the end of it is read at once: what the sender's kernel holds of it is soon gone


class Log:
    """JSON lines, each written at once, and how many exchanges are open."""

    def __init__(self, path):
        self.path = path
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.open = self.most_open = self.requests = 0

    def write(self, event, **fields):
        line = {"event": event, "t": time.monotonic_ns(), "wall": time.time(), **fields}
        os.write(self.file, json.dumps(line).encode() + b"\n")

    def request(self, **fields):
        self.requests += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self.write("request", concurrent=self.open, **fields)

    def answer(self, **fields):
        self.open -= 1
        self.write("answer", concurrent=self.open, **fields)

    def lines_since(self, count):
        with open(self.path, encoding="utf-8") as file:
            return "".join(itertools.islice(file, count, None))


class Request:
    """One request as it was read."""

    def __init__(self, seq, method, path, headers, raw):
        self.seq, self.method, self.path, self.headers = seq, method, path, headers
        self.raw = raw
        self.raw_text = raw.decode("utf-8", "replace")
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        self.body = body if isinstance(body, dict) else {}
        self.dialect = answers.dialect_of(path)
        self.model = answers.model_of(path, self.body)
        self.stream = answers.wants_stream(path, self.body)
        self.user = answers.last_user_message(self.body)
        self.idempotency_key = headers.get("idempotency-key")
        self.job = self.job_name()

    def job_name(self):
        mark = JOB_MARK.search(self.user)
        if mark:
            return mark.group(1)
        return self.idempotency_key or hashlib.sha256(self.user.encode("utf-8", "replace")).hexdigest()[:16]


class Provider:
    """What all connections share."""

    def __init__(self, log, token, bodies):
        self.log, self.token, self.bodies = log, token, bodies
        self.script = script.Script()
        self.seq = itertools.count(1)
        self.connections = itertools.count(1)
        self.gates = {}
        self.quota = None

    def gate(self, name):
        return self.gates.setdefault(name, asyncio.Event())

    def reset(self):
        self.script.reset()
        for event in self.gates.values():
            event.set()
        self.gates = {}
        self.quota = None
        self.log.most_open = self.log.open

    def state(self):
        return {"concurrent": self.log.open, "max_concurrent": self.log.most_open,
                "requests": self.log.requests, "rules": len(self.script.rules),
                "quota": self.quota and self.quota.state()}

    def is_expected(self, value):
        return self.token is not None and value.split(" ")[-1] == self.token

    def authorization(self, headers):
        """Says how a request proved who it is: none, match, mismatch, or unchecked."""
        given = [headers[name] for name in SECRET_HEADERS if name in headers]
        if not given:
            return "none"
        if self.token is None:
            return "unchecked"
        return "match" if any(self.is_expected(value) for value in given) else "mismatch"

    def safe_headers(self, headers):
        return {name: "match" if self.token and self.token in value else
                "hidden" if name in SECRET_HEADERS else value for name, value in headers.items()}

    def safe_path(self, path):
        return re.sub(r"([?&]key=)[^&]*", r"\1hidden", path)

    def note(self, request, connection, rule, call):
        fields = {"seq": request.seq, "connection": connection, "method": request.method,
                  "path": self.safe_path(request.path), "job": request.job, "call": call, "rule": rule,
                  "model": request.model, "stream": request.stream, "user": request.user[:200],
                  "idempotency_key": request.idempotency_key, "bytes": len(request.raw),
                  "authorization": self.authorization(request.headers),
                  "headers": self.safe_headers(request.headers)}
        if self.bodies:
            fields["body"] = request.raw_text
        self.log.request(**fields)

    def limit(self, response, request):
        """Returns the answer that the quota allows."""
        if self.quota is None:
            return response
        used = answers.tokens(request.raw_text) + answers.tokens(answers.extract(request.user))
        admitted, headers = self.quota.admit(used)
        if not admitted:
            response = script.fill({"status": 429}, request)
        return {**response, "headers": list(response.get("headers", [])) + headers}

    def choose(self, request):
        response, rule, call = self.script.choose(request)
        if rule is None and self.token is not None and self.authorization(request.headers) != "match":
            response = {"status": 401}
        elif rule is None and request.dialect is None and not request.path.startswith("/hook"):
            response = {"status": 404}
        return response, rule, call


class Connection(asyncio.Protocol):
    """One client.  Requests are answered in order; what comes early waits in the buffer."""

    def __init__(self, provider):
        self.provider = provider
        self.number = next(provider.connections)
        self.transport = self.task = self.open_seq = self.status = self.flushed = None
        self.input = bytearray()
        self.head = None
        self.read_rate = None       # bytes a second, while a request is read slowly
        self.sent = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(high=0)

    def resume_writing(self):
        if self.flushed:
            self.flushed.set_result(None)
            self.flushed = None

    def data_received(self, data):
        self.input += data
        self.proceed()
        if self.read_rate and not self.transport.is_closing() and self.missing() > SLOW_REST:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(len(data) / self.read_rate, self.read_on)

    def missing(self):
        """Returns how much of the body that is being read has not come yet."""
        return int(self.head[2].get("content-length") or 0) - len(self.input)

    def read_on(self):
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def eof_received(self):
        self.gone()
        return False

    def connection_lost(self, error):
        self.gone()

    def gone(self):
        """Notes that the client left before its answer was finished, and stops answering."""
        self.finish("client_closed")
        self.flushed = None
        if self.task:
            self.task.cancel()
            self.task = None

    def finish(self, how):
        if self.open_seq is not None:
            seq, self.open_seq = self.open_seq, None
            self.provider.log.answer(seq=seq, how=how, status=self.status, bytes=self.sent)

    # -- reading ------------------------------------------------------------------

    def proceed(self):
        """Reads one request, unless one is being answered, and starts to answer it."""
        if self.task or self.transport.is_closing():
            return
        if self.head is None and not self.read_head():
            return
        method, path, headers = self.head
        body = self.read_body(headers)
        if body is None:
            return
        self.head = self.read_rate = None
        if path.startswith("/_control/"):
            self.control(method, path[len("/_control/"):], body)
            return
        provider = self.provider
        request = Request(next(provider.seq), method, path, headers, body)
        response, rule, call = provider.choose(request)
        plan = script.Plan(provider.limit(script.fill(response, request), request))
        self.open_seq, self.status, self.sent = request.seq, plan.status, 0
        provider.note(request, self.number, rule, call)
        keep = headers.get("connection", "").lower() != "close"
        self.task = asyncio.get_running_loop().create_task(self.answer(plan, keep))

    def read_head(self):
        if self.input and not self.input[:1].isalpha():
            self.transport.abort()          # not HTTP: a TLS hello, most likely
            return False
        end = self.input.find(b"\r\n\r\n")
        if end < 0:
            if len(self.input) > MAX_HEAD:
                self.transport.abort()
            return False
        lines = self.input[:end].decode("latin-1").split("\r\n")
        del self.input[:end + 4]
        words = lines[0].split(" ")
        if len(words) != 3:
            self.transport.abort()
            return False
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        self.head = words[0], words[1], headers
        self.read_rate = self.provider.script.read_rate(words[1])
        if self.read_rate:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def read_body(self, headers):
        """Takes the request's body out of the input; None while some of it is missing."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self.read_chunks()
        length = int(headers.get("content-length") or 0)
        if length > MAX_BODY:
            self.transport.abort()
            return None
        if len(self.input) < length:
            return None
        body = bytes(self.input[:length])
        del self.input[:length]
        return body

    def read_chunks(self):
        body, at = bytearray(), 0
        while True:
            end = self.input.find(b"\r\n", at)
            if end < 0:
                return None
            size = int(self.input[at:end].split(b";")[0], 16)
            if len(self.input) < end + 4 + size:
                return None
            body += self.input[end + 2:end + 2 + size]
            at = end + 4 + size
            if size == 0:
                del self.input[:at]
                return bytes(body)

    # -- answering ----------------------------------------------------------------

    def write(self, data):
        if data:
            self.sent += len(data)
            self.transport.write(data)

    async def drained(self):
        """Waits until all that was written is with the kernel.

        The log knows of an answer's end before any request that its reader sends afterwards is
        read; so GET /_control/state makes the log complete up to what a client has seen.
        """
        if self.transport.get_write_buffer_size():
            self.flushed = asyncio.get_running_loop().create_future()
            await self.flushed

    async def answer(self, plan, keep):
        if plan.hold:
            await self.provider.gate(plan.hold).wait()
        if plan.delay:
            await asyncio.sleep(plan.delay)
        await self.write_answer(plan)
        await self.drained()
        if plan.end == "hang":
            await asyncio.Event().wait()
        elif plan.end == "reset":
            await asyncio.sleep(RESET_AFTER)
            self.finish("reset")
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            return
        self.finish("finished")
        self.task = None
        if plan.end != "keepalive" or not keep:
            self.transport.close()
            return
        self.proceed()

    async def write_answer(self, plan):
        """Writes head and body; one piece goes out with the head, several are a write each."""
        if len(plan.pieces) <= 1 and plan.times == 1:
            self.write(plan.head + b"".join(plan.pieces) + plan.tail)
            return
        self.write(plan.head)
        rounds = itertools.repeat(plan.pieces, plan.times) if plan.times else itertools.repeat(plan.pieces)
        for number, piece in enumerate(itertools.chain.from_iterable(rounds)):
            if plan.chunk_delay and number:
                await asyncio.sleep(plan.chunk_delay)
            elif not plan.times:
                await self.drained()
                await asyncio.sleep(0)
            self.write(piece)
        self.write(plan.tail)

    # -- control ------------------------------------------------------------------

    def control(self, method, name, body):
        name, _, query = name.partition("?")
        try:
            status, reply = 200, self.command(method, name, query, body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            status, reply = 400, json.dumps({"error": str(error)})
        data = reply.encode()
        self.transport.write(b"HTTP/1.1 %d Control\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n" % (status, len(data)) + data)
        self.proceed()

    def command(self, method, name, query, body):
        provider = self.provider
        if (method, name) == ("POST", "script"):
            rules = json.loads(body)
            provider.script.add(rules if isinstance(rules, list) else [rules])
        elif (method, name) == ("POST", "release"):
            provider.gate(json.loads(body)["hold"]).set()
        elif (method, name) == ("POST", "quota"):
            settings = json.loads(body)
            provider.quota = settings and quota.Quota(settings)
        elif (method, name) == ("POST", "reset"):
            provider.reset()
        elif (method, name) == ("GET", "log"):
            since = urllib.parse.parse_qs(query).get("since", ["0"])[0]
            return provider.log.lines_since(int(since))
        elif (method, name) != ("GET", "state"):
            raise ValueError("unknown: %s /_control/%s" % (method, name))
        return json.dumps(provider.state())


async def watch_parent(stop):
    """Ends the program when the process that started it is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.25)
    stop.set()


def write_whole(path, text):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(path + ".new", path)


async def serve(options):
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    token = None
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    provider = Provider(Log(options.log), token, options.bodies)
    if options.script:
        with open(options.script, encoding="utf-8") as file:
            provider.script.add(json.load(file))
    context = None
    if options.certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.certificate)
    server = await loop.create_server(lambda: Connection(provider), options.host, options.port, backlog=4096, ssl=context)
    write_whole(options.port_file, "%d\n" % server.sockets[0].getsockname()[1])
    watcher = loop.create_task(watch_parent(stop))
    await stop.wait()
    watcher.cancel()
    server.close()


def main():
    parser = argparse.ArgumentParser(description="A scriptable stand-in for a model provider.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--certificate")
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--script")
    parser.add_argument("--token-file")
    parser.add_argument("--bodies", action="store_true", help="log whole request bodies")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
