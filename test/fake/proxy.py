"""A proxy between a client and PostgreSQL, on Unix sockets, that cuts connections when it is told to.

    proxy.py LISTEN TARGET ORDER

When a client sends bytes that hold the word in the file ORDER, they are handed on, and the client's
connection is closed before any answer gets back; ORDER is removed by that.  The server's side is left
open until the server has answered, so that what was asked for happens.
"""

import os
import socket
import sys
import threading

LISTEN, TARGET, ORDER = sys.argv[1:]


def ordered(data):
    try:
        with open(ORDER, "rb") as file:
            word = file.read().strip()
    except FileNotFoundError:
        return False
    return word != b"" and word in data


def pump(source, target, done):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    done()


def serve(client):
    server = socket.socket(socket.AF_UNIX)
    server.connect(TARGET)

    def close(*ends):
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    threading.Thread(target=pump, args=(server, client, lambda: close(client)), daemon=True).start()
    try:
        while data := client.recv(65536):
            if ordered(data):
                os.unlink(ORDER)
                close(client)
                server.sendall(data)
                server.shutdown(socket.SHUT_WR)
                return
            server.sendall(data)
    except OSError:
        pass
    close(server)


listener = socket.socket(socket.AF_UNIX)
listener.bind(LISTEN)
listener.listen(64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
