-- The queue.  The job row is wide and immutable: written at submit, read at
-- claim, never updated.  Where a job stands is which small table holds its id;
-- a job is in exactly one of ready, deferred, blocked, lease, answer, result, dead_job
-- and cancelled_job (llmq.check() proves it).  A move is one statement.

CREATE TABLE llmq.job (
    job_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    scope text NOT NULL, -- submit, or method and path of an HTTP request
    idempotency_key text NOT NULL,
    fingerprint bytea NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL, -- 0 to 9, says check_schedule; a CHECK would cost a twentieth of a submit
    prompt text,
    system text,
    messages jsonb,
    model text,
    params jsonb,
    metadata jsonb,
    outbox jsonb,
    on_complete text,
    run_at timestamptz,
    expires_at timestamptz,
    after uuid[],
    run_id text,
    step text,
    policy jsonb,
    submitted_by name NOT NULL,
    submitted_at timestamptz NOT NULL
);
CREATE INDEX job_run_id_idx ON llmq.job (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX job_on_complete_idx ON llmq.job (job_id) WHERE on_complete IS NOT NULL;
COMMENT ON TABLE llmq.job IS 'what was submitted; never updated; the record of its idempotency key';

-- What travels with a job's id from table to table.
CREATE TYPE llmq.submission AS (job_id uuid, state text, replayed boolean);
COMMENT ON TYPE llmq.submission IS 'what llmq.submit answers';

CREATE TYPE llmq.http_response AS (status int, headers jsonb, body jsonb);
COMMENT ON TYPE llmq.http_response IS 'what llmq.http_submit has a web handler answer';

CREATE TYPE llmq.placement AS (
    job_id uuid,
    queue text,
    tenant text,
    priority smallint,
    deliveries int, -- all so far
    counted int,    -- those that count towards max_deliveries, since the last redrive
    deaths int      -- times it was dead
);
COMMENT ON TYPE llmq.placement IS 'what travels with a job from place to place';

CREATE TABLE llmq.ready (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL UNIQUE,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL DEFAULT 0,
    counted int NOT NULL DEFAULT 0,
    deaths int NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE llmq.ready IS 'jobs that wait for a worker, in the order of seq';

CREATE TABLE llmq.deferred (
    job_id uuid PRIMARY KEY,
    due_at timestamptz NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL DEFAULT 0,
    counted int NOT NULL DEFAULT 0,
    deaths int NOT NULL DEFAULT 0,
    error_class text,
    error_message text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deferred_due_at_idx ON llmq.deferred (due_at);
COMMENT ON TABLE llmq.deferred IS 'jobs that wait for a time: run_at, or their next delivery';

CREATE TABLE llmq.blocked (
    job_id uuid PRIMARY KEY,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL DEFAULT 0,
    counted int NOT NULL DEFAULT 0,
    deaths int NOT NULL DEFAULT 0,
    fresh boolean NOT NULL DEFAULT true -- its parents have not been looked at since it was committed
);
CREATE INDEX blocked_fresh_idx ON llmq.blocked (job_id) WHERE fresh;
COMMENT ON TABLE llmq.blocked IS 'jobs that wait for other jobs to succeed';

CREATE TABLE llmq.dependency (
    parent uuid NOT NULL,
    child uuid NOT NULL,
    PRIMARY KEY (parent, child)
);
COMMENT ON TABLE llmq.dependency IS 'which jobs come after which';

CREATE TABLE llmq.lease (
    job_id uuid PRIMARY KEY,
    worker_id bigint NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL, -- this one included: the delivery's number, and the fence
    counted int NOT NULL,
    deaths int NOT NULL,
    claimed_at timestamptz NOT NULL,
    deadline timestamptz NOT NULL,
    reserved_cost numeric, -- of its tenant's budget, if it has one
    reserved_tokens bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_tenant_idx ON llmq.lease (tenant) WHERE reserved_tokens IS NOT NULL;
COMMENT ON TABLE llmq.lease IS 'jobs that a worker is running';

-- The answers of jobs with an on_complete, until the settler has settled them.  One that
-- is dead stands beside its job in dead_job, for llmq.redrive.
CREATE TABLE llmq.answer (
    job_id uuid PRIMARY KEY,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL,
    counted int NOT NULL,
    deaths int NOT NULL,
    entry jsonb NOT NULL, -- as worker_settle was given it, attempts included
    failures int NOT NULL DEFAULT 0, -- tries to settle it so far, since the last redrive
    due_at timestamptz NOT NULL,
    dead boolean NOT NULL DEFAULT false,
    error_message text,
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX answer_due_at_idx ON llmq.answer (due_at) WHERE NOT dead;
COMMENT ON TABLE llmq.answer IS
    'answers whose on_complete has not been run yet; they were paid for, and settling them is retried';

CREATE TABLE llmq.recall (
    worker_id bigint NOT NULL,
    job_id uuid NOT NULL,
    delivery int NOT NULL
);
COMMENT ON TABLE llmq.recall IS 'leases taken from a worker that has not been told yet';

CREATE TABLE llmq.result (
    job_id uuid PRIMARY KEY,
    text text,
    json jsonb,
    tool_calls jsonb,
    embedding float4[],
    model text,
    endpoint text,
    finish_reason text,
    input_tokens bigint,
    output_tokens bigint,
    cached_tokens bigint,
    cost numeric,
    response jsonb,
    queue text NOT NULL,
    deliveries int NOT NULL,
    deaths int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX result_retention_idx ON llmq.result (queue, created_at);
COMMENT ON TABLE llmq.result IS 'the committed answers, one a job';
COMMENT ON COLUMN llmq.result.response IS 'the provider''s own bytes, made valid';

CREATE TABLE llmq.attempt (
    job_id uuid NOT NULL,
    delivery int NOT NULL,
    attempt int NOT NULL,
    endpoint text,
    started_at timestamptz NOT NULL,
    duration interval,
    outcome text NOT NULL CHECK (outcome IN ('success', 'retry', 'permanent')),
    http_status int,
    error_class text,
    error_message text,
    retry_after interval,
    model text,
    finish_reason text,
    input_tokens bigint,
    output_tokens bigint,
    cached_tokens bigint,
    bytes_in bigint,
    billing text NOT NULL CHECK (billing IN ('none', 'billed', 'unknown')),
    request_id text,
    traceparent text,
    cost numeric,
    PRIMARY KEY (job_id, delivery, attempt)
);
-- For those who look at a span of time; a B-tree would cost each settling more.
CREATE INDEX attempt_started_at_idx ON llmq.attempt USING brin (started_at) WITH (autosummarize = on);
COMMENT ON TABLE llmq.attempt IS
    'network calls, one row each; attempt 0 stands for the unknown calls of a delivery whose worker was lost';
COMMENT ON COLUMN llmq.attempt.retry_after IS 'the provider''s wish';
COMMENT ON COLUMN llmq.attempt.traceparent IS 'the header that was sent: the trace of the job''s metadata, with this call as the parent';
COMMENT ON COLUMN llmq.attempt.cost IS 'by the prices of that time, if it was billed; NULL where they or its usage are not known';

CREATE TABLE llmq.dead_job (
    job_id uuid PRIMARY KEY,
    queue text NOT NULL,
    tenant text NOT NULL,
    priority smallint NOT NULL,
    deliveries int NOT NULL,
    counted int NOT NULL,
    deaths int NOT NULL, -- this one included
    error_class text NOT NULL,
    error_message text,
    text text,
    died_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_job_retention_idx ON llmq.dead_job (queue, died_at);
COMMENT ON TABLE llmq.dead_job IS 'jobs that stopped until a person redrives them';

CREATE TABLE llmq.cancelled_job (
    job_id uuid PRIMARY KEY,
    queue text NOT NULL,
    deliveries int NOT NULL,
    cancelled_by name NOT NULL,
    cancelled_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX cancelled_job_retention_idx ON llmq.cancelled_job (queue, cancelled_at);
COMMENT ON TABLE llmq.cancelled_job IS 'jobs that were cancelled';

CREATE TABLE llmq.kept_job (
    job_id uuid PRIMARY KEY,
    tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error text NOT NULL
);
COMMENT ON TABLE llmq.kept_job IS
    'final jobs that retention could not delete, since something of a user''s refused; the worker tries them again after a day';
