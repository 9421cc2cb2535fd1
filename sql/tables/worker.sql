-- Who works here, and where "here" is.

-- One row, which CREATE EXTENSION writes and no dump has: what a dump brings was written by another
-- installation, if it was in this very database.
CREATE TABLE llmq.installation (
    id uuid PRIMARY KEY
);
COMMENT ON TABLE llmq.installation IS
    'which CREATE EXTENSION made the tables here; copies of the files share it, dumps do not';
INSERT INTO llmq.installation (id) VALUES (pg_catalog.gen_random_uuid());

CREATE TABLE llmq.worker_session (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('server', 'program')),
    pid int NOT NULL,
    backend_start timestamptz NOT NULL,
    heartbeat timestamptz NOT NULL,
    in_flight int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'draining', 'quarantined', 'outdated'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.worker_session IS
    'sessions of workers; the heartbeat is written only while leases are held';

-- Ids begin anywhere, so that a lease that comes with a dump is of nobody who works here.
SELECT pg_catalog.setval('llmq.worker_session_id_seq',
    ('x' || pg_catalog.substr(pg_catalog.md5(i.id::pg_catalog.text), 1, 12))::pg_catalog."bit"(48)::pg_catalog.int8)
FROM llmq.installation AS i;

-- Beside the session, which is updated more often than this and stays narrow.
CREATE TABLE llmq.worker_metric (
    worker_id bigint PRIMARY KEY REFERENCES llmq.worker_session (id) ON DELETE CASCADE,
    families jsonb NOT NULL, -- bgworker/core/metric.h says what they are
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.worker_metric IS
    'what workers have counted since they began, as of a heartbeat; written each 5 s at most, and only when it changes';

CREATE TABLE llmq.queue_depth (
    queue text PRIMARY KEY,
    ready bigint NOT NULL,
    published_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.queue_depth IS
    'how many jobs of queues with max_ready are ready, as a worker saw it a second ago at most';

CREATE TABLE llmq.endpoint_trouble (
    endpoint text PRIMARY KEY,
    reason text NOT NULL,
    until timestamptz,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.endpoint_trouble IS
    'endpoints that a worker cannot call just now: no_secret, or rate_limited, breaker or limiter until a time';

-- Several rows may say the same: a unique key would make first submits wait for each other.
CREATE TABLE llmq.home (
    system_identifier bigint NOT NULL,
    database_oid oid NOT NULL,
    installation uuid -- NULL: noted by a version before 0.3.0, and dumped
);
COMMENT ON TABLE llmq.home IS
    'the database that jobs were submitted in; a worker calls nobody while it is another than this one';

CREATE TABLE llmq.endpoint_limit (
    endpoint text PRIMARY KEY,
    state bigint[] NOT NULL DEFAULT '{}', -- its numbers are named in extension/limit.c
    last_error text,
    last_error_at timestamptz,
    drawn_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.endpoint_limit IS
    'what workers share of an endpoint: its quota, drawn in slices once a second at most, and its breaker; no claim touches it';
