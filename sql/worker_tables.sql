-- Who works here, and where "here" is.

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

-- Several rows may say the same: a unique key would make first submits wait for each other.
CREATE TABLE llmq.home (
    system_identifier bigint NOT NULL,
    database_oid oid NOT NULL
);
COMMENT ON TABLE llmq.home IS
    'the database that jobs were submitted in; a worker calls nobody while it is another than this one';
