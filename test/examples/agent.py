"""An agent with tools that may be killed at any moment and started again: each call of the model and
each tool happens once.  What it has done is in the database; it keeps nothing else.

    agent.py RUN_ID QUESTION        PGHOST, PGDATABASE and the like say which database
"""

import itertools
import json
import sys

import psycopg
from psycopg.types.json import Jsonb


def order_state(connection, order):
    row = connection.execute("SELECT state FROM customer_order WHERE id = %s", (order,)).fetchone()
    return {"state": row[0] if row else "unknown"}


def refund(connection, order):
    connection.execute("INSERT INTO refund (order_id) VALUES (%s)", (order,))
    return {"refunded": order}


TOOLS = {"order_state": order_state, "refund": refund}
PARAMS = {"tools": [{"type": "function", "function": {
    "name": name, "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}}}
    for name in TOOLS]}


def ask(connection, run_id, turn, messages):
    """Asks the model.  The job is its own checkpoint: whoever asks again gets the same one."""
    job, replayed = connection.execute("""
        SELECT job_id, replayed FROM llmq.submit(
            messages => %s, params => %s, idempotency_key => llmq.derive_key(%s, %s),
            run_id => %s, step => %s)""",
        (Jsonb(messages), Jsonb(PARAMS), run_id, turn, run_id, turn)).fetchone()
    status, = connection.execute("CALL llmq.wait(%s, '10 min')", (job,)).fetchone()
    if status["state"] != "succeeded":
        sys.exit(f"{turn}: {status['state']}, {status['error_class']}")
    calls, = connection.execute("SELECT tool_calls FROM llmq.result WHERE job_id = %s", (job,)).fetchone()
    print(turn, "asked before" if replayed else "asked", flush=True)
    return {"role": "assistant", "content": status["text"], **({"tool_calls": calls} if calls else {})}


def use_tool(connection, run_id, step, call):
    """Uses a tool.  Its work and its checkpoint are one transaction: there are both or neither."""
    with connection.transaction():
        outcome, token, output = connection.execute(
            "SELECT outcome, token, output FROM llmq.step_begin(%s, %s, %s)", (run_id, step, Jsonb(call))).fetchone()
        if outcome == "started":
            arguments = json.loads(call["function"]["arguments"])
            output = TOOLS[call["function"]["name"]](connection, **arguments)
            connection.execute("SELECT llmq.step_finish(%s, %s, %s, %s)", (run_id, step, token, Jsonb(output)))
    print(step, "done" if outcome == "started" else "done before", flush=True)
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(output)}


def main(run_id, question):
    with psycopg.connect(autocommit=True) as connection:
        messages = [{"role": "user", "content": question}]
        for turn in itertools.count(1):
            messages.append(ask(connection, run_id, f"turn {turn}", messages))
            calls = messages[-1].get("tool_calls", [])
            if not calls:
                return print("answer:", messages[-1]["content"])
            for number, call in enumerate(calls, 1):
                messages.append(use_tool(connection, run_id, f"turn {turn}, tool {number}", call))


main(*sys.argv[1:])
