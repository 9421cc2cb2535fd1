-- Idempotency of work that is not a job: requests that the caller answers itself,
-- and steps of a longer run.  One row a key; its primary key is a hash of what the
-- key means, because three texts of 255 characters do not fit into an index entry.
--
-- A row with a token is a marker: somebody is at work until expires_at.  A row
-- without one is a result, kept until expires_at.  Past expires_at the key is free.

CREATE TABLE llmq.idempotency (
    key_id uuid PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('request', 'step')),
    tenant text NOT NULL,
    scope text NOT NULL,           -- a step's run_id
    idempotency_key text NOT NULL, -- a step's name
    fingerprint text NOT NULL,
    token uuid,
    status int,
    response jsonb,                -- a step's output
    begun_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CHECK (token IS NULL OR (status IS NULL AND response IS NULL))
);
CREATE INDEX idempotency_expires_at_idx ON llmq.idempotency (expires_at);
COMMENT ON TABLE llmq.idempotency IS
    'keys of idempotency_begin and step_begin: markers of work in progress, and results';
COMMENT ON COLUMN llmq.idempotency.token IS 'of the caller that is at work; NULL: finished';
COMMENT ON COLUMN llmq.idempotency.expires_at IS 'when the lock, or the result, is no longer good';
