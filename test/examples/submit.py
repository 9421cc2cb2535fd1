"""Submits jobs beside rows of one's own and waits for them, with psycopg 3.  Prints what came of each.

    submit.py BODY...       PGHOST, PGDATABASE and the like say which database
"""

import select
import sys

import psycopg


def submit(connection, body):
    """Writes a ticket and its job: both are committed, or neither is."""
    with connection.transaction():
        ticket, = connection.execute("INSERT INTO ticket (body) VALUES (%s) RETURNING id", (body,)).fetchone()
        job, = connection.execute("""
            SELECT job_id FROM llmq.submit(
                prompt => %s, idempotency_key => %s, queue => 'tickets')""",
            ("Summarise this ticket:\n\n" + body, f"summary of ticket {ticket}")).fetchone()
        connection.execute("UPDATE ticket SET summary_job = %s WHERE id = %s", (job, ticket))
    return job


def wait(connection, job):
    """Waits for one job.  Not inside a transaction."""
    status, = connection.execute("CALL llmq.wait(%s, '60 s')", (job,)).fetchone()
    return status["state"], status["text"]


def wait_for_all(connection, jobs):
    """Waits for many.  The table is the truth; a NOTIFY only says that it is time to look again."""
    heard = []
    connection.add_notify_handler(heard.append)
    connection.execute("LISTEN llmq_done")      # before the first look, or the last job may be missed
    while True:
        heard.clear()
        rows = connection.execute("""
            SELECT job_id, state, text FROM llmq.job_status
            WHERE job_id = ANY (%s) AND finished_at IS NOT NULL""", (jobs,)).fetchall()
        if len(rows) == len(jobs):
            return {job: (state, text) for job, state, text in rows}
        if not heard:
            select.select([connection], [], [], 10)


def main():
    with psycopg.connect(autocommit=True) as connection:
        jobs = [submit(connection, body) for body in sys.argv[1:]]
        print("one:", *wait(connection, jobs[0]))
        answers = wait_for_all(connection, jobs)
        for job in jobs:
            print("all:", *answers[job])


main()
