#!/usr/bin/python3
"""A server that breaks the rules of HTTP and TLS, each path in its own way: /NAME/... is answered by NAME.

    hostile.py --port-file F --cert F --key F

The port file gets three lines: a plain port, where NAME chooses among the methods of Answers, one where
TLS with that certificate is spoken, and one where clients are shown the door.  It ends when its parent is gone.
"""

import argparse
import asyncio
import os
import ssl

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * 65536
GIGABYTE = 1 << 30


class Answers:
    """Each method writes an answer; what hangs after it hangs until the client leaves."""

    def __init__(self, writer):
        self.writer = writer

    async def write(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def repeat(self, data, times):
        for _ in range(times):
            await self.write(data)

    async def hang(self):
        await asyncio.Event().wait()

    async def gigabyte(self):
        await self.write(OK + b"Content-Length: %d\r\n\r\n" % GIGABYTE)
        await self.repeat(PIECE, GIGABYTE // len(PIECE))

    async def gigabyte_unannounced(self):
        await self.write(OK + b"\r\n")
        await self.repeat(PIECE, GIGABYTE // len(PIECE))

    async def gigabyte_chunked(self):
        await self.write(CHUNKED)
        await self.repeat(b"%x\r\n%s\r\n" % (len(PIECE), PIECE), GIGABYTE // len(PIECE))

    async def gigabyte_error(self):
        await self.write(b"HTTP/1.1 500 No\r\n\r\n")
        await self.repeat(PIECE, GIGABYTE // len(PIECE))

    async def many_headers(self):
        await self.write(OK)
        for number in range(100_000):
            await self.write(b"X-Header-%d: value\r\n" % number)
        await self.write(b"Content-Length: 2\r\n\r\n{}")

    async def long_header(self):
        await self.write(OK + b"X-Long: " + b"y" * (10 << 20) + b"\r\nContent-Length: 2\r\n\r\n{}")

    async def endless_trailer(self):
        await self.write(CHUNKED + b"2\r\n{}\r\n0\r\n")
        await self.repeat(b"X-Trailer: %s\r\n" % (b"z" * 1000), GIGABYTE // 1000)

    async def endless_interim(self):
        await self.repeat(b"HTTP/1.1 100 Continue\r\nX-Padding: %s\r\n\r\n" % (b"z" * 1000), GIGABYTE // 1000)

    async def chunk_of_letters(self):
        await self.write(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n")
        await self.hang()

    async def chunk_beyond_numbers(self):
        await self.write(CHUNKED + b"fffffffffffffffff\r\n{}\r\n")
        await self.hang()

    async def chunk_negative(self):
        await self.write(CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n")
        await self.hang()

    async def chunk_unterminated(self):
        await self.write(CHUNKED + b"2\r\n{}xx0\r\n\r\n")
        await self.hang()

    async def chunk_size_unending(self):
        await self.write(CHUNKED)
        await self.repeat(b"0" * 1000, 1000)
        await self.hang()

    async def two_lengths(self):
        await self.write(OK + b"Content-Length: 2\r\nContent-Length: 2000\r\n\r\n{}")
        await self.hang()

    async def length_negative(self):
        await self.write(OK + b"Content-Length: -2\r\n\r\n{}")
        await self.hang()

    async def length_beyond_numbers(self):
        await self.write(OK + b"Content-Length: 99999999999999999999999\r\n\r\n{}")
        await self.hang()

    async def not_http(self):
        await self.write(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
        await self.hang()

    async def nothing_but_newlines(self):
        await self.repeat(b"\r\n" * 1000, 1000)
        await self.hang()

    async def status_of_letters(self):
        await self.write(b"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\n{}")
        await self.hang()

    async def version_unknown(self):
        await self.write(b"HTTP/7.3 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await self.hang()

    async def header_with_nul(self):
        await self.write(OK + b"X-Nul: a\0b\r\nContent-Length: 2\r\n\r\n{}")

    async def header_without_colon(self):
        await self.write(OK + b"what is this\r\nContent-Length: 2\r\n\r\n{}")

    async def upgrade(self):
        await self.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + b"\0" * 100)
        await self.hang()

    async def deep_json(self):
        body = b'{"choices": [{"finish_reason": "stop", "message": {"content": %s1%s}}]}' % (b"[" * 1_000_000, b"]" * 1_000_000)
        await self.write(OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def many_keys(self):
        body = b'{%s"a": 1}' % b"".join(b'"key%d": 0,' % number for number in range(300_000))
        await self.write(OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def byte_a_second(self):
        await self.write(OK + b"Content-Length: 1000\r\n\r\n")
        for _ in range(1000):
            await self.write(b" ")
            await asyncio.sleep(1)

    async def metadata(self):
        await self.write(b"HTTP/1.1 307 Over there\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n")

    async def to_a_file(self):
        await self.write(b"HTTP/1.1 302 Over there\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n")


async def serve_client(reader, writer):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split(b" ")[1].split(b"/")[1].decode()
        await getattr(Answers(writer), name)()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def close_at_once(_, writer):
    writer.close()


async def watch_parent(stop):
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    stop.set()


async def main():
    parser = argparse.ArgumentParser(description="A server that breaks the rules.")
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.cert, options.key)
    servers = [await asyncio.start_server(serve_client, "127.0.0.1", 0),
               await asyncio.start_server(serve_client, "127.0.0.1", 0, ssl=context),
               await asyncio.start_server(close_at_once, "127.0.0.1", 0)]
    with open(options.port_file + ".new", "w", encoding="ascii") as file:
        file.writelines("%d\n" % server.sockets[0].getsockname()[1] for server in servers)
    os.rename(options.port_file + ".new", options.port_file)
    stop = asyncio.Event()
    watcher = asyncio.get_running_loop().create_task(watch_parent(stop))
    await stop.wait()
    watcher.cancel()


if __name__ == "__main__":
    asyncio.run(main())
