"""The worker that is written by hand, as a peer of the bench of the worker: Redis Streams, a provider
called over HTTP with retries by tenacity, and psycopg, which commits the answer and a message together.

    by_hand.py SOCKET URL CONNINFO CONSUMER     until it is ended
"""

import sys

import httpx
import psycopg
import redis
import tenacity

socket, url, conninfo, consumer = sys.argv[1:]
stream = redis.Redis(unix_socket_path=socket)
database = psycopg.connect(conninfo, autocommit=True)
provider = httpx.Client(base_url=url)
stream.xgroup_createconsumer("jobs", "workers", consumer)


@tenacity.retry(stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_random_exponential(0.5, max=8))
def ask(prompt):
    reply = provider.post("/chat/completions", json={"model": "stand-in", "messages": [{"role": "user", "content": prompt}]})
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]["content"]


def handle(job):
    answer = ask(job[b"prompt"].decode())
    with database.transaction():
        # A job that comes again, after a crash, changes nothing.
        kept = database.execute("INSERT INTO peer.answer (id, text) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                                (job[b"id"].decode(), answer))
        if kept.rowcount:
            database.execute("INSERT INTO peer.message (topic, id) VALUES ('answers', %s)", (job[b"id"].decode(),))


while True:
    for _, entries in stream.xreadgroup("workers", consumer, {"jobs": ">"}, count=10, block=1000) or []:
        for entry, job in entries:
            handle(job)
            stream.xack("jobs", "workers", entry)
