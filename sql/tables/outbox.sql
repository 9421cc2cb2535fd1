-- The outbox: message rows are immutable, their state stands beside them.  A message is
-- in exactly one of message_pending, message_deferred, message_lease and message_done
-- (llmq.check() proves it).  A move is one statement.

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
CREATE INDEX message_job_id_idx ON llmq.message (job_id) WHERE job_id IS NOT NULL;
COMMENT ON TABLE llmq.message IS 'side effects, committed with the result that caused them; never updated';

CREATE TABLE llmq.message_pending (
    id bigint PRIMARY KEY,
    topic text NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    last_error text,
    remaining jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX message_pending_topic_idx ON llmq.message_pending (topic, id);
COMMENT ON TABLE llmq.message_pending IS 'messages that can be sent or pulled now';
COMMENT ON COLUMN llmq.message_pending.remaining IS
    'recipients of an e-mail that have not got it while others have; NULL: all of them';

CREATE TABLE llmq.message_deferred (
    id bigint PRIMARY KEY,
    topic text NOT NULL,
    attempts int NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    last_error text,
    remaining jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX message_deferred_next_attempt_at_idx ON llmq.message_deferred (next_attempt_at);
COMMENT ON TABLE llmq.message_deferred IS 'messages that wait for their next attempt';

CREATE TABLE llmq.message_lease (
    id bigint PRIMARY KEY,
    topic text NOT NULL,
    worker_id bigint,       -- NULL: a consumer's that pulls
    token uuid,             -- of that consumer
    attempts int NOT NULL,  -- before this one
    last_error text,
    remaining jsonb,
    claimed_at timestamptz NOT NULL,
    expires_at timestamptz, -- NULL: when its worker is lost
    CHECK (num_nonnulls(worker_id, token) = 1),
    CHECK ((token IS NULL) = (expires_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX message_lease_topic_idx ON llmq.message_lease (topic);
CREATE INDEX message_lease_expires_at_idx ON llmq.message_lease (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE llmq.message_lease IS 'messages that a worker is sending, or that were pulled';

CREATE TABLE llmq.message_done (
    id bigint PRIMARY KEY,
    attempts int NOT NULL,
    sent_at timestamptz,
    dead_at timestamptz,
    last_error text,
    remaining jsonb,
    CHECK ((sent_at IS NULL) <> (dead_at IS NULL))
);
CREATE INDEX message_done_sent_at_idx ON llmq.message_done (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX message_done_dead_at_idx ON llmq.message_done (dead_at) WHERE dead_at IS NOT NULL;
COMMENT ON TABLE llmq.message_done IS 'messages that were sent, or that are dead until redriven';
