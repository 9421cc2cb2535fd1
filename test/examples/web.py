"""A web service that accepts summarisation jobs: the whole Idempotency-Key protocol is one call of
llmq.http_submit.  Threads of the standard library's server, one connection to PostgreSQL each.

    web.py --database 'host=/run/postgresql dbname=app user=web' --port-file FILE
"""

import argparse
import http.server
import json
import os
import threading

import psycopg
from psycopg.types.json import Jsonb

SUBMIT = """
    SELECT status, headers, body FROM llmq.http_submit(
        tenant => %(tenant)s, method => %(method)s, path => %(path)s,
        idempotency_key => %(key)s, body => %(body)s,
        outbox => '[{"topic": "summary.ready"}]')
"""

MAX_BODY = 1_000_000

# What llmq never gets to see: text that PostgreSQL cannot take.
NOT_TEXT = {"type": "about:blank", "title": "Bad Request", "status": 400,
            "detail": "the request holds what is not text, like U+0000."}

database = None
local = threading.local()


def connection():
    """Returns this thread's connection, a new one if the last was lost."""
    if getattr(local, "connection", None) is None or local.connection.closed:
        local.connection = psycopg.connect(database, autocommit=True)
    return local.connection


def parse(content):
    """Returns a body as JSON; None, which llmq refuses, if it is none."""
    try:
        return Jsonb(json.loads(content))
    except ValueError:
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            return self.send_error(413)
        content = self.rfile.read(length)
        try:
            status, headers, body = connection().execute(SUBMIT, {
                "tenant": self.headers.get("X-Tenant-Id"),  # in production: who was authenticated
                "method": self.command, "path": self.path.partition("?")[0],
                "key": self.headers.get("Idempotency-Key"), "body": parse(content)}).fetchone()
        except psycopg.DataError:
            status, headers, body = 400, {"Content-Type": "application/problem+json"}, NOT_TEXT
        self.answer(status, headers, json.dumps(body).encode())

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main():
    global database
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", required=True)
    parser.add_argument("--port-file", required=True)
    arguments = parser.parse_args()
    database = arguments.database
    server = Server(("127.0.0.1", 0), Handler)
    with open(arguments.port_file + ".new", "w") as file:
        file.write(f"{server.server_port}\n")
    os.rename(arguments.port_file + ".new", arguments.port_file)
    server.serve_forever()


main()
