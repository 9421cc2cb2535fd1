"""A FastAPI service that accepts summarisation jobs: the Idempotency-Key protocol is llmq.http_submit.

    uvicorn fastapi_app:app     PGHOST, PGDATABASE and the like say which database
"""

import uuid

import psycopg
from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

# prepare_threshold: statements are not prepared, so that PgBouncer may stand between.
pool = ConnectionPool(kwargs={"autocommit": True, "prepare_threshold": None}, max_size=20)
app = FastAPI()


def tenant(x_tenant_id: str = Header()):
    """In production: who was authenticated."""
    return x_tenant_id


async def body(request: Request):
    """The body as JSON; None, which llmq refuses, if it is none."""
    try:
        return Jsonb(await request.json())
    except ValueError:
        return None


@app.post("/v1/summaries")
def submit(request: Request, tenant=Depends(tenant), body=Depends(body)):
    with pool.connection() as connection:
        status, headers, answer = connection.execute("""
            SELECT status, headers, body FROM llmq.http_submit(
                tenant => %s, method => %s, path => %s, idempotency_key => %s, body => %s,
                outbox => '[{"topic": "summary.ready"}]')""",
            (tenant, request.method, request.url.path, request.headers.get("Idempotency-Key"), body)).fetchone()
    return JSONResponse(answer, status, headers)


@app.get("/v1/summaries/{job_id}")
def look(job_id: uuid.UUID, tenant=Depends(tenant)):
    with pool.connection() as connection:
        row = connection.execute("""
            SELECT state, text FROM llmq.job_status
            WHERE job_id = %s AND tenant = %s""", (job_id, tenant)).fetchone()
    return {"status": row[0], "summary": row[1]} if row else JSONResponse({"title": "Not Found", "status": 404}, 404)


@app.exception_handler(psycopg.DataError)
async def not_text(request, error):
    """What llmq never gets to see: text that PostgreSQL cannot take, like U+0000."""
    return JSONResponse({"type": "about:blank", "title": "Bad Request", "status": 400, "detail": str(error)}, 400,
                        {"Content-Type": "application/problem+json"})
