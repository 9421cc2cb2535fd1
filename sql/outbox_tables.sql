-- The outbox: message rows are immutable, their state stands beside them.

CREATE TABLE llmq.message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    topic text NOT NULL,
    dedupe_key text NOT NULL,
    payload jsonb,
    job_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, dedupe_key)
);
COMMENT ON TABLE llmq.message IS 'side effects, committed with the result that caused them; never updated';

CREATE TABLE llmq.message_pending (
    id bigint PRIMARY KEY,
    topic text NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_error text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE llmq.message_pending IS 'messages that wait to be delivered or pulled';

CREATE TABLE llmq.message_done (
    id bigint PRIMARY KEY,
    attempts int NOT NULL,
    sent_at timestamptz,
    dead_at timestamptz,
    last_error text,
    CHECK ((sent_at IS NULL) <> (dead_at IS NULL))
);
COMMENT ON TABLE llmq.message_done IS 'messages that were sent, or that are dead until redriven';
