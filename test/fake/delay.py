"""A proxy on TCP that hands bytes on later, in order: a database that is far away.

    delay.py LISTEN-HOST LISTEN-PORT TARGET-HOST TARGET-PORT FILE

FILE holds how many milliseconds each piece waits in each direction; it is read for each piece, and
without it nothing waits.
"""

import asyncio
import sys

LISTEN_HOST, LISTEN_PORT, TARGET_HOST, TARGET_PORT, FILE = sys.argv[1:]
PIECE = 65536
PIECES = 64         # on their way at once, in one direction; then the sender has to wait


def delay():
    try:
        with open(FILE) as file:
            return int(file.read() or 0) / 1000
    except FileNotFoundError:
        return 0


async def receive(reader, pieces):
    data = b"-"
    while data:
        try:
            data = await reader.read(PIECE)
        except OSError:
            data = b""
        await pieces.put((asyncio.get_running_loop().time() + delay(), data))


async def send(pieces, writer):
    while True:
        due, data = await pieces.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        if not data:
            return
        writer.write(data)
        await writer.drain()


async def pump(reader, writer):
    pieces = asyncio.Queue(PIECES)
    receiving = asyncio.create_task(receive(reader, pieces))
    try:
        await send(pieces, writer)
    except OSError:
        pass
    receiving.cancel()


async def serve(reader, writer):
    try:
        target_reader, target_writer = await asyncio.open_connection(TARGET_HOST, TARGET_PORT)
    except OSError:
        writer.close()
        return
    ends = [asyncio.create_task(pump(reader, target_writer)), asyncio.create_task(pump(target_reader, writer))]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    writer.close()
    target_writer.close()


async def main():
    server = await asyncio.start_server(serve, LISTEN_HOST, int(LISTEN_PORT))
    async with server:
        await server.serve_forever()


asyncio.run(main())
