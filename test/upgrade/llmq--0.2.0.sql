-- llmq: durable, idempotent calls to language models.
-- Loaded by CREATE EXTENSION; the parts of this script are kept in sql/.

\echo Use "CREATE EXTENSION llmq" to load this file. \quit

DO $$
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('llmq needs a database in encoding UTF8, this one is %s',
                current_setting('server_encoding')),
            DETAIL = 'Providers speak UTF-8, and an answer that was paid for must always fit.',
            HINT = 'Create a database with ENCODING ''UTF8'' TEMPLATE template0 and use llmq there.';
    END IF;
END
$$;

COMMENT ON SCHEMA llmq IS 'durable, idempotent calls to language models';
-- Configuration is rows: endpoints, queues, destinations, budgets, tenants.
-- There are no foreign keys among them (a queue row would collect a multixact
-- with every submit); llmq.check() proves what they would.
--
-- What would make a worker fail is refused here: it reads the configuration as one
-- value, and adds spans to the present time.  A span is measured as the worker measures it
-- (llmq.microseconds), by which '361 days -1 year' is less than nothing; its years are bounded by
-- themselves, as days could balance any number of them.  Numerics are bounded, as the worker reads
-- numbers of 64 bits; so NaN and Infinity, which are above all, are none.

CREATE TABLE llmq.endpoint (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    api text NOT NULL CHECK (api IN ('openai_chat', 'openai_responses', 'anthropic_messages',
        'gemini', 'ollama_chat', 'openai_embeddings')),
    url text NOT NULL CHECK (url ~* '^https?://[^/?#@[:space:][:cntrl:]]+([/?][^#[:space:][:cntrl:]]*)?$'),
    model text,
    credential text CHECK (credential ~ '^[a-z0-9_]+$'),
    headers jsonb CHECK (jsonb_typeof(headers) = 'object'
        AND NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() <> "string")', '{}', true)),
    stream boolean NOT NULL DEFAULT false,
    max_in_flight int CHECK (max_in_flight > 0),
    requests_per_minute int CHECK (requests_per_minute > 0),
    tokens_per_minute int CHECK (tokens_per_minute > 0),
    idempotency_header text CHECK (idempotency_header ~ '^[A-Za-z0-9-]+$'),
    max_response_bytes int NOT NULL DEFAULT 8388608
        CHECK (max_response_bytes BETWEEN 1024 AND 134217728),
    connect_timeout interval NOT NULL DEFAULT '5 s'
        CHECK (extract(epoch FROM connect_timeout) > 0 AND connect_timeout <= '100 years' AND extract(year FROM connect_timeout) BETWEEN 0 AND 100),
    first_byte_timeout interval
        CHECK (extract(epoch FROM first_byte_timeout) > 0 AND first_byte_timeout <= '100 years' AND extract(year FROM first_byte_timeout) BETWEEN 0 AND 100),
    idle_timeout interval
        CHECK (extract(epoch FROM idle_timeout) > 0 AND idle_timeout <= '100 years' AND extract(year FROM idle_timeout) BETWEEN 0 AND 100),
    input_price numeric CHECK (input_price BETWEEN 0 AND 1e9),
    cached_price numeric CHECK (cached_price BETWEEN 0 AND 1e9),
    output_price numeric CHECK (output_price BETWEEN 0 AND 1e9),
    breaker_failures int NOT NULL DEFAULT 5 CHECK (breaker_failures > 0),
    breaker_cooldown interval NOT NULL DEFAULT '30 s'
        CHECK (extract(epoch FROM breaker_cooldown) > 0 AND breaker_cooldown <= '100 years' AND extract(year FROM breaker_cooldown) BETWEEN 0 AND 100),
    enabled boolean NOT NULL DEFAULT true
);
COMMENT ON TABLE llmq.endpoint IS 'where models are served, one row an endpoint';
COMMENT ON COLUMN llmq.endpoint.name IS 'what queues, results and attempts call it';
COMMENT ON COLUMN llmq.endpoint.api IS 'the dialect that is spoken there';
COMMENT ON COLUMN llmq.endpoint.url IS
    'base URL, http or https, without user or password; the dialect appends its path; redirects are never followed';
COMMENT ON COLUMN llmq.endpoint.model IS 'model of jobs that name none';
COMMENT ON COLUMN llmq.endpoint.credential IS
    'name of the secret: a file of that name in llmq.secrets_directory, or the environment variable LLMQ_SECRET_<NAME>';
COMMENT ON COLUMN llmq.endpoint.headers IS
    'further headers, an object of strings; ${credential} in a value stands for the secret, and the dialect''s own authentication header is then not sent';
COMMENT ON COLUMN llmq.endpoint.stream IS 'ask for a stream; the answer is committed when it is whole';
COMMENT ON COLUMN llmq.endpoint.max_in_flight IS 'calls at once, of all workers together; NULL: no limit';
COMMENT ON COLUMN llmq.endpoint.requests_per_minute IS
    'the provider''s quota, for all workers together; NULL: none';
COMMENT ON COLUMN llmq.endpoint.tokens_per_minute IS
    'the provider''s quota, for all workers together; NULL: none';
COMMENT ON COLUMN llmq.endpoint.idempotency_header IS
    'name of a header that carries a key of job and endpoint, the same in every attempt';
COMMENT ON COLUMN llmq.endpoint.max_response_bytes IS 'decoded bytes of an answer; a longer one is too_large';
COMMENT ON COLUMN llmq.endpoint.connect_timeout IS 'until the connection, with TLS, is there';
COMMENT ON COLUMN llmq.endpoint.first_byte_timeout IS
    'from the connection to the first byte of the answer; NULL: none of its own';
COMMENT ON COLUMN llmq.endpoint.idle_timeout IS 'between two portions of the answer; NULL: none of its own';
COMMENT ON COLUMN llmq.endpoint.input_price IS 'price per million tokens of what is sent';
COMMENT ON COLUMN llmq.endpoint.cached_price IS 'price per million tokens that were read from a cache';
COMMENT ON COLUMN llmq.endpoint.output_price IS 'price per million tokens of answers';
COMMENT ON COLUMN llmq.endpoint.breaker_failures IS 'failures in a row after which it is left alone';
COMMENT ON COLUMN llmq.endpoint.breaker_cooldown IS 'how long it is left alone before one call tries it out';
COMMENT ON COLUMN llmq.endpoint.enabled IS 'false: no call is made there';

CREATE TABLE llmq.queue (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    endpoints text[],
    paused boolean NOT NULL DEFAULT false,
    max_in_flight int CHECK (max_in_flight > 0),
    max_ready int CHECK (max_ready > 0),
    call_timeout interval NOT NULL DEFAULT '20 s'
        CHECK (extract(epoch FROM call_timeout) > 0 AND call_timeout <= '100 years' AND extract(year FROM call_timeout) BETWEEN 0 AND 100),
    deadline interval NOT NULL DEFAULT '60 s'
        CHECK (extract(epoch FROM deadline) > 0 AND deadline <= '100 years' AND extract(year FROM deadline) BETWEEN 0 AND 100),
    max_attempts int NOT NULL DEFAULT 4 CHECK (max_attempts BETWEEN 1 AND 1000),
    min_attempt interval NOT NULL DEFAULT '1 s'
        CHECK (extract(epoch FROM min_attempt) >= 0 AND min_attempt <= '100 years' AND extract(year FROM min_attempt) BETWEEN 0 AND 100),
    backoff_base interval NOT NULL DEFAULT '0.5 s'
        CHECK (extract(epoch FROM backoff_base) >= 0 AND backoff_base <= '100 years' AND extract(year FROM backoff_base) BETWEEN 0 AND 100),
    backoff_cap interval NOT NULL DEFAULT '8 s'
        CHECK (extract(epoch FROM backoff_cap) >= 0 AND backoff_cap <= '100 years' AND extract(year FROM backoff_cap) BETWEEN 0 AND 100),
    max_deliveries int NOT NULL DEFAULT 5 CHECK (max_deliveries BETWEEN 1 AND 1000),
    redelivery_base interval NOT NULL DEFAULT '5 s'
        CHECK (extract(epoch FROM redelivery_base) >= 0 AND redelivery_base <= '100 years' AND extract(year FROM redelivery_base) BETWEEN 0 AND 100),
    redelivery_cap interval NOT NULL DEFAULT '10 min'
        CHECK (extract(epoch FROM redelivery_cap) >= 0 AND redelivery_cap <= '100 years' AND extract(year FROM redelivery_cap) BETWEEN 0 AND 100),
    max_age interval NOT NULL DEFAULT '7 days'
        CHECK (extract(epoch FROM max_age) > 0 AND max_age <= '100 years' AND extract(year FROM max_age) BETWEEN 0 AND 100),
    retention interval NOT NULL DEFAULT '30 days'
        CHECK (extract(epoch FROM retention) > 0 AND retention <= '100 years' AND extract(year FROM retention) BETWEEN 0 AND 100),
    accept_truncated boolean NOT NULL DEFAULT false,
    require_json boolean NOT NULL DEFAULT false,
    fallback_on text[],
    notify_done boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE llmq.queue IS
    'policies, one row a queue; the queue "default" needs no row: without one the column defaults hold';
COMMENT ON COLUMN llmq.queue.name IS 'what submit calls it';
COMMENT ON COLUMN llmq.queue.endpoints IS
    'names of endpoints in order of preference; NULL: every enabled endpoint by name; {}: none';
COMMENT ON COLUMN llmq.queue.paused IS
    'true: no delivery starts; jobs can be submitted, and calls under way go on';
COMMENT ON COLUMN llmq.queue.max_in_flight IS 'deliveries at once, of all workers together; NULL: no limit';
COMMENT ON COLUMN llmq.queue.max_ready IS 'ready jobs, beyond which submit is refused (PT429); NULL: no limit';
COMMENT ON COLUMN llmq.queue.call_timeout IS 'wall clock of one network call';
COMMENT ON COLUMN llmq.queue.deadline IS 'all attempts and sleeps of one delivery';
COMMENT ON COLUMN llmq.queue.max_attempts IS 'network calls in one delivery, to each endpoint';
COMMENT ON COLUMN llmq.queue.min_attempt IS
    'no attempt starts with less time left (never more than call_timeout, nor half of deadline)';
COMMENT ON COLUMN llmq.queue.backoff_base IS
    'the wait after a first failed attempt is random up to this, and may be twice as long after each further one';
COMMENT ON COLUMN llmq.queue.backoff_cap IS
    'longest wait in place between two attempts; a provider''s longer wish defers the job';
COMMENT ON COLUMN llmq.queue.max_deliveries IS 'deliveries that count before the job is dead';
COMMENT ON COLUMN llmq.queue.redelivery_base IS
    'the wait after a first failed delivery is random up to this, and may be twice as long after each further one';
COMMENT ON COLUMN llmq.queue.redelivery_cap IS 'longest wait between two deliveries';
COMMENT ON COLUMN llmq.queue.max_age IS 'after its submission a job is delivered no more: expired';
COMMENT ON COLUMN llmq.queue.retention IS 'how long a finished job and its key are kept';
COMMENT ON COLUMN llmq.queue.accept_truncated IS 'an answer that stopped at the token limit is a success';
COMMENT ON COLUMN llmq.queue.require_json IS 'the text must be JSON, and stands in llmq.result.json';
COMMENT ON COLUMN llmq.queue.fallback_on IS
    'classes of errors after which the next endpoint is called, beyond those that are retried';
COMMENT ON COLUMN llmq.queue.notify_done IS 'NOTIFY llmq_done with the job_id of each final job';

CREATE TABLE llmq.destination (
    topic text PRIMARY KEY CHECK (length(topic) BETWEEN 1 AND 128),
    kind text NOT NULL CHECK (kind IN ('webhook', 'email', 'notify')),
    url text NOT NULL,
    credential text CHECK (credential ~ '^[a-z0-9_]+$'),
    headers jsonb CHECK (jsonb_typeof(headers) = 'object'
        AND NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() <> "string")', '{}', true)),
    sender text,
    timeout interval NOT NULL DEFAULT '10 s'
        CHECK (extract(epoch FROM timeout) > 0 AND timeout <= '100 years' AND extract(year FROM timeout) BETWEEN 0 AND 100),
    max_attempts int NOT NULL DEFAULT 10 CHECK (max_attempts BETWEEN 1 AND 1000),
    backoff_base interval NOT NULL DEFAULT '5 s'
        CHECK (extract(epoch FROM backoff_base) >= 0 AND backoff_base <= '100 years' AND extract(year FROM backoff_base) BETWEEN 0 AND 100),
    backoff_cap interval NOT NULL DEFAULT '1 h'
        CHECK (extract(epoch FROM backoff_cap) >= 0 AND backoff_cap <= '100 years' AND extract(year FROM backoff_cap) BETWEEN 0 AND 100),
    enabled boolean NOT NULL DEFAULT true,
    max_in_flight int NOT NULL DEFAULT 1 CHECK (max_in_flight BETWEEN 1 AND 100),
    CONSTRAINT destination_topic_prefix CHECK (topic !~ '[*].'),
    CONSTRAINT destination_url_of_kind CHECK (CASE kind
        WHEN 'webhook' THEN url ~* '^https?://[^/?#@[:space:][:cntrl:]]+([/?][^#[:space:][:cntrl:]]*)?$'
        WHEN 'email' THEN url ~* '^smtps?://[^/?#@:[:space:][:cntrl:]]+(:[0-9]{1,5})?$'
            OR url ~* '^smtps?://[[][0-9a-f:.]+[]](:[0-9]{1,5})?$'
        ELSE octet_length(url) BETWEEN 1 AND 63 END),
    CONSTRAINT destination_sender_of_email CHECK (kind <> 'email'
        OR coalesce(sender ~ '^([^[:cntrl:]<>]*<)?[^@<>[:space:][:cntrl:]]+@[^@<>[:space:][:cntrl:]]+>?$'
            AND (sender ~ '<') = (sender ~ '>') AND length(sender) <= 320, false))
);
COMMENT ON TABLE llmq.destination IS
    'where outbox messages of a topic, or of a prefix ending in *, go; without one they wait to be pulled';
COMMENT ON COLUMN llmq.destination.topic IS
    'a topic, or what topics begin with and *; the exact topic decides, else the longest prefix';
COMMENT ON COLUMN llmq.destination.kind IS 'webhook, email or notify';
COMMENT ON COLUMN llmq.destination.url IS
    'webhook: http or https, without user, password and fragment; redirects are never followed. email: smtp://host:port or smtps://host:port. notify: the channel, 1 to 63 bytes';
COMMENT ON COLUMN llmq.destination.credential IS
    'name of the secret: what webhooks are signed with, or user:password of the mail server; a file of that name in llmq.secrets_directory, or the environment variable LLMQ_SECRET_<NAME>';
COMMENT ON COLUMN llmq.destination.headers IS 'further headers of a webhook, an object of strings';
COMMENT ON COLUMN llmq.destination.sender IS 'whom e-mails come from: an address, or Name <address>';
COMMENT ON COLUMN llmq.destination.timeout IS 'wall clock of one attempt';
COMMENT ON COLUMN llmq.destination.max_attempts IS 'attempts that count before a message is dead';
COMMENT ON COLUMN llmq.destination.backoff_base IS
    'the wait after a first attempt is random up to this, and may be twice as long after each further one';
COMMENT ON COLUMN llmq.destination.backoff_cap IS 'longest wait between two attempts';
COMMENT ON COLUMN llmq.destination.enabled IS 'false: messages wait; a receiver that answers 410 Gone is switched off so';
COMMENT ON COLUMN llmq.destination.max_in_flight IS
    'messages of one topic under way at once; 1 keeps them in order of id (nothing overtakes but the retry of one that failed), more is faster and gives that up';

CREATE TABLE llmq.budget (
    tenant text PRIMARY KEY,
    period interval NOT NULL
        CHECK (extract(epoch FROM period) > 0 AND period <= '100 years' AND extract(year FROM period) BETWEEN 0 AND 100),
    max_cost numeric CHECK (max_cost BETWEEN 0 AND 1e15),
    max_tokens bigint CHECK (max_tokens >= 0),
    hard boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE llmq.budget IS
    'what a tenant may spend in a period; * is each tenant without a row, by itself';
COMMENT ON COLUMN llmq.budget.tenant IS 'whose budget it is; *: of each tenant without a row, by itself';
COMMENT ON COLUMN llmq.budget.period IS 'after which it begins anew, counted from 2000-01-01 UTC';
COMMENT ON COLUMN llmq.budget.max_cost IS 'by the prices of endpoints; NULL: no limit';
COMMENT ON COLUMN llmq.budget.max_tokens IS 'input and output; NULL: no limit';
COMMENT ON COLUMN llmq.budget.hard IS 'true: submit is refused (PT402) when it is spent; false: jobs wait';

CREATE TABLE llmq.spending (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    at timestamptz NOT NULL,
    cost numeric NOT NULL,
    tokens bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX spending_tenant_idx ON llmq.spending (tenant);
COMMENT ON TABLE llmq.spending IS
    'what calls have cost, while there is any budget: a row a tenant and settling, until a worker folds it into budget_spent';

CREATE TABLE llmq.budget_spent (
    tenant text NOT NULL,
    period_start timestamptz NOT NULL,
    cost numeric NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (tenant, period_start)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.budget_spent IS 'what tenants with a budget have spent in its period, but for what is in spending';

CREATE TABLE llmq.role_tenant (
    role name NOT NULL,
    tenant text NOT NULL CHECK (length(tenant) BETWEEN 1 AND 255),
    PRIMARY KEY (role, tenant)
);
COMMENT ON TABLE llmq.role_tenant IS 'the tenants that a role and its members may name besides their own';
COMMENT ON COLUMN llmq.role_tenant.role IS 'a role, whose members count too';
COMMENT ON COLUMN llmq.role_tenant.tenant IS 'whom it may name as tenant';
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

-- Beside the session, which is updated more often than this and stays narrow.
CREATE TABLE llmq.worker_metric (
    worker_id bigint PRIMARY KEY REFERENCES llmq.worker_session (id) ON DELETE CASCADE,
    families jsonb NOT NULL, -- bgworker/metric.h says what they are
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
    database_oid oid NOT NULL
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
-- What pg_dump must carry: everything but the sessions of workers, which are
-- not there after a restore, and whose leases return at once.

DO $$
DECLARE
    relation pg_catalog.regclass;
BEGIN
    -- One statement each: all of them update the same row of pg_extension.
    FOREACH relation IN ARRAY '{
        llmq.endpoint, llmq.queue, llmq.destination, llmq.budget, llmq.role_tenant,
        llmq.job, llmq.ready, llmq.deferred, llmq.blocked, llmq.dependency, llmq.lease, llmq.answer, llmq.result, llmq.attempt,
        llmq.dead_job, llmq.cancelled_job, llmq.idempotency,
        llmq.spending, llmq.budget_spent, llmq.spending_id_seq,
        llmq.message, llmq.message_pending, llmq.message_deferred, llmq.message_lease, llmq.message_done,
        llmq.home, llmq.ready_seq_seq, llmq.message_id_seq, llmq.worker_session_id_seq
    }'::pg_catalog.regclass[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(relation, '');
    END LOOP;
END
$$;
-- Who and where: small functions in C that SQL has no word for.

CREATE OR REPLACE FUNCTION llmq.system_identifier() RETURNS bigint
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_system_identifier_1';
COMMENT ON FUNCTION llmq.system_identifier() IS 'the identifier that initdb gave this server';

CREATE OR REPLACE FUNCTION llmq.next_xid() RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_next_xid_1';
COMMENT ON FUNCTION llmq.next_xid() IS
    'the transaction id that the next transaction to write will get; assigns none';

CREATE OR REPLACE FUNCTION llmq.backend_start(pid int) RETURNS timestamptz
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'llmq_backend_start_1';
COMMENT ON FUNCTION llmq.backend_start(int) IS
    'when the backend of this database with that pid began; NULL if there is none';

CREATE OR REPLACE FUNCTION llmq.uuid5(namespace uuid, name text) RETURNS uuid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_uuid5_1';
COMMENT ON FUNCTION llmq.uuid5(uuid, text) IS 'name-based UUID, version 5 (RFC 9562)';

CREATE OR REPLACE FUNCTION llmq.error_classes() RETURNS text[]
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_error_classes_1';
COMMENT ON FUNCTION llmq.error_classes() IS 'the classes of errors that an attempt can end with';

CREATE OR REPLACE FUNCTION llmq.namespace() RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT pg_catalog.uuid '5b1f6c1e-6a0a-5d0c-9d5e-0c6f6c6d7101' $$;
COMMENT ON FUNCTION llmq.namespace() IS 'the namespace of job ids; it never changes';

-- The one rule by which a key becomes a job.  The scope of what came over HTTP is its
-- method and its path, two words of the hash.  No operators: any search_path is in force.
CREATE OR REPLACE FUNCTION llmq.job_id(tenant text, scope text, idempotency_key text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    space constant int := pg_catalog.strpos(scope, ' ');
BEGIN
    IF pg_catalog.int4eq(space, 0) THEN
        RETURN llmq.uuid5(llmq.namespace(),
            pg_catalog.jsonb_build_array(tenant, scope, idempotency_key)::pg_catalog.text);
    END IF;
    RETURN llmq.uuid5(llmq.namespace(), pg_catalog.jsonb_build_array(tenant,
        pg_catalog.substr(scope, 1, pg_catalog.int4mi(space, 1)),
        pg_catalog.substr(scope, pg_catalog.int4pl(space, 1)), idempotency_key)::pg_catalog.text);
END
$$;
COMMENT ON FUNCTION llmq.job_id(text, text, text) IS
    'the id of the job that a tenant''s key makes: scope ''submit'' for llmq.submit and submit_many, ''METHOD /path'' for llmq.http_submit';
-- Policies: what holds for a queue, and for one job of it.

-- The column defaults of llmq.queue as a row, for the queue 'default' without one.
CREATE OR REPLACE FUNCTION llmq.default_queue() RETURNS llmq.queue
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_populate_record(NULL::llmq.queue, '{
        "name": "default", "paused": false,
        "call_timeout": "20 s", "deadline": "60 s", "max_attempts": 4, "min_attempt": "1 s",
        "backoff_base": "0.5 s", "backoff_cap": "8 s",
        "max_deliveries": 5, "redelivery_base": "5 s", "redelivery_cap": "10 min",
        "max_age": "7 days", "retention": "30 days",
        "accept_truncated": false, "require_json": false, "notify_done": false}')
$$;
COMMENT ON FUNCTION llmq.default_queue() IS
    'the policy of the queue "default" while it has no row: the column defaults of llmq.queue';

-- Every queue there is, the rowless default included.
CREATE OR REPLACE VIEW llmq.queue_policy AS
    SELECT * FROM llmq.queue
    UNION ALL
    SELECT d.* FROM llmq.default_queue() AS d
    WHERE NOT EXISTS (SELECT FROM llmq.queue WHERE name = 'default');
COMMENT ON VIEW llmq.queue_policy IS 'llmq.queue with a row for the queue "default" in any case';

-- A class that there is not would be a fallback that never comes.
CREATE OR REPLACE FUNCTION llmq.check_fallback() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unknown constant text[] := ARRAY(
        SELECT c FROM unnest(NEW.fallback_on) AS c WHERE (c = ANY (llmq.error_classes())) IS NOT TRUE);
BEGIN
    IF unknown <> '{}' THEN
        PERFORM llmq.fail('check_violation', format('fallback_on of queue "%s" names what is no class of errors', NEW.name),
            format('It names %s.', array_to_string(ARRAY(SELECT coalesce('"' || u || '"', 'NULL') FROM unnest(unknown) AS u), ', ')),
            format('The classes are %s.', array_to_string(llmq.error_classes(), ', ')));
    END IF;
    RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER check_fallback BEFORE INSERT OR UPDATE OF fallback_on ON llmq.queue
    FOR EACH ROW WHEN (NEW.fallback_on IS NOT NULL) EXECUTE FUNCTION llmq.check_fallback();

-- An interval in microseconds, as the worker counts.  It pins no search_path, so that it
-- is inlined.
CREATE OR REPLACE FUNCTION llmq.microseconds(span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT (extract(epoch FROM span) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8
$$;

-- All that a worker must know of the configuration, in one value.
CREATE OR REPLACE FUNCTION llmq.worker_config() RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN jsonb_build_object(
        'queues', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'name', q.name, 'endpoints', q.endpoints, 'paused', q.paused,
                'max_in_flight', q.max_in_flight, 'max_ready', q.max_ready,
                'call_timeout', llmq.microseconds(q.call_timeout),
                'deadline', llmq.microseconds(q.deadline),
                'max_attempts', q.max_attempts,
                'min_attempt', llmq.microseconds(q.min_attempt),
                'backoff_base', llmq.microseconds(q.backoff_base),
                'backoff_cap', llmq.microseconds(q.backoff_cap),
                'redelivery_base', llmq.microseconds(q.redelivery_base),
                'redelivery_cap', llmq.microseconds(q.redelivery_cap),
                'accept_truncated', q.accept_truncated,
                'require_json', q.require_json,
                'fallback_on', q.fallback_on) ORDER BY q.name), '[]')
            FROM llmq.queue_policy AS q),
        'endpoints', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'name', e.name, 'api', e.api, 'url', e.url, 'model', e.model,
                'credential', e.credential, 'headers', e.headers, 'stream', e.stream,
                'max_in_flight', e.max_in_flight,
                'requests_per_minute', e.requests_per_minute,
                'tokens_per_minute', e.tokens_per_minute,
                'breaker_failures', e.breaker_failures,
                'breaker_cooldown', llmq.microseconds(e.breaker_cooldown),
                'input_price', e.input_price, 'cached_price', e.cached_price, 'output_price', e.output_price,
                'idempotency_header', e.idempotency_header,
                'max_response_bytes', e.max_response_bytes,
                'connect_timeout', llmq.microseconds(e.connect_timeout),
                'first_byte_timeout', llmq.microseconds(e.first_byte_timeout),
                'idle_timeout', llmq.microseconds(e.idle_timeout)) ORDER BY e.name), '[]')
            FROM llmq.endpoint AS e WHERE e.enabled),
        'destinations', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'topic', d.topic, 'kind', d.kind, 'url', d.url, 'credential', d.credential,
                'headers', d.headers, 'sender', d.sender,
                'timeout', llmq.microseconds(d.timeout), 'max_attempts', d.max_attempts,
                'backoff_base', llmq.microseconds(d.backoff_base),
                'backoff_cap', llmq.microseconds(d.backoff_cap),
                'max_in_flight', d.max_in_flight, 'enabled', d.enabled) ORDER BY d.topic), '[]')
            FROM llmq.destination AS d)); -- those that are switched off too: their messages wait
END
$$;
COMMENT ON FUNCTION llmq.worker_config() IS
    'the configuration as a worker needs it; spans in microseconds';

-- The latest time at which a delivery of a job may start.
CREATE OR REPLACE FUNCTION llmq.last_start(
    expires_at timestamptz, submitted_at timestamptz, max_age interval)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT least(expires_at, submitted_at + max_age) $$;
-- What a job's end does in the database: attempts, outbox messages, death.
-- All of it happens in the transaction that ends the job.

-- Writes the outbox messages that jobs asked for in case of `occasion`
-- ('succeeded' or 'dead').  A key that exists adds nothing and fails nothing.
-- From the second death on every key, explicit or not, names the death.
CREATE OR REPLACE FUNCTION llmq.emit_messages(ended llmq.placement[], occasion text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    topics text[];
BEGIN
    WITH entry AS (
        SELECT j.job_id, j.tenant, e.value AS entry,
            coalesce(e.value ->> 'dedupe_key',
                format('%s:%s:%s', e.value ->> 'topic', j.job_id, e.ordinality)) ||
            CASE
                WHEN occasion = 'dead' AND (p.deaths > 1 OR NOT e.value ? 'dedupe_key')
                THEN format(':death %s', p.deaths)
                ELSE ''
            END AS dedupe_key
        FROM unnest(ended) AS p
        JOIN llmq.job AS j ON j.job_id = p.job_id,
        jsonb_array_elements(j.outbox) WITH ORDINALITY AS e
        WHERE coalesce(e.value ->> 'on', 'succeeded') = occasion
    ), added AS (
        INSERT INTO llmq.message (tenant, topic, dedupe_key, payload, job_id)
        SELECT entry.tenant, entry.entry ->> 'topic', entry.dedupe_key, entry.entry -> 'payload',
            entry.job_id
        FROM entry
        ON CONFLICT (tenant, dedupe_key) DO NOTHING
        RETURNING id, topic
    ), placed AS (
        INSERT INTO llmq.message_pending (id, topic) SELECT id, topic FROM added
        RETURNING topic
    )
    SELECT array_agg(p.topic) INTO topics FROM placed AS p;
    IF topics IS NOT NULL THEN
        PERFORM llmq.wake_for(topics);
    END IF;
END
$$;

-- Ends jobs as dead.  They must have left every other place already.
CREATE OR REPLACE FUNCTION llmq.bury(
    jobs llmq.placement[], error_class text, error_message text, text text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq.release_dependents(llmq.bury_alone(jobs, error_class, error_message, text));
END
$$;

-- The same, but for the jobs that come after them: the caller looks at those.
CREATE OR REPLACE FUNCTION llmq.bury_alone(
    jobs llmq.placement[], error_class text, error_message text, text text DEFAULT NULL)
RETURNS llmq.placement[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    buried llmq.placement[];
BEGIN
    WITH dead AS (
        INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths,
            error_class, error_message, text)
        SELECT p.job_id, p.queue, p.tenant, p.priority, p.deliveries, p.counted, p.deaths + 1,
            bury_alone.error_class, bury_alone.error_message, bury_alone.text
        FROM unnest(jobs) AS p
        RETURNING dead_job.*
    )
    SELECT array_agg(ROW(d.job_id, d.queue, d.tenant, d.priority, d.deliveries, d.counted,
        d.deaths)::llmq.placement)
    INTO buried FROM dead AS d;
    PERFORM llmq.emit_messages(buried, 'dead');
    PERFORM llmq.notify_done(buried);
    RETURN buried;
END
$$;

-- Whether there is room for a notification.  With a full queue of them a transaction fails at
-- its commit, and what it settles with it.
CREATE OR REPLACE FUNCTION llmq.may_notify() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_may_notify_1';

-- Tells those who listen that jobs are final, where their queue asks for it and there is room.
CREATE OR REPLACE FUNCTION llmq.notify_done(ended llmq.placement[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('llmq_done', p.job_id::text)
    FROM unnest(ended) AS p JOIN llmq.queue AS q ON q.name = p.queue
    WHERE q.notify_done AND llmq.may_notify();
END
$$;

-- Puts a job that is in no place back: dead when its deliveries are used up or
-- it would be too old, ready when delay is 0, else deferred.
CREATE OR REPLACE FUNCTION llmq.redeliver(
    p llmq.placement, is_counted boolean, delay interval, error_class text, error_message text)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due constant timestamptz := clock_timestamp() + delay;
    allowed int;
    last_start timestamptz;
    reason constant text := concat_ws(': ', error_class, error_message);
BEGIN
    SELECT least(q.max_deliveries, (j.policy -> 'max_deliveries')::int),
        llmq.last_start(j.expires_at, j.submitted_at, q.max_age)
    INTO allowed, last_start
    FROM llmq.job AS j LEFT JOIN llmq.queue_policy AS q ON q.name = j.queue
    WHERE j.job_id = p.job_id;

    p.counted := p.counted + is_counted::int;
    IF p.counted >= allowed THEN
        PERFORM llmq.bury(ARRAY[p], 'max_deliveries',
            format('%s deliveries failed; the last one: %s', p.counted, reason));
        RETURN 'dead';
    ELSIF due > last_start THEN
        PERFORM llmq.bury(ARRAY[p], 'expired',
            format('no delivery may start after %s; the last one: %s', last_start, reason));
        RETURN 'dead';
    ELSIF delay <= '0' THEN
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        SELECT (p).*;
        RETURN 'ready';
    END IF;
    INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths,
        due_at, error_class, error_message)
    SELECT (p).*, due, redeliver.error_class, redeliver.error_message;
    RETURN 'deferred';
END
$$;
-- Where a job stands, and how it is taken from there.

-- What travels with a job, from the lease it was under.
CREATE OR REPLACE FUNCTION llmq.placement(l llmq.lease) RETURNS llmq.placement
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ROW(l.job_id, l.queue, l.tenant, l.priority, l.deliveries, l.counted, l.deaths)::llmq.placement
$$;

-- What follows when a lease that was deleted is not its worker's doing: the
-- delivery leaves an attempt 0 (what was called, and whether that was billed,
-- nobody knows yet), and the worker, if it lives, hears of it.
CREATE OR REPLACE FUNCTION llmq.recall_lease(l llmq.lease, reason text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, error_class,
        error_message, billing)
    VALUES (l.job_id, l.deliveries, 0, l.claimed_at, 'retry', 'interrupted', reason, 'unknown')
    ON CONFLICT DO NOTHING;
    INSERT INTO llmq.recall (worker_id, job_id, delivery)
    VALUES (l.worker_id, l.job_id, l.deliveries);
END
$$;

-- Takes a job that is not final out of its place; the caller holds the job row.
-- A claim moves a job from ready to lease without that lock, so ready and deferred are
-- looked at before lease, a statement each; a settle moves it back, so that a lease
-- which was waited for and is gone means another look.
CREATE OR REPLACE FUNCTION llmq.take_place(taken_job uuid, reason text) RETURNS llmq.placement
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
    l llmq.lease;
BEGIN
    FOR look IN 1..3 LOOP
        DELETE FROM llmq.deferred WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.blocked WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.ready WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.lease WHERE job_id = taken_job RETURNING * INTO l;
        IF FOUND THEN
            PERFORM llmq.recall_lease(l, reason);
            RETURN llmq.placement(l);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
-- Jobs that come after others.
--
-- A parent that succeeds releases its children in the transaction that settles
-- it, and a child is looked at once more after its own commit (`fresh`): of a
-- parent that settles while the child's transaction is open, one of the two looks
-- sees both.  A child's row in llmq.blocked is locked before its parents are
-- counted, so that the last of several parents that settle at once counts all.

-- Puts new jobs that come after others into llmq.blocked, and checks that the
-- others are there and the submitter's to wait for.
CREATE OR REPLACE FUNCTION llmq.place_dependents(jobs llmq.job[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    missing record;
BEGIN
    SELECT j.submitted_by, p.parent INTO missing
    FROM unnest(jobs) AS j, unnest(j.after) AS p (parent)
    WHERE p.parent = j.job_id OR NOT EXISTS (
        SELECT FROM llmq.job AS k
        WHERE k.job_id = p.parent
            AND pg_has_role(j.submitted_by, llmq.submitter_role(k.submitted_by), 'MEMBER'))
    LIMIT 1;
    IF FOUND THEN
        PERFORM llmq.fail('PT404', format('there is no job %s to come after', missing.parent),
            format('None that "%s", or a role it is a member of, has submitted.', missing.submitted_by),
            'Submit the parents first, in the same transaction at the latest.');
    END IF;
    INSERT INTO llmq.dependency (parent, child)
    SELECT DISTINCT p.parent, j.job_id FROM unnest(jobs) AS j, unnest(j.after) AS p (parent);
    INSERT INTO llmq.blocked (job_id, queue, tenant, priority)
    SELECT j.job_id, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j WHERE j.after IS NOT NULL;
END
$$;

-- Whether a blocked job still waits for this one; or may again, for this one's success, when
-- what it died of is redriven.
CREATE OR REPLACE FUNCTION llmq.is_awaited(parent_job uuid) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM llmq.dependency AS d JOIN llmq.blocked AS b ON b.job_id = d.child
        WHERE d.parent = parent_job)
    OR EXISTS (
        SELECT FROM llmq.dependency AS d JOIN llmq.dead_job AS k ON k.job_id = d.child
        JOIN llmq.result AS r ON r.job_id = d.parent
        WHERE d.parent = parent_job AND k.error_class = 'dependency_failed')
$$;

-- Moves a blocked job on, if its parents are final: to ready or deferred when all
-- have succeeded, to its death when one has not.  The caller holds its row, and
-- looks at those that come after a child that died, which is returned.
CREATE OR REPLACE FUNCTION llmq.unblock(child_job uuid) RETURNS llmq.placement[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    j llmq.job;
    failed uuid;
    place llmq.placement;
BEGIN
    SELECT * INTO j FROM llmq.job AS k WHERE k.job_id = child_job;
    -- Arrays of ids, not joins: these use the indexes whatever the statistics say.
    failed := (
        SELECT d.job_id FROM llmq.dead_job AS d WHERE d.job_id = ANY (j.after)
        UNION ALL
        SELECT c.job_id FROM llmq.cancelled_job AS c WHERE c.job_id = ANY (j.after)
        UNION ALL
        SELECT p FROM unnest(j.after) AS p
        WHERE p <> ALL (ARRAY(SELECT k.job_id FROM llmq.job AS k WHERE k.job_id = ANY (j.after)))
        LIMIT 1);
    IF failed IS NULL AND EXISTS (
        SELECT FROM unnest(j.after) AS p
        WHERE p <> ALL (ARRAY(SELECT r.job_id FROM llmq.result AS r WHERE r.job_id = ANY (j.after))))
    THEN
        UPDATE llmq.blocked SET fresh = false WHERE job_id = child_job AND fresh;
        RETURN NULL;
    END IF;
    DELETE FROM llmq.blocked WHERE job_id = child_job
    RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
    PERFORM llmq.wake_worker();
    IF failed IS NOT NULL THEN
        RETURN llmq.bury_alone(ARRAY[place], 'dependency_failed',
            format('job %s, which it comes after, did not succeed', failed));
    ELSIF j.run_at > clock_timestamp() THEN
        INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths, due_at)
        SELECT (place).*, j.run_at;
    ELSE
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        SELECT (place).*;
    END IF;
    RETURN NULL;
END
$$;

-- Jobs are final: looks at the children that wait for them, and at theirs if they die of
-- it.  A loop: chains can be longer than the stack is deep.  What is beyond `most` is left
-- to the worker's next look.
CREATE OR REPLACE FUNCTION llmq.release_dependents(parents llmq.placement[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    most constant int := 1000;
    seen int := 0;
    wave llmq.placement[] := parents;
    died llmq.placement[];
    child_job uuid;
BEGIN
    WHILE wave <> '{}' LOOP
        died := '{}';
        FOR child_job IN
            SELECT DISTINCT d.child
            FROM llmq.dependency AS d
            WHERE d.parent = ANY (ARRAY(SELECT p.job_id FROM unnest(wave) AS p))
            ORDER BY d.child
        LOOP
            PERFORM FROM llmq.blocked WHERE job_id = child_job FOR UPDATE;
            IF FOUND AND seen < most THEN
                seen := seen + 1;
                died := died || llmq.unblock(child_job);
            ELSIF FOUND THEN
                UPDATE llmq.blocked SET fresh = true WHERE job_id = child_job;
                PERFORM llmq.wake_worker();
            END IF;
        END LOOP;
        wave := died;
    END LOOP;
END
$$;

-- A job was redriven: children that died of its death wait for it again, and theirs.
CREATE OR REPLACE FUNCTION llmq.revive_dependents(parent_job uuid) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wave uuid[] := ARRAY[parent_job];
    revived uuid[];
    child_job uuid;
BEGIN
    WHILE wave <> '{}' LOOP
        revived := '{}';
        FOR child_job IN
            SELECT DISTINCT d.child
            FROM llmq.dependency AS d JOIN llmq.dead_job AS k ON k.job_id = d.child
            WHERE d.parent = ANY (wave) AND k.error_class = 'dependency_failed'
            ORDER BY d.child
        LOOP
            IF llmq.redrive_alone(child_job) THEN
                revived := revived || child_job;
            END IF;
        END LOOP;
        wave := revived;
    END LOOP;
END
$$;

-- Looks at blocked jobs for the first time after their commit.  A parent whose row is
-- locked is about to move: then the child is left for the next look.  Returns
-- whether any was left.
CREATE OR REPLACE FUNCTION llmq.resolve_fresh(max_rows int) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    child_job uuid;
    died llmq.placement[];
    any_left boolean := false;
BEGIN
    FOR child_job IN
        SELECT b.job_id FROM llmq.blocked AS b WHERE b.fresh
        ORDER BY b.job_id LIMIT max_rows FOR UPDATE SKIP LOCKED
    LOOP
        IF llmq.parents_move(child_job) THEN
            any_left := true;
        ELSE
            died := died || llmq.unblock(child_job);
        END IF;
    END LOOP;
    PERFORM llmq.release_dependents(died);
    RETURN any_left;
END
$$;

-- Whether a transaction is just now taking a parent of a job from its place.  If not,
-- those that come later will wait for this transaction, and see the child.
CREATE OR REPLACE FUNCTION llmq.parents_move(child_job uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parents uuid[] := (SELECT j.after FROM llmq.job AS j WHERE j.job_id = child_job);
    free uuid[];
BEGIN
    free := ARRAY(SELECT l.job_id FROM llmq.lease AS l WHERE l.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT r.job_id FROM llmq.ready AS r WHERE r.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT d.job_id FROM llmq.deferred AS d WHERE d.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT b.job_id FROM llmq.blocked AS b WHERE b.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT n.job_id FROM llmq.answer AS n WHERE n.job_id = ANY (parents) AND NOT n.dead FOR UPDATE SKIP LOCKED);
    RETURN EXISTS (
        SELECT FROM llmq.job_place AS q
        WHERE q.job_id = ANY (parents) AND q.job_id <> ALL (free)
            AND q.place IN ('lease', 'ready', 'deferred', 'blocked', 'answer'));
END
$$;
-- The outbox: whose messages are whose, where they go, and how they are looked at.

-- -- destinations ---------------------------------------------------------------------------

-- The column defaults of llmq.destination as a row: what holds for messages that are pulled.
CREATE OR REPLACE FUNCTION llmq.default_destination() RETURNS llmq.destination
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_populate_record(NULL::llmq.destination, '{
        "timeout": "10 s", "max_attempts": 10, "backoff_base": "5 s", "backoff_cap": "1 h",
        "enabled": true, "max_in_flight": 1}')
$$;

-- Whether a destination, named by a topic or by a prefix and *, takes messages of a topic.
CREATE OR REPLACE FUNCTION llmq.takes(pattern text, topic text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pattern OPERATOR(pg_catalog.=) topic
        OR (pg_catalog.right(pattern, 1) OPERATOR(pg_catalog.=) '*'
            AND pg_catalog.starts_with(topic, pg_catalog.left(pattern, -1)))
$$;

-- Where messages of a topic go: the exact topic decides, else the longest prefix.  As wake_for
-- it reads a small table as a whole, whatever its callers forbid.
CREATE OR REPLACE FUNCTION llmq.destination_of(of_topic text) RETURNS llmq.destination
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on
AS $$
DECLARE
    found llmq.destination;
BEGIN
    SELECT * INTO found FROM llmq.destination AS d
    WHERE llmq.takes(d.topic, of_topic)
    ORDER BY d.topic = of_topic DESC, length(d.topic) DESC LIMIT 1;
    RETURN found;
END
$$;

-- Has a worker look at commit, if it is to send messages of these topics.
CREATE OR REPLACE FUNCTION llmq.wake_for(topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM llmq.destination AS d, unnest(topics) AS t
        WHERE d.enabled AND llmq.takes(d.topic, t))
    THEN
        PERFORM llmq.wake_at_commit();
    END IF;
END
$$;

-- -- who sees what --------------------------------------------------------------------------

-- The tenants that a role may name: itself, and those of llmq.role_tenant; NULL: all.
CREATE OR REPLACE FUNCTION llmq.tenants_of(caller name) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = caller) THEN
        RETURN NULL;
    END IF;
    RETURN caller::text || ARRAY(
        SELECT t.tenant FROM llmq.role_tenant AS t
        WHERE pg_has_role(caller, to_regrole(quote_ident(t.role)), 'MEMBER'));
END
$$;

-- The tenants whose messages a role sees: those that it may name; an administrator's, who
-- may redrive any message, all.
CREATE OR REPLACE FUNCTION llmq.visible_tenants_as(caller name) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF has_function_privilege(caller, 'llmq.redrive_outbox(text)', 'EXECUTE') THEN
        RETURN NULL;
    END IF;
    RETURN llmq.tenants_of(caller);
END
$$;

CREATE OR REPLACE FUNCTION llmq.visible_tenants() RETURNS text[]
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.visible_tenants() IS
    'the tenants whose outbox messages the caller sees; NULL: all; what llmq.outbox asks';

CREATE OR REPLACE VIEW llmq.outbox WITH (security_barrier) AS
    SELECT m.id, m.tenant, m.topic, m.dedupe_key, m.payload, m.job_id, m.created_at,
        coalesce(p.attempts, w.attempts, l.attempts, d.attempts, 0) AS attempts,
        coalesce(w.next_attempt_at, l.expires_at, CASE WHEN p.id IS NOT NULL THEN m.created_at END)
            AS next_attempt_at,
        d.sent_at, coalesce(p.last_error, w.last_error, l.last_error, d.last_error) AS last_error,
        d.dead_at
    FROM llmq.message AS m
    LEFT JOIN llmq.message_pending AS p ON p.id = m.id
    LEFT JOIN llmq.message_deferred AS w ON w.id = m.id
    LEFT JOIN llmq.message_lease AS l ON l.id = m.id
    LEFT JOIN llmq.message_done AS d ON d.id = m.id
    WHERE (SELECT llmq.visible_tenants()) IS NULL
        OR m.tenant = ANY ((SELECT llmq.visible_tenants())::text[]);
COMMENT ON VIEW llmq.outbox IS
    'messages of the tenants that the caller may name, for administrators all, and how far they got';
COMMENT ON COLUMN llmq.outbox.next_attempt_at IS
    'since when it can be sent or pulled, or from when on; while it is pulled, when its lease ends; NULL: being sent, sent, or dead';

CREATE OR REPLACE VIEW llmq.outbox_event WITH (security_barrier) AS
    SELECT llmq.uuid5(llmq.namespace(), jsonb_build_array(m.tenant, 'message', m.dedupe_key)::text) AS id,
        m.topic AS aggregatetype, coalesce(m.job_id::text, m.dedupe_key) AS aggregateid,
        m.topic AS type, m.payload
    FROM llmq.message AS m
    WHERE (SELECT llmq.visible_tenants()) IS NULL
        OR m.tenant = ANY ((SELECT llmq.visible_tenants())::text[]);
COMMENT ON VIEW llmq.outbox_event IS
    'the messages of llmq.outbox in the columns that an outbox event router expects, Debezium''s say';
-- What a message says when it is sent.  None of these sets a search_path: they are called by
-- functions that pin it.

-- The time as ISO 8601 has it, in UTC.
CREATE OR REPLACE FUNCTION llmq.timestamp_text(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- What a message says of its job, as that is now; NULL if retention has deleted it.
CREATE OR REPLACE FUNCTION llmq.message_job(of_job uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job jsonb;
BEGIN
    SELECT jsonb_build_object('id', r.job_id, 'state', 'succeeded', 'text', r.text, 'model', r.model,
        'finish_reason', r.finish_reason, 'usage', jsonb_build_object('input_tokens', r.input_tokens,
            'output_tokens', r.output_tokens, 'cached_tokens', r.cached_tokens))
    INTO job FROM llmq.result AS r WHERE r.job_id = of_job;
    IF job IS NULL THEN
        SELECT jsonb_build_object('id', d.job_id, 'state', 'dead', 'text', d.text, 'model', NULL,
            'finish_reason', NULL, 'usage', NULL, 'error_class', d.error_class,
            'error_message', d.error_message)
        INTO job FROM llmq.dead_job AS d WHERE d.job_id = of_job;
    END IF;
    IF job IS NULL AND EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = of_job) THEN
        -- It was dead, and has been redriven since.
        job := jsonb_build_object('id', of_job, 'state', llmq.state(of_job), 'text', NULL, 'model', NULL,
            'finish_reason', NULL, 'usage', NULL);
    END IF;
    RETURN job;
END
$$;

-- Whose trace a message belongs to: its payload's, or its job's; NULL: nobody's.
CREATE OR REPLACE FUNCTION llmq.message_trace(m llmq.message) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT coalesce(llmq.traceparent(m.payload),
        (SELECT llmq.traceparent(j.metadata) FROM llmq.job AS j WHERE j.job_id = m.job_id))
$$;

-- The body of a webhook (Standard Webhooks 1.0.0: type, timestamp, data).
CREATE OR REPLACE FUNCTION llmq.webhook_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    data jsonb := CASE jsonb_typeof(m.payload)
        WHEN 'object' THEN m.payload
        ELSE CASE WHEN m.payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', m.payload) END END;
    job jsonb;
BEGIN
    IF m.job_id IS NOT NULL THEN
        job := llmq.message_job(m.job_id);
    END IF;
    IF job IS NOT NULL THEN
        data := data || jsonb_build_object('job', job);
    END IF;
    RETURN jsonb_build_object('type', m.topic, 'timestamp', llmq.timestamp_text(m.created_at),
        'data', data)::text;
END
$$;

-- The payload of a notification: the webhook's body, or where PostgreSQL takes none that
-- long (8,000 bytes and more), where to find it.
CREATE OR REPLACE FUNCTION llmq.notify_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    body constant text := llmq.webhook_body(m);
BEGIN
    IF octet_length(body) < 8000 THEN
        RETURN body;
    END IF;
    RETURN jsonb_build_object('type', m.topic, 'timestamp', llmq.timestamp_text(m.created_at),
        'id', m.id)::text;
END
$$;

-- The addresses of a mail payload's "to" or "cc", a text or an array, as an array; NULL if
-- they are something else.
CREATE OR REPLACE FUNCTION llmq.mail_addresses(value jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE coalesce(jsonb_typeof(value), 'null')
        WHEN 'null' THEN '[]'
        WHEN 'string' THEN jsonb_build_array(value)
        WHEN 'array' THEN CASE
            WHEN NOT jsonb_path_exists(value, 'strict $[*] ? (@.type() <> "string")') THEN value END END
$$;

-- Why a payload cannot be sent as an e-mail, in a few words; NULL if it can.
CREATE OR REPLACE FUNCTION llmq.mail_fault(payload jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    most constant int := 100; -- recipients of one mail, as RFC 5321 has every server take
    addresses jsonb;
    field text;
    count int := 0;
BEGIN
    IF jsonb_typeof(payload) IS DISTINCT FROM 'object' THEN
        RETURN 'the payload of an e-mail must be an object';
    END IF;
    FOREACH field IN ARRAY '{to,cc}'::text[] LOOP
        addresses := llmq.mail_addresses(payload -> field);
        IF addresses IS NULL THEN
            RETURN format('"%s" must be a text or an array of texts', field);
        ELSIF EXISTS (SELECT FROM jsonb_array_elements_text(addresses) AS a WHERE a ~ '[[:cntrl:]]') THEN
            RETURN format('"%s" must not hold line breaks or other control characters', field);
        ELSIF EXISTS (SELECT FROM jsonb_array_elements_text(addresses) AS a WHERE btrim(a) = '') THEN
            RETURN format('"%s" must not hold empty addresses', field);
        ELSIF field = 'to' AND addresses = '[]' THEN
            RETURN '"to" must name a recipient';
        END IF;
        count := count + jsonb_array_length(addresses);
    END LOOP;
    IF count > most THEN
        RETURN format('"to" and "cc" must not name more than %s recipients', most);
    ELSIF coalesce(jsonb_typeof(payload -> 'subject'), 'null') NOT IN ('string', 'null') THEN
        RETURN '"subject" must be a text';
    ELSIF payload ->> 'subject' ~ E'[\r\n]' THEN
        RETURN '"subject" must not hold line breaks';
    ELSIF coalesce(jsonb_typeof(payload -> 'text'), 'null') NOT IN ('string', 'null') THEN
        RETURN '"text" must be a text';
    END IF;
    RETURN NULL;
END
$$;

-- Refuses a payload that could not be sent, if messages of its topic go out as e-mail.
-- One that no job's answer completes must have its text.
CREATE OR REPLACE FUNCTION llmq.check_mail(topic text, payload jsonb, is_of_job boolean) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    fault text;
BEGIN
    IF EXISTS (SELECT FROM llmq.destination AS d WHERE d.kind = 'email')
        AND (llmq.destination_of(check_mail.topic)).kind = 'email' THEN
        fault := llmq.mail_fault(payload);
        IF fault IS NULL AND NOT is_of_job AND payload ->> 'text' IS NULL THEN
            fault := 'the payload of an e-mail that is no job''s must have a "text"';
        END IF;
        IF fault IS NOT NULL THEN
            PERFORM llmq.fail('PT400', fault, format('Messages of the topic "%s" are sent as e-mail.', topic),
                'For example: {"to": "someone@example.org", "subject": "Your summary"}.');
        END IF;
    END IF;
END
$$;

-- The text of an e-mail: its own, else the answer; of a dead job, why it is dead.
CREATE OR REPLACE FUNCTION llmq.mail_text(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job jsonb;
BEGIN
    IF m.payload ->> 'text' IS NOT NULL OR m.job_id IS NULL THEN
        RETURN m.payload ->> 'text';
    END IF;
    job := llmq.message_job(m.job_id);
    RETURN coalesce(job ->> 'text', CASE WHEN job ->> 'state' = 'dead' THEN
        concat_ws(': ', format('Job %s is dead', m.job_id), job ->> 'error_class', job ->> 'error_message') END);
END
$$;

-- An e-mail: an object with to, cc, subject and text, or with error: why it cannot be one.
CREATE OR REPLACE FUNCTION llmq.mail_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    fault text := llmq.mail_fault(m.payload);
    content text;
BEGIN
    IF fault IS NULL THEN
        content := llmq.mail_text(m);
        fault := CASE WHEN content IS NULL THEN 'there is no "text", and no answer to take it from' END;
    END IF;
    IF fault IS NOT NULL THEN
        RETURN jsonb_build_object('error', fault)::text;
    END IF;
    RETURN jsonb_build_object('to', llmq.mail_addresses(m.payload -> 'to'),
        'cc', llmq.mail_addresses(m.payload -> 'cc'),
        'subject', coalesce(m.payload ->> 'subject', ''), 'text', content)::text;
END
$$;
-- Where messages stand, and how they come back to where they can be sent or pulled.

-- A random wait: full jitter up to base, doubled with each attempt, and to cap at most.
CREATE OR REPLACE FUNCTION llmq.full_jitter(base interval, cap interval, attempts int) RETURNS interval
LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT random() * least(llmq.microseconds(cap), llmq.microseconds(base) * 2.0 ^ least(attempts, 30))
        * interval '1 microsecond'
$$;

-- An attempt at a message failed; its lease is deleted.  It is dead when its attempts are
-- used up, else pending again (true) or, with a delay, deferred.
CREATE OR REPLACE FUNCTION llmq.fail_message(
    l llmq.message_lease, max_attempts int, delay interval, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF l.attempts + 1 >= max_attempts THEN
        INSERT INTO llmq.message_done (id, attempts, dead_at, last_error, remaining)
        VALUES (l.id, l.attempts + 1, clock_timestamp(), error, l.remaining);
        RETURN false;
    ELSIF delay > '0' THEN
        INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at, last_error, remaining)
        VALUES (l.id, l.topic, l.attempts + 1, clock_timestamp() + delay, error, l.remaining);
        RETURN false;
    END IF;
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    VALUES (l.id, l.topic, l.attempts + 1, error, l.remaining);
    RETURN true;
END
$$;

-- Two objects of topics and their lowest ids become one; NULL is none.
CREATE OR REPLACE FUNCTION llmq.merge_topics(topics jsonb, others jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF topics IS NULL OR others IS NULL THEN
        RETURN coalesce(topics, others);
    END IF;
    RETURN (
        SELECT jsonb_object_agg(t.topic, t.lowest)
        FROM (
            SELECT e.key AS topic, min(e.value::bigint) AS lowest
            FROM (SELECT * FROM jsonb_each(topics) UNION ALL SELECT * FROM jsonb_each(others)) AS e
            GROUP BY e.key) AS t);
END
$$;

-- Makes pending what is due: of one topic or of all, at most max_rows.  Returns an object
-- of the topics and the lowest ids among those; NULL if there are none.
CREATE OR REPLACE FUNCTION llmq.promote_messages(max_rows int, of_topic text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    topics jsonb;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.id FROM llmq.message_deferred AS d
        WHERE d.next_attempt_at <= now AND (of_topic IS NULL OR d.topic = of_topic)
        ORDER BY d.next_attempt_at LIMIT max_rows
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.message_deferred AS d WHERE d.id = ANY (ARRAY(SELECT due.id FROM due)) RETURNING d.*
    ), placed AS (
        INSERT INTO llmq.message_pending AS p (id, topic, attempts, last_error, remaining)
        SELECT g.id, g.topic, g.attempts, g.last_error, g.remaining FROM gone AS g
        RETURNING p.id, p.topic
    )
    SELECT jsonb_object_agg(t.topic, t.lowest) INTO topics
    FROM (SELECT p.topic, min(p.id) AS lowest FROM placed AS p GROUP BY p.topic) AS t;
    IF EXISTS (SELECT FROM llmq.message_lease AS l WHERE l.expires_at <= now) THEN
        topics := llmq.merge_topics(topics, llmq.take_expired(max_rows, of_topic));
    END IF;
    RETURN topics;
END
$$;

-- Takes messages from consumers whose leases have expired, each an attempt that failed.
CREATE OR REPLACE FUNCTION llmq.take_expired(max_rows int, of_topic text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.destination := llmq.default_destination();
    now constant timestamptz := clock_timestamp();
    l llmq.message_lease;
    topics jsonb;
BEGIN
    FOR l IN
        WITH expired AS MATERIALIZED (
            SELECT k.id FROM llmq.message_lease AS k
            WHERE k.expires_at <= now AND (of_topic IS NULL OR k.topic = of_topic)
            ORDER BY k.expires_at LIMIT max_rows
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM llmq.message_lease AS k WHERE k.id = ANY (ARRAY(SELECT e.id FROM expired AS e)) RETURNING k.*
    LOOP
        IF llmq.fail_message(l, standard.max_attempts, '0', 'its consumer let the lease expire') THEN
            topics := llmq.merge_topics(topics, jsonb_build_object(l.topic, l.id));
        END IF;
    END LOOP;
    RETURN topics;
END
$$;

-- Takes the messages that workers were sending, uncounted: those of these workers and, if
-- asked for, those of no session (see takeover for `restored`), but not these.  Returns how many.
CREATE OR REPLACE FUNCTION llmq.return_messages(
    of_workers bigint[], orphans boolean, restored boolean, but bigint[] DEFAULT '{}')
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    count bigint;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT l.id FROM llmq.message_lease AS l
        WHERE l.id <> ALL (but) AND (l.worker_id = ANY (of_workers)
            OR (orphans AND l.worker_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM llmq.worker_session AS w
                WHERE w.id = l.worker_id AND (w.backend_start <= l.claimed_at OR NOT restored))))
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.message_lease AS l WHERE l.id = ANY (ARRAY(SELECT h.id FROM held AS h)) RETURNING l.*
    )
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    SELECT g.id, g.topic, g.attempts, g.last_error, g.remaining FROM gone AS g;
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END
$$;

-- Deletes messages that were sent, or have been dead, since before cutoff; at most max_rows
-- of each kind.  Their keys are free then.
CREATE OR REPLACE FUNCTION llmq.prune_messages(cutoff timestamptz, max_rows int) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    old bigint[] := ARRAY(
        SELECT d.id FROM llmq.message_done AS d
        WHERE d.sent_at < cutoff ORDER BY d.sent_at LIMIT max_rows FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT d.id FROM llmq.message_done AS d
        WHERE d.dead_at < cutoff ORDER BY d.dead_at LIMIT max_rows FOR UPDATE SKIP LOCKED);
BEGIN
    RETURN llmq.delete_done(old);
END
$$;

-- Deletes those of these messages that are sent or dead; returns how many.
CREATE OR REPLACE FUNCTION llmq.delete_done(messages bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    count bigint;
BEGIN
    IF messages = '{}' THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM llmq.message_done AS d WHERE d.id = ANY (messages) RETURNING d.id
    )
    DELETE FROM llmq.message AS m WHERE m.id = ANY (ARRAY(SELECT g.id FROM gone AS g));
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END
$$;
-- A worker's session: hello, heartbeat, goodbye, and who is lost.

-- A worker whose heartbeat is older is taken for stuck.
CREATE OR REPLACE FUNCTION llmq.lease_ttl() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '15 s' $$;
COMMENT ON FUNCTION llmq.lease_ttl() IS
    'how old the heartbeat of a worker with leases may be before its jobs are given to others';

-- Whether every job and message was submitted in this very database.  Those without a home are
-- those of a dump that is being loaded, whose home is still to come.
-- In plpgsql, as all that workers call again and again: what stands in an SQL function is
-- planned anew by each statement that calls it.
CREATE OR REPLACE FUNCTION llmq.is_home() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM llmq.home
        WHERE system_identifier <> llmq.system_identifier()
            OR database_oid <> (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND (EXISTS (SELECT FROM llmq.home)
            OR NOT EXISTS (SELECT FROM llmq.job) AND NOT EXISTS (SELECT FROM llmq.message));
END
$$;

-- Sessions that are gone, or stuck with leases in hand.  A program may lose its connection
-- and make another: it has the ttl to come back, as long as its last heartbeat is fresh.
CREATE OR REPLACE FUNCTION llmq.lost_sessions(own bigint) RETURNS SETOF llmq.worker_session
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        SELECT w.*
        FROM llmq.worker_session AS w
        WHERE w.id IS DISTINCT FROM own
            AND ((w.in_flight > 0 AND w.heartbeat NOT BETWEEN
                    clock_timestamp() - llmq.lease_ttl() AND clock_timestamp() + llmq.lease_ttl())
                OR ((w.kind = 'server' OR w.heartbeat < clock_timestamp() - llmq.lease_ttl())
                    AND llmq.backend_start(w.pid) IS DISTINCT FROM w.backend_start));
END
$$;
COMMENT ON FUNCTION llmq.lost_sessions(bigint) IS
    'workers other than this one that are gone, or stuck with jobs in hand; llmq.worker leaves them out';

-- Sessions that work: not lost, and with leave to call.  Those that drain still have calls.
CREATE OR REPLACE FUNCTION llmq.working_sessions() RETURNS SETOF llmq.worker_session
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.* FROM llmq.worker_session AS w
    WHERE w.state IN ('running', 'draining')
        AND NOT EXISTS (SELECT FROM llmq.lost_sessions(NULL) AS l WHERE l.id = w.id)
$$;

-- Refuses a worker whose session has ended, or that would work in a copy.  As note_claim it
-- pins no search_path: its callers do.
CREATE OR REPLACE FUNCTION llmq.check_session(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = own AND w.state = 'running')
        OR NOT llmq.is_home() THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the session of worker %s has ended', own),
            HINT = 'It was taken for lost, jobs of another database were loaded, or the extension was updated; it must say hello again.';
    END IF;
END
$$;

-- Notes that a worker has something in hand, whose heartbeats count from now on.
CREATE OR REPLACE FUNCTION llmq.note_claim(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    UPDATE llmq.worker_session AS w
    SET heartbeat = clock_timestamp(), in_flight = greatest(w.in_flight, 1)
    WHERE w.id = own
        AND (w.in_flight = 0 OR w.heartbeat < clock_timestamp() - llmq.lease_ttl() / 3);
END
$$;

-- Whether a worker has jobs or messages under leases.
CREATE OR REPLACE FUNCTION llmq.holds_leases(worker bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM llmq.lease AS l WHERE l.worker_id = worker)
        OR EXISTS (SELECT FROM llmq.message_lease AS l WHERE l.worker_id = worker)
$$;

CREATE OR REPLACE FUNCTION llmq.worker_hello(
    protocol int, name text, kind text, pid int, backend_start timestamptz)
RETURNS TABLE (worker_id bigint, state text, reason text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expected constant int := 2;
    began constant timestamptz := coalesce(worker_hello.backend_start,
        llmq.backend_start(pg_backend_pid()));
BEGIN
    state := CASE
        WHEN protocol <> expected THEN 'outdated'
        WHEN NOT llmq.is_home() THEN 'quarantined'
        ELSE 'running' END;
    reason := CASE state
        WHEN 'outdated' THEN format(
            'the worker speaks protocol %s, the SQL of the extension %s: restart the server, or run ALTER EXTENSION llmq UPDATE',
            protocol, expected)
        WHEN 'quarantined' THEN
            'jobs here were submitted in another database or server: run SELECT llmq.resume_after_restore() if this one shall run them'
        END;
    -- One that says hello again keeps its id, and with it the leases that it holds.
    UPDATE llmq.worker_session AS w SET heartbeat = clock_timestamp(), state = worker_hello.state
    WHERE w.kind = worker_hello.kind AND w.name = worker_hello.name AND w.pid = worker_hello.pid
        AND w.backend_start = began
    RETURNING w.id INTO worker_id;
    IF NOT FOUND THEN
        INSERT INTO llmq.worker_session AS w (name, kind, pid, backend_start, heartbeat, state)
        VALUES (worker_hello.name, worker_hello.kind, worker_hello.pid, began, clock_timestamp(),
            worker_hello.state)
        RETURNING w.id INTO worker_id;
    END IF;
    IF state = 'running' THEN
        PERFORM llmq.takeover(worker_id);
    END IF;
    IF kind = 'program' THEN
        PERFORM llmq.note_backend(worker_id);
    END IF;
    PERFORM llmq.wake_worker(); -- the others' shares are smaller now
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION llmq.worker_hello IS
    'registers a worker, which then takes over the leases of lost ones; state is running, quarantined or outdated';

-- metrics is what the worker has counted (bgworker/metric.h), NULL while that is what it was.
-- A worker of 0.1.0 that still runs knows nothing of it.
CREATE OR REPLACE FUNCTION llmq.worker_heartbeat(own bigint, in_flight int, metrics jsonb DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.worker_session AS w
    SET heartbeat = clock_timestamp(), in_flight = worker_heartbeat.in_flight
    WHERE w.id = own;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF metrics IS NOT NULL THEN
        INSERT INTO llmq.worker_metric AS m (worker_id, families) VALUES (own, metrics)
        ON CONFLICT (worker_id) DO UPDATE SET families = EXCLUDED.families, noted_at = EXCLUDED.noted_at;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.worker_heartbeat IS
    'says that a worker is alive, and what it has counted; false if its session is no longer known, so that it must say hello again';

-- Ends a session; leases that it still holds are given back uncounted, but for those
-- that somebody has locked: they, and the session, are left to a takeover.
CREATE OR REPLACE FUNCTION llmq.worker_goodbye(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    FOR l IN
        WITH held AS MATERIALIZED (
            SELECT k.job_id FROM llmq.lease AS k WHERE k.worker_id = own FOR UPDATE SKIP LOCKED)
        DELETE FROM llmq.lease AS k USING held AS h WHERE k.job_id = h.job_id RETURNING k.*
    LOOP
        PERFORM llmq.recall_lease(l, 'the worker was stopped while it ran this delivery');
        PERFORM llmq.redeliver(llmq.placement(l), false, '0', 'interrupted', 'its worker was stopped');
    END LOOP;
    DELETE FROM llmq.recall WHERE worker_id = own;
    PERFORM llmq.return_messages(ARRAY[own], false, false);
    DELETE FROM llmq.worker_session WHERE id = own AND NOT llmq.holds_leases(own);
    PERFORM llmq.forget_listeners();
    PERFORM llmq.wake_worker(); -- the others' shares are larger now
END
$$;
COMMENT ON FUNCTION llmq.worker_goodbye IS 'ends a worker''s session and gives its leases back, uncounted';
-- The takeover of leases that a lost worker held.

-- Takes every lease of lost sessions, and every lease of no session, and puts
-- the jobs and messages back.  Each job's leaves an attempt 0: what the lost worker called, and
-- whether that was billed, nobody knows.  Returns the number of leases taken.
-- `restored` says that leases may come from another database, where other workers
-- had the ids of those that are here: what is older than its worker is not its own.
CREATE OR REPLACE FUNCTION llmq.takeover(own bigint, restored boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost bigint[] := ARRAY(SELECT id FROM llmq.lost_sessions(own));
    taken record;
    count bigint := 0;
BEGIN
    FOR taken IN
        SELECT j.job_id, l.worker_id
        FROM llmq.lease AS l JOIN llmq.job AS j USING (job_id)
        WHERE l.worker_id = ANY (lost)
            OR NOT EXISTS (
                SELECT FROM llmq.worker_session AS w
                WHERE w.id = l.worker_id AND (w.backend_start <= l.claimed_at OR NOT restored))
        ORDER BY j.job_id
        FOR UPDATE OF j SKIP LOCKED
    LOOP
        BEGIN
            count := count + llmq.take_lease(taken.job_id, taken.worker_id);
        EXCEPTION WHEN OTHERS THEN
            count := count + llmq.give_up_lease(taken.job_id, taken.worker_id, SQLSTATE, SQLERRM);
        END;
    END LOOP;
    count := count + llmq.return_messages(lost, true, restored);
    DELETE FROM llmq.worker_session AS w
    WHERE w.id = ANY (lost)
        AND NOT llmq.holds_leases(w.id)
        AND llmq.backend_start(w.pid) IS DISTINCT FROM w.backend_start; -- one that was only stuck must read what was recalled
    DELETE FROM llmq.recall AS c
    WHERE NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = c.worker_id);
    UPDATE llmq.worker_session AS w SET in_flight = 0
    WHERE w.id = ANY (lost) AND NOT llmq.holds_leases(w.id);
    PERFORM llmq.forget_listeners();
    RETURN count;
END
$$;

-- Takes one lease; the caller holds the job row.  Returns 1, or 0 if it is gone.
CREATE OR REPLACE FUNCTION llmq.take_lease(taken_job uuid, from_worker bigint) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    DELETE FROM llmq.lease WHERE job_id = taken_job AND worker_id = from_worker RETURNING * INTO l;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM llmq.recall_lease(l, format('worker %s was lost while it ran this delivery', from_worker));
    PERFORM llmq.redeliver(llmq.placement(l), true, '0', 'interrupted', 'its worker was lost');
    RETURN 1;
END
$$;

-- What becomes of a lease that could not be taken, so that one job keeps no worker from
-- the others: an error that passes leaves it for the next time, any other ends the job
-- without the effects of its death.  Returns the number of leases taken.
CREATE OR REPLACE FUNCTION llmq.give_up_lease(
    taken_job uuid, from_worker bigint, code text, message text) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    RAISE WARNING USING
        MESSAGE = format('llmq: job %s of a lost worker could not be put back: %s', taken_job, message);
    IF code ~ '^(08|25006|40|53|55|57|58)' THEN -- as llmq_store_error_passes has it
        RETURN 0;
    END IF;
    DELETE FROM llmq.lease WHERE job_id = taken_job AND worker_id = from_worker RETURNING * INTO l;
    INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths,
        error_class, error_message)
    VALUES (l.job_id, l.queue, l.tenant, l.priority, l.deliveries, l.counted, l.deaths + 1, 'internal',
        format('its worker was lost, and it could not be put back: %s', message));
    PERFORM llmq.recall_lease(l, format('worker %s was lost while it ran this delivery', from_worker));
    RETURN 1;
END
$$;
-- Looking: where a job stands, and what came of it.

-- The state of a job; NULL if there is none.
CREATE OR REPLACE FUNCTION llmq.state(of_job uuid) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN EXISTS (SELECT FROM llmq.result WHERE job_id = of_job) THEN 'succeeded'
        WHEN EXISTS (SELECT FROM llmq.lease WHERE job_id = of_job) THEN 'running'
        WHEN EXISTS (SELECT FROM llmq.answer WHERE job_id = of_job AND NOT dead) THEN 'running'
        WHEN EXISTS (SELECT FROM llmq.ready WHERE job_id = of_job) THEN 'ready'
        WHEN EXISTS (SELECT FROM llmq.deferred WHERE job_id = of_job) THEN 'scheduled'
        WHEN EXISTS (SELECT FROM llmq.blocked WHERE job_id = of_job) THEN 'blocked'
        WHEN EXISTS (SELECT FROM llmq.dead_job WHERE job_id = of_job) THEN 'dead'
        WHEN EXISTS (SELECT FROM llmq.cancelled_job WHERE job_id = of_job) THEN 'cancelled'
    END
$$;

-- The role of a submitter's name, of which a member may see and steer what it submitted: once it
-- is dropped, the bootstrap superuser's, of which all superusers count as members.
-- Pins no search_path, so that it can be inlined: views and row security ask for each row.
CREATE OR REPLACE FUNCTION llmq.submitter_role(submitted_by name) RETURNS oid
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT coalesce(pg_catalog.to_regrole(pg_catalog.quote_ident(submitted_by))::pg_catalog.oid, 10::pg_catalog.oid) $$;
COMMENT ON FUNCTION llmq.submitter_role(name) IS
    'the role whose members may see and steer what a role of that name submitted; a superuser''s, if it is dropped';

-- Whether the caller may see what a role submitted, and in full.
CREATE OR REPLACE FUNCTION llmq.may_see(submitted_by name) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_has_role(llmq.submitter_role(submitted_by), 'MEMBER') $$;
COMMENT ON FUNCTION llmq.may_see(name) IS
    'whether the caller is a member of the role that submitted; what views and row security ask';

-- Why jobs of a queue that are ready are not run, as far as configuration says.
CREATE OR REPLACE FUNCTION llmq.wait_reason(queue text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN q.name IS NULL THEN 'no_queue'
        WHEN q.paused THEN 'paused'
        WHEN NOT EXISTS (
            SELECT FROM llmq.endpoint AS e
            WHERE e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints)))
        THEN 'no_endpoint'
        ELSE (
            -- A quota is waited for, the others are passed over for the next one of the chain.
            SELECT t.reason
            FROM llmq.endpoint AS e LEFT JOIN llmq.endpoint_trouble AS t
                ON t.endpoint = e.name AND coalesce(t.until, 'infinity') > clock_timestamp()
            WHERE e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints))
            ORDER BY coalesce(t.reason, 'limiter') <> 'limiter',
                CASE WHEN coalesce(t.reason, 'limiter') <> 'limiter' THEN t.until END,
                array_position(q.endpoints, e.name), e.name
            LIMIT 1) END
    FROM (VALUES (wait_reason.queue)) AS v (name)
    LEFT JOIN llmq.queue_policy AS q ON q.name = v.name
$$;
COMMENT ON FUNCTION llmq.wait_reason(text) IS
    'why the ready jobs of a queue are not run, as far as configuration and endpoints say; NULL: nothing is in their way';

-- Until when, as far as that is known: the first endpoint that can be called again.
CREATE OR REPLACE FUNCTION llmq.wait_until(queue text) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN llmq.wait_reason(wait_until.queue) IN ('limiter', 'breaker', 'rate_limited') THEN (
        SELECT min(t.until)
        FROM llmq.queue_policy AS q JOIN llmq.endpoint_trouble AS t
            ON (q.endpoints IS NULL OR t.endpoint = ANY (q.endpoints)) AND t.until > clock_timestamp()
        WHERE q.name = wait_until.queue) END
$$;
COMMENT ON FUNCTION llmq.wait_until(text) IS
    'when the ready jobs of a queue can be run again, as far as endpoints say; NULL: nobody knows, or nothing is in their way';

-- One row a job, for whoever asks as llmq's owner and judges what the caller may see.
CREATE OR REPLACE VIEW llmq.job_line AS
    SELECT j.job_id, j.tenant, j.queue,
        CASE
            WHEN r.job_id IS NOT NULL THEN 'succeeded'
            WHEN l.job_id IS NOT NULL OR n.job_id IS NOT NULL THEN 'running'
            WHEN y.job_id IS NOT NULL THEN 'ready'
            WHEN w.job_id IS NOT NULL THEN 'scheduled'
            WHEN b.job_id IS NOT NULL THEN 'blocked'
            WHEN d.job_id IS NOT NULL THEN 'dead'
            WHEN c.job_id IS NOT NULL THEN 'cancelled'
        END AS state,
        j.priority::int AS priority, j.run_at,
        coalesce(r.deliveries, l.deliveries, n.deliveries, y.deliveries, w.deliveries, b.deliveries,
            d.deliveries, c.deliveries)
            AS deliveries,
        a.attempts, j.submitted_by, j.submitted_at, a.started_at,
        coalesce(r.created_at, d.died_at, c.cancelled_at) AS finished_at,
        coalesce(r.endpoint, a.endpoint) AS endpoint, coalesce(r.model, a.model) AS model,
        coalesce(r.finish_reason, a.finish_reason) AS finish_reason,
        coalesce(r.text, d.text) AS text, r.json,
        r.input_tokens, r.output_tokens, r.cached_tokens, r.cost,
        coalesce(d.error_class, CASE WHEN w.error_class NOT IN ('limiter', 'breaker', 'budget') THEN w.error_class END,
            CASE WHEN n.failures > 0 THEN 'callback_failed' END)
            AS error_class,
        coalesce(d.error_message, w.error_message, n.error_message) AS error_message,
        CASE
            WHEN n.job_id IS NOT NULL THEN 'on_complete'
            WHEN w.job_id IS NOT NULL THEN coalesce(w.error_class, 'run_at')
            WHEN b.job_id IS NOT NULL THEN 'after'
            WHEN y.job_id IS NOT NULL THEN llmq.wait_reason(j.queue)
        END AS wait_reason,
        coalesce(w.due_at, n.due_at, CASE WHEN y.job_id IS NOT NULL THEN llmq.wait_until(j.queue) END)
            AS wait_until,
        j.metadata, j.run_id, j.step
    FROM llmq.job AS j
    LEFT JOIN llmq.result AS r ON r.job_id = j.job_id
    LEFT JOIN llmq.lease AS l ON l.job_id = j.job_id
    LEFT JOIN llmq.answer AS n ON n.job_id = j.job_id AND NOT n.dead
    LEFT JOIN llmq.ready AS y ON y.job_id = j.job_id
    LEFT JOIN llmq.deferred AS w ON w.job_id = j.job_id
    LEFT JOIN llmq.blocked AS b ON b.job_id = j.job_id
    LEFT JOIN llmq.dead_job AS d ON d.job_id = j.job_id
    LEFT JOIN llmq.cancelled_job AS c ON c.job_id = j.job_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE attempt > 0)::int AS attempts,
            min(started_at) FILTER (WHERE attempt > 0) AS started_at,
            (array_agg(endpoint ORDER BY delivery DESC, attempt DESC) FILTER (WHERE attempt > 0))[1]
                AS endpoint,
            (array_agg(model ORDER BY delivery DESC, attempt DESC) FILTER (WHERE attempt > 0))[1]
                AS model,
            (array_agg(finish_reason ORDER BY delivery DESC, attempt DESC)
                FILTER (WHERE attempt > 0))[1] AS finish_reason
        FROM llmq.attempt WHERE job_id = j.job_id) AS a;
COMMENT ON VIEW llmq.job_line IS 'the columns of llmq.job_status, of every job in full';

CREATE OR REPLACE VIEW llmq.job_status WITH (security_barrier) AS
    SELECT l.job_id, l.tenant, l.queue, l.state, l.priority, l.run_at, l.deliveries, l.attempts, l.submitted_by,
        l.submitted_at, l.started_at, l.finished_at, l.endpoint, l.model, l.finish_reason,
        CASE WHEN s.full_sight THEN l.text END AS text,
        CASE WHEN s.full_sight THEN l.json END AS json,
        l.input_tokens, l.output_tokens, l.cached_tokens, l.cost, l.error_class,
        CASE WHEN s.full_sight THEN l.error_message END AS error_message,
        l.wait_reason, l.wait_until,
        CASE WHEN s.full_sight THEN l.metadata END AS metadata,
        l.run_id, l.step
    FROM llmq.job_line AS l
    CROSS JOIN LATERAL (SELECT llmq.may_see(l.submitted_by) AS full_sight) AS s
    WHERE s.full_sight OR pg_has_role('pg_monitor', 'MEMBER');
COMMENT ON VIEW llmq.job_status IS
    'one row a job, for the roles that submitted it and their members; pg_monitor sees all without contents';

CREATE OR REPLACE VIEW llmq.dead_letter WITH (security_barrier) AS
    SELECT d.job_id, j.tenant, d.queue, d.error_class, d.error_message, d.text, d.deliveries,
        d.deaths, d.died_at, j.idempotency_key, j.submitted_by, j.submitted_at, j.metadata,
        j.run_id, j.step
    FROM llmq.dead_job AS d JOIN llmq.job AS j ON j.job_id = d.job_id
    WHERE llmq.may_see(j.submitted_by);
COMMENT ON VIEW llmq.dead_letter IS
    'dead jobs with their last error, and the text of an answer that was truncated or could not be settled';

CREATE OR REPLACE VIEW llmq.run WITH (security_barrier) AS
    SELECT s.run_id, s.tenant, count(*) AS jobs,
        count(*) FILTER (WHERE s.state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE s.state = 'dead') AS dead,
        count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE s.state = 'running') AS running,
        count(*) FILTER (WHERE s.state IN ('ready', 'scheduled', 'blocked')) AS waiting,
        sum(s.attempts) AS attempts, sum(s.input_tokens) AS input_tokens,
        sum(s.output_tokens) AS output_tokens, sum(s.cost) AS cost,
        min(s.submitted_at) AS submitted_at, min(s.started_at) AS started_at,
        CASE WHEN bool_and(s.finished_at IS NOT NULL) THEN max(s.finished_at) END AS finished_at
    FROM llmq.job_status AS s
    WHERE s.run_id IS NOT NULL
    GROUP BY s.run_id, s.tenant;
COMMENT ON VIEW llmq.run IS 'one row a run_id (of a tenant): how far its jobs are and what they cost';
-- Budgets: what a tenant may spend in a period, and what it has spent.
--
-- Each settling appends what its calls cost to llmq.spending; a worker folds that into one
-- row a tenant, once a second at most.  What running jobs may still cost is reserved in
-- their leases: so no counter is updated by a claim or a settling, and what a lost worker
-- had reserved is free when its leases are.  Functions of submit run under its search_path.

-- The budget of a tenant: its own, or the one that holds for each without one.
CREATE OR REPLACE FUNCTION llmq.budget_of(of_tenant text) RETURNS llmq.budget
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    b llmq.budget;
BEGIN
    SELECT * INTO b FROM llmq.budget AS k WHERE k.tenant = of_tenant;
    IF NOT FOUND THEN
        SELECT * INTO b FROM llmq.budget AS k WHERE k.tenant = '*';
    END IF;
    RETURN b;
END
$$;

-- When the period began that a time belongs to: periods count from 2000-01-01 UTC.
CREATE OR REPLACE FUNCTION llmq.period_start(period interval, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
    SELECT CASE WHEN m.months > 0 AND m.rest = '0' THEN
        '2000-01-01 00:00+00'::timestamptz + make_interval(months =>
            floor(((extract(year FROM at) - 2000) * 12 + extract(month FROM at) - 1) / m.months)::int * m.months)
    ELSE date_bin(make_interval(secs => extract(epoch FROM period)::float8), at, '2000-01-01 00:00+00') END
    FROM (SELECT (extract(year FROM period) * 12 + extract(month FROM period))::int) AS y (months),
    LATERAL (SELECT y.months, period - make_interval(months => y.months) AS rest) AS m
$$;

-- When the period turns that a time belongs to: months are those of the calendar, but with a rest
-- of days or hours they are seconds, as period_start takes them.
CREATE OR REPLACE FUNCTION llmq.period_end(period interval, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
    SELECT llmq.period_start(period, at) + CASE WHEN period = date_trunc('month', period) THEN period
        ELSE make_interval(secs => extract(epoch FROM period)::float8) END
$$;

-- What a tenant has spent in the period that is under way, and what its running jobs have
-- reserved.
CREATE OR REPLACE FUNCTION llmq.spent(b llmq.budget, of_tenant text)
RETURNS TABLE (cost numeric, tokens bigint, reserved_cost numeric, reserved_tokens bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    began constant timestamptz := llmq.period_start(b.period, clock_timestamp());
BEGIN
    RETURN QUERY
        SELECT coalesce(sum(s.cost), 0), coalesce(sum(s.tokens), 0)::bigint, l.cost, l.tokens
        FROM (SELECT coalesce(sum(k.reserved_cost), 0) AS cost, coalesce(sum(k.reserved_tokens), 0)::bigint AS tokens
            FROM llmq.lease AS k WHERE k.tenant = of_tenant AND k.reserved_tokens IS NOT NULL) AS l
        LEFT JOIN (
            SELECT p.cost, p.tokens FROM llmq.budget_spent AS p
            WHERE p.tenant = of_tenant AND p.period_start = began
            UNION ALL
            SELECT p.cost, p.tokens FROM llmq.spending AS p
            WHERE p.tenant = of_tenant AND p.at >= began) AS s ON true
        GROUP BY l.cost, l.tokens;
END
$$;

-- Refuses a new job of a tenant whose hard budget is spent; a key that is known gets its
-- answer even so.
CREATE OR REPLACE FUNCTION llmq.check_budget(job llmq.job) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    b constant llmq.budget := llmq.budget_of(job.tenant);
    used record;
BEGIN
    IF b.hard IS NOT TRUE OR EXISTS (SELECT FROM llmq.job AS k WHERE k.job_id = job.job_id) THEN
        RETURN;
    END IF;
    SELECT * INTO used FROM llmq.spent(b, job.tenant);
    IF used.cost >= b.max_cost OR used.tokens >= b.max_tokens THEN
        PERFORM llmq.fail('PT402', format('the budget of tenant "%s" is spent', job.tenant),
            format('Since %s it has spent %s for %s tokens; it may spend %s.', llmq.period_start(b.period, clock_timestamp()),
                used.cost, used.tokens, concat_ws(' and ', b.max_cost, b.max_tokens || ' tokens')),
            format('The period turns at %s; until then its row of llmq.budget can be raised.',
                llmq.period_end(b.period, clock_timestamp())));
    END IF;
END
$$;

-- How many tokens a job is taken for before it runs, as the worker reckons (bgworker/estimate.c).
CREATE OR REPLACE FUNCTION llmq.estimate_tokens(j llmq.job, OUT input bigint, OUT output bigint)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    input := (coalesce(octet_length(j.prompt), 0) + coalesce(octet_length(j.system), 0)
        + coalesce(octet_length(j.messages::text), 0) + coalesce(octet_length(j.params::text), 0)) / 4;
    output := coalesce((
        SELECT min((p.value #>> '{}')::numeric)::bigint
        FROM jsonb_each(CASE WHEN jsonb_typeof(j.params) = 'object' THEN j.params END) AS p
        WHERE p.key IN ('max_tokens', 'max_completion_tokens', 'max_output_tokens', 'num_predict', 'maxOutputTokens')
            AND jsonb_typeof(p.value) = 'number' AND (p.value #>> '{}')::numeric BETWEEN 1 AND 1000000), 256);
END
$$;

-- What a job may cost where its queue sends it first.
CREATE OR REPLACE FUNCTION llmq.estimate_cost(of_queue text, input bigint, output bigint) RETURNS numeric
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT llmq.cost(e, input, output, 0)
        FROM llmq.queue_policy AS q JOIN llmq.endpoint AS e
            ON e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints))
        WHERE q.name = of_queue
        ORDER BY array_position(q.endpoints, e.name), e.name LIMIT 1);
END
$$;

-- Which of the jobs that were picked their tenants can pay for, and what is reserved for
-- each (NULL: it has no budget).  The others are put off: until the period turns, or, while it
-- is only reserved what would be too much, for a second.  One job that would exceed what is left
-- runs if no other of its tenant does.
CREATE OR REPLACE FUNCTION llmq.reserve(
    INOUT picked llmq.placement[], OUT costs numeric[], OUT tokens bigint[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    pick record;
    b llmq.budget;
    used record;
    of_tenant text;
    admitted llmq.placement[] := '{}';
    put_off int := 0;
    cost numeric;
BEGIN
    FOR pick IN
        SELECT p::llmq.placement AS place, p.tenant, p.queue, e.input, e.output
        FROM unnest(picked) AS p JOIN llmq.job AS j ON j.job_id = p.job_id, llmq.estimate_tokens(j) AS e
        ORDER BY p.tenant, p.priority DESC, j.submitted_at
    LOOP
        IF of_tenant IS DISTINCT FROM pick.tenant THEN
            of_tenant := pick.tenant;
            b := llmq.budget_of(of_tenant);
            SELECT * INTO used FROM llmq.spent(b, of_tenant) WHERE b.tenant IS NOT NULL;
        END IF;
        IF b.tenant IS NULL THEN
            admitted := admitted || pick.place;
            costs := costs || NULL::numeric;
            tokens := tokens || NULL::bigint;
            CONTINUE;
        END IF;
        cost := CASE WHEN b.max_cost IS NOT NULL THEN
            coalesce(llmq.estimate_cost(pick.queue, pick.input, pick.output), 0) ELSE 0 END;
        IF used.cost < coalesce(b.max_cost, 'infinity') AND (used.tokens < b.max_tokens) IS NOT FALSE
            AND (used.reserved_tokens = 0
                OR (used.cost + used.reserved_cost + cost <= coalesce(b.max_cost, 'infinity')
                    AND (used.tokens + used.reserved_tokens + pick.input + pick.output <= b.max_tokens) IS NOT FALSE))
        THEN
            admitted := admitted || pick.place;
            costs := costs || cost;
            tokens := tokens || pick.input + pick.output;
            used.reserved_cost := used.reserved_cost + cost;
            used.reserved_tokens := used.reserved_tokens + pick.input + pick.output;
            CONTINUE;
        END IF;
        put_off := put_off + 1;
        PERFORM llmq.put_off(pick.place, b,
            used.cost < coalesce(b.max_cost, 'infinity') AND (used.tokens < b.max_tokens) IS NOT FALSE, put_off);
    END LOOP;
    picked := admitted;
END
$$;

-- Puts a job off that its tenant cannot pay for; ordinal keeps the order of those put off together.
CREATE OR REPLACE FUNCTION llmq.put_off(p llmq.placement, b llmq.budget, soon boolean, ordinal int) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    turns constant timestamptz := llmq.period_end(b.period, clock_timestamp());
BEGIN
    INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths, due_at,
        error_class, error_message)
    SELECT (p).*, CASE WHEN soon THEN least(turns, clock_timestamp() + interval '1 s') ELSE turns END
        + ordinal * interval '1 microsecond',
        'budget', format('the budget of tenant "%s" is %s', p.tenant, CASE WHEN soon THEN 'reserved' ELSE 'spent' END);
END
$$;

-- Folds what was spent into a row a tenant and period; those of periods that are over go.
CREATE OR REPLACE FUNCTION llmq.fold_spending() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.spending AS s WHERE s.at < clock_timestamp() - interval '1 s') THEN
        RETURN;
    END IF;
    WITH oldest AS MATERIALIZED (
        SELECT s.id FROM llmq.spending AS s ORDER BY s.id LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.spending AS s USING oldest AS o WHERE s.id = o.id RETURNING s.*
    )
    INSERT INTO llmq.budget_spent AS p (tenant, period_start, cost, tokens)
    SELECT g.tenant, llmq.period_start((llmq.budget_of(g.tenant)).period, g.at), sum(g.cost), sum(g.tokens)
    FROM gone AS g WHERE (llmq.budget_of(g.tenant)).tenant IS NOT NULL
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (tenant, period_start) DO UPDATE SET cost = p.cost + EXCLUDED.cost, tokens = p.tokens + EXCLUDED.tokens;
    DELETE FROM llmq.budget_spent AS p
    WHERE EXISTS (SELECT FROM llmq.budget_spent AS k WHERE k.tenant = p.tenant AND k.period_start > p.period_start);
END
$$;

-- A budget that is changed is looked at anew by the jobs that wait for it.
CREATE OR REPLACE FUNCTION llmq.budget_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.deferred AS d SET due_at = clock_timestamp() WHERE d.error_class = 'budget';
    PERFORM llmq.wake_worker();
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER budget_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.budget
    FOR EACH STATEMENT EXECUTE FUNCTION llmq.budget_changed();
-- What was used, and what it cost: by tenant, endpoint, model and day, and against budgets.

-- What llmq.budget_status shows; those who look need no right on what it is made of.
CREATE OR REPLACE FUNCTION llmq.budget_lines()
RETURNS TABLE (tenant text, period interval, period_start timestamptz, period_end timestamptz,
    max_cost numeric, max_tokens bigint, hard boolean, cost numeric, tokens bigint,
    reserved_cost numeric, reserved_tokens bigint)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.tenant, b.period, llmq.period_start(b.period, clock_timestamp()),
        llmq.period_end(b.period, clock_timestamp()), b.max_cost, b.max_tokens, b.hard,
        s.cost, s.tokens, s.reserved_cost, s.reserved_tokens
    FROM (
        SELECT k.tenant FROM llmq.budget AS k WHERE k.tenant <> '*'
        UNION SELECT k.tenant FROM llmq.budget_spent AS k
        UNION SELECT k.tenant FROM llmq.spending AS k) AS t
    CROSS JOIN LATERAL llmq.budget_of(t.tenant) AS b
    CROSS JOIN LATERAL llmq.spent(b, t.tenant) AS s
    WHERE b.tenant IS NOT NULL
$$;
COMMENT ON FUNCTION llmq.budget_lines() IS 'what llmq.budget_status shows';

CREATE OR REPLACE VIEW llmq.budget_status AS SELECT * FROM llmq.budget_lines();
COMMENT ON VIEW llmq.budget_status IS
    'one row a tenant with a budget that has spent something, or has a row of its own: what it has spent and reserved in the period under way';

-- Calls that brought no answer are of the model that they were for.
CREATE OR REPLACE VIEW llmq.usage WITH (security_barrier) AS
    SELECT j.tenant, a.endpoint, coalesce(a.model, j.model, e.model) AS model, (a.started_at AT TIME ZONE 'UTC')::date AS day,
        count(*) FILTER (WHERE a.attempt > 0) AS calls,
        sum(a.input_tokens) AS input_tokens, sum(a.output_tokens) AS output_tokens,
        sum(a.cached_tokens) AS cached_tokens, sum(a.cost) AS cost,
        count(*) FILTER (WHERE a.billing = 'unknown') AS maybe_billed
    FROM llmq.attempt AS a JOIN llmq.job AS j ON j.job_id = a.job_id
    LEFT JOIN llmq.endpoint AS e ON e.name = a.endpoint
    WHERE llmq.may_see(j.submitted_by) OR pg_has_role('pg_monitor', 'MEMBER')
    GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW llmq.usage IS
    'calls, tokens and cost by tenant, endpoint, model and day (UTC), as far back as retention keeps jobs; maybe_billed counts calls of which nobody knows whether they were billed';
-- What llmq.submit refuses, with the SQLSTATE that says so and a hint that helps.
--
-- None of these sets a search_path: it is pinned by the functions whose names end in
-- _as, their only way in, and pinning it in each would double the time of a submit.

-- Raises an error that PostgREST turns into an HTTP status, and people can mend.
CREATE OR REPLACE FUNCTION llmq.fail(code text, message text, detail text, hint text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    IF detail IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_length(name text, value text, maximum int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF length(value) NOT BETWEEN 1 AND maximum THEN
        PERFORM llmq.fail('PT400', format('%s must have 1 to %s characters', name, maximum),
            format('It has %s.', length(value)), 'Give a shorter value, or none.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_key(idempotency_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF idempotency_key IS NULL THEN
        PERFORM llmq.fail('PT400', 'idempotency_key is required', NULL,
            'Derive it from what makes the request one: llmq.derive_key, or the id of your own row.');
    ELSIF length(idempotency_key) NOT BETWEEN 1 AND 255 OR idempotency_key ~ '[[:cntrl:]]' THEN
        PERFORM llmq.fail('PT400', 'idempotency_key must have 1 to 255 printable characters',
            format('It has %s characters.', length(idempotency_key)),
            'Hash longer keys: encode(sha256(convert_to(key, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

-- What is to be sent must be there, once, and in a shape that a provider could take.
CREATE OR REPLACE FUNCTION llmq.check_prompt(prompt text, messages jsonb, params jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF params IS NOT NULL AND jsonb_typeof(params) <> 'object' THEN
        PERFORM llmq.fail('PT400', 'params must be a JSON object',
            format('It is of type %s.', jsonb_typeof(params)),
            'For example: {"temperature": 0.2, "max_tokens": 300}.');
    END IF;
    IF prompt IS NOT NULL AND messages IS NOT NULL THEN
        PERFORM llmq.fail('PT400', 'prompt and messages cannot both be given', NULL,
            'Put the prompt into messages as the last one, with role "user".');
    ELSIF prompt IS NULL AND messages IS NULL AND NOT coalesce(params ? 'input', false) THEN
        PERFORM llmq.fail('PT400', 'a prompt is required', NULL,
            'Give prompt or messages (for embeddings: prompt or params.input).');
    ELSIF prompt = '' THEN
        PERFORM llmq.fail('PT400', 'prompt must not be empty', NULL, 'Give the text for the model.');
    END IF;
    IF messages IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(messages) <> 'array' OR messages = '[]' THEN
        PERFORM llmq.fail('PT400', 'messages must be a JSON array with at least one message', NULL,
            'For example: [{"role": "user", "content": "Hello"}].');
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements(messages) AS m
        WHERE jsonb_typeof(m) <> 'object' OR jsonb_typeof(m -> 'role') IS DISTINCT FROM 'string')
    THEN
        PERFORM llmq.fail('PT400', 'each message must be an object with a role', NULL,
            'For example: [{"role": "user", "content": "Hello"}].');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_params(params jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    entry record;
BEGIN
    FOR entry IN
        SELECT key, jsonb_typeof(value) AS type, value FROM jsonb_each(params)
        WHERE key IN ('temperature', 'top_p', 'max_tokens', 'max_completion_tokens', 'tools', 'n',
            'stream', 'model', 'messages', 'response_format')
    LOOP
        IF entry.key IN ('stream', 'model', 'messages') THEN
            PERFORM llmq.fail('PT400', format('params must not hold "%s"', entry.key), NULL,
                'stream is the endpoint''s; model and messages are arguments of their own.');
        ELSIF entry.key IN ('temperature', 'top_p') AND (entry.type <> 'number'
            OR entry.value::numeric < 0) THEN
            PERFORM llmq.fail('PT400', format('params.%s must be a number of at least 0', entry.key),
                format('It is %s.', entry.value), 'Leave it out for the provider''s default.');
        ELSIF entry.key IN ('max_tokens', 'max_completion_tokens', 'n') AND (entry.type <> 'number'
            OR entry.value::numeric < 1 OR entry.value::numeric % 1 <> 0) THEN
            PERFORM llmq.fail('PT400', format('params.%s must be a positive whole number', entry.key),
                format('It is %s.', entry.value), 'Leave it out for the provider''s default.');
        ELSIF entry.key = 'tools' AND entry.type <> 'array' THEN
            PERFORM llmq.fail('PT400', 'params.tools must be an array',
                format('It is of type %s.', entry.type), 'Give the tools in OpenAI form.');
        ELSIF entry.key = 'response_format' AND entry.type <> 'object' THEN
            PERFORM llmq.fail('PT400', 'params.response_format must be an object',
                format('It is of type %s.', entry.type), 'For example: {"type": "json_object"}.');
        END IF;
    END LOOP;
END
$$;

-- policy may tighten or widen what the queue says, within these names and ranges.
CREATE OR REPLACE FUNCTION llmq.check_policy(policy jsonb, q llmq.queue) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    entry record;
    span interval;
BEGIN
    IF jsonb_typeof(policy) <> 'object' THEN
        PERFORM llmq.fail('PT400', 'policy must be a JSON object', NULL, 'For example: {"deadline": "30 s"}.');
    END IF;
    FOR entry IN SELECT key, value, jsonb_typeof(value) AS type FROM jsonb_each(policy) LOOP
        IF entry.key IN ('call_timeout', 'deadline', 'min_attempt', 'backoff_base', 'backoff_cap',
            'redelivery_base', 'redelivery_cap') THEN
            span := CASE WHEN entry.type = 'string' THEN llmq.try_interval(entry.value #>> '{}') END;
            IF span IS NULL OR span < '0' OR span > '1 day'
                OR (span = '0' AND entry.key IN ('call_timeout', 'deadline')) THEN
                PERFORM llmq.fail('PT400', format('policy.%s must be an interval up to a day', entry.key),
                    format('It is %s.', entry.value), 'Write it as text: "20 s", "500 ms", "2 min".');
            END IF;
        ELSIF entry.key IN ('max_attempts', 'max_deliveries') THEN
            IF entry.type <> 'number' OR entry.value::numeric % 1 <> 0
                OR entry.value::numeric NOT BETWEEN 1 AND 1000 THEN
                PERFORM llmq.fail('PT400', format('policy.%s must be a whole number from 1 to 1000', entry.key),
                    format('It is %s.', entry.value), 'Leave it out for the queue''s own.');
            ELSIF entry.key = 'max_deliveries' AND entry.value::numeric > q.max_deliveries THEN
                PERFORM llmq.fail('PT400', 'policy.max_deliveries must not be above the queue''s',
                    format('The queue "%s" allows %s.', q.name, q.max_deliveries),
                    'Ask for fewer, or have the queue changed.');
            END IF;
        ELSIF entry.key IN ('accept_truncated', 'require_json') THEN
            IF entry.type <> 'boolean' THEN
                PERFORM llmq.fail('PT400', format('policy.%s must be true or false', entry.key),
                    format('It is %s.', entry.value), 'Leave it out for the queue''s own.');
            END IF;
        ELSE
            PERFORM llmq.fail('PT400', format('policy cannot set "%s"', entry.key), NULL,
                'It may set call_timeout, deadline, max_attempts, min_attempt, backoff_base, backoff_cap, max_deliveries, redelivery_base, redelivery_cap, accept_truncated and require_json.');
        END IF;
    END LOOP;
END
$$;

-- An interval, or NULL where the text is none.
CREATE OR REPLACE FUNCTION llmq.try_interval(span text) RETURNS interval
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN span ~* '^ *[0-9]{1,9}([.][0-9]{1,6})? *(us|microseconds?|ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?) *$'
        OR span ~ '^ *[0-9]{1,2}:[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})? *$'
        THEN span::interval END
$$;

-- The tenant that the caller acts for: its own (NULL), or one it may name.
CREATE OR REPLACE FUNCTION llmq.check_tenant(caller name, tenant text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    PERFORM llmq.check_length('tenant', tenant, 255);
    IF tenant IS NULL OR tenant = caller OR coalesce(tenant = ANY (llmq.tenants_of(caller)), true) THEN
        RETURN;
    END IF;
    PERFORM llmq.fail('PT403', format('role "%s" may not submit for tenant "%s"', caller, tenant),
        'A role may name itself and the tenants that llmq.role_tenant gives it.',
        format('An admin can INSERT INTO llmq.role_tenant VALUES (%L, %L).', caller, tenant));
END
$$;


-- When a job may run: times that can be counted with, and a rank.
CREATE OR REPLACE FUNCTION llmq.check_schedule(
    run_at timestamptz, expires_at timestamptz, priority int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF NOT isfinite(run_at) OR NOT isfinite(expires_at) THEN
        PERFORM llmq.fail('PT400', 'run_at and expires_at must be finite', NULL,
            'Leave them out for at once and for no end but the queue''s max_age.');
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        PERFORM llmq.fail('PT400', 'priority must be from 0 to 9', NULL,
            'Higher goes first; 0 is the default.');
    END IF;
END
$$;
-- What llmq.submit refuses of the outbox messages that a job asks for.  As in submit_checks.sql
-- the search_path is pinned by its callers.

CREATE OR REPLACE FUNCTION llmq.check_dedupe_key(dedupe_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF dedupe_key ~ ':death [0-9]+$' THEN
        PERFORM llmq.fail('PT400', 'dedupe_key must not end in ":death n"', format('It is "%s".', dedupe_key),
            'The messages of later deaths of a job have such keys.');
    ELSIF octet_length(dedupe_key) > 1600 THEN -- with a tenant it must fit into an index
        PERFORM llmq.fail('PT400', 'dedupe_key must have at most 1600 bytes',
            format('It has %s.', octet_length(dedupe_key)),
            'Hash longer keys: encode(sha256(convert_to(key, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

-- A message must fit into one claim, with room for what becomes of it in memory.
CREATE OR REPLACE FUNCTION llmq.check_payload(topic text, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    most constant int := 16 * 1024 * 1024; -- bytes of JSON
    size constant int := octet_length(payload::text);
BEGIN
    IF size > most THEN
        PERFORM llmq.fail('54000', 'the payload of an outbox message must have at most 16 MiB',
            format('That of topic "%s" has %s bytes.', topic, size),
            'Store what is large elsewhere, and send where it is.');
    END IF;
END
$$;

-- The outbox entries of a job: shape, lengths, keys that differ.
CREATE OR REPLACE FUNCTION llmq.check_outbox(outbox jsonb, job_id uuid) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    entry jsonb;
    unknown text;
BEGIN
    IF jsonb_typeof(outbox) <> 'array' THEN
        PERFORM llmq.fail('PT400', 'outbox must be a JSON array', NULL,
            'For example: [{"topic": "email.summary", "payload": {"to": "someone@example.org"}}].');
    END IF;
    FOR entry IN SELECT value FROM jsonb_array_elements(outbox) LOOP
        IF jsonb_typeof(entry) <> 'object' OR jsonb_typeof(entry -> 'topic') IS DISTINCT FROM 'string' THEN
            PERFORM llmq.fail('PT400', 'each outbox entry must be an object with a topic', entry::text,
                'For example: {"topic": "email.summary", "payload": {}}.');
        END IF;
        SELECT key INTO unknown FROM jsonb_object_keys(entry) AS key
        WHERE key NOT IN ('topic', 'payload', 'dedupe_key', 'on');
        IF FOUND THEN
            PERFORM llmq.fail('PT400', format('an outbox entry cannot have "%s"', unknown), NULL,
                'It may have topic, payload, dedupe_key and on.');
        END IF;
        PERFORM llmq.check_length('topic', entry ->> 'topic', 128);
        IF entry ? 'dedupe_key' AND jsonb_typeof(entry -> 'dedupe_key') <> 'string' THEN
            PERFORM llmq.fail('PT400', 'dedupe_key must be a string', entry::text, 'Leave it out for the default.');
        END IF;
        PERFORM llmq.check_length('dedupe_key', entry ->> 'dedupe_key', 512);
        PERFORM llmq.check_dedupe_key(entry ->> 'dedupe_key'), llmq.check_mail(entry ->> 'topic', entry -> 'payload', true),
            llmq.check_payload(entry ->> 'topic', entry -> 'payload');
        IF coalesce(entry ->> 'on', 'succeeded') NOT IN ('succeeded', 'dead') THEN
            PERFORM llmq.fail('PT400', '"on" of an outbox entry must be succeeded or dead',
                format('It is %s.', entry -> 'on'), 'Leave it out for succeeded.');
        END IF;
    END LOOP;
    IF (SELECT count(*) <> count(DISTINCT coalesce(e.value ->> 'dedupe_key',
            format('%s:%s:%s', e.value ->> 'topic', job_id, e.ordinality)))
        FROM jsonb_array_elements(outbox) WITH ORDINALITY AS e) THEN
        PERFORM llmq.fail('PT400', 'two outbox entries have the same dedupe_key', NULL,
            'Give each entry its own key, or none.');
    END IF;
END
$$;
-- What on_complete may be: one function, known by its schema and name, that takes the
-- answer as jsonb and that the submitter may execute.  It is looked up at submit, so that
-- mistakes are refused at once, and again by the settler before it is called.  No
-- search_path is set here, as in sql/submit_checks.sql.

-- How a job names the function that follows it: the same in this database after a dump
-- and restore.
CREATE OR REPLACE FUNCTION llmq.callback_name(callback regproc, caller name) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    f record;
    problem text;
    hint text;
BEGIN
    SELECT p.oid, p.proname, p.prokind, p.pronargs, p.proargtypes[0] AS argument, n.oid AS schema_oid, n.nspname
    INTO f FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE p.oid = callback::oid;
    IF NOT FOUND THEN
        PERFORM llmq.fail('PT400', 'on_complete is not a function that exists', format('It is %s.', callback),
            'Name a function that takes one argument of type jsonb.');
    ELSIF f.prokind <> 'f' THEN
        problem := 'on_complete must be a function, not a procedure or an aggregate';
        hint := 'The settler commits what it writes, with the answer.';
    ELSIF f.pronargs <> 1 OR f.argument <> 'jsonb'::regtype THEN
        problem := 'on_complete must take one argument of type jsonb';
        hint := format('CREATE FUNCTION %I.%I(answer jsonb) RETURNS void ... would do.', f.nspname, f.proname);
    ELSIF pg_is_other_temp_schema(f.schema_oid) OR f.schema_oid = pg_my_temp_schema() THEN
        problem := 'on_complete must not be a temporary function';
        hint := 'It is called by another session: create it in a schema that lasts.';
    ELSIF NOT has_schema_privilege(caller, f.schema_oid, 'USAGE') THEN
        problem := format('role "%s" may not use schema "%s" of on_complete', caller, f.nspname);
        hint := format('GRANT USAGE ON SCHEMA %I TO %I.', f.nspname, caller);
    ELSIF NOT has_function_privilege(caller, f.oid, 'EXECUTE') THEN
        problem := format('role "%s" may not execute on_complete', caller);
        hint := format('GRANT EXECUTE ON FUNCTION %I.%I(jsonb) TO %I.', f.nspname, f.proname, caller);
    ELSE
        RETURN format('%I.%I(jsonb)', f.nspname, f.proname);
    END IF;
    PERFORM llmq.fail('PT400', problem, format('It is %s.', f.oid::regprocedure), hint);
END
$$;

-- The function that a text names.  Which one a bare name would be depends on search_path,
-- which is llmq's own by now: so the schema must be there.
CREATE OR REPLACE FUNCTION llmq.find_callback(name text) RETURNS regproc
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    parts constant text[] := parse_ident(regexp_replace(name, '[[:space:]]*[(][[:space:]]*jsonb[[:space:]]*[)][[:space:]]*$', ''));
    found oid[];
BEGIN
    IF cardinality(parts) <> 2 THEN
        PERFORM llmq.fail('PT400', 'on_complete must be a function''s name with its schema', format('It is %s.', name),
            'For example: "public.my_function", or "public.my_function(jsonb)".');
    END IF;
    found := ARRAY(
        SELECT p.oid FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = parts[1] AND p.proname = parts[2]
            AND (name !~ '[)][[:space:]]*$' OR p.pronargs = 1 AND p.proargtypes[0] = 'jsonb'::regtype));
    IF cardinality(found) = 0 THEN
        PERFORM llmq.fail('PT400', format('there is no function %s for on_complete', name), NULL,
            'Name a function that takes one argument of type jsonb.');
    ELSIF cardinality(found) > 1 THEN
        PERFORM llmq.fail('PT400', format('more than one function is named %s', name), NULL,
            'Say which one: "public.my_function(jsonb)".');
    END IF;
    RETURN found[1];
END
$$;
-- Enqueuing jobs that are in order, in the caller's own transaction: their keys first,
-- then their places, or the answer that the key is known.

-- Inserts jobs whose keys are free, in the order of their ids so that two bulk
-- submits cannot deadlock, and returns those ids.  In C for its key wait: another open
-- transaction that holds a key is waited for, at most max(llmq.key_wait, 50 ms), and
-- then reported as PT409; with `bulk` it names the job's index.
CREATE OR REPLACE FUNCTION llmq.insert_jobs(jobs llmq.job[], bulk boolean DEFAULT false) RETURNS uuid[]
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

-- The filter stands above the sort, so it is asked row by row as rows are inserted.
CREATE OR REPLACE FUNCTION llmq.insert_jobs_now(jobs llmq.job[], bulk boolean) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
AS $$
DECLARE
    ids uuid[];
BEGIN
    WITH added AS (
        INSERT INTO llmq.job AS k (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority,
            prompt, system, messages, model, params, metadata, outbox, on_complete, run_at, expires_at,
            after, run_id, step, policy, submitted_by, submitted_at)
        SELECT j.job_id, j.tenant, j.scope, j.idempotency_key, j.fingerprint, j.queue, j.priority,
            j.prompt, j.system, j.messages, j.model, j.params, j.metadata, j.outbox, j.on_complete,
            j.run_at, j.expires_at, j.after, j.run_id, j.step, j.policy, j.submitted_by,
            j.submitted_at
        FROM (SELECT u.* FROM unnest(jobs) WITH ORDINALITY AS u ORDER BY u.job_id, u.ordinality) AS j
        WHERE NOT bulk OR llmq.note_element(j.ordinality - 1)
        ON CONFLICT (job_id) DO NOTHING
        RETURNING k.job_id)
    SELECT coalesce(array_agg(a.job_id), '{}') INTO ids FROM added AS a;
    RETURN ids;
END
$$;

-- The same for one job, in a third of the time; false: its key is not free.
CREATE OR REPLACE FUNCTION llmq.insert_job(job llmq.job) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq.insert_job_now(job llmq.job) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
AS $$
BEGIN
    INSERT INTO llmq.job SELECT job.* ON CONFLICT (job_id) DO NOTHING;
    RETURN FOUND;
END
$$;

-- True; notes which element of a bulk submit is inserted next.
CREATE OR REPLACE FUNCTION llmq.note_element(index bigint) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_note_element_1';

-- Where a job that is new at `now` first belongs.
CREATE OR REPLACE FUNCTION llmq.first_state(after uuid[], run_at timestamptz, now timestamptz)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN after IS NOT NULL THEN 'blocked' WHEN run_at > now THEN 'scheduled' ELSE 'ready' END
$$;

-- Puts new jobs where they first belong, in their order, and has a worker look.
CREATE OR REPLACE FUNCTION llmq.place_new(jobs llmq.job[], now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    placed bigint;
BEGIN
    INSERT INTO llmq.ready (job_id, queue, tenant, priority)
    SELECT j.job_id, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j
    WHERE llmq.first_state(j.after, j.run_at, place_new.now) = 'ready';
    GET DIAGNOSTICS placed = ROW_COUNT;
    IF placed < cardinality(jobs) THEN
        INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
        SELECT j.job_id, j.run_at, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j
        WHERE llmq.first_state(j.after, j.run_at, place_new.now) = 'scheduled';
        PERFORM llmq.place_dependents(jobs);
    END IF;
    PERFORM llmq.note_home(), llmq.wake_at_commit();
END
$$;

CREATE OR REPLACE FUNCTION llmq.wake_at_commit() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_at_commit_1';

-- Refuses jobs whose key was used for another request; with `bulk`, by their index.
CREATE OR REPLACE FUNCTION llmq.check_replays(jobs llmq.job[], bulk boolean) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    asked record;
    label text;
BEGIN
    SELECT j.*, k.fingerprint AS kept INTO asked
    FROM unnest(jobs) WITH ORDINALITY AS j LEFT JOIN llmq.job AS k ON k.job_id = j.job_id
    WHERE k.fingerprint IS DISTINCT FROM j.fingerprint
    ORDER BY j.ordinality LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    label := CASE WHEN bulk THEN format('element %s: ', asked.ordinality - 1) ELSE '' END;
    IF asked.kept IS NULL THEN
        -- Pruned between our insert and our look.
        PERFORM llmq.fail('PT409', label || format('idempotency key "%s" is changing hands', asked.idempotency_key),
            'Its job was just deleted.', 'Retry after a second.');
    END IF;
    PERFORM llmq.fail('PT422',
        label || format('idempotency key "%s" was used with another request', asked.idempotency_key),
        format('Job %s was submitted under it.', asked.job_id),
        'Send the same request again to get its answer, or choose a new key for a new request.');
END
$$;

-- Enqueues one job that is in order, or finds it there.
CREATE OR REPLACE FUNCTION llmq.enqueue(job llmq.job) RETURNS llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    now timestamptz;
    first text;
BEGIN
    IF NOT llmq.insert_job(job) THEN
        PERFORM llmq.check_replays(ARRAY[job], false);
        RETURN ROW(job.job_id, llmq.state(job.job_id), true)::llmq.submission;
    END IF;
    now := clock_timestamp();
    first := llmq.first_state(job.after, job.run_at, now);
    IF first = 'ready' THEN -- what place_new does, in a third of the time
        INSERT INTO llmq.ready (job_id, queue, tenant, priority)
        VALUES (job.job_id, job.queue, job.tenant, job.priority);
        PERFORM llmq.wake_at_commit(), CASE WHEN NOT EXISTS (SELECT FROM llmq.home) THEN llmq.note_home() END;
    ELSE
        PERFORM llmq.place_new(ARRAY[job], now);
    END IF;
    RETURN ROW(job.job_id, first, false)::llmq.submission;
END
$$;

-- Notes, with the first submit, which database jobs are submitted in.
CREATE OR REPLACE FUNCTION llmq.note_home() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.home) THEN
        INSERT INTO llmq.home (system_identifier, database_oid)
        SELECT llmq.system_identifier(), oid FROM pg_database WHERE datname = current_database();
    END IF;
END
$$;
-- Submitting: what a job must be, and llmq.submit.  Functions whose names end in _as pin
-- the search_path; the others run under it.

-- Finds the policy of a queue that jobs may be submitted to.
CREATE OR REPLACE FUNCTION llmq.find_queue(queue text) RETURNS llmq.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    q llmq.queue;
BEGIN
    IF find_queue.queue IS NULL THEN
        PERFORM llmq.fail('PT400', 'queue must not be NULL', NULL,
            'Leave it out for the queue "default".');
    END IF;
    SELECT * INTO q FROM llmq.queue AS k WHERE k.name = find_queue.queue;
    IF NOT FOUND THEN
        IF find_queue.queue <> 'default' THEN
            PERFORM llmq.fail('PT404', format('there is no queue "%s"', find_queue.queue), NULL,
                format('INSERT INTO llmq.queue (name) VALUES (%L) makes it.', find_queue.queue));
        END IF;
        q := llmq.default_queue();
    END IF;
    RETURN q;
END
$$;

-- The fingerprint of a request: what must be the same under the same key.  What it is made
-- of never changes; extension/fingerprint.c says how.
CREATE OR REPLACE FUNCTION llmq.fingerprint(
    queue text, prompt text, system text, messages jsonb, model text, params jsonb, metadata jsonb,
    outbox jsonb, on_complete text, after uuid[], run_id text, step text, policy jsonb)
RETURNS bytea
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_fingerprint_1';

-- The tenant and the queue of a job: both must be there, and open to the caller.  Only
-- jobs of which that is not plain come here.  A queue with max_ready is full when a
-- worker has last seen that many jobs ready; a key that is known gets its answer even so.
CREATE OR REPLACE FUNCTION llmq.check_place(job llmq.job) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    room int;
    depth bigint;
BEGIN
    IF job.tenant <> job.submitted_by THEN
        PERFORM llmq.check_tenant(job.submitted_by, job.tenant);
    END IF;
    IF EXISTS (SELECT FROM llmq.budget AS b WHERE b.hard) THEN
        PERFORM llmq.check_budget(job);
    END IF;
    SELECT q.max_ready INTO room FROM llmq.queue AS q WHERE q.name = job.queue;
    IF NOT FOUND AND job.queue IS DISTINCT FROM 'default' THEN
        PERFORM llmq.find_queue(job.queue);
    ELSIF room IS NOT NULL THEN
        SELECT d.ready INTO depth FROM llmq.queue_depth AS d WHERE d.queue = job.queue;
        IF depth >= room AND NOT EXISTS (SELECT FROM llmq.job AS k WHERE k.job_id = job.job_id) THEN
            PERFORM llmq.fail('PT429', format('queue "%s" is full', job.queue),
                format('%s jobs are ready, it takes %s.', depth, room),
                'Submit again when some have run; Retry-After: 1 is a good start.');
        END IF;
    END IF;
END
$$;

-- Refuses a job that is not in order, in itself.  Asks before it calls: most jobs have
-- little to check, and a bulk submit comes here ten thousand times a second.
CREATE OR REPLACE FUNCTION llmq.check_job(job llmq.job) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    IF job.messages IS NOT NULL OR job.params IS NOT NULL OR coalesce(job.prompt, '') = '' THEN
        PERFORM llmq.check_prompt(job.prompt, job.messages, job.params);
    END IF;
    IF job.params IS NOT NULL THEN
        PERFORM llmq.check_params(job.params);
    END IF;
    IF job.policy IS NOT NULL THEN
        PERFORM llmq.check_policy(job.policy, llmq.find_queue(job.queue));
    END IF;
    IF job.outbox IS NOT NULL THEN
        PERFORM llmq.check_outbox(job.outbox, job.job_id);
    END IF;
    IF coalesce(job.model, job.run_id, job.step) IS NOT NULL THEN
        PERFORM llmq.check_length('model', job.model, 255), llmq.check_length('run_id', job.run_id, 255),
            llmq.check_length('step', job.step, 255);
    END IF;
    IF job.after IS NOT NULL AND (cardinality(job.after) NOT BETWEEN 1 AND 1000
        OR array_ndims(job.after) > 1 OR array_position(job.after, NULL) IS NOT NULL) THEN
        PERFORM llmq.fail('PT400', 'after must name 1 to 1000 jobs',
            format('It is %s.', left(job.after::text, 200)), 'Leave it out for a job that waits for none.');
    END IF;
END
$$;

-- A job as it was asked for becomes one that can be enqueued: it is in order, and
-- knows its id and its fingerprint.
CREATE OR REPLACE FUNCTION llmq.prepare_job(job llmq.job, caller name, scope text) RETURNS llmq.job
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    -- Asks before it calls: a call with PERFORM costs as much as all this.
    IF (length(job.idempotency_key) BETWEEN 1 AND 255 AND job.idempotency_key !~ '[[:cntrl:]]') IS NOT TRUE THEN
        PERFORM llmq.check_key(job.idempotency_key);
    END IF;
    IF job.priority IS DISTINCT FROM 0 OR job.run_at IS NOT NULL OR job.expires_at IS NOT NULL THEN
        PERFORM llmq.check_schedule(job.run_at, job.expires_at, job.priority);
    END IF;
    job.scope := scope;
    job.submitted_by := caller;
    job.submitted_at := clock_timestamp();
    IF job.tenant IS NULL THEN
        job.tenant := caller;
    END IF;
    job.job_id := llmq.job_id(job.tenant, scope, job.idempotency_key);
    IF job.tenant <> caller OR EXISTS (SELECT FROM llmq.budget AS b WHERE b.hard)
        OR coalesce((SELECT q.max_ready IS NOT NULL FROM llmq.queue AS q WHERE q.name = job.queue),
            job.queue IS DISTINCT FROM 'default') THEN
        PERFORM llmq.check_place(job);
    END IF;
    IF coalesce(job.prompt, '') = '' OR num_nonnulls(job.messages, job.params, job.policy, job.outbox, job.model,
        job.run_id, job.step, job.after) > 0 THEN
        PERFORM llmq.check_job(job);
    END IF;
    job.fingerprint := llmq.fingerprint(job.queue, job.prompt, job.system, job.messages, job.model,
        job.params, job.metadata, job.outbox, job.on_complete, job.after, job.run_id, job.step, job.policy);
    RETURN job;
END
$$;

-- Submits for `caller`, as llmq's owner; llmq.submit is the way here.
CREATE OR REPLACE FUNCTION llmq.submit_as(
    caller name, prompt text, idempotency_key text, queue text, tenant text, system text,
    messages jsonb, model text, params jsonb, metadata jsonb, outbox jsonb, on_complete regproc,
    run_at timestamptz, priority int, expires_at timestamptz, after uuid[], run_id text, step text,
    policy jsonb)
RETURNS llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A row at once: each expression costs a microsecond of every transaction.
    RETURN llmq.enqueue(llmq.prepare_job(ROW(
        NULL, tenant, 'submit', idempotency_key, NULL, queue,
        CASE WHEN priority NOT BETWEEN 0 AND 9 THEN -1 ELSE priority END,
        prompt, system, messages, model, params, metadata, outbox,
        CASE WHEN on_complete IS NOT NULL THEN llmq.callback_name(on_complete, caller) END,
        run_at, expires_at, after, run_id, step, policy, NULL, NULL)::llmq.job, caller, 'submit'));
END
$$;

CREATE OR REPLACE FUNCTION llmq.submit(
    prompt text DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    queue text DEFAULT 'default',
    tenant text DEFAULT NULL,
    system text DEFAULT NULL,
    messages jsonb DEFAULT NULL,
    model text DEFAULT NULL,
    params jsonb DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    outbox jsonb DEFAULT NULL,
    on_complete regproc DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    priority int DEFAULT 0,
    expires_at timestamptz DEFAULT NULL,
    after uuid[] DEFAULT NULL,
    run_id text DEFAULT NULL,
    step text DEFAULT NULL,
    policy jsonb DEFAULT NULL)
RETURNS llmq.submission
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.submit IS
    'submits one request to a model in the caller''s transaction; the same key and request give the same job, PT422 for another request, PT409 while another transaction holds the key';
-- Submitting in bulk: the same rules, in one call for many jobs.

-- A job from a JSON object with names among `names`, those of llmq.submit.  JSON's
-- null is as good as absent.
CREATE OR REPLACE FUNCTION llmq.job_of_json(source jsonb, names text[]) RETURNS llmq.job
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job llmq.job;
    type text;
BEGIN
    IF jsonb_typeof(source) IS DISTINCT FROM 'object' THEN
        PERFORM llmq.fail('PT400', 'a job must be a JSON object',
            format('It is of type %s.', coalesce(jsonb_typeof(source), 'NULL')),
            'For example: {"prompt": "Hello"}.');
    ELSIF source - names <> '{}' THEN
        PERFORM llmq.fail('PT400', format('a job cannot have "%s"', (
                SELECT key FROM jsonb_object_keys(source - names) AS key LIMIT 1)), NULL,
            format('It may have %s.', array_to_string(names, ', ')));
    END IF;
    -- What populate would turn into a text without asking.
    FOREACH type IN ARRAY '{prompt, system, model, idempotency_key, tenant, queue, run_id, step, on_complete,
        run_at, expires_at}'::text[] LOOP
        IF jsonb_typeof(source -> type) NOT IN ('string', 'null') THEN
            PERFORM llmq.fail('PT400', format('%s must be a string', type),
                format('It is of type %s.', jsonb_typeof(source -> type)), 'Put it in quotation marks.');
        END IF;
    END LOOP;
    job := jsonb_populate_record(NULL::llmq.job, source);
    job.queue := coalesce(job.queue, 'default');
    job.priority := coalesce(job.priority, 0);
    RETURN job;
END
$$;

-- The jobs of an array, all in order; an error names the element, counted from 0.
-- The subtransaction of this block writes nothing, so it takes no transaction id.
CREATE OR REPLACE FUNCTION llmq.prepare_jobs(caller name, jobs jsonb) RETURNS llmq.job[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    names constant text[] := '{prompt, idempotency_key, queue, tenant, system, messages, model, params,
        metadata, outbox, on_complete, run_at, priority, expires_at, after, run_id, step, policy}';
    index int := 0;
    element jsonb;
    job llmq.job;
    prepared llmq.job[] := '{}';
    any_after boolean := false;
    circle int[];
    problem text;
    detail text;
    hint text;
BEGIN
    FOR element IN SELECT e FROM jsonb_array_elements(jobs) AS e LOOP
        job := llmq.job_of_json(element, names);
        IF job.on_complete IS NOT NULL THEN
            job.on_complete := llmq.callback_name(llmq.find_callback(job.on_complete), caller);
        END IF;
        prepared := array_append(prepared, llmq.prepare_job(job, caller, 'submit'));
        any_after := any_after OR job.after IS NOT NULL;
        index := index + 1;
    END LOOP;
    circle := CASE WHEN any_after THEN llmq.find_circle(prepared) END;
    IF circle IS NOT NULL THEN
        index := circle[1];
        PERFORM llmq.fail('PT400', 'the job would come after itself, and never run',
            format('Each of these elements comes after the next: %s.', array_to_string(circle || index, ', ')),
            'Take one of them out of the "after" of another.');
    END IF;
    RETURN prepared;
EXCEPTION WHEN data_exception OR feature_not_supported OR SQLSTATE 'PT400' OR SQLSTATE 'PT402'
    OR SQLSTATE 'PT403' OR SQLSTATE 'PT404' OR SQLSTATE 'PT429' THEN
    GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    PERFORM llmq.fail(CASE WHEN SQLSTATE LIKE '22%' THEN 'PT400' ELSE SQLSTATE END,
        format('element %s: %s', index, problem), nullif(detail, ''),
        coalesce(nullif(hint, ''), 'Give each argument as llmq.submit takes it.'));
END
$$;

-- Elements, counted from 0, of which each comes after the next and the last after the first; NULL
-- if there are none.  Only jobs of one call can be so: all others come after what is there.
-- Where parents stand before their children there is nothing to walk.  Else it walks from child
-- to parent, by arrays: each job and each edge is looked at once, whatever the graph.
CREATE OR REPLACE FUNCTION llmq.find_circle(jobs llmq.job[]) RETURNS int[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET enable_nestloop = off -- arrays are taken for short
AS $$
DECLARE
    children int[]; -- of each edge, in order; positions count from 1 here
    parents int[];
    unordered boolean;
    edges int[] := array_fill(NULL::int, ARRAY[cardinality(jobs)]); -- of each job: its next
    depths int[] := array_fill(0, ARRAY[cardinality(jobs)]); -- where on the path; 0: not seen, -1: done
    path int[];
    depth int;
    root int;
    job int;
    parent int;
BEGIN
    SELECT array_agg(e.child ORDER BY e.child), array_agg(e.parent ORDER BY e.child), bool_or(e.parent >= e.child)
    INTO children, parents, unordered
    FROM (
        SELECT c.ordinality::int AS child, min(p.ordinality)::int AS parent
        FROM unnest(jobs) WITH ORDINALITY AS c CROSS JOIN unnest(c.after) AS a (job_id)
        JOIN unnest(jobs) WITH ORDINALITY AS p ON p.job_id = a.job_id
        GROUP BY c.ordinality, a.job_id) AS e;
    IF unordered IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    FOR i IN REVERSE cardinality(children) .. 1 LOOP
        edges[children[i]] := i;
    END LOOP;
    FOREACH root IN ARRAY children LOOP
        path[1] := root;
        depth := CASE depths[root] WHEN 0 THEN 1 ELSE 0 END;
        WHILE depth > 0 LOOP
            job := path[depth];
            depths[job] := depth;
            parent := CASE WHEN children[edges[job]] = job THEN parents[edges[job]] END;
            edges[job] := edges[job] + 1;
            IF parent IS NULL THEN
                depths[job] := -1;
                depth := depth - 1;
            ELSIF depths[parent] > 0 THEN
                RETURN ARRAY(SELECT p - 1 FROM unnest(path[depths[parent] : depth]) AS p);
            ELSIF depths[parent] = 0 THEN
                depth := depth + 1;
                path[depth] := parent;
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION llmq.submit_many_as(caller name, jobs jsonb) RETURNS SETOF llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked llmq.job[];
    fresh uuid[];
    added llmq.job[];
    now timestamptz;
BEGIN
    IF jsonb_typeof(jobs) IS DISTINCT FROM 'array' THEN
        PERFORM llmq.fail('PT400', 'jobs must be a JSON array of objects',
            format('It is of type %s.', coalesce(jsonb_typeof(jobs), 'NULL')),
            'For example: [{"prompt": "Hello", "idempotency_key": "greeting-1"}].');
    END IF;
    asked := llmq.prepare_jobs(caller, jobs);
    fresh := llmq.insert_jobs(asked, true);
    IF cardinality(fresh) = cardinality(asked) THEN
        added := asked;
    ELSE
        PERFORM llmq.check_replays(asked, true);
        added := llmq.first_of_each(asked, fresh);
    END IF;
    now := clock_timestamp();
    IF cardinality(added) > 0 THEN
        PERFORM llmq.place_new(added, now);
    END IF;
    RETURN QUERY
        SELECT j.job_id,
            CASE WHEN j.is_new THEN llmq.first_state(j.after, j.run_at, now) ELSE llmq.state(j.job_id) END,
            NOT j.is_new
        FROM (
            SELECT u.job_id, u.after, u.run_at, u.ordinality,
                f.job_id IS NOT NULL AND row_number() OVER (PARTITION BY u.job_id ORDER BY u.ordinality) = 1
                    AS is_new
            FROM unnest(asked) WITH ORDINALITY AS u LEFT JOIN unnest(fresh) AS f (job_id) ON f.job_id = u.job_id
        ) AS j
        ORDER BY j.job_id, j.ordinality;
END
$$;

-- The jobs with these ids, in their order; of several with one id the first.
CREATE OR REPLACE FUNCTION llmq.first_of_each(jobs llmq.job[], ids uuid[]) RETURNS llmq.job[]
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(jobs[n.first] ORDER BY n.first), '{}')
        FROM (
            SELECT min(u.ordinality)::int AS first
            FROM unnest(jobs) WITH ORDINALITY AS u JOIN unnest(ids) AS i (job_id) ON i.job_id = u.job_id
            GROUP BY u.job_id) AS n);
END
$$;

CREATE OR REPLACE FUNCTION llmq.submit_many(jobs jsonb) RETURNS SETOF llmq.submission
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.submit_many IS
    'submits an array of objects with the arguments of llmq.submit, all or none; the rows come in the order of job_id. An error names the element of the array, counted from 0';
-- The Idempotency-Key protocol for a web framework, in one call.
--
-- draft-ietf-httpapi-idempotency-key-header for the key, RFC 9457 for what is wrong.

-- The key from the header's value: a structured field's string (RFC 9651), or bare.
CREATE OR REPLACE FUNCTION llmq.http_key(header text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    key text := btrim(header, E' \t');
BEGIN
    IF coalesce(key, '') = '' THEN
        PERFORM llmq.fail('PT400', 'the header Idempotency-Key is required', NULL,
            'Send a key of 16 to 128 characters, a new one for each new request.');
    ELSIF starts_with(key, '"') THEN
        IF key !~ E'^"([ !#-\\[\\]-~]|\\\\["\\\\])*"$' THEN
            PERFORM llmq.fail('PT400', 'the header Idempotency-Key is not a well-formed string', NULL,
                E'Between the quotation marks there may be printable ASCII, with \\ before \\ and ".');
        END IF;
        key := regexp_replace(substr(key, 2, length(key) - 2), E'\\\\(["\\\\])', E'\\1', 'g');
    END IF;
    IF length(key) NOT BETWEEN 16 AND 128 OR key ~ '[[:cntrl:]]' THEN
        PERFORM llmq.fail('PT400', 'an Idempotency-Key must have 16 to 128 printable characters',
            format('It has %s.', length(key)), 'A UUID has 36.');
    END IF;
    RETURN key;
END
$$;

CREATE OR REPLACE FUNCTION llmq.http_scope(method text, path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF coalesce(method, '') !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,32}$' THEN
        PERFORM llmq.fail('PT400', 'method must be the method of an HTTP request', NULL, 'For example: POST.');
    ELSIF path IS NULL OR length(path) NOT BETWEEN 1 AND 1024 OR path ~ '[[:cntrl:]]' THEN
        PERFORM llmq.fail('PT400', 'path must have 1 to 1024 printable characters', NULL,
            'For example: /v1/summaries.');
    END IF;
    RETURN method || ' ' || path;
END
$$;

-- A problem document (RFC 9457).  Hints speak to whoever runs llmq, so only those
-- about the request itself go out to strangers.
CREATE OR REPLACE FUNCTION llmq.http_problem(code text, message text, detail text, hint text)
RETURNS llmq.http_response
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    status constant int := substr(code, 3)::int;
    headers jsonb := '{"Content-Type": "application/problem+json"}';
BEGIN
    IF status IN (409, 429) THEN
        headers := headers || '{"Retry-After": "1"}';
    END IF;
    RETURN ROW(status, headers, jsonb_build_object(
        'type', 'about:blank',
        'title', CASE status
            WHEN 400 THEN 'Bad Request'
            WHEN 402 THEN 'Payment Required'
            WHEN 403 THEN 'Forbidden'
            WHEN 404 THEN 'Not Found'
            WHEN 409 THEN 'Conflict'
            WHEN 422 THEN 'Unprocessable Content'
            WHEN 429 THEN 'Too Many Requests' END,
        'status', status,
        'detail', CASE
            WHEN status IN (400, 422) THEN concat_ws(' ', message || '.', nullif(detail, ''), nullif(hint, ''))
            ELSE message || '.' END))::llmq.http_response;
END
$$;

CREATE OR REPLACE FUNCTION llmq.http_submit_as(
    caller name, tenant text, method text, path text, idempotency_key text, body jsonb, queue text,
    outbox jsonb, on_complete regproc, policy jsonb)
RETURNS llmq.http_response
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key constant text := idempotency_key;
    job llmq.job;
    submitted llmq.submission;
    headers jsonb := '{"Content-Type": "application/json"}';
    detail text;
    hint text;
BEGIN
    job := llmq.job_of_json(body, '{prompt, system, messages, model, params, metadata}');
    job.idempotency_key := llmq.http_key(key);
    job.tenant := tenant;
    job.queue := queue;
    job.outbox := outbox;
    IF on_complete IS NOT NULL THEN
        job.on_complete := llmq.callback_name(on_complete, caller);
    END IF;
    job.policy := policy;
    submitted := llmq.enqueue(llmq.prepare_job(job, caller, llmq.http_scope(method, path)));
    IF submitted.replayed THEN
        headers := headers || '{"Idempotent-Replayed": "true"}';
    END IF;
    RETURN ROW(202, headers, jsonb_build_object('job_id', submitted.job_id, 'status', 'queued'))::llmq.http_response;
EXCEPTION WHEN SQLSTATE 'PT400' OR SQLSTATE 'PT402' OR SQLSTATE 'PT403' OR SQLSTATE 'PT404'
    OR SQLSTATE 'PT409' OR SQLSTATE 'PT422' OR SQLSTATE 'PT429' THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN llmq.http_problem(SQLSTATE, SQLERRM, detail, hint);
END
$$;

CREATE OR REPLACE FUNCTION llmq.http_submit(
    tenant text, method text, path text, idempotency_key text, body jsonb,
    queue text DEFAULT 'default', outbox jsonb DEFAULT NULL, on_complete regproc DEFAULT NULL,
    policy jsonb DEFAULT NULL)
RETURNS llmq.http_response
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.http_submit IS
    'submits what a web request asks for and says what to answer: 202, the same with Idempotent-Replayed, 409 with Retry-After, 422, 400, 402, 403, 404, 429. The body may hold prompt, system, messages, model, params and metadata; all else is the handler''s. Raises only what is not the client''s mistake';
-- Idempotency for the caller's own work: begin, then finish or release.
--
-- Only the functions that end in _as pin the search_path: they are the only way to
-- the others.

CREATE OR REPLACE FUNCTION llmq.check_required(name text, value text, maximum int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF value IS NULL THEN
        PERFORM llmq.fail('PT400', format('%s is required', name), NULL,
            format('Give a text of 1 to %s characters.', maximum));
    ELSIF length(value) NOT BETWEEN 1 AND maximum THEN
        PERFORM llmq.fail('PT400', format('%s must have 1 to %s characters', name, maximum),
            format('It has %s.', length(value)),
            'Hash what is longer: encode(sha256(convert_to(value, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_ttl(name text, ttl interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF ttl IS NULL OR ttl <= interval '0' OR ttl > interval '365 days' THEN
        PERFORM llmq.fail('PT400', format('%s must be more than 0 and up to 365 days', name),
            format('It is %s.', coalesce(ttl::text, 'NULL')), 'Leave it out for the default.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_token(token uuid) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF token IS NULL THEN
        PERFORM llmq.fail('PT400', 'token is required', NULL, 'Give the token that the begin returned.');
    END IF;
END
$$;

-- The row of a key, empty of what happens to it.
CREATE OR REPLACE FUNCTION llmq.key_row(kind text, tenant text, scope text, idempotency_key text)
RETURNS llmq.idempotency
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    entry.key_id := llmq.uuid5(llmq.namespace(),
        jsonb_build_array(tenant, kind, scope, idempotency_key)::text);
    entry.kind := kind;
    entry.tenant := tenant;
    entry.scope := scope;
    entry.idempotency_key := idempotency_key;
    RETURN entry;
END
$$;

-- What people call a key.
CREATE OR REPLACE FUNCTION llmq.key_label(entry llmq.idempotency) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE entry.kind
        WHEN 'step' THEN format('step "%s" of run "%s"', entry.idempotency_key, entry.scope)
        ELSE format('idempotency key "%s"', entry.idempotency_key) END
$$;

-- Writes one key, and says whether it could.  In C for its key wait: another open
-- transaction that holds the key is waited for, at most max(llmq.key_wait, 50 ms),
-- and then reported as PT409.
CREATE OR REPLACE FUNCTION llmq.write_key(entry llmq.idempotency, change text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq.write_key_now(entry llmq.idempotency, change text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF change = 'insert' THEN
        INSERT INTO llmq.idempotency SELECT (entry).* ON CONFLICT (key_id) DO NOTHING;
    ELSIF change = 'take over' THEN
        UPDATE llmq.idempotency AS k
        SET fingerprint = entry.fingerprint, token = entry.token, status = NULL, response = NULL,
            begun_at = entry.begun_at, expires_at = entry.expires_at
        WHERE k.key_id = entry.key_id AND k.expires_at <= clock_timestamp();
    ELSIF change = 'finish' THEN
        UPDATE llmq.idempotency AS k
        SET token = NULL, status = entry.status, response = entry.response,
            expires_at = entry.expires_at
        WHERE k.key_id = entry.key_id AND k.token = entry.token;
    ELSIF change = 'release' THEN
        DELETE FROM llmq.idempotency AS k
        WHERE k.key_id = entry.key_id AND k.token = entry.token;
    END IF;
    RETURN FOUND;
END
$$;

-- Takes a key that is free, and returns its row with a token; or returns the row of
-- the result that is there; or refuses.  A key that changes under our hands is
-- looked at again.
CREATE OR REPLACE FUNCTION llmq.begin_key(entry llmq.idempotency, lock_ttl interval)
RETURNS llmq.idempotency
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    kept llmq.idempotency;
BEGIN
    PERFORM llmq.check_ttl('lock_ttl', lock_ttl);
    entry.token := gen_random_uuid();
    FOR look IN 1..3 LOOP
        SELECT * INTO kept FROM llmq.idempotency AS k WHERE k.key_id = entry.key_id;
        IF kept.expires_at > clock_timestamp() THEN
            PERFORM llmq.check_kept(kept, entry.fingerprint);
            RETURN kept;
        END IF;
        entry.begun_at := clock_timestamp();
        entry.expires_at := entry.begun_at + lock_ttl;
        IF llmq.write_key(entry, CASE WHEN kept.key_id IS NULL THEN 'insert' ELSE 'take over' END) THEN
            RETURN entry;
        END IF;
    END LOOP;
    PERFORM llmq.fail('PT409', llmq.key_label(entry) || ' is changing hands',
        'Other transactions took it and let it go.', 'Retry after a second.');
END
$$;

-- Refuses a key that is in use, or was used for something else.
CREATE OR REPLACE FUNCTION llmq.check_kept(kept llmq.idempotency, fingerprint text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    IF kept.fingerprint <> check_kept.fingerprint THEN
        PERFORM llmq.fail('PT422',
            llmq.key_label(kept) || ' was used with another ' || CASE kept.kind WHEN 'step' THEN 'input' ELSE 'request' END,
            format('It was begun at %s.', kept.begun_at),
            'Send the same again to get its answer, or choose a new key for a new one.');
    ELSIF kept.token IS NOT NULL THEN
        PERFORM llmq.fail('PT409', llmq.key_label(kept) || ' is in progress',
            format('Its lock ends at %s unless its holder is done before.', kept.expires_at),
            'Retry after a second; over HTTP, answer 409 with Retry-After: 1.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.idempotency_begin_as(
    caller name, scope text, idempotency_key text, fingerprint text, lock_ttl interval,
    OUT outcome text, OUT token uuid, OUT status int, OUT response jsonb)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('scope', scope, 255), llmq.check_key(idempotency_key),
        llmq.check_required('fingerprint', fingerprint, 255);
    entry := llmq.key_row('request', caller, scope, idempotency_key);
    entry.fingerprint := fingerprint;
    entry := llmq.begin_key(entry, lock_ttl);
    outcome := CASE WHEN entry.token IS NULL THEN 'replayed' ELSE 'started' END;
    token := entry.token;
    status := entry.status;
    response := entry.response;
END
$$;

CREATE OR REPLACE FUNCTION llmq.idempotency_finish_as(
    caller name, scope text, idempotency_key text, token uuid, status int, response jsonb,
    result_ttl interval)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('scope', scope, 255), llmq.check_key(idempotency_key),
        llmq.check_token(token), llmq.check_ttl('result_ttl', result_ttl);
    IF status IS NULL OR status NOT BETWEEN 100 AND 599 THEN
        PERFORM llmq.fail('PT400', 'status must be from 100 to 599',
            'It is ' || coalesce(status::text, 'NULL') || '.', 'Give the HTTP status of the response.');
    END IF;
    entry := llmq.key_row('request', caller, scope, idempotency_key);
    entry.token := token;
    entry.status := status;
    entry.response := response;
    entry.expires_at := clock_timestamp() + result_ttl;
    -- A failure that is the server's would stay one for a day: let the client retry.
    RETURN llmq.write_key(entry, CASE WHEN status >= 500 THEN 'release' ELSE 'finish' END);
END
$$;

CREATE OR REPLACE FUNCTION llmq.idempotency_release_as(
    caller name, scope text, idempotency_key text, token uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('scope', scope, 255), llmq.check_key(idempotency_key),
        llmq.check_token(token);
    entry := llmq.key_row('request', caller, scope, idempotency_key);
    entry.token := token;
    RETURN llmq.write_key(entry, 'release');
END
$$;
-- Steps of a longer run: checkpoints by the same rules as idempotency.sql.

CREATE OR REPLACE FUNCTION llmq.step_begin_as(
    caller name, run_id text, step text, input jsonb, lock_ttl interval,
    OUT outcome text, OUT token uuid, OUT output jsonb)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('run_id', run_id, 255), llmq.check_required('step', step, 255);
    entry := llmq.key_row('step', caller, run_id, step);
    entry.fingerprint := encode(sha256(convert_to(coalesce(input, 'null')::text, 'UTF8')), 'hex');
    entry := llmq.begin_key(entry, lock_ttl);
    outcome := CASE WHEN entry.token IS NULL THEN 'replayed' ELSE 'started' END;
    token := entry.token;
    output := entry.response;
END
$$;

CREATE OR REPLACE FUNCTION llmq.step_finish_as(
    caller name, run_id text, step text, token uuid, output jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('run_id', run_id, 255), llmq.check_required('step', step, 255),
        llmq.check_token(token);
    entry := llmq.key_row('step', caller, run_id, step);
    entry.token := token;
    entry.response := output;
    SELECT clock_timestamp() + q.retention INTO entry.expires_at
    FROM llmq.queue_policy AS q WHERE q.name = 'default';
    RETURN llmq.write_key(entry, 'finish');
END
$$;

CREATE OR REPLACE FUNCTION llmq.step_release_as(caller name, run_id text, step text, token uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq.check_required('run_id', run_id, 255), llmq.check_required('step', step, 255),
        llmq.check_token(token);
    entry := llmq.key_row('step', caller, run_id, step);
    entry.token := token;
    RETURN llmq.write_key(entry, 'release');
END
$$;
-- The public face of idempotency.sql and steps.sql.  Each of these is the C door
-- that notes the calling role and calls the function of its name with _as.

CREATE OR REPLACE FUNCTION llmq.idempotency_begin(
    scope text, idempotency_key text, fingerprint text, lock_ttl interval DEFAULT '30 s',
    OUT outcome text, OUT token uuid, OUT status int, OUT response jsonb)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.idempotency_begin IS
    'started: do the work, commit, and finish with the token; replayed: the response that is kept. PT409 while another caller is at work, PT422 for another fingerprint. Keys belong to the calling role';

CREATE OR REPLACE FUNCTION llmq.idempotency_finish(
    scope text, idempotency_key text, token uuid, status int, response jsonb,
    result_ttl interval DEFAULT '24 h')
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.idempotency_finish IS
    'keeps the response for result_ttl; a status of 500 or more releases the key instead. false: the lock was lost, its time passed and another caller took it; nothing was changed';

CREATE OR REPLACE FUNCTION llmq.idempotency_release(scope text, idempotency_key text, token uuid)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.idempotency_release IS
    'lets the key go without a result. false: the lock was lost';

CREATE OR REPLACE FUNCTION llmq.step_begin(
    run_id text, step text, input jsonb, lock_ttl interval DEFAULT '5 min',
    OUT outcome text, OUT token uuid, OUT output jsonb)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.step_begin IS
    'started: do the step and finish it with the token; replayed: the output of the step that was done. PT409 while another worker is at it, PT422 for another input';

CREATE OR REPLACE FUNCTION llmq.step_finish(run_id text, step text, token uuid, output jsonb)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.step_finish IS
    'keeps the output of a step, for the retention of the queue "default". false: the lock was lost; nothing was changed';

CREATE OR REPLACE FUNCTION llmq.step_release(run_id text, step text, token uuid)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.step_release IS
    'gives a step up, so that another worker can begin it at once. false: the lock was lost';

-- Runs with the caller's rights, so it can call nothing of llmq.
CREATE OR REPLACE FUNCTION llmq.derive_key(VARIADIC parts text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF parts IS NULL OR cardinality(parts) = 0
        OR EXISTS (SELECT FROM unnest(parts) AS part WHERE part IS NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'PT400',
            MESSAGE = 'a key cannot be derived from NULL',
            DETAIL = 'Every part must be a text, and there must be one at least.',
            HINT = 'Use coalesce(part, '''') where a part may be missing.';
    END IF;
    RETURN encode(sha256(convert_to(to_jsonb(parts)::text, 'UTF8')), 'hex');
END
$$;
COMMENT ON FUNCTION llmq.derive_key IS
    'an idempotency key from what makes a request one: its user, document, version of the prompt. Equal parts give an equal key for ever, so add a nonce when asking again is meant (a button "regenerate"), or a time bucket like date_trunc(''day'', now())::text when the answer may be asked for anew after a while; never the present time itself';

-- Bounded, and never waiting: the worker calls it again when there is more.  An
-- hour's grace lets a caller finish that overran its lock while nobody wanted it.
CREATE OR REPLACE FUNCTION llmq.prune_idempotency(max_rows int DEFAULT 10000) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone bigint;
BEGIN
    DELETE FROM llmq.idempotency AS k
    USING (
        SELECT e.key_id FROM llmq.idempotency AS e
        WHERE e.expires_at < clock_timestamp() - interval '1 hour'
        ORDER BY e.expires_at LIMIT greatest(max_rows, 0)
        FOR UPDATE SKIP LOCKED) AS expired
    WHERE k.key_id = expired.key_id;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION llmq.prune_idempotency IS
    'deletes keys of idempotency_begin and step_begin that expired over an hour ago, at most max_rows; returns how many';
-- The outbox for its users: adding messages, pulling them, redriving dead ones.  Of the
-- functions that end in _as the C door is the only caller; it notes the calling role.
--
-- Where plans are pinned a scan that has no alternative counts as infinitely dear, and would be
-- compiled each time: jit is off there, as it is in workers.

-- -- adding ---------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION llmq.enqueue_outbox(topic text, payload jsonb, dedupe_key text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.enqueue_outbox IS
    'adds a message to the outbox in the caller''s transaction, and returns its id; the same key, topic and payload give the same message, PT422 for another one, PT409 while another transaction holds the key';

CREATE OR REPLACE FUNCTION llmq.enqueue_outbox_as(caller name, topic text, payload jsonb, dedupe_key text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    entry llmq.message;
    kept llmq.message;
BEGIN
    PERFORM llmq.check_required('topic', topic, 128), llmq.check_required('dedupe_key', dedupe_key, 512),
        llmq.check_dedupe_key(dedupe_key), llmq.check_mail(topic, payload, false),
        llmq.check_payload(topic, payload);
    entry.tenant := caller;
    entry.topic := topic;
    entry.dedupe_key := dedupe_key;
    entry.payload := payload;
    FOR look IN 1..2 LOOP
        entry.id := llmq.insert_message(entry);
        IF entry.id IS NOT NULL THEN
            INSERT INTO llmq.message_pending (id, topic) VALUES (entry.id, topic);
            PERFORM llmq.note_home(), llmq.wake_for(ARRAY[topic]);
            RETURN entry.id;
        END IF;
        SELECT * INTO kept FROM llmq.message AS m
        WHERE m.tenant = entry.tenant AND m.dedupe_key = entry.dedupe_key;
        IF (kept.topic, kept.payload) IS NOT DISTINCT FROM (entry.topic, entry.payload) THEN
            RETURN kept.id;
        ELSIF FOUND THEN
            PERFORM llmq.fail('PT422', format('dedupe_key "%s" was used for another message', dedupe_key),
                format('It is that of message %s, topic "%s".', kept.id, kept.topic),
                'Send the same message again to get its id, or choose a new key for a new one.');
        END IF;
    END LOOP;
    PERFORM llmq.fail('PT409', format('dedupe_key "%s" is changing hands', dedupe_key),
        'Its message was just deleted.', 'Retry after a second.');
END
$$;

-- Inserts a message whose key is free, and returns its id, else NULL.  In C for its key wait.
CREATE OR REPLACE FUNCTION llmq.insert_message(entry llmq.message) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq.insert_message_now(entry llmq.message) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    added bigint;
BEGIN
    INSERT INTO llmq.message AS m (tenant, topic, dedupe_key, payload)
    VALUES (entry.tenant, entry.topic, entry.dedupe_key, entry.payload)
    ON CONFLICT (tenant, dedupe_key) DO NOTHING
    RETURNING m.id INTO added;
    RETURN added;
END
$$;

-- -- pulling --------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION llmq.outbox_claim(
    topic text, max_messages int DEFAULT 10, lease interval DEFAULT '30 s')
RETURNS TABLE (id bigint, tenant text, topic text, dedupe_key text, payload jsonb, job_id uuid,
    created_at timestamptz, attempts int, token uuid)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.outbox_claim IS
    'takes messages of a topic, in order of id, under a lease: commit, handle each, and acknowledge it with its token before the lease is over; no other consumer gets it until then';

CREATE OR REPLACE FUNCTION llmq.outbox_claim_as(caller name, of_topic text, max_messages int, lease interval)
RETURNS TABLE (id bigint, tenant text, topic text, dedupe_key text, payload jsonb, job_id uuid,
    created_at timestamptz, attempts int, token uuid)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    tenants constant text[] := llmq.visible_tenants_as(caller);
    now constant timestamptz := clock_timestamp();
    picked bigint[];
BEGIN
    PERFORM llmq.check_required('topic', of_topic, 128), llmq.check_pull(max_messages, lease);
    PERFORM llmq.promote_messages(1000, of_topic);
    -- A function that is told a role's name compares by that type's collation, the index does not.
    picked := ARRAY(
        SELECT p.id FROM llmq.message_pending AS p JOIN llmq.message AS m ON m.id = p.id
        WHERE (p.topic, p.id) > (of_topic COLLATE "default", 0)
            AND (p.topic, p.id) <= (of_topic COLLATE "default", 9223372036854775807)
            AND (tenants IS NULL OR m.tenant = ANY (tenants))
        ORDER BY p.topic, p.id LIMIT max_messages
        FOR UPDATE OF p SKIP LOCKED);
    RETURN QUERY
        WITH gone AS (
            DELETE FROM llmq.message_pending AS p WHERE p.id = ANY (picked) RETURNING p.*
        ), leased AS (
            INSERT INTO llmq.message_lease AS l (id, topic, token, attempts, last_error, remaining,
                claimed_at, expires_at)
            SELECT g.id, g.topic, gen_random_uuid(), g.attempts, g.last_error, g.remaining, now, now + lease
            FROM gone AS g
            RETURNING l.id, l.attempts, l.token
        )
        SELECT l.id, m.tenant, m.topic, m.dedupe_key, m.payload, m.job_id, m.created_at, l.attempts, l.token
        FROM leased AS l JOIN llmq.message AS m ON m.id = l.id
        ORDER BY l.id;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_pull(max_messages int, lease interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF max_messages IS NULL OR max_messages NOT BETWEEN 1 AND 1000 THEN
        PERFORM llmq.fail('PT400', 'max_messages must be from 1 to 1000',
            format('It is %s.', coalesce(max_messages::text, 'NULL')), 'Claim again for more.');
    ELSIF lease IS NULL OR lease <= '0' OR lease > '1 day' THEN
        PERFORM llmq.fail('PT400', 'lease must be more than 0 and up to a day',
            format('It is %s.', coalesce(lease::text, 'NULL')),
            'Make it a few times as long as handling the messages takes.');
    END IF;
END
$$;

-- Deletes the lease that a consumer holds under a token.
CREATE OR REPLACE FUNCTION llmq.end_pull(caller name, message_id bigint, of_token uuid)
RETURNS llmq.message_lease
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    tenants constant text[] := llmq.visible_tenants_as(caller);
    l llmq.message_lease;
BEGIN
    IF message_id IS NULL OR of_token IS NULL THEN
        PERFORM llmq.fail('PT400', 'id and token are required', NULL,
            'Give those that llmq.outbox_claim returned.');
    END IF;
    DELETE FROM llmq.message_lease AS k
    WHERE k.id = message_id AND k.token = of_token AND EXISTS (
        SELECT FROM llmq.message AS m
        WHERE m.id = k.id AND (tenants IS NULL OR m.tenant = ANY (tenants)))
    RETURNING * INTO l;
    RETURN l;
END
$$;

CREATE OR REPLACE FUNCTION llmq.outbox_ack(id bigint, token uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.outbox_ack IS
    'says that a message that was claimed is handled; false: its lease is over and was given up, another consumer may have it';

CREATE OR REPLACE FUNCTION llmq.outbox_ack_as(caller name, message_id bigint, of_token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l constant llmq.message_lease := llmq.end_pull(caller, message_id, of_token);
BEGIN
    IF l.id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO llmq.message_done (id, attempts, sent_at, last_error)
    VALUES (l.id, l.attempts + 1, clock_timestamp(), l.last_error);
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.outbox_nack(id bigint, token uuid, error text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.outbox_nack IS
    'says that a message that was claimed could not be handled: it can be claimed again after a random wait that doubles, from 5 s to 1 h, and is dead after 10 attempts; false: its lease is over and was given up';

CREATE OR REPLACE FUNCTION llmq.outbox_nack_as(caller name, message_id bigint, of_token uuid, error text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept constant int := 1000; -- characters of an error
    standard constant llmq.destination := llmq.default_destination();
    l constant llmq.message_lease := llmq.end_pull(caller, message_id, of_token);
BEGIN
    IF l.id IS NULL THEN
        RETURN false;
    END IF;
    PERFORM llmq.fail_message(l, standard.max_attempts,
        llmq.full_jitter(standard.backoff_base, standard.backoff_cap, l.attempts), left(error, kept));
    RETURN true;
END
$$;

-- -- redriving ------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION llmq.redrive_outbox(topic text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    count bigint;
BEGIN
    WITH dead AS MATERIALIZED (
        SELECT d.id FROM llmq.message_done AS d JOIN llmq.message AS m ON m.id = d.id
        WHERE d.dead_at IS NOT NULL AND (redrive_outbox.topic IS NULL OR m.topic = redrive_outbox.topic)
        FOR UPDATE OF d SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.message_done AS d WHERE d.id = ANY (ARRAY(SELECT k.id FROM dead AS k)) RETURNING d.*
    )
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    SELECT g.id, m.topic, 0, g.last_error, g.remaining
    FROM gone AS g JOIN llmq.message AS m ON m.id = g.id;
    GET DIAGNOSTICS count = ROW_COUNT;
    PERFORM llmq.wake_worker();
    RETURN count;
END
$$;
COMMENT ON FUNCTION llmq.redrive_outbox IS
    'makes the dead messages of a topic, or of all, pending again with all their attempts before them; returns how many';
-- A worker looks for work.

-- Looks for work, and writes nothing when there is none.
--
-- The worker keeps the ids of ready jobs in memory.  It asks for what stands
-- behind `after`: the highest seq it has seen, or an earlier one, to find what
-- transactions that committed late have left there (LlmqPosition in
-- bgworker/engine_private.h says how far back it must go).
--
-- One row is the control row: seq and job_id NULL, and `control` an object with
-- next_xid, oldest_xid, more (the limit cut the list) and unresolved (a blocked job
-- could not be looked at yet).  With config_hash NULL that is all.  Else the poll also takes over the leases of lost workers, makes
-- ready what is due, and control holds due_in (microseconds until the next
-- deferred job or message is due, or null), state, config_hash, and config if its hash is
-- another, workers and rank (how many work here, and how many of them said hello
-- before this one: each takes its share of a max_in_flight), and pruned (jobs that retention deleted).  `report`, if not NULL, is what the worker has to say (take_report).  Rows with a job_id and a delivery are recalled leases.
--
-- messages_after, if not NULL, asks for outbox messages with higher ids; topics_after, if not NULL,
-- for a page of the topics that have messages, from behind that one: a sweep begins with -1 and ''.  If
-- there are any, control holds messages (sql/worker_messages.sql says what that is).  A
-- full poll makes pending those that are due, and has them among messages.  sweep in control: true
-- says that messages of any topics came back.
--
-- Long: what is looked at, in the order in which it must be.
CREATE OR REPLACE FUNCTION llmq.worker_poll(
    own bigint, after bigint, max_rows int, config_hash text, report jsonb, messages_after bigint,
    topics_after text DEFAULT NULL)
RETURNS TABLE (seq bigint, queue text, tenant text, priority int, control jsonb,
    job_id uuid, delivery int)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    found_rows bigint;
    promoted int := 0;
    facts jsonb := '{}';
    oldest_xid bigint;
    unresolved boolean := false;
    pruned bigint := 0;
    returned jsonb;
BEGIN
    IF config_hash IS NOT NULL THEN
        IF EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = own AND w.kind = 'program') THEN
            PERFORM llmq.note_backend(own);
        END IF;
        -- After the clock was set heartbeats say nothing for a while.
        IF report -> 'clock_set' IS NULL AND EXISTS (SELECT FROM llmq.lost_sessions(own)) THEN
            IF llmq.takeover(own) > 0 THEN
                facts := '{"sweep": true}';
            END IF;
        END IF;
        IF report IS NOT NULL THEN
            pruned := llmq.take_report(report);
        END IF;
        PERFORM llmq.fold_spending();
        promoted := llmq.promote_deferred(max_rows);
        returned := llmq.merge_topics(returned, llmq.promote_messages(max_rows));
        facts := facts || llmq.worker_facts(own, config_hash) || jsonb_build_object('pruned', pruned);
        -- What is due and did not move is locked, by a cancel that is not committed say.
        IF promoted = 0 AND returned IS NULL AND facts -> 'sweep' IS NULL AND facts -> 'due_in' = '0' THEN
            facts := facts || '{"due_in": 50000}';
        END IF;
    END IF;

    IF EXISTS (SELECT FROM llmq.recall AS c WHERE c.worker_id = own) THEN
        RETURN QUERY
            DELETE FROM llmq.recall AS c WHERE c.worker_id = own
            RETURNING NULL::bigint, NULL::text, NULL::text, NULL::int, NULL::jsonb, c.job_id, c.delivery;
    END IF;

    IF EXISTS (SELECT FROM llmq.blocked AS b WHERE b.fresh) THEN
        unresolved := llmq.resolve_fresh(max_rows);
    END IF;

    IF topics_after IS NOT NULL OR returned IS NOT NULL
        OR EXISTS (SELECT FROM llmq.message_pending AS p WHERE p.id > messages_after) THEN
        facts := facts || jsonb_strip_nulls(jsonb_build_object('messages',
            llmq.look_for_messages(messages_after, topics_after, returned)));
    END IF;

    -- Before the rows are read: the snapshot that reads them is no older than this.
    oldest_xid := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

    RETURN QUERY
        SELECT r.seq, r.queue, r.tenant, r.priority::int, NULL::jsonb, NULL::uuid, NULL::int
        FROM llmq.ready AS r
        WHERE r.seq > after
        ORDER BY r.seq LIMIT max_rows;
    GET DIAGNOSTICS found_rows = ROW_COUNT;

    RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::int,
        facts || jsonb_build_object(
            'next_xid', llmq.next_xid(),
            'oldest_xid', oldest_xid,
            'unresolved', unresolved,
            'more', found_rows >= max_rows OR promoted >= max_rows),
        NULL::uuid, NULL::int;
END
$$;
COMMENT ON FUNCTION llmq.worker_poll IS
    'looks for ready jobs, due ones, recalled leases and changed configuration; the protocol stands in sql/worker_poll.sql';

-- What a worker has to say: an object with
--   depths      object: queue to number of ready jobs
--   endpoints   object: endpoint to null (no trouble), or to an object with reason and,
--               if it will pass by itself, in (microseconds)
--   prune       true: it is time for a step of retention
-- Returns what llmq.prune_step() does: how much retention has deleted.
CREATE OR REPLACE FUNCTION llmq.take_report(report jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO llmq.queue_depth AS d (queue, ready, published_at)
    SELECT key, value::bigint, clock_timestamp() FROM jsonb_each(report -> 'depths') ORDER BY key
    ON CONFLICT (queue) DO UPDATE SET ready = EXCLUDED.ready, published_at = EXCLUDED.published_at;
    DELETE FROM llmq.endpoint_trouble AS t
    USING jsonb_each(report -> 'endpoints') AS e
    WHERE t.endpoint = e.key AND e.value = 'null';
    INSERT INTO llmq.endpoint_trouble AS t (endpoint, reason, until)
    SELECT key, value ->> 'reason',
        clock_timestamp() + (value ->> 'in')::bigint * interval '1 microsecond'
    FROM jsonb_each(report -> 'endpoints') WHERE value <> 'null' ORDER BY key
    ON CONFLICT (endpoint) DO UPDATE
    SET reason = EXCLUDED.reason, until = EXCLUDED.until, noted_at = clock_timestamp();
    IF report ? 'prune' THEN
        RETURN llmq.prune_step('100 ms');
    END IF;
    RETURN 0;
END
$$;

-- What a worker wants to know now and then: see worker_poll.
CREATE OR REPLACE FUNCTION llmq.worker_facts(own bigint, config_hash text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    config constant jsonb := llmq.worker_config();
    hash constant text := md5(config::text);
BEGIN
    RETURN jsonb_build_object(
        'due_in', (
            SELECT greatest(llmq.microseconds(next - clock_timestamp()), CASE WHEN next IS NOT NULL THEN 0 END)
            FROM (
                SELECT least((SELECT min(d.due_at) FROM llmq.deferred AS d),
                    (SELECT min(w.next_attempt_at) FROM llmq.message_deferred AS w),
                    (SELECT min(l.expires_at) FROM llmq.message_lease AS l WHERE l.expires_at > '-infinity'))) AS t (next)),
        'state', (
            -- Not running: it says hello again, and hears why.
            SELECT CASE WHEN llmq.is_home() AND state <> 'outdated' THEN state ELSE 'quarantined' END
            FROM llmq.worker_session WHERE id = own),
        'workers', (SELECT count(*) FROM llmq.working_sessions()),
        'rank', (SELECT count(*) FROM llmq.working_sessions() AS w WHERE w.id < own),
        'breakers', llmq.breakers(),
        'config_hash', hash,
        'config', CASE WHEN hash <> config_hash THEN config END);
END
$$;

-- Makes ready what is due.  Returns the number of jobs moved.
CREATE OR REPLACE FUNCTION llmq.promote_deferred(max_rows int) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp(); -- itself, being volatile, would bound no scan
    moved int;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.job_id FROM llmq.deferred AS d
        WHERE d.due_at <= now
        ORDER BY d.due_at LIMIT max_rows
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.deferred AS d USING due WHERE d.job_id = due.job_id RETURNING d.*
    )
    INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
    SELECT job_id, queue, tenant, priority, deliveries, counted, deaths FROM gone;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END
$$;
-- A worker claims jobs.
--
-- Plans are pinned: statistics of a fresh or emptied table would flip a claim
-- to a sequential scan, and a cached plan would keep it.

-- Claims the ready jobs with these seqs, as far as nobody else has them: moves
-- them under leases of this worker and returns what the calls need.  A row with
-- a seq alone names a job that was not to be had now, because somebody has locked it,
-- its queue is paused, or those before it are so large: it may be later.
-- Jobs too old to be delivered die here.
-- Long: what it called it would pay for in every claim.
CREATE OR REPLACE FUNCTION llmq.worker_claim(own bigint, seqs bigint[])
RETURNS TABLE (seq bigint, job_id uuid, delivery int, counted int, queue text, prompt text,
    system text, messages jsonb, params jsonb, model text, policy jsonb, idempotency_keys jsonb,
    traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    most constant bigint := 32 * 1024 * 1024; -- bytes of prompts in one claim, but for the last job
    standard constant llmq.queue := llmq.default_queue();
    picked llmq.placement[];
    expired llmq.placement[];
    costs numeric[];
    tokens bigint[];
    taken int;
    alive int;
    keyed constant text[] := ARRAY(
        SELECT name FROM llmq.endpoint WHERE enabled AND idempotency_header IS NOT NULL);
BEGIN
    PERFORM llmq.check_session(own);
    WITH free AS MATERIALIZED (
        -- One by one as they are asked for, which is their turn: the planner cannot begin with the table.
        SELECT l.* FROM unnest(seqs) AS s (seq) CROSS JOIN LATERAL (
            SELECT r.seq, r.job_id, r.queue, r.tenant, r.priority, r.deliveries, r.counted, r.deaths
            FROM llmq.ready AS r LEFT JOIN llmq.queue AS q ON q.name = r.queue
            WHERE r.seq = s.seq AND q.paused IS NOT TRUE
            FOR UPDATE OF r SKIP LOCKED) AS l
    ), target AS MATERIALIZED (
        -- Sizes as they are stored, which can be told without reading: of JSON the compressed one.
        SELECT t.* FROM (
            SELECT f.*, sum(coalesce(octet_length(j.prompt), 0) + coalesce(octet_length(j.system), 0)
                + coalesce(pg_column_size(j.messages), 0) + coalesce(pg_column_size(j.params), 0))
                OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM free AS f LEFT JOIN llmq.job AS j ON j.job_id = f.job_id) AS t
        WHERE coalesce(t.before, 0) < most
    ), gone AS (
        DELETE FROM llmq.ready AS r USING target AS t WHERE r.seq = t.seq
    )
    SELECT array_agg(ROW(t.job_id, t.queue, t.tenant, t.priority, t.deliveries, t.counted,
        t.deaths)::llmq.placement), count(*)
    INTO picked, taken FROM target AS t;

    IF taken > 0 AND EXISTS (SELECT FROM llmq.budget) THEN
        SELECT r.picked, r.costs, r.tokens, cardinality(r.picked)
        INTO picked, costs, tokens, taken FROM llmq.reserve(picked) AS r;
    END IF;

    IF taken > 0 THEN
        PERFORM llmq.note_claim(own);
    END IF;

    RETURN QUERY
        WITH claimed AS MATERIALIZED (
            SELECT p.*, j.prompt, j.system, j.messages, j.params, j.model, j.policy,
                llmq.traceparent(j.metadata) AS traceparent,
                coalesce((j.policy ->> 'deadline')::interval, q.deadline, standard.deadline) AS deadline
            FROM unnest(picked) WITH ORDINALITY AS p
            JOIN llmq.job AS j ON j.job_id = p.job_id
            LEFT JOIN llmq.queue AS q ON q.name = p.queue
            WHERE coalesce(llmq.last_start(j.expires_at, j.submitted_at,
                coalesce(q.max_age, standard.max_age)) >= clock_timestamp(), true)
        ), leased AS (
            INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted,
                deaths, claimed_at, deadline, reserved_cost, reserved_tokens)
            SELECT c.job_id, own, c.queue, c.tenant, c.priority, c.deliveries + 1, c.counted,
                c.deaths, clock_timestamp(), clock_timestamp() + c.deadline, costs[c.ordinality],
                tokens[c.ordinality]
            FROM claimed AS c
        )
        SELECT NULL::bigint, c.job_id, c.deliveries + 1, c.counted, c.queue, c.prompt, c.system,
            c.messages, c.params, c.model, llmq.worker_policy(c.policy),
            CASE WHEN keyed <> '{}' THEN llmq.idempotency_keys(c.job_id, keyed) END, c.traceparent
        FROM claimed AS c;
    GET DIAGNOSTICS alive = ROW_COUNT;

    IF alive < taken THEN
        expired := ARRAY(SELECT p FROM unnest(picked) AS p
            WHERE NOT EXISTS (SELECT FROM llmq.lease AS l WHERE l.job_id = p.job_id));
        PERFORM llmq.bury(expired, 'expired', 'no delivery may start after expires_at or max_age');
    END IF;

    IF taken < cardinality(seqs) THEN
        RETURN QUERY
            SELECT r.seq, NULL::uuid, NULL::int, NULL::int, NULL::text, NULL::text, NULL::text,
                NULL::jsonb, NULL::jsonb, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text
            FROM unnest(seqs) AS s (seq) JOIN llmq.ready AS r ON r.seq = s.seq;
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.worker_claim IS
    'claims ready jobs by seq for a worker and returns what their calls need';

-- A job's policy as a worker needs it: spans in microseconds.
CREATE OR REPLACE FUNCTION llmq.worker_policy(policy jsonb) RETURNS jsonb
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(key, CASE
        WHEN key IN ('call_timeout', 'deadline', 'min_attempt', 'backoff_base', 'backoff_cap',
            'redelivery_base', 'redelivery_cap')
        THEN to_jsonb(llmq.microseconds((value #>> '{}')::interval))
        WHEN key = 'max_attempts' THEN to_jsonb(value::int) -- may be written 2.0
        ELSE value END)
    FROM jsonb_each(policy)
$$;

-- The keys that endpoints with an idempotency_header get for a job: the same in
-- every attempt and delivery on one endpoint.  NULL where no endpoint wants one.
CREATE OR REPLACE FUNCTION llmq.idempotency_keys(of_job uuid, endpoints text[]) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(name, llmq.uuid5(of_job, name)) FROM unnest(endpoints) AS name
$$;

-- The trace that a job's metadata names, as version 00 of W3C Trace Context writes it; NULL
-- where there is none, or none that is well formed: its trace ends there, and nothing else.
CREATE OR REPLACE FUNCTION llmq.traceparent(metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN metadata ->> 'traceparent'
        ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-|$)'
        AND (metadata ->> 'traceparent' !~ '^00' OR length(metadata ->> 'traceparent') = 55)
    THEN '00' || substr(metadata ->> 'traceparent', 3, 53) END
$$;
-- Settling: everything that one delivery came to, in one transaction.
--
-- entries is an array of objects:
--   job_id, delivery
--   outcome         succeeded, dead, retry
--   counted         retry: whether the delivery counts towards max_deliveries
--   delay           retry: microseconds until the next delivery
--   error_class, error_message   dead and retry
--   text, json, tool_calls, embedding, model, endpoint, finish_reason,
--   input_tokens, output_tokens, cached_tokens, response   the answer (text of a
--                   truncated one too); json, tool_calls and response are JSON
--                   source in a string, or with raw_response a string as it is
--   attempts        array of rows of llmq.attempt, spans in microseconds,
--                   started_at in microseconds since the Unix epoch
--
-- One row comes back for each: settled (done, or kept for the settler), late (another delivery was first
-- or the job is final: only its attempts were recorded), gone (the job is not
-- known any more).
CREATE OR REPLACE FUNCTION llmq.worker_settle(own bigint, entries jsonb)
RETURNS TABLE (job_id uuid, verdict text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    owned llmq.placement[];
    late record;
BEGIN
    -- No joins: while the statistics are those of a small table they would read all leases.
    WITH entry AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(entries) AS e (job_id uuid, delivery int)
    ), held AS MATERIALIZED (
        SELECT l.job_id FROM llmq.lease AS l
        WHERE l.job_id = ANY (ARRAY(SELECT e.job_id FROM entry AS e)) AND l.worker_id = own
            AND ((l.job_id, l.deliveries) IN (SELECT e.job_id, e.delivery FROM entry AS e)) IS TRUE
        FOR UPDATE OF l SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.lease AS l WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) RETURNING l.*
    )
    SELECT array_agg(ROW(g.job_id, g.queue, g.tenant, g.priority, g.deliveries, g.counted,
        g.deaths)::llmq.placement)
    INTO owned FROM gone AS g;

    PERFORM llmq.settle_placed(owned, entries);
    RETURN QUERY SELECT p.job_id, 'settled' FROM unnest(owned) AS p;

    IF coalesce(cardinality(owned), 0) < jsonb_array_length(entries) THEN
        FOR late IN
            SELECT (e.value ->> 'job_id')::uuid AS job_id, e.value AS entry, EXISTS (
                SELECT FROM llmq.lease AS l
                WHERE l.job_id = (e.value ->> 'job_id')::uuid AND l.worker_id = own
                    AND l.deliveries = (e.value ->> 'delivery')::int) AS is_locked
            FROM jsonb_array_elements(entries) AS e
            WHERE NOT EXISTS (
                SELECT FROM unnest(owned) AS p WHERE p.job_id = (e.value ->> 'job_id')::uuid)
            ORDER BY 1
        LOOP
            -- Busy: another transaction, a cancel say, has locked the job; to be tried again.
            IF late.is_locked THEN
                RETURN QUERY SELECT late.job_id, 'busy';
            ELSE
                RETURN QUERY SELECT late.job_id, llmq.settle_late(late.job_id, late.entry);
            END IF;
        END LOOP;
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.worker_settle IS
    'settles deliveries: result, attempts, outbox messages and end of lease together; the protocol stands in sql/worker_settle.sql';

-- An answer whose lease is no longer its worker's.  It wins if the job is not
-- final: it is taken from wherever it stands now.  Anything else changes nothing
-- but the record of attempts.
CREATE OR REPLACE FUNCTION llmq.settle_late(late_job uuid, entry jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
BEGIN
    PERFORM FROM llmq.job WHERE job_id = late_job FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM llmq.job WHERE job_id = late_job) THEN 'busy' ELSE 'gone' END;
    END IF;
    -- The delivery's own attempts replace the one that was written when its lease was taken.
    IF jsonb_array_length(entry -> 'attempts') > 0 THEN
        DELETE FROM llmq.attempt
        WHERE job_id = late_job AND delivery = (entry ->> 'delivery')::int AND attempt = 0;
    END IF;
    IF entry ->> 'outcome' = 'succeeded' THEN
        place := llmq.take_place(late_job, 'an earlier delivery was answered late, and first');
    END IF;
    IF place.job_id IS NULL THEN
        PERFORM llmq.record_attempts(jsonb_build_array(entry));
        RETURN 'late';
    END IF;
    PERFORM llmq.settle_placed(ARRAY[place], jsonb_build_array(entry));
    RETURN 'settled';
END
$$;

-- Settles entries whose jobs were taken out of their places by the caller.  An answer that
-- an on_complete waits for is kept for the settler instead, who alone may wait for a
-- user's function.
CREATE OR REPLACE FUNCTION llmq.settle_placed(placed llmq.placement[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    called uuid[] := ARRAY(
        SELECT j.job_id FROM llmq.job AS j
        WHERE j.job_id = ANY (ARRAY(SELECT p.job_id FROM unnest(placed) AS p))
            AND j.on_complete IS NOT NULL);
BEGIN
    IF called <> '{}' THEN
        called := llmq.keep_answers(called, placed, entries);
        placed := ARRAY(SELECT p FROM unnest(placed) AS p WHERE p.job_id <> ALL (called));
        entries := (
            SELECT jsonb_agg(e) FROM jsonb_array_elements(entries) AS e
            WHERE (e ->> 'job_id')::uuid <> ALL (called));
    END IF;
    IF placed <> '{}' THEN
        PERFORM llmq.settle_now(placed, entries);
    END IF;
END
$$;

-- The same, here and now.  Its callers forbid hash joins, which could read whole tables;
-- what it joins is as small as the batch, and would be joined each with each.
CREATE OR REPLACE FUNCTION llmq.settle_now(placed llmq.placement[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = on
AS $$
DECLARE
    done llmq.placement[];
    failed record;
BEGIN
    WITH entry AS MATERIALIZED (
        SELECT e.*, l.queue, l.deliveries, l.deaths
        FROM llmq.read_answers(entries) AS e JOIN unnest(placed) AS l ON l.job_id = e.job_id
    ), answer AS (
        INSERT INTO llmq.result (job_id, text, json, tool_calls, embedding, model, endpoint,
            finish_reason, input_tokens, output_tokens, cached_tokens, cost, response,
            queue, deliveries, deaths)
        SELECT e.job_id, e.text, e.json, e.tool_calls, e.embedding, e.model,
            e.endpoint, e.finish_reason, e.input_tokens, e.output_tokens, e.cached_tokens,
            llmq.cost(p, e.input_tokens, e.output_tokens, e.cached_tokens),
            e.response, e.queue, e.deliveries, e.deaths
        FROM entry AS e LEFT JOIN llmq.endpoint AS p ON p.name = e.endpoint
        RETURNING result.job_id
    )
    SELECT array_agg(p) INTO done
    FROM answer AS a JOIN unnest(placed) AS p ON p.job_id = a.job_id;

    PERFORM llmq.record_attempts(entries);
    IF done IS NOT NULL THEN
        PERFORM llmq.emit_messages(done, 'succeeded');
        PERFORM llmq.notify_done(done);
        PERFORM llmq.release_dependents(done);
    END IF;

    IF coalesce(cardinality(done), 0) < cardinality(placed) THEN
        FOR failed IN
            SELECT p::llmq.placement AS place, e.*
            FROM jsonb_to_recordset(entries) AS e (job_id uuid, outcome text, counted boolean,
                delay bigint, error_class text, error_message text, text text)
            JOIN unnest(placed) AS p ON p.job_id = e.job_id
            WHERE e.outcome <> 'succeeded'
        LOOP
            IF failed.outcome = 'dead' THEN
                PERFORM llmq.bury(ARRAY[failed.place], failed.error_class, failed.error_message,
                    failed.text);
            ELSE
                PERFORM llmq.redeliver(failed.place, failed.counted,
                    failed.delay * interval '1 microsecond', failed.error_class,
                    failed.error_message);
            END IF;
        END LOOP;
    END IF;
END
$$;
-- What the entries of worker_settle.sql hold: answers, attempts, and what they cost.

-- The answers among entries.  17: json is a keyword where an argument is named.
CREATE OR REPLACE FUNCTION llmq.read_answers(entries jsonb)
RETURNS TABLE (job_id uuid, text text, "json" jsonb, tool_calls jsonb, embedding float4[], model text,
    endpoint text, finish_reason text, input_tokens bigint, output_tokens bigint, cached_tokens bigint,
    response jsonb)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT e.job_id, e.text, e.json::jsonb, e.tool_calls::jsonb, e.embedding::float4[], e.model, e.endpoint,
        e.finish_reason, e.input_tokens, e.output_tokens, e.cached_tokens,
        CASE WHEN e.raw_response THEN to_jsonb(e.response) ELSE e.response::jsonb END
    FROM jsonb_to_recordset(entries) AS e (job_id uuid, outcome text, text text, json text, tool_calls text,
        embedding text, model text, endpoint text, finish_reason text, input_tokens bigint,
        output_tokens bigint, cached_tokens bigint, response text, raw_response boolean)
    WHERE e.outcome = 'succeeded'
$$;

-- The attempts of entries, as rows of llmq.attempt.
CREATE OR REPLACE FUNCTION llmq.read_attempts(entries jsonb)
RETURNS TABLE (job_id uuid, delivery int, attempt int, endpoint text, started_at timestamptz,
    duration interval, outcome text, http_status int, error_class text, error_message text,
    retry_after interval, model text, finish_reason text, input_tokens bigint, output_tokens bigint,
    cached_tokens bigint, bytes_in bigint, billing text, request_id text, traceparent text,
    cost numeric)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT e.job_id, e.delivery, a.attempt, a.endpoint, to_timestamp(a.started_at / 1e6),
        a.duration * interval '1 microsecond', a.outcome, a.http_status, a.error_class,
        a.error_message, a.retry_after * interval '1 microsecond', a.model, a.finish_reason,
        a.input_tokens, a.output_tokens, a.cached_tokens, a.bytes_in, a.billing, a.request_id,
        a.traceparent,
        CASE WHEN a.billing = 'billed' THEN
            llmq.cost(p, a.input_tokens, a.output_tokens, a.cached_tokens) END
    FROM jsonb_to_recordset(entries) AS e (job_id uuid, delivery int, attempts jsonb),
    jsonb_to_recordset(e.attempts) AS a (attempt int, endpoint text, started_at bigint,
        duration bigint, outcome text, http_status int, error_class text, error_message text,
        retry_after bigint, model text, finish_reason text, input_tokens bigint,
        output_tokens bigint, cached_tokens bigint, bytes_in bigint, billing text, request_id text,
        traceparent text)
    LEFT JOIN llmq.endpoint AS p ON p.name = a.endpoint
$$;

-- Writes the attempts of settled deliveries.
CREATE OR REPLACE FUNCTION llmq.record_attempts(entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH added AS (
        INSERT INTO llmq.attempt (job_id, delivery, attempt, endpoint, started_at, duration, outcome,
            http_status, error_class, error_message, retry_after, model, finish_reason, input_tokens,
            output_tokens, cached_tokens, bytes_in, billing, request_id, traceparent, cost)
        SELECT a.* FROM llmq.read_attempts(entries) AS a
        ON CONFLICT (job_id, delivery, attempt) DO NOTHING
        RETURNING job_id, cost, input_tokens, output_tokens, billing)
    INSERT INTO llmq.spending (tenant, at, cost, tokens)
    SELECT j.tenant, clock_timestamp(), sum(coalesce(a.cost, 0)),
        sum(coalesce(a.input_tokens, 0) + coalesce(a.output_tokens, 0))
    FROM added AS a JOIN llmq.job AS j ON j.job_id = a.job_id
    WHERE a.billing = 'billed' AND a.input_tokens IS NOT NULL AND EXISTS (SELECT FROM llmq.budget)
    GROUP BY j.tenant;
END
$$;

-- What an answer cost; NULL where a price or a count that it needs is not known.
CREATE OR REPLACE FUNCTION llmq.cost(
    e llmq.endpoint, input_tokens bigint, output_tokens bigint, cached_tokens bigint)
RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pg_catalog.trim_scale(((input_tokens - least(coalesce(cached_tokens, 0), input_tokens)) * e.input_price +
        least(coalesce(cached_tokens, 0), input_tokens) * coalesce(e.cached_price, e.input_price) +
        coalesce(output_tokens * e.output_price, 0)) / 1000000)
$$;
-- A worker's side of the outbox: looking for messages, claiming and settling them.
--
-- Like ready jobs, pending messages are not searched from the start of an index: under an
-- old snapshot each look would visit all that were sent since.  The worker keeps the highest
-- id that it has looked at (the tip) and, for each topic, up to where it has claimed; what was
-- committed late behind that is found by a sweep now and then, topic by topic, a page at a time.
--
-- The messages of one topic are claimed under a lock of the transaction, so that two workers keep
-- their order (llmq.try_lock_topic).

CREATE OR REPLACE FUNCTION llmq.epoch_microseconds(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM moment) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 $$;

-- Takes the lock of a topic until the transaction ends; false if another has it.
CREATE OR REPLACE FUNCTION llmq.try_lock_topic(messages regclass, topic text) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_try_lock_topic_1';

-- What a poll says of messages, NULL if nothing: an object with tip (the highest id seen),
-- topics (an object: topic to the lowest id of it among those seen) and more (the limit cut
-- the look).  With after -1 it begins a sweep: nothing is looked at, and the tip is the highest id
-- that there is.  `returned` are topics of messages that came back, whatever their ids.
-- A sweep has page: an array of topics behind topics_after, in order, each an array of the topic
-- and its lowest id; and page_full (there may be more).
CREATE OR REPLACE FUNCTION llmq.look_for_messages(after bigint, topics_after text, returned jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    most constant int := 1000; -- messages seen by one look
    most_topics constant int := 500; -- in one page of a sweep
    tip bigint;
    topics jsonb;
    seen bigint := 0;
    page jsonb;
BEGIN
    IF after < 0 THEN
        -- The tip first: what is committed meanwhile is behind it.
        tip := (SELECT p.id FROM llmq.message_pending AS p WHERE p.id > 0 ORDER BY p.id DESC LIMIT 1);
    ELSE
        SELECT max(t.highest), jsonb_object_agg(t.topic, t.lowest), sum(t.messages)
        INTO tip, topics, seen
        FROM (
            SELECT s.topic, min(s.id) AS lowest, max(s.id) AS highest, count(*) AS messages
            FROM (
                SELECT p.id, p.topic FROM llmq.message_pending AS p
                WHERE p.id > after ORDER BY p.id LIMIT most) AS s
            GROUP BY s.topic) AS t;
    END IF;
    IF topics_after IS NOT NULL THEN
        page := llmq.pending_topics(topics_after, most_topics);
    END IF;
    topics := llmq.merge_topics(topics, returned);
    IF topics IS NULL AND page IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('tip', greatest(tip, after, 0), 'topics', coalesce(topics, '{}'),
        'more', coalesce(seen >= most, false), 'page', page, 'page_full', jsonb_array_length(page) >= most_topics);
END
$$;

-- Topics that have pending messages, each with its lowest id, in order: one probe of the index
-- for each.
CREATE OR REPLACE FUNCTION llmq.pending_topics(topics_after text, most int) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_sort = off
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE t (topic, id, number) AS (
            (SELECT p.topic, p.id, 1 FROM llmq.message_pending AS p
            WHERE p.topic > topics_after ORDER BY p.topic, p.id LIMIT 1)
            UNION ALL
            SELECT n.topic, n.id, t.number + 1
            FROM t CROSS JOIN LATERAL (
                SELECT p.topic, p.id FROM llmq.message_pending AS p
                WHERE p.topic > t.topic ORDER BY p.topic, p.id LIMIT 1) AS n
            WHERE t.number < most
        )
        -- A recursion that has one row at a time gives them in order.
        SELECT jsonb_agg(jsonb_build_array(t.topic, t.id)) FROM t);
END
$$;

-- Claims messages: moves them under leases of this worker, and returns what sending them
-- needs.  `wanted` is an array of objects: topic, kind (of its destination), after (claim
-- only messages with higher ids), max (how many), exclusive (not while another worker has
-- messages of the topic), url (notify: the channel), doubtful (an earlier claim failed: the
-- first message fails alone if it cannot be read).  Messages of kind notify are sent here
-- and now, and come back with body NULL; what became of those that failed, retry or dead, is in
-- remaining.  A row with a topic alone says that there may be more which are not to be had now.
-- claimed_at is for settling, which nothing but this very claim must be taken for: the worker's id
-- and the message's may come again.  traceparent is whose trace a webhook belongs to.
CREATE OR REPLACE FUNCTION llmq.worker_claim_messages(own bigint, wanted jsonb)
RETURNS TABLE (topic text, id bigint, attempts int, dedupe_key text, created_at bigint, body text,
    remaining text, claimed_at bigint, traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    room bigint := 16 * 1024 * 1024; -- bytes of bodies in one claim, but for the last message
    w record;
BEGIN
    PERFORM llmq.check_session(own);
    FOR w IN
        SELECT * FROM jsonb_to_recordset(wanted)
            AS e (topic text, kind text, after bigint, max int, exclusive boolean, url text, doubtful boolean)
    LOOP
        topic := w.topic;
        id := NULL;
        IF room <= 0 OR NOT llmq.lock_topic(own, w.topic, w.exclusive) THEN
            RETURN NEXT;
        ELSIF w.kind = 'notify' THEN
            RETURN QUERY
                SELECT w.topic, n.*, NULL::bigint, NULL::text FROM llmq.notify_topic(w.topic, w.after, w.max, w.url) AS n;
        ELSE
            IF w.doubtful THEN
                PERFORM llmq.fail_unreadable(w.topic, w.kind, w.after);
            END IF;
            FOR id, attempts, dedupe_key, created_at, body, remaining, claimed_at, traceparent IN
                SELECT * FROM llmq.claim_topic(own, w.topic, w.kind, w.after, w.max, room)
            LOOP
                room := room - coalesce(octet_length(body), 0);
                RETURN NEXT;
            END LOOP;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION llmq.worker_claim_messages IS
    'claims outbox messages for a worker and returns what sending them needs; the protocol stands in sql/worker_messages.sql';

-- Whether a worker may claim messages of a topic now.
CREATE OR REPLACE FUNCTION llmq.lock_topic(own bigint, of_topic text, exclusive boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
BEGIN
    IF NOT llmq.try_lock_topic('llmq.message_pending', of_topic) THEN
        RETURN false;
    ELSIF exclusive AND EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id <> own) THEN
        RETURN NOT EXISTS (
            SELECT FROM llmq.message_lease AS l WHERE l.topic = of_topic AND l.worker_id <> own);
    END IF;
    RETURN true;
END
$$;

-- The pending messages of a topic behind `after`, in order and locked.  Comparing rows leaves
-- the planner no index but that of (topic, id).
CREATE OR REPLACE FUNCTION llmq.pick_messages(of_topic text, after bigint, max_messages int)
RETURNS TABLE (id bigint, attempts int, remaining jsonb, message llmq.message)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT p.id, p.attempts, p.remaining, m
        FROM llmq.message_pending AS p JOIN llmq.message AS m ON m.id = p.id
        WHERE (p.topic, p.id) > (of_topic, after) AND (p.topic, p.id) <= (of_topic, 9223372036854775807)
        ORDER BY p.topic, p.id LIMIT max_messages
        FOR UPDATE OF p SKIP LOCKED;
END
$$;

CREATE OR REPLACE FUNCTION llmq.message_body(m llmq.message, kind text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT CASE kind WHEN 'email' THEN llmq.mail_body(m) ELSE llmq.webhook_body(m) END $$;

-- Fails the first message of a topic behind `after` if it cannot be read, because its row is
-- broken say: that is an attempt like any other, and the topic goes on.  What ends by itself, a
-- lock or a want of memory, is no fault of the message's.
CREATE OR REPLACE FUNCTION llmq.fail_unreadable(of_topic text, kind text, after bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT * FROM llmq.pick_messages(of_topic, after, 1) LOOP
        BEGIN
            PERFORM octet_length(llmq.message_body(p.message, kind));
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ '^(40|53|55|57|58)' THEN
                RAISE;
            END IF;
            DELETE FROM llmq.message_pending AS q WHERE q.id = p.id;
            PERFORM llmq.fail_unsent(p.id, of_topic, p.attempts, 'the message cannot be read: ' || SQLERRM);
        END;
    END LOOP;
END
$$;

-- Claims messages of one topic.  An empty row says that there was no room for more.
CREATE OR REPLACE FUNCTION llmq.claim_topic(
    own bigint, of_topic text, kind text, after bigint, max_messages int, room bigint)
RETURNS TABLE (id bigint, attempts int, dedupe_key text, created_at bigint, body text, remaining text,
    claimed_at bigint, traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now constant timestamptz := clock_timestamp();
    p record;
    ids bigint[] := '{}';
BEGIN
    claimed_at := llmq.epoch_microseconds(now);
    FOR p IN SELECT * FROM llmq.pick_messages(of_topic, after, max_messages) LOOP
        IF room <= 0 THEN
            RETURN QUERY SELECT NULL::bigint, NULL::int, NULL::text, NULL::bigint, NULL::text, NULL::text,
                NULL::bigint, NULL::text;
            EXIT;
        END IF;
        id := p.id;
        attempts := p.attempts;
        dedupe_key := (p.message).dedupe_key;
        created_at := llmq.epoch_microseconds((p.message).created_at);
        body := llmq.message_body(p.message, kind);
        remaining := p.remaining::text;
        traceparent := llmq.message_trace(p.message);
        RETURN NEXT;
        room := room - octet_length(body);
        ids := ids || id;
    END LOOP;
    WITH gone AS (
        DELETE FROM llmq.message_pending AS q WHERE q.id = ANY (ids) RETURNING q.*
    )
    INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, last_error, remaining, claimed_at)
    SELECT g.id, g.topic, own, g.attempts, g.last_error, g.remaining, now FROM gone AS g;
    IF ids <> '{}' THEN
        PERFORM llmq.note_claim(own);
    END IF;
END
$$;
-- Messages whose destination is a channel: sent by the claim itself, with NOTIFY.

-- Sends messages of one topic as notifications: that is done with this transaction.  A full
-- queue of notifications would fail it at its commit, so there must be room before.
CREATE OR REPLACE FUNCTION llmq.notify_topic(of_topic text, after bigint, max_messages int, channel text)
RETURNS TABLE (id bigint, attempts int, dedupe_key text, created_at bigint, body text, remaining text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    p record;
    failure text;
BEGIN
    IF NOT llmq.may_notify() THEN
        RETURN NEXT;
        RETURN;
    END IF;
    FOR p IN SELECT * FROM llmq.pick_messages(of_topic, after, max_messages) LOOP
        DELETE FROM llmq.message_pending AS q WHERE q.id = p.id;
        failure := NULL;
        BEGIN
            PERFORM pg_notify(channel, llmq.notify_body(p.message));
        EXCEPTION WHEN OTHERS THEN
            failure := SQLERRM;
        END;
        IF failure IS NULL THEN
            INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (p.id, p.attempts + 1, clock_timestamp());
        ELSE
            PERFORM llmq.fail_unsent(p.id, of_topic, p.attempts, failure);
        END IF;
        remaining := CASE WHEN failure IS NULL THEN NULL
            WHEN EXISTS (SELECT FROM llmq.message_done AS d WHERE d.id = p.id) THEN 'dead' ELSE 'retry' END;
        id := p.id;
        attempts := p.attempts;
        dedupe_key := (p.message).dedupe_key;
        created_at := llmq.epoch_microseconds((p.message).created_at);
        RETURN NEXT;
    END LOOP;
END
$$;

-- A message that PostgreSQL does not take as a notification, or cannot read, is tried again
-- as its destination says.
CREATE OR REPLACE FUNCTION llmq.fail_unsent(message_id bigint, of_topic text, attempts int, error text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d llmq.destination := llmq.destination_of(of_topic);
    l llmq.message_lease;
BEGIN
    IF d.topic IS NULL THEN
        d := llmq.default_destination();
    END IF;
    l.id := message_id;
    l.topic := of_topic;
    l.attempts := attempts;
    PERFORM llmq.fail_message(l, d.max_attempts,
        llmq.full_jitter(d.backoff_base, d.backoff_cap, attempts), error);
END
$$;
-- A worker settles messages: what its sending them came to.
--
-- entries is an array of objects:
--   id
--   claimed_at  as the claim had it; without one any lease of this worker is meant
--   outcome     sent, dead
--               retry    the attempt failed; another one after delay
--               return   no attempt was made, or none that counts
--   delay       retry and return: microseconds; without one it is pending at once
--   error       for llmq.outbox.last_error
--   remaining   e-mail: array of the recipients that have not got it; without one as before
--   disable     true: the receiver wants no more, its destination is switched off
--
-- One row comes back for each: settled, late (the lease is not this worker's any more;
-- nothing was changed) or busy (somebody has locked it; to be tried again).
CREATE OR REPLACE FUNCTION llmq.worker_settle_messages(own bigint, entries jsonb)
RETURNS TABLE (id bigint, verdict text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    owned llmq.message_lease[];
    settled bigint[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT h.id
        FROM jsonb_to_recordset(entries) AS e (id bigint, claimed_at bigint) CROSS JOIN LATERAL (
            SELECT l.id FROM llmq.message_lease AS l
            WHERE l.id = e.id AND l.worker_id = own
                AND coalesce(e.claimed_at = llmq.epoch_microseconds(l.claimed_at), true)
            FOR UPDATE SKIP LOCKED) AS h
    ), gone AS (
        DELETE FROM llmq.message_lease AS l WHERE l.id = ANY (ARRAY(SELECT h.id FROM held AS h)) RETURNING l.*
    )
    SELECT array_agg(ROW(g.id, g.topic, g.worker_id, g.token, g.attempts, g.last_error, g.remaining,
        g.claimed_at, g.expires_at)::llmq.message_lease), coalesce(array_agg(g.id), '{}')
    INTO owned, settled FROM gone AS g;

    PERFORM llmq.place_settled(owned, entries);
    IF jsonb_path_exists(entries, '$[*] ? (@.disable == true)') THEN
        PERFORM llmq.disable_destinations(ARRAY(
            SELECT l.topic FROM unnest(owned) AS l, jsonb_array_elements(entries) AS e
            WHERE (e.value ->> 'id')::bigint = l.id AND e.value -> 'disable' = 'true'));
    END IF;
    RETURN QUERY SELECT s, 'settled' FROM unnest(settled) AS s;
    RETURN QUERY
        SELECT o.id, CASE WHEN EXISTS (
            SELECT FROM llmq.message_lease AS l
            WHERE l.id = o.id AND l.worker_id = own
                AND coalesce(o.claimed_at = llmq.epoch_microseconds(l.claimed_at), true))
            THEN 'busy' ELSE 'late' END
        FROM jsonb_to_recordset(entries) AS o (id bigint, claimed_at bigint) WHERE o.id <> ALL (settled);
END
$$;
COMMENT ON FUNCTION llmq.worker_settle_messages IS
    'settles outbox messages that a worker has sent or could not send; the protocol stands in sql/worker_message_settle.sql';

-- Puts messages whose leases the caller has deleted where they belong now.
CREATE OR REPLACE FUNCTION llmq.place_settled(owned llmq.message_lease[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_hashjoin = on
AS $$
BEGIN
    WITH entry AS MATERIALIZED (
        SELECT l.id, l.topic, e.outcome, coalesce(e.delay, 0) * interval '1 microsecond' AS delay,
            l.attempts + (e.outcome <> 'return')::int AS attempts,
            CASE WHEN e.outcome = 'sent' THEN e.error ELSE coalesce(e.error, l.last_error) END AS last_error,
            coalesce(e.remaining, l.remaining) AS remaining
        FROM jsonb_to_recordset(entries)
            AS e (id bigint, claimed_at bigint, outcome text, delay bigint, error text, remaining jsonb)
        JOIN unnest(owned) AS l ON l.id = e.id
        WHERE coalesce(e.claimed_at = llmq.epoch_microseconds(l.claimed_at), true)
    ), done AS (
        INSERT INTO llmq.message_done (id, attempts, sent_at, dead_at, last_error, remaining)
        SELECT e.id, e.attempts, CASE WHEN e.outcome = 'sent' THEN clock_timestamp() END,
            CASE WHEN e.outcome = 'dead' THEN clock_timestamp() END, e.last_error,
            CASE WHEN e.outcome = 'dead' THEN e.remaining END
        FROM entry AS e WHERE e.outcome IN ('sent', 'dead')
    ), later AS (
        INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at, last_error, remaining)
        SELECT e.id, e.topic, e.attempts, clock_timestamp() + e.delay, e.last_error, e.remaining
        FROM entry AS e WHERE e.outcome NOT IN ('sent', 'dead') AND e.delay > '0'
    )
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    SELECT e.id, e.topic, e.attempts, e.last_error, e.remaining
    FROM entry AS e WHERE e.outcome NOT IN ('sent', 'dead') AND e.delay <= '0';
END
$$;

-- Switches off where messages of these topics go, and says so.  A destination that somebody
-- has locked is left: its receiver will say it again.
CREATE OR REPLACE FUNCTION llmq.disable_destinations(topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone text;
BEGIN
    FOR gone IN
        SELECT d.topic FROM llmq.destination AS d
        WHERE d.enabled AND d.topic IN (SELECT (llmq.destination_of(t)).topic FROM unnest(topics) AS t)
        ORDER BY d.topic FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE llmq.destination AS d SET enabled = false WHERE d.topic = gone;
        RAISE LOG USING
            MESSAGE = format('llmq: destination "%s" was switched off', gone),
            DETAIL = 'Its receiver answered 410 Gone: it wants no more messages.',
            HINT = format('UPDATE llmq.destination SET enabled = true WHERE topic = %L switches it on again.', gone);
    END LOOP;
END
$$;
-- What workers outside of the server need besides: to be known by their sessions, to
-- leave by degrees, and to find out what a broken connection has left behind.

-- Says whether programs listen for new work: submits then NOTIFY (extension/wakeup.c).
CREATE OR REPLACE FUNCTION llmq.note_listeners(are_there boolean) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_note_listeners_1';

-- Notes which session is a program's, after each of its connections; another kind of
-- worker has one for life.  One that listens has a session of its own and is alive as long
-- as that is.  One that does not has it from a pooler: its pid is 0, and it says that it
-- is alive.
CREATE OR REPLACE FUNCTION llmq.note_backend(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    listens constant boolean := EXISTS (SELECT FROM pg_listening_channels() AS c WHERE c = 'llmq_wake');
    own_pid constant int := CASE WHEN listens THEN pg_backend_pid() ELSE 0 END;
    began constant timestamptz := llmq.backend_start(pg_backend_pid());
BEGIN
    UPDATE llmq.worker_session AS w SET pid = own_pid, backend_start = began
    WHERE w.id = own AND (w.pid <> own_pid OR (listens AND w.backend_start <> began));
    IF listens THEN
        PERFORM llmq.note_listeners(true);
    END IF;
END
$$;

-- The last program has gone: submits need not NOTIFY any more.
CREATE OR REPLACE FUNCTION llmq.forget_listeners() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.kind = 'program' AND w.pid <> 0) THEN
        PERFORM llmq.note_listeners(false);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.worker_drain(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.worker_session AS w SET state = 'draining' WHERE w.id = own;
END
$$;
COMMENT ON FUNCTION llmq.worker_drain IS 'says that a worker claims no more and leaves when its calls have ended';

-- Gives back, uncounted, the leases of jobs and messages that a worker does not know: a claim was
-- committed, and the connection broke before the worker heard of it.  Nobody was called.
CREATE OR REPLACE FUNCTION llmq.worker_reconcile(own bigint, known uuid[], known_messages bigint[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
    given_back bigint := 0;
BEGIN
    FOR l IN
        WITH held AS MATERIALIZED (
            SELECT k.job_id FROM llmq.lease AS k
            WHERE k.worker_id = own AND k.job_id <> ALL (known)
            FOR UPDATE SKIP LOCKED)
        DELETE FROM llmq.lease AS k USING held AS h WHERE k.job_id = h.job_id RETURNING k.*
    LOOP
        PERFORM llmq.redeliver(llmq.placement(l), false, '0', 'interrupted', 'its worker did not hear that it had it');
        given_back := given_back + 1;
    END LOOP;
    RETURN given_back + llmq.return_messages(ARRAY[own], false, false, known_messages);
END
$$;
COMMENT ON FUNCTION llmq.worker_reconcile IS
    'gives back the leases of a worker that are not of the jobs and messages it knows, after a claim whose end it did not see';
-- Limits in front of providers: quotas that workers draw from, and circuit breakers.

-- The arithmetic of a draw, in C.  Returns the grant (slots, from_us, interval_ns, next_us,
-- tokens, tokens_in_us, again_us), whether the worker may probe, and the new state.
CREATE OR REPLACE FUNCTION llmq.limit_draw(state bigint[], ask bigint[]) RETURNS bigint[]
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_limit_draw_1';

-- A worker draws slices of quotas, and says what its calls tell of endpoints.
--
-- asks is an array of objects:
--   endpoint
--   draw     true: it has calls to make, and wants what there is for the next moment
--   least    tokens that the call needs which comes first
--   charge   tokens used beyond what was drawn; negative: given back
--   word     of the breaker: 0 nothing, 1 too many failures, 2 may I probe?, 3 the probe worked
--   error    with word 1: what failed last
--
-- One row comes back for each whose endpoint is there.  Spans are microseconds from now:
-- slots calls may start, the first after from_us, interval_ns apart; the first that
-- was not given is after next_us; tokens may be used; else there may be some after
-- tokens_in_us; asking again is of no use before again_us.  breaker is 0 closed, 1 open for
-- another breaker_in, 2 half-open; breaker_turns grows with each change.
--
-- The clock is read under the row's lock: slots of all workers lie one behind the other.
CREATE OR REPLACE FUNCTION llmq.worker_draw(own bigint, asks jsonb)
RETURNS TABLE (endpoint text, slots bigint, from_us bigint, interval_ns bigint, next_us bigint,
    tokens bigint, tokens_in_us bigint, again_us bigint, may_probe boolean, breaker int,
    breaker_in bigint, breaker_turns bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    asked record;
    before bigint[];
    drawn bigint[];
    now_us bigint;
BEGIN
    FOR asked IN
        SELECT a.*, e.requests_per_minute, e.tokens_per_minute, e.breaker_cooldown
        FROM jsonb_to_recordset(asks) AS a (endpoint text, draw boolean, least bigint, charge bigint,
            word int, error text)
        JOIN llmq.endpoint AS e ON e.name = a.endpoint
        ORDER BY a.endpoint
    LOOP
        INSERT INTO llmq.endpoint_limit AS l (endpoint) VALUES (asked.endpoint)
        ON CONFLICT (endpoint) DO NOTHING;
        SELECT l.state INTO before FROM llmq.endpoint_limit AS l
        WHERE l.endpoint = asked.endpoint FOR NO KEY UPDATE;
        now_us := extract(epoch FROM clock_timestamp()) * 1000000;
        drawn := llmq.limit_draw(before, ARRAY[own, coalesce(asked.requests_per_minute, 0),
            coalesce(asked.tokens_per_minute, 0), asked.least, asked.charge, asked.word,
            llmq.microseconds(asked.breaker_cooldown), now_us, asked.draw::int]);
        UPDATE llmq.endpoint_limit AS l
        SET state = drawn[9:], drawn_at = clock_timestamp(),
            last_error = coalesce(asked.error, l.last_error),
            last_error_at = CASE WHEN asked.error IS NULL THEN l.last_error_at ELSE clock_timestamp() END
        WHERE l.endpoint = asked.endpoint;
        -- The others shall know, too: they look at everything when they are woken.
        IF drawn[9] <> coalesce(before[1], 0) THEN
            PERFORM llmq.wake_worker();
        END IF;
        RETURN QUERY SELECT asked.endpoint, drawn[1], drawn[2], drawn[3], drawn[4], drawn[5], drawn[6],
            drawn[7], drawn[8] <> 0, drawn[9]::int, drawn[10] - now_us, drawn[12];
    END LOOP;
END
$$;
COMMENT ON FUNCTION llmq.worker_draw IS
    'draws slices of endpoints'' quotas for a worker, and takes what it says of their breakers; the protocol stands in sql/limits.sql';

-- The breakers that are not closed, as workers are told of them with a poll.
CREATE OR REPLACE FUNCTION llmq.breakers() RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(l.endpoint, jsonb_build_array(l.state[1],
            l.state[2] - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, l.state[4])), '{}')
        FROM llmq.endpoint_limit AS l WHERE l.state[1] <> 0);
END
$$;

CREATE OR REPLACE FUNCTION llmq.reset_breaker(endpoint text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.endpoint AS e WHERE e.name = reset_breaker.endpoint) THEN
        PERFORM llmq.fail('PT404', format('there is no endpoint "%s"', reset_breaker.endpoint), NULL,
            'SELECT name FROM llmq.endpoint lists them.');
    END IF;
    UPDATE llmq.endpoint_limit AS l
    SET state = ARRAY[0, 0, l.state[3], l.state[4] + 1] || l.state[5:]
    WHERE l.endpoint = reset_breaker.endpoint AND l.state[1] <> 0;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Jobs that were in hand when it opened have been put off until its end.
    UPDATE llmq.deferred AS d SET due_at = clock_timestamp() WHERE d.error_class = 'breaker';
    DELETE FROM llmq.endpoint_trouble AS t WHERE t.endpoint = reset_breaker.endpoint AND t.reason = 'breaker';
    PERFORM llmq.wake_worker();
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.reset_breaker(text) IS
    'closes the breaker of an endpoint, which is then called again at once; false if it was not open';

CREATE OR REPLACE VIEW llmq.endpoint_status AS
    SELECT e.name AS endpoint, e.enabled,
        CASE l.state[1] WHEN 1 THEN 'open' WHEN 2 THEN 'half_open' ELSE 'closed' END AS breaker,
        CASE WHEN l.state[1] <> 0 THEN to_timestamp(l.state[3] / 1e6) END AS opened_at,
        CASE WHEN l.state[1] = 1 THEN to_timestamp(l.state[2] / 1e6) END AS probe_at,
        t.reason AS wait_reason, t.until AS wait_until,
        e.requests_per_minute, e.tokens_per_minute, e.max_in_flight, l.drawn_at, l.last_error, l.last_error_at,
        coalesce(c.in_flight, 0) AS in_flight
    FROM llmq.endpoint AS e
    LEFT JOIN llmq.endpoint_limit AS l ON l.endpoint = e.name
    LEFT JOIN llmq.endpoint_trouble AS t
        ON t.endpoint = e.name AND coalesce(t.until, 'infinity') > clock_timestamp()
    LEFT JOIN ( -- as workers count for llmq.metric
        SELECT s.value -> 1 ->> 'endpoint' AS endpoint, sum((s.value ->> 2)::numeric)::bigint AS in_flight
        FROM llmq.worker_metric AS m, jsonb_array_elements(m.families) AS f, jsonb_array_elements(f.value -> 'samples') AS s
        WHERE f.value ->> 'name' = 'llmq_calls_in_flight'
            AND NOT EXISTS (SELECT FROM llmq.lost_sessions(NULL) AS w WHERE w.id = m.worker_id)
        GROUP BY 1) AS c ON c.endpoint = e.name;
COMMENT ON VIEW llmq.endpoint_status IS
    'one row an endpoint: its breaker, what keeps jobs from it just now, the failure that its breaker opened for, and how many calls it has, as of the workers'' last heartbeats';
-- The settler's side: answers of jobs with an on_complete.
--
-- The worker leaves them in llmq.answer, with the lease ended.  The settler, a process of
-- each database in the server, runs a transaction for each: settler_settle, then the
-- user's function as the role that submitted (extension/callback.c).  When that fails it
-- is rolled back as a whole, and settler_fail says in another when it is tried again.

-- Keeps the answers among entries of jobs that have an on_complete, and returns the jobs'
-- ids.  They are read here as they will be read then: the worker can mend what
-- PostgreSQL does not take, the settler could not.
CREATE OR REPLACE FUNCTION llmq.keep_answers(called uuid[], placed llmq.placement[], entries jsonb)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept uuid[];
BEGIN
    PERFORM count(a) FROM llmq.read_answers(entries) AS a WHERE a.job_id = ANY (called);
    PERFORM count(a) FROM llmq.read_attempts(entries) AS a WHERE a.job_id = ANY (called);
    WITH added AS (
        INSERT INTO llmq.answer (job_id, queue, tenant, priority, deliveries, counted, deaths, entry, due_at)
        SELECT p.job_id, p.queue, p.tenant, p.priority, p.deliveries, p.counted, p.deaths, e.value,
            clock_timestamp()
        FROM unnest(placed) AS p
        JOIN jsonb_array_elements(entries) AS e ON (e.value ->> 'job_id')::uuid = p.job_id
        WHERE p.job_id = ANY (called) AND e.value ->> 'outcome' = 'succeeded'
        RETURNING job_id)
    SELECT coalesce(array_agg(a.job_id), '{}') INTO kept FROM added AS a;
    IF kept <> '{}' THEN
        PERFORM llmq.wake_settler();
    END IF;
    RETURN kept;
END
$$;

-- Takes an answer away before it is settled; what it cost is recorded.  The caller holds
-- the job row.
CREATE OR REPLACE FUNCTION llmq.take_answer(taken_job uuid) RETURNS llmq.placement
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
BEGIN
    DELETE FROM llmq.answer WHERE job_id = taken_job AND NOT dead RETURNING * INTO n;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM llmq.record_attempts(jsonb_build_array(n.entry));
    RETURN llmq.placement(n);
END
$$;

-- What travels with a job, from its answer.
CREATE OR REPLACE FUNCTION llmq.placement(n llmq.answer) RETURNS llmq.placement
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ROW(n.job_id, n.queue, n.tenant, n.priority, n.deliveries, n.counted, n.deaths)::llmq.placement
$$;

-- Puts the answer of a dead job, if it has one, before the settler again.
CREATE OR REPLACE FUNCTION llmq.revive_answer(d llmq.dead_job) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.answer
    SET dead = false, failures = 0, due_at = clock_timestamp(), error_message = NULL, deaths = d.deaths
    WHERE job_id = d.job_id AND dead;
    IF FOUND THEN
        PERFORM llmq.wake_settler();
        RETURN true;
    END IF;
    RETURN false;
END
$$;

-- The answers that are due, the longest first, and one row with job_id NULL and due_in:
-- microseconds until the next one is due, NULL if there is none, 0 if the limit cut the
-- list.  In a database that is a copy of another none is, until somebody says so.
CREATE OR REPLACE FUNCTION llmq.settler_look(max_rows int)
RETURNS TABLE (job_id uuid, due_in bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    found_rows bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.answer AS n WHERE NOT n.dead) OR NOT llmq.is_home() THEN
        RETURN QUERY SELECT NULL::uuid, NULL::bigint;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT n.job_id, NULL::bigint FROM llmq.answer AS n
        WHERE NOT n.dead AND n.due_at <= now
        ORDER BY n.due_at LIMIT max_rows;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN QUERY SELECT NULL::uuid, CASE WHEN found_rows < max_rows THEN (
        SELECT llmq.microseconds(min(n.due_at) - now) FROM llmq.answer AS n
        WHERE NOT n.dead AND n.due_at > now) ELSE 0 END;
END
$$;
COMMENT ON FUNCTION llmq.settler_look IS 'finds the answers whose on_complete is to be run, for the settler';

-- Settles an answer, all but its on_complete, and says what that needs.  No row if the
-- answer is gone or in the hands of another (llmq.cancel).
CREATE OR REPLACE FUNCTION llmq.settler_settle(answered_job uuid)
RETURNS TABLE (role name, function text, argument jsonb, search_path text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
BEGIN
    SELECT * INTO n FROM llmq.answer AS k
    WHERE k.job_id = answered_job AND NOT k.dead AND k.due_at <= clock_timestamp()
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM llmq.answer AS k WHERE k.job_id = answered_job;
    PERFORM llmq.settle_now(ARRAY[llmq.placement(n)], jsonb_build_array(n.entry));
    RETURN QUERY
        SELECT j.submitted_by, j.on_complete,
            jsonb_build_object('job_id', j.job_id, 'state', 'succeeded', 'text', r.text, 'json', r.json,
                'finish_reason', r.finish_reason,
                'usage', jsonb_build_object('input_tokens', r.input_tokens,
                    'output_tokens', r.output_tokens, 'cached_tokens', r.cached_tokens),
                'metadata', j.metadata, 'run_id', j.run_id, 'step', j.step),
            llmq.search_path_of(j.submitted_by)
        FROM llmq.job AS j JOIN llmq.result AS r ON r.job_id = j.job_id
        WHERE j.job_id = answered_job;
END
$$;
COMMENT ON FUNCTION llmq.settler_settle IS
    'settles an answer but for its on_complete, which the settler runs in the same transaction';

-- The search_path that a session of a role would begin with here; NULL: the server's own.
CREATE OR REPLACE FUNCTION llmq.search_path_of(role name) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT substr(c, length('search_path=') + 1)
    FROM pg_db_role_setting AS s, unnest(s.setconfig) AS c
    WHERE starts_with(c, 'search_path=')
        AND s.setrole IN (0, to_regrole(quote_ident(role))::oid)
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC
    LIMIT 1
$$;

-- An answer could not be settled: it is tried again later, or dead when its tries, as many
-- as the job may have deliveries, are used up.  Trouble that passes, before the function
-- was called, is not counted; of what the function does everything is.
CREATE OR REPLACE FUNCTION llmq.settler_fail(failed_job uuid, message text, is_counted boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
    base interval;
    cap interval;
    allowed int;
BEGIN
    PERFORM FROM llmq.job WHERE job_id = failed_job FOR NO KEY UPDATE;
    SELECT * INTO n FROM llmq.answer AS k WHERE k.job_id = failed_job AND NOT k.dead FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce((j.policy ->> 'redelivery_base')::interval, q.redelivery_base, s.redelivery_base),
        coalesce((j.policy ->> 'redelivery_cap')::interval, q.redelivery_cap, s.redelivery_cap),
        least((j.policy -> 'max_deliveries')::int, coalesce(q.max_deliveries, s.max_deliveries))
    INTO base, cap, allowed
    FROM llmq.job AS j CROSS JOIN llmq.default_queue() AS s LEFT JOIN llmq.queue AS q ON q.name = n.queue
    WHERE j.job_id = failed_job;
    n.failures := n.failures + is_counted::int;
    UPDATE llmq.answer AS k
    SET failures = n.failures, dead = n.failures >= allowed, error_message = message,
        due_at = clock_timestamp() + random() * least(cap, base * 2 ^ least(n.failures - is_counted::int, 30))
    WHERE k.job_id = failed_job;
    IF n.failures >= allowed THEN
        PERFORM llmq.record_attempts(jsonb_build_array(n.entry));
        PERFORM llmq.bury(ARRAY[llmq.placement(n)], 'callback_failed', format(
            'on_complete failed %s times, the answer is kept; the last time: %s', n.failures, message),
            n.entry ->> 'text');
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.settler_fail IS
    'notes that an answer could not be settled: it is tried again later, or dead with class callback_failed';
-- Steering: waiting for a job, starting and stopping the worker, seeing that it is there.

CREATE OR REPLACE PROCEDURE llmq.wait(
    job_id uuid, timeout interval DEFAULT '60 s', INOUT status jsonb DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'llmq_wait_1';
COMMENT ON PROCEDURE llmq.wait IS
    'waits until a job is final, or for timeout, and sets status to its job_status row; not in a transaction block';

-- One look at a job, for llmq.wait, which runs it as llmq's owner: no row if `caller` is no
-- member of the role that submitted it.
CREATE OR REPLACE FUNCTION llmq.wait_look(of_job uuid, caller name)
RETURNS TABLE (status jsonb, final boolean)
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT to_jsonb(s), s.state IN ('succeeded', 'dead', 'cancelled')
    FROM llmq.job_line AS s
    WHERE s.job_id = of_job
        AND pg_has_role(caller, llmq.submitter_role(s.submitted_by), 'MEMBER')
$$;

CREATE OR REPLACE VIEW llmq.worker AS
    SELECT w.name, w.pid, w.kind, w.backend_start, w.heartbeat,
        (SELECT count(*)::int FROM llmq.lease AS l WHERE l.worker_id = w.id) AS in_flight, w.state
    FROM llmq.worker_session AS w
    WHERE NOT EXISTS (SELECT FROM llmq.lost_sessions(NULL) AS l WHERE l.id = w.id);
COMMENT ON VIEW llmq.worker IS
    'the workers of this database; the heartbeat moves only while jobs are in flight';

-- Whether a worker on another machine serves this database.
-- In plpgsql, because each submit asks, and SQL would be parsed anew.
CREATE OR REPLACE FUNCTION llmq.has_program() RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM llmq.worker_session AS w
        WHERE w.kind = 'program' AND w.state = 'running'
            AND NOT EXISTS (SELECT FROM llmq.lost_sessions(NULL) AS l WHERE l.id = w.id));
END
$$;

CREATE OR REPLACE FUNCTION llmq.start_worker() RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_start_worker_1';
COMMENT ON FUNCTION llmq.start_worker() IS
    'starts the workers of this database when the transaction commits; true if none ran';

CREATE OR REPLACE FUNCTION llmq.stop_worker() RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_stop_worker_1';
COMMENT ON FUNCTION llmq.stop_worker() IS
    'stops the workers of this database, until llmq.start_worker() or the next start of the server; true if any ran';

CREATE OR REPLACE FUNCTION llmq.resume_after_restore() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM llmq.home;
    PERFORM llmq.note_home();
    PERFORM llmq.takeover(NULL, true);
    UPDATE llmq.worker_session SET state = 'running' WHERE state = 'quarantined';
    PERFORM llmq.wake_worker(), llmq.wake_settler();
END
$$;
COMMENT ON FUNCTION llmq.resume_after_restore() IS
    'declares this database, a copy or a restored dump, to be the one that runs the jobs in it';

CREATE OR REPLACE FUNCTION llmq.wake_worker() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_worker_1';
COMMENT ON FUNCTION llmq.wake_worker() IS 'wakes the workers of this database when the transaction commits';

CREATE OR REPLACE FUNCTION llmq.wake_settler() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_settler_1';
COMMENT ON FUNCTION llmq.wake_settler() IS 'wakes the settler of this database when the transaction commits';

-- Changed configuration wakes the worker, which then reads it again.
CREATE OR REPLACE FUNCTION llmq.wake_on_change() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq.wake_worker();
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.endpoint
    FOR EACH STATEMENT EXECUTE FUNCTION llmq.wake_on_change();
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.queue
    FOR EACH STATEMENT EXECUTE FUNCTION llmq.wake_on_change();
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.destination
    FOR EACH STATEMENT EXECUTE FUNCTION llmq.wake_on_change();
-- Steering jobs: cancel, redrive.

CREATE OR REPLACE FUNCTION llmq.cancel(job_id uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.cancel(uuid) IS
    'cancels a job that is not final, and ends its network call or keeps its on_complete from being run; false if it is final; PT404 for a job that is not the caller''s';

CREATE OR REPLACE FUNCTION llmq.cancel_as(caller name, job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
BEGIN
    PERFORM FROM llmq.job AS j
    WHERE j.job_id = cancel_as.job_id
        AND pg_has_role(caller, llmq.submitter_role(j.submitted_by), 'MEMBER')
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM llmq.fail('PT404', format('there is no job %s', coalesce(cancel_as.job_id::text, 'NULL')), NULL,
            'A role can cancel the jobs that it, or a role it is a member of, has submitted.');
    END IF;
    place := llmq.take_place(cancel_as.job_id, 'the job was cancelled while it ran');
    IF place.job_id IS NULL THEN
        place := llmq.take_answer(cancel_as.job_id);
    END IF;
    IF place.job_id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by)
    VALUES (place.job_id, place.queue, place.deliveries, caller);
    PERFORM llmq.notify_done(ARRAY[place]), llmq.release_dependents(ARRAY[place]), llmq.wake_worker();
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.redrive(job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT llmq.redrive_alone(redrive.job_id) THEN
        RETURN false;
    END IF;
    PERFORM llmq.revive_dependents(redrive.job_id), llmq.wake_worker();
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.redrive(uuid) IS
    'makes a dead job ready again, with all its deliveries before it; one whose on_complete failed is settled from its answer, without a call; false if it is not dead';

-- Redrives a job, but not those that come after it.
CREATE OR REPLACE FUNCTION llmq.redrive_alone(dead_job uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d llmq.dead_job;
BEGIN
    PERFORM FROM llmq.job AS j WHERE j.job_id = redrive_alone.dead_job FOR NO KEY UPDATE;
    DELETE FROM llmq.dead_job AS k WHERE k.job_id = redrive_alone.dead_job RETURNING * INTO d;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF llmq.revive_answer(d) THEN
        NULL;
    ELSIF d.error_class = 'dependency_failed' THEN
        INSERT INTO llmq.blocked (job_id, queue, tenant, priority, deliveries, counted, deaths)
        VALUES (d.job_id, d.queue, d.tenant, d.priority, d.deliveries, 0, d.deaths);
    ELSE
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        VALUES (d.job_id, d.queue, d.tenant, d.priority, d.deliveries, 0, d.deaths);
    END IF;
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.redrive_queue(
    queue text, error_class text DEFAULT NULL, max_jobs int DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dead uuid;
    count bigint := 0;
BEGIN
    IF max_jobs < 0 THEN
        PERFORM llmq.fail('PT400', 'max_jobs must not be negative', format('It is %s.', max_jobs),
            'Leave it out for all.');
    END IF;
    FOR dead IN
        SELECT d.job_id FROM llmq.dead_job AS d
        WHERE d.queue = redrive_queue.queue
            AND (redrive_queue.error_class IS NULL OR d.error_class = redrive_queue.error_class)
        ORDER BY d.died_at LIMIT max_jobs
    LOOP
        count := count + llmq.redrive(dead)::int;
    END LOOP;
    RETURN count;
END
$$;
COMMENT ON FUNCTION llmq.redrive_queue IS
    'redrives the dead jobs of a queue, the oldest first, those of one error_class or all; returns how many';
-- Retention: deleting final jobs, messages and keys that are old enough.

-- Deletes jobs of a queue, with all that belongs to them but messages that are
-- still to be sent: those go some time after they were (prune_messages).
CREATE OR REPLACE FUNCTION llmq.delete_jobs(jobs uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id
    JOIN llmq.job AS j ON j.job_id = id, unnest(j.after) AS p
    WHERE d.parent = p AND d.child = id;
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id WHERE d.parent = id;
    DELETE FROM llmq.attempt AS a USING unnest(jobs) AS id WHERE a.job_id = id;
    DELETE FROM llmq.result AS r USING unnest(jobs) AS id WHERE r.job_id = id;
    DELETE FROM llmq.answer AS n USING unnest(jobs) AS id WHERE n.job_id = id;
    DELETE FROM llmq.dead_job AS d USING unnest(jobs) AS id WHERE d.job_id = id;
    DELETE FROM llmq.cancelled_job AS c USING unnest(jobs) AS id WHERE c.job_id = id;
    DELETE FROM llmq.kept_job AS k USING unnest(jobs) AS id WHERE k.job_id = id;
    PERFORM llmq.delete_done(ARRAY(SELECT m.id FROM llmq.message AS m WHERE m.job_id = ANY (jobs)));
    DELETE FROM llmq.job AS j USING unnest(jobs) AS id WHERE j.job_id = id;
END
$$;

-- Whether an error is the server's: what is tried next would fare no better.
CREATE OR REPLACE FUNCTION llmq.is_servers_trouble(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT state ~ '^(25006|53|57|58)' $$;

-- Whether it is somebody's who will be done some time: a deadlock, a lock that was not to be had.
CREATE OR REPLACE FUNCTION llmq.is_contention(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT state ~ '^(40|55)' $$;

-- The same one by one where something of a user's, a foreign key or a trigger, keeps some of them,
-- whatever error it raises.  Returns how many were deleted; NULL if somebody is in the way just now:
-- one by one each would wait for him again.
CREATE OR REPLACE FUNCTION llmq.try_delete_jobs(jobs uuid[]) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    job uuid;
    count int := 0;
BEGIN
    PERFORM llmq.delete_jobs(jobs);
    RETURN cardinality(jobs);
EXCEPTION WHEN OTHERS THEN
    IF llmq.is_servers_trouble(SQLSTATE) THEN
        RAISE;
    ELSIF llmq.is_contention(SQLSTATE) THEN
        RETURN NULL;
    END IF;
    IF cardinality(jobs) = 1 THEN
        INSERT INTO llmq.kept_job AS k (job_id, error) VALUES (jobs[1], SQLERRM)
        ON CONFLICT (job_id) DO UPDATE SET tried_at = EXCLUDED.tried_at, error = EXCLUDED.error;
        RAISE WARNING USING
            MESSAGE = format('job %s is older than its queue''s retention and cannot be deleted', jobs[1]),
            DETAIL = SQLERRM;
        RETURN 0;
    END IF;
    FOREACH job IN ARRAY jobs LOOP
        count := count + llmq.try_delete_jobs(ARRAY[job]);
        EXIT WHEN count IS NULL;
    END LOOP;
    RETURN count;
END
$$;

-- Whether a job could not be deleted at that time or later.
CREATE OR REPLACE FUNCTION llmq.was_kept(job uuid, since timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM llmq.kept_job AS k WHERE k.job_id = job AND k.tried_at >= since);
END
$$;

-- The queues that final jobs belong to, also queues that are not there any more.
CREATE OR REPLACE FUNCTION llmq.final_queues() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE q (name) AS (
        SELECT min(queue) FROM llmq.result
        UNION ALL
        SELECT (SELECT min(r.queue) FROM llmq.result AS r WHERE r.queue > q.name)
        FROM q WHERE q.name IS NOT NULL
    )
    SELECT name FROM q WHERE name IS NOT NULL
    UNION SELECT DISTINCT queue FROM llmq.dead_job
    UNION SELECT DISTINCT queue FROM llmq.cancelled_job
$$;

-- A bite of retention: up to `bite` jobs of each kind of a queue.  Jobs that could not be deleted since
-- kept_since are left alone: each would only warn again, and hold up those behind it.
CREATE OR REPLACE FUNCTION llmq.prune_queue(
    of_queue text, kept_since timestamptz, bite int, OUT tried int, OUT deleted bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.queue := llmq.default_queue();
    cutoff constant timestamptz := clock_timestamp() - coalesce(
        (SELECT q.retention FROM llmq.queue AS q WHERE q.name = of_queue), standard.retention);
    old constant uuid[] := ARRAY(
        SELECT r.job_id FROM llmq.result AS r
        WHERE r.queue = of_queue AND r.created_at < cutoff AND NOT llmq.is_awaited(r.job_id)
            AND NOT llmq.was_kept(r.job_id, kept_since)
        ORDER BY r.created_at LIMIT bite FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT d.job_id FROM llmq.dead_job AS d
        WHERE d.queue = of_queue AND d.died_at < cutoff AND NOT llmq.is_awaited(d.job_id)
            AND NOT llmq.was_kept(d.job_id, kept_since)
        ORDER BY d.died_at LIMIT bite FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT c.job_id FROM llmq.cancelled_job AS c
        WHERE c.queue = of_queue AND c.cancelled_at < cutoff AND NOT llmq.was_kept(c.job_id, kept_since)
        ORDER BY c.cancelled_at LIMIT bite FOR UPDATE SKIP LOCKED);
BEGIN
    tried := cardinality(old);
    deleted := CASE WHEN tried > 0 THEN llmq.try_delete_jobs(old) ELSE 0 END;
END
$$;

-- The same of messages and keys, which belong to no queue.  A time that is the same for all can be
-- looked up in an index: what was sent, or has been dead, for the retention of the queue "default"
-- goes, if its job did not take it along before.  What something of a user's keeps here stays
-- with all of its bite, and the log says why.
CREATE OR REPLACE FUNCTION llmq.prune_others(bite int, OUT tried int, OUT deleted bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.queue := llmq.default_queue();
    cutoff constant timestamptz := clock_timestamp() - coalesce(
        (SELECT q.retention FROM llmq.queue AS q WHERE q.name = 'default'), standard.retention);
BEGIN
    deleted := llmq.prune_idempotency(bite);
    BEGIN
        deleted := deleted + llmq.prune_messages(cutoff, bite);
    EXCEPTION WHEN OTHERS THEN
        IF llmq.is_servers_trouble(SQLSTATE) THEN
            RAISE;
        ELSIF NOT llmq.is_contention(SQLSTATE) THEN
            RAISE WARNING 'messages older than the retention of queue "default" cannot be deleted' USING DETAIL = SQLERRM;
        END IF;
    END;
    tried := deleted;
END
$$;

-- One bounded step of retention: up to 1,000 jobs of each kind and queue, and as many messages and
-- keys.  With max_time in smaller bites, as many as it has room for, and only the last may take
-- longer: the worker can do nothing else meanwhile, and what a deletion costs with a user's triggers
-- and foreign keys nobody knows.  Each queue has its turn at random, since time may end before
-- the last one.  Returns how many were deleted, and at least 1 if time was up.
CREATE OR REPLACE FUNCTION llmq.prune_step(max_time interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    most constant int := 1000;
    day constant interval := '1 day'; -- what was kept is tried once a day, or when a user asks
    until constant timestamptz := clock_timestamp() + max_time;
    kept_since constant timestamptz := coalesce(until - day, 'infinity');
    of_queue text;
    remaining int;
    bite int;
    began timestamptz;
    tried int;
    deleted bigint;
    count bigint := 0;
BEGIN
    FOR of_queue IN
        SELECT u.name FROM (SELECT llmq.final_queues() UNION ALL SELECT NULL) AS u (name) ORDER BY random()
    LOOP
        remaining := most;
        bite := CASE WHEN until IS NULL THEN most ELSE 1 END;
        LOOP
            began := clock_timestamp();
            IF of_queue IS NULL THEN
                SELECT o.tried, o.deleted INTO tried, deleted FROM llmq.prune_others(bite) AS o;
            ELSE
                SELECT q.tried, q.deleted INTO tried, deleted
                FROM llmq.prune_queue(of_queue, kept_since, bite) AS q;
            END IF;
            IF deleted IS NULL THEN
                RETURN count;
            END IF;
            count := count + deleted;
            remaining := remaining - bite;
            EXIT WHEN remaining <= 0 OR tried = 0;
            IF clock_timestamp() >= until THEN
                RETURN greatest(count, 1);
            END IF;
            bite := CASE WHEN clock_timestamp() - began < max_time / 10
                THEN least(bite * 2, remaining) ELSE 1 END;
        END LOOP;
    END LOOP;
    RETURN count;
END
$$;

CREATE OR REPLACE FUNCTION llmq.prune() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN llmq.prune_step(NULL);
END
$$;
COMMENT ON FUNCTION llmq.prune() IS
    'deletes final jobs older than their queue''s retention with their finished messages, messages finished before the retention of the queue "default", and expired keys and checkpoints, in one bounded step; returns how many, 0 when none are left; the worker does so too';
-- The life of a job, in order: what every table that knows of it tells.

CREATE OR REPLACE FUNCTION llmq.explain(job_id uuid)
RETURNS TABLE (at timestamptz, event text, delivery int, attempt int, delay interval, duration interval,
    http_status int, detail text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.explain(uuid) IS
    'a job''s life in order: submitted, claimed, its calls, its end, its messages, or what it waits for; delay is the time since the row before; PT404 for a job that the caller may not see';

CREATE OR REPLACE FUNCTION llmq.explain_as(caller name, job_id uuid)
RETURNS TABLE (at timestamptz, event text, delivery int, attempt int, delay interval, duration interval,
    http_status int, detail text)
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    full_sight boolean;
BEGIN
    SELECT pg_has_role(caller, llmq.submitter_role(j.submitted_by), 'MEMBER')
    INTO full_sight FROM llmq.job AS j WHERE j.job_id = explain_as.job_id;
    IF full_sight IS NULL OR NOT (full_sight OR pg_has_role(caller, 'pg_monitor', 'MEMBER')) THEN
        PERFORM llmq.fail('PT404', format('there is no job %s', coalesce(explain_as.job_id::text, 'NULL')), NULL,
            'A role sees the jobs that it, or a role it is a member of, has submitted.');
    END IF;
    RETURN QUERY
        SELECT e.at, e.event, e.delivery, e.attempt,
            e.at - lag(e.at + coalesce(e.duration, '0')) OVER life, e.duration, e.http_status, e.detail
        FROM llmq.life(explain_as.job_id, full_sight) AS e
        WINDOW life AS (ORDER BY e.at, e.rank, e.delivery, e.attempt)
        ORDER BY e.at, e.rank, e.delivery, e.attempt;
END
$$;

-- The events of a job, in no order.  The words of errors, and messages, are for those with
-- full sight.  rank orders what has one time: calls may begin in the moment of their claim.
-- Long: each place that knows something of a job has a branch of its own.
CREATE OR REPLACE FUNCTION llmq.life(of_job uuid, full_sight boolean)
RETURNS TABLE (at timestamptz, rank int, event text, delivery int, attempt int, duration interval,
    http_status int, detail text)
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH attempt AS ( -- also those of an answer that is not settled yet
        SELECT a.* FROM llmq.attempt AS a WHERE a.job_id = of_job
        UNION ALL
        SELECT r.* FROM llmq.answer AS n, llmq.read_attempts(jsonb_build_array(n.entry)) AS r
        WHERE n.job_id = of_job AND NOT EXISTS (
            SELECT FROM llmq.attempt AS a
            WHERE a.job_id = of_job AND a.delivery = r.delivery AND a.attempt = r.attempt)
    )
    SELECT j.submitted_at, 0, 'submitted', NULL::int, NULL::int, NULL::interval, NULL::int,
        concat_ws(', ', format('queue %s', j.queue), format('by %s', j.submitted_by),
            'not before ' || j.run_at, 'after ' || cardinality(j.after) || ' jobs')
    FROM llmq.job AS j WHERE j.job_id = of_job
UNION ALL -- A claim that is over left no time of its own but that of its first call.
    SELECT min(a.started_at), 1, 'claimed', a.delivery, NULL, NULL, NULL, NULL
    FROM attempt AS a GROUP BY a.delivery
UNION ALL
    SELECT l.claimed_at, 1, 'claimed', l.deliveries, NULL, NULL, NULL, format('until %s', l.deadline)
    FROM llmq.lease AS l WHERE l.job_id = of_job
UNION ALL
    SELECT a.started_at, 2, CASE a.attempt WHEN 0 THEN 'lost' ELSE 'call' END, a.delivery,
        nullif(a.attempt, 0), a.duration, a.http_status,
        concat_ws(', ', a.endpoint, coalesce(a.error_class, a.outcome),
            'to be left alone for ' || a.retry_after,
            CASE a.billing WHEN 'unknown' THEN 'perhaps billed' END)
        || CASE WHEN full_sight AND a.error_message IS NOT NULL THEN ': ' || a.error_message ELSE '' END
    FROM attempt AS a
UNION ALL
    SELECT n.answered_at, 3, 'answered', n.deliveries, NULL, NULL, NULL,
        format('on_complete failed %s times', n.failures)
        || CASE WHEN full_sight AND n.error_message IS NOT NULL THEN ': ' || n.error_message ELSE '' END
    FROM llmq.answer AS n WHERE n.job_id = of_job
UNION ALL
    SELECT r.created_at, 4, 'succeeded', r.deliveries, NULL, NULL, NULL,
        concat_ws(', ', r.endpoint, r.model, r.finish_reason)
    FROM llmq.result AS r WHERE r.job_id = of_job
UNION ALL
    SELECT d.died_at, 4, 'dead', nullif(d.deliveries, 0), NULL, NULL, NULL,
        d.error_class
        || CASE WHEN full_sight AND d.error_message IS NOT NULL THEN ': ' || d.error_message ELSE '' END
    FROM llmq.dead_job AS d WHERE d.job_id = of_job
UNION ALL
    SELECT c.cancelled_at, 4, 'cancelled', nullif(c.deliveries, 0), NULL, NULL, NULL,
        format('by %s', c.cancelled_by)
    FROM llmq.cancelled_job AS c WHERE c.job_id = of_job
UNION ALL
    SELECT m.created_at, 5, 'message', NULL, NULL, NULL, NULL, format('%s, %s', m.topic, m.dedupe_key)
    FROM llmq.message AS m WHERE m.job_id = of_job AND full_sight
UNION ALL
    SELECT coalesce(d.sent_at, d.dead_at), 6,
        CASE WHEN d.sent_at IS NULL THEN 'message dead' ELSE 'message sent' END, NULL, NULL, NULL, NULL,
        concat_ws(', ', m.topic, m.dedupe_key) || coalesce(': ' || d.last_error, '')
    FROM llmq.message AS m JOIN llmq.message_done AS d ON d.id = m.id
    WHERE m.job_id = of_job AND full_sight
UNION ALL -- What it waits for; a time that nobody knows comes last.
    SELECT s.wait_until, 7, s.state, NULL, NULL, NULL, NULL, s.wait_reason
    FROM llmq.job_line AS s
    WHERE s.job_id = of_job AND s.state IN ('scheduled', 'blocked', 'ready')
$$;
-- Sight: how queues and outbox stand, for those who watch the server.  However much waits,
-- little is read: where there is more than that, `at_least` says so.

-- What llmq.queue_status shows; those who look need no right on what it is made of.
-- The first `most` rows of each table of waiting and running jobs are read, whatever their
-- queues are, and as many dead jobs of each queue.  Where there are that many, the numbers
-- are lower bounds.  Not so the ready jobs of queues with max_ready, as long as somebody
-- works: workers publish their depth.
-- Long: one statement, so that all numbers are of one moment.
CREATE OR REPLACE FUNCTION llmq.queue_lines()
RETURNS TABLE (queue text, paused boolean, ready bigint, scheduled bigint, blocked bigint, running bigint,
    dead bigint, at_least text[], oldest_ready interval, next_due timestamptz, in_flight bigint,
    max_in_flight int, max_ready int, wait_reason text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    most constant int := 10000;
BEGIN
    RETURN QUERY
        WITH RECURSIVE place AS MATERIALIZED (
            (SELECT r.queue, 'ready' AS state, r.seq, NULL::timestamptz AS due_at, false AS leased
            FROM llmq.ready AS r ORDER BY r.seq LIMIT most)
            UNION ALL
            (SELECT d.queue, 'scheduled', NULL, d.due_at, false
            FROM llmq.deferred AS d ORDER BY d.due_at LIMIT most)
            UNION ALL
            (SELECT b.queue, 'blocked', NULL, NULL, false
            FROM llmq.blocked AS b ORDER BY b.job_id LIMIT most)
            UNION ALL
            (SELECT l.queue, 'running', NULL, NULL, true
            FROM llmq.lease AS l ORDER BY l.job_id LIMIT most)
            UNION ALL
            (SELECT n.queue, 'running', NULL, NULL, false
            FROM llmq.answer AS n WHERE NOT n.dead ORDER BY n.due_at LIMIT most)
        ), cut AS MATERIALIZED (
            SELECT p.state FROM place AS p GROUP BY p.state HAVING count(*) >= most
        ), line AS MATERIALIZED (
            SELECT p.queue, count(*) FILTER (WHERE p.state = 'ready') AS ready,
                count(*) FILTER (WHERE p.state = 'scheduled') AS scheduled,
                count(*) FILTER (WHERE p.state = 'blocked') AS blocked,
                count(*) FILTER (WHERE p.state = 'running') AS running,
                count(*) FILTER (WHERE p.leased) AS in_flight, min(p.seq) AS seq, min(p.due_at) AS next_due
            FROM place AS p GROUP BY p.queue
        ), dead_queue (name) AS ( -- from one to the next in the index
            SELECT min(d.queue) FROM llmq.dead_job AS d
            UNION ALL
            SELECT (SELECT min(d.queue) FROM llmq.dead_job AS d WHERE d.queue > q.name)
            FROM dead_queue AS q WHERE q.name IS NOT NULL
        ), known AS MATERIALIZED (
            SELECT p.name FROM llmq.queue_policy AS p
            UNION SELECT l.queue FROM line AS l
            UNION SELECT q.name FROM dead_queue AS q WHERE q.name IS NOT NULL
        ), published AS MATERIALIZED ( -- old news when nobody works, no news when all were counted
            SELECT d.queue, d.ready FROM llmq.queue_depth AS d
            WHERE EXISTS (SELECT FROM cut WHERE cut.state = 'ready')
                AND EXISTS (SELECT FROM llmq.working_sessions())
        )
        SELECT k.name, coalesce(p.paused, false), greatest(l.ready, u.ready, 0), coalesce(l.scheduled, 0),
            coalesce(l.blocked, 0), coalesce(l.running, 0), d.count,
            ARRAY(SELECT c.state FROM cut AS c WHERE c.state <> 'ready' OR u.queue IS NULL
                UNION ALL SELECT 'dead' WHERE d.count >= most),
            clock_timestamp() - (
                SELECT greatest(j.submitted_at, j.run_at)
                FROM llmq.ready AS r JOIN llmq.job AS j ON j.job_id = r.job_id WHERE r.seq = l.seq),
            l.next_due, coalesce(l.in_flight, 0), p.max_in_flight, p.max_ready, llmq.wait_reason(k.name)
        FROM known AS k
        LEFT JOIN line AS l ON l.queue = k.name
        LEFT JOIN llmq.queue_policy AS p ON p.name = k.name
        LEFT JOIN published AS u ON u.queue = k.name
        CROSS JOIN LATERAL (
            SELECT count(*) FROM (SELECT FROM llmq.dead_job AS f WHERE f.queue = k.name LIMIT most) AS t) AS d;
END
$$;
COMMENT ON FUNCTION llmq.queue_lines() IS 'what llmq.queue_status shows';

CREATE OR REPLACE VIEW llmq.queue_status AS SELECT * FROM llmq.queue_lines();
COMMENT ON VIEW llmq.queue_status IS
    'one row a queue that is configured, or has jobs that wait, run or are dead: how many, how long they have waited, and why; of each state 10,000 jobs are counted at most, and at_least names the states with more';

-- What llmq.outbox_status shows, in the same way: the first `most` messages of each state.
CREATE OR REPLACE FUNCTION llmq.outbox_lines()
RETURNS TABLE (topic text, destination text, enabled boolean, pending bigint, deferred bigint, in_flight bigint,
    dead bigint, at_least text[], oldest_pending interval, next_attempt_at timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    most constant int := 10000;
BEGIN
    RETURN QUERY
        WITH place AS MATERIALIZED (
            (SELECT p.topic, 'pending' AS state, p.id, NULL::timestamptz AS next_attempt_at
            FROM llmq.message_pending AS p ORDER BY p.id LIMIT most)
            UNION ALL
            (SELECT w.topic, 'deferred', w.id, w.next_attempt_at
            FROM llmq.message_deferred AS w ORDER BY w.next_attempt_at LIMIT most)
            UNION ALL
            (SELECT l.topic, 'in_flight', l.id, NULL
            FROM llmq.message_lease AS l ORDER BY l.id LIMIT most)
            UNION ALL
            (SELECT m.topic, 'dead', d.id, NULL
            FROM (SELECT k.id FROM llmq.message_done AS k
                WHERE k.dead_at IS NOT NULL ORDER BY k.dead_at DESC LIMIT most) AS d
            JOIN llmq.message AS m ON m.id = d.id)
        ), cut AS MATERIALIZED (
            SELECT p.state FROM place AS p GROUP BY p.state HAVING count(*) >= most
        ), line AS MATERIALIZED (
            SELECT p.topic, count(*) FILTER (WHERE p.state = 'pending') AS pending,
                count(*) FILTER (WHERE p.state = 'deferred') AS deferred,
                count(*) FILTER (WHERE p.state = 'in_flight') AS in_flight,
                count(*) FILTER (WHERE p.state = 'dead') AS dead,
                min(p.id) FILTER (WHERE p.state = 'pending') AS first_id,
                min(p.next_attempt_at) AS next_attempt_at
            FROM place AS p GROUP BY p.topic
        )
        SELECT l.topic, t.topic, t.enabled, l.pending, l.deferred, l.in_flight, l.dead,
            ARRAY(SELECT c.state FROM cut AS c),
            clock_timestamp() - (SELECT m.created_at FROM llmq.message AS m WHERE m.id = l.first_id),
            l.next_attempt_at
        FROM line AS l CROSS JOIN LATERAL llmq.destination_of(l.topic) AS t;
END
$$;
COMMENT ON FUNCTION llmq.outbox_lines() IS 'what llmq.outbox_status shows';

CREATE OR REPLACE VIEW llmq.outbox_status AS SELECT * FROM llmq.outbox_lines();
COMMENT ON VIEW llmq.outbox_status IS
    'one row a topic with messages that are not sent: where they go (destination NULL: they are pulled), and how many wait, are under way or are dead; of each state 10,000 are counted at most, and at_least names the states with more';
-- Sight for Prometheus: what workers count, and how the database stands, one row a sample.

-- The part of llmq.metric about workers.  Those of one name are told apart by worker_id.  A planner
-- expects far more of jsonb_array_elements than there is, and would compile the query.
CREATE OR REPLACE FUNCTION llmq.metric_lines()
RETURNS TABLE (name text, labels jsonb, value double precision, type text, help text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    RETURN QUERY
        SELECT (f.value ->> 'name') || (s.value ->> 0),
            s.value -> 1 || jsonb_build_object('worker', w.name, 'worker_id', w.id::text),
            (s.value ->> 2)::double precision, f.value ->> 'type', f.value ->> 'help'
        FROM llmq.worker_metric AS m
        JOIN llmq.worker_session AS w ON w.id = m.worker_id
        CROSS JOIN jsonb_array_elements(m.families) AS f
        CROSS JOIN jsonb_array_elements(f.value -> 'samples') AS s
        WHERE NOT EXISTS (SELECT FROM llmq.lost_sessions(NULL) AS l WHERE l.id = w.id);
END
$$;
COMMENT ON FUNCTION llmq.metric_lines() IS 'what llmq.metric shows of workers';

-- The other parts have constant names, so that who asks for a name reads none of those in vain.
CREATE OR REPLACE VIEW llmq.metric AS
    SELECT m.* FROM llmq.metric_lines() AS m
    UNION ALL
    SELECT 'llmq_queue_jobs', jsonb_build_object('queue', q.queue, 'state', n.state), n.jobs, 'gauge',
        'Jobs that wait, run or are dead; of each state 10,000 are counted at most.'
    FROM llmq.queue_status AS q
    CROSS JOIN LATERAL (VALUES ('ready', q.ready), ('scheduled', q.scheduled), ('blocked', q.blocked),
        ('running', q.running), ('dead', q.dead)) AS n (state, jobs)
    UNION ALL
    SELECT 'llmq_queue_oldest_ready_age_seconds', jsonb_build_object('queue', q.queue),
        coalesce(extract(epoch FROM q.oldest_ready), 0), 'gauge', 'How long the first of the ready jobs has been ready, 0 without one.'
    FROM llmq.queue_status AS q
    UNION ALL
    SELECT 'llmq_outbox_messages', jsonb_build_object('topic', o.topic, 'state', n.state), n.messages, 'gauge',
        'Outbox messages that are not sent; of each state 10,000 are counted at most.'
    FROM llmq.outbox_status AS o
    CROSS JOIN LATERAL (VALUES ('pending', o.pending), ('deferred', o.deferred), ('in_flight', o.in_flight),
        ('dead', o.dead)) AS n (state, messages)
    UNION ALL
    SELECT 'llmq_outbox_oldest_pending_age_seconds', jsonb_build_object('topic', o.topic),
        coalesce(extract(epoch FROM o.oldest_pending), 0), 'gauge', 'Age of the first of the pending messages, 0 without one.'
    FROM llmq.outbox_status AS o
    UNION ALL
    SELECT 'llmq_endpoint_open', jsonb_build_object('endpoint', e.endpoint), (e.breaker <> 'closed')::int, 'gauge',
        'Whether the endpoint''s breaker keeps calls from it: 1, or 0.'
    FROM llmq.endpoint_status AS e
    UNION ALL
    SELECT 'llmq_workers', jsonb_build_object('kind', w.kind, 'state', w.state), count(*), 'gauge', 'Workers of the database.'
    FROM llmq.worker AS w GROUP BY w.kind, w.state;
COMMENT ON VIEW llmq.metric IS
    'samples for Prometheus, one row each: what the workers have counted, as of a heartbeat, and how queues, outbox, endpoints and workers stand';
-- llmq.check(): a row for every broken invariant.  What foreign keys would prove
-- in other schemas is proven here, from one snapshot, without slowing anyone down.

-- Every place that a job can be in, as rows of (job_id, place).
CREATE OR REPLACE VIEW llmq.job_place AS
    SELECT job_id, 'ready' AS place FROM llmq.ready
    UNION ALL SELECT job_id, 'deferred' FROM llmq.deferred
    UNION ALL SELECT job_id, 'blocked' FROM llmq.blocked
    UNION ALL SELECT job_id, 'lease' FROM llmq.lease
    UNION ALL SELECT job_id, 'answer' FROM llmq.answer WHERE NOT dead
    UNION ALL SELECT job_id, 'result' FROM llmq.result
    UNION ALL SELECT job_id, 'dead_job' FROM llmq.dead_job
    UNION ALL SELECT job_id, 'cancelled_job' FROM llmq.cancelled_job;
COMMENT ON VIEW llmq.job_place IS 'where jobs stand: exactly one row for every job';

-- The same for messages, as rows of (id, topic, place).
CREATE OR REPLACE VIEW llmq.message_place AS
    SELECT id, topic, 'message_pending' AS place FROM llmq.message_pending
    UNION ALL SELECT id, topic, 'message_deferred' FROM llmq.message_deferred
    UNION ALL SELECT id, topic, 'message_lease' FROM llmq.message_lease
    UNION ALL SELECT id, NULL, 'message_done' FROM llmq.message_done;
COMMENT ON VIEW llmq.message_place IS 'where messages stand: exactly one row for every message';

-- Jobs and the rows that belong to them.
CREATE OR REPLACE FUNCTION llmq.check_jobs()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a job is in exactly one place', j.job_id,
        coalesce('it is in ' || string_agg(p.place, ' and ' ORDER BY p.place), 'it is in none')
    FROM llmq.job AS j LEFT JOIN llmq.job_place AS p ON p.job_id = j.job_id
    GROUP BY j.job_id HAVING count(p.place) <> 1
    UNION ALL
    SELECT 'what is in a place is a job', p.job_id, 'it is in ' || p.place
    FROM llmq.job_place AS p
    WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = p.job_id)
    UNION ALL
    SELECT 'an attempt belongs to a job', a.job_id,
        format('delivery %s, attempt %s', a.delivery, a.attempt)
    FROM llmq.attempt AS a
    WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = a.job_id)
    UNION ALL
    SELECT 'a result comes from a successful attempt', r.job_id, NULL
    FROM llmq.result AS r
    WHERE NOT EXISTS (
        SELECT FROM llmq.attempt AS a WHERE a.job_id = r.job_id AND a.outcome = 'success')
    UNION ALL
    SELECT 'a job''s id follows from its key', j.job_id, j.idempotency_key
    FROM llmq.job AS j
    WHERE j.job_id <> llmq.job_id(j.tenant, j.scope, j.idempotency_key)
    UNION ALL
    SELECT 'a blocked job waits for a parent that is not final', b.job_id, NULL
    FROM llmq.blocked AS b JOIN llmq.job AS j ON j.job_id = b.job_id
    WHERE NOT b.fresh AND NOT EXISTS (
        SELECT FROM unnest(j.after) AS p JOIN llmq.job_place AS q ON q.job_id = p
        WHERE q.place NOT IN ('result', 'dead_job', 'cancelled_job'))
    UNION ALL
    SELECT 'a blocked job is known to its parents', b.job_id, p::text
    FROM llmq.blocked AS b JOIN llmq.job AS j ON j.job_id = b.job_id, unnest(j.after) AS p
    WHERE NOT EXISTS (SELECT FROM llmq.dependency AS d WHERE d.parent = p AND d.child = b.job_id)
    UNION ALL
    SELECT 'a job''s queue exists', j.job_id, j.queue
    FROM llmq.job AS j
    WHERE j.queue <> 'default'
        AND NOT EXISTS (SELECT FROM llmq.queue AS q WHERE q.name = j.queue)
        AND NOT EXISTS (
            SELECT FROM llmq.job_place AS p
            WHERE p.job_id = j.job_id AND p.place IN ('result', 'dead_job', 'cancelled_job'))
$$;

-- Leases: no running job without a worker and a deadline.  In a copy, where workers touch
-- nothing until llmq.resume_after_restore(), leases are as old as the copy.
CREATE OR REPLACE FUNCTION llmq.check_leases()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a lease belongs to a worker that lives', l.job_id,
        format('worker %s holds it since %s', l.worker_id, l.claimed_at)
    FROM llmq.lease AS l
    WHERE l.claimed_at < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq.is_home()
        AND NOT EXISTS (
            SELECT FROM llmq.worker_session AS w
            WHERE w.id = l.worker_id
                AND w.heartbeat > clock_timestamp() - 2 * llmq.lease_ttl())
    UNION ALL
    SELECT 'a delivery ends by its deadline', l.job_id, format('it was due at %s', l.deadline)
    FROM llmq.lease AS l
    WHERE l.deadline < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq.is_home()
    UNION ALL
    SELECT 'a lease''s delivery has not been settled', l.job_id, format('delivery %s', l.deliveries)
    FROM llmq.lease AS l
    WHERE EXISTS (
        SELECT FROM llmq.attempt AS a
        WHERE a.job_id = l.job_id AND a.delivery = l.deliveries)
$$;

-- Answers that wait for their on_complete, or were given up with their jobs.
CREATE OR REPLACE FUNCTION llmq.check_answers()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'an answer that is kept is the success of a job with on_complete', n.job_id, n.entry ->> 'outcome'
    FROM llmq.answer AS n LEFT JOIN llmq.job AS j ON j.job_id = n.job_id
    WHERE j.on_complete IS NULL OR (n.entry ->> 'outcome') IS DISTINCT FROM 'succeeded'
        OR (n.entry ->> 'job_id')::uuid IS DISTINCT FROM n.job_id
    UNION ALL
    SELECT 'a dead answer belongs to a dead job', n.job_id, n.error_message
    FROM llmq.answer AS n
    WHERE n.dead AND NOT EXISTS (SELECT FROM llmq.dead_job AS d WHERE d.job_id = n.job_id)
    UNION ALL
    SELECT 'a job whose callback failed has its answer', d.job_id, d.error_message
    FROM llmq.dead_job AS d
    WHERE d.error_class = 'callback_failed'
        AND NOT EXISTS (SELECT FROM llmq.answer AS n WHERE n.job_id = d.job_id AND n.dead)
$$;

-- The outbox: every effect that a job's end promised is there, once.
CREATE OR REPLACE FUNCTION llmq.check_outbox_messages()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a message is in exactly one place', m.job_id,
        format('message %s is in %s', m.id, coalesce(string_agg(p.place, ' and ' ORDER BY p.place), 'none'))
    FROM llmq.message AS m LEFT JOIN llmq.message_place AS p ON p.id = m.id
    GROUP BY m.id HAVING count(p.place) <> 1
    UNION ALL
    SELECT 'what is in a place of the outbox is a message', NULL, format('message %s is in %s', p.id, p.place)
    FROM llmq.message_place AS p
    WHERE NOT EXISTS (SELECT FROM llmq.message AS m WHERE m.id = p.id)
    UNION ALL
    SELECT 'a message keeps its topic', m.job_id, format('message %s is in %s as "%s"', m.id, p.place, p.topic)
    FROM llmq.message_place AS p JOIN llmq.message AS m ON m.id = p.id
    WHERE p.topic <> m.topic
    UNION ALL
    SELECT 'a message is sent by a worker that lives', m.job_id,
        format('worker %s has message %s since %s', l.worker_id, l.id, l.claimed_at)
    FROM llmq.message_lease AS l LEFT JOIN llmq.message AS m ON m.id = l.id
    WHERE l.worker_id IS NOT NULL AND l.claimed_at < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq.is_home()
        AND NOT EXISTS (
            SELECT FROM llmq.worker_session AS w
            WHERE w.id = l.worker_id AND w.heartbeat > clock_timestamp() - 2 * llmq.lease_ttl())
    UNION ALL
    SELECT 'a succeeded job has its outbox messages', r.job_id, e.value ->> 'topic'
    FROM llmq.result AS r
    JOIN llmq.job AS j ON j.job_id = r.job_id,
    jsonb_array_elements(j.outbox) WITH ORDINALITY AS e
    WHERE coalesce(e.value ->> 'on', 'succeeded') = 'succeeded'
        AND r.created_at > clock_timestamp() - ( -- else they may have been deleted before their job
            SELECT q.retention FROM llmq.queue_policy AS q WHERE q.name = 'default')
        AND NOT EXISTS (
            SELECT FROM llmq.message AS m
            WHERE m.tenant = j.tenant AND m.dedupe_key = coalesce(e.value ->> 'dedupe_key',
                format('%s:%s:%s', e.value ->> 'topic', j.job_id, e.ordinality)))
    UNION ALL
    SELECT 'a message of a job follows from its end', m.job_id, format('message %s', m.id)
    FROM llmq.message AS m
    WHERE EXISTS ( -- else retention has deleted the job that it is from
            SELECT FROM llmq.job AS j
            WHERE j.job_id = m.job_id AND j.submitted_at <= m.created_at)
        AND NOT EXISTS (SELECT FROM llmq.result AS r WHERE r.job_id = m.job_id)
        AND NOT EXISTS (SELECT FROM llmq.dead_job AS d WHERE d.job_id = m.job_id)
        AND NOT EXISTS (
            SELECT FROM llmq.ready AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.deferred AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.blocked AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.lease AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.answer AS d WHERE d.job_id = m.job_id AND d.deaths > 0)
        AND NOT EXISTS ( -- it may have died, and been redriven, before it was cancelled
            SELECT FROM llmq.cancelled_job AS c JOIN llmq.job AS j ON j.job_id = c.job_id,
            jsonb_array_elements(j.outbox) AS e
            WHERE c.job_id = m.job_id AND e.value ->> 'on' = 'dead' AND e.value ->> 'topic' = m.topic)
$$;

-- Configuration that names what is not there.
CREATE OR REPLACE FUNCTION llmq.check_configuration()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a queue''s endpoints exist', NULL::uuid, format('queue "%s" names "%s"', q.name, e)
    FROM llmq.queue AS q, unnest(q.endpoints) AS e
    WHERE NOT EXISTS (SELECT FROM llmq.endpoint AS p WHERE p.name = e)
    UNION ALL
    SELECT 'a role of role_tenant exists', NULL, t.role::text
    FROM llmq.role_tenant AS t
    WHERE to_regrole(quote_ident(t.role)) IS NULL
$$;

CREATE OR REPLACE FUNCTION llmq.check()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM llmq.check_jobs()
    UNION ALL SELECT * FROM llmq.check_leases()
    UNION ALL SELECT * FROM llmq.check_answers()
    UNION ALL SELECT * FROM llmq.check_outbox_messages()
    UNION ALL SELECT * FROM llmq.check_configuration()
$$;
COMMENT ON FUNCTION llmq.check() IS
    'a row for every broken invariant: none, if all is well; reads every table, so not for every minute';
-- Rights: what each kind of role is given.  PUBLIC has nothing (grants.sql).

-- A role sees results and attempts of the jobs that roles it is a member of have
-- submitted.  Of others' jobs it does not even hear that they are there: job ids can be computed from
-- keys that are guessed.
CREATE OR REPLACE FUNCTION llmq.submitter(of_job uuid) RETURNS name
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';

CREATE OR REPLACE FUNCTION llmq.submitter_as(caller name, of_job uuid) RETURNS name
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT j.submitted_by FROM llmq.job AS j
        WHERE j.job_id = of_job
            AND (pg_has_role(caller, llmq.submitter_role(j.submitted_by), 'MEMBER')
                OR pg_has_role(caller, 'pg_monitor', 'MEMBER')));
END
$$;
COMMENT ON FUNCTION llmq.submitter(uuid) IS
    'the role that submitted a job, NULL if the caller may not see that job; row security of llmq.result and llmq.attempt asks for it';

DO $$
BEGIN
    ALTER TABLE llmq.result ENABLE ROW LEVEL SECURITY;
    ALTER TABLE llmq.attempt ENABLE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS submitter ON llmq.result;
    CREATE POLICY submitter ON llmq.result FOR SELECT USING (llmq.may_see(llmq.submitter(job_id)));
    DROP POLICY IF EXISTS submitter ON llmq.attempt;
    -- Those who watch the server see every attempt, unless they could read its words too.  Asked
    -- first, and once: whose job it is would have to be looked up for each row.
    CREATE POLICY submitter ON llmq.attempt FOR SELECT USING (
        (SELECT pg_has_role('pg_monitor', 'USAGE')
            AND NOT has_column_privilege('llmq.attempt', 'error_message', 'SELECT'))
        OR llmq.may_see(llmq.submitter(job_id)));
END
$$;

-- Grants a list of routines, each with its argument types.
CREATE OR REPLACE FUNCTION llmq.grant_routines(to_role regrole, names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = 'llmq'::regnamespace AND p.proname = ANY (names)
    LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', routine, to_role);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION llmq.grant_submit(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA llmq TO %s', role);
    EXECUTE format('GRANT SELECT ON llmq.job_status, llmq.dead_letter, llmq.result, llmq.attempt,
        llmq.outbox, llmq.outbox_event, llmq.run, llmq.usage TO %s', role);
    PERFORM llmq.grant_routines(role, ARRAY['submit', 'submit_many', 'http_submit', 'wait', 'cancel', 'explain',
        'idempotency_begin', 'idempotency_finish', 'idempotency_release', 'step_begin', 'step_finish',
        'step_release', 'enqueue_outbox', 'outbox_claim', 'outbox_ack', 'outbox_nack', 'derive_key',
        'job_id', 'namespace', 'uuid5', 'submitter_role', 'may_see', 'visible_tenants', 'submitter', 'wait_reason', 'wait_until']);
END
$$;
COMMENT ON FUNCTION llmq.grant_submit(regrole) IS
    'gives a role what submitting jobs and reading its own needs';

CREATE OR REPLACE FUNCTION llmq.grant_admin(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq.grant_submit(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON llmq.endpoint, llmq.queue, llmq.destination,
        llmq.budget, llmq.role_tenant TO %s', role);
    EXECUTE format('GRANT SELECT ON llmq.worker, llmq.queue_policy, llmq.queue_status, llmq.outbox_status, llmq.endpoint_status, llmq.budget_status, llmq.metric TO %s', role);
    PERFORM llmq.grant_routines(role, ARRAY['redrive', 'redrive_queue', 'redrive_outbox', 'prune', 'check',
        'start_worker', 'stop_worker', 'reset_breaker', 'budget_lines', 'resume_after_restore', 'lost_sessions', 'queue_lines', 'outbox_lines', 'metric_lines', 'default_queue']);
END
$$;
COMMENT ON FUNCTION llmq.grant_admin(regrole) IS
    'gives a role what grant_submit does, and configuration, redrive, prune and the worker''s switch';

CREATE OR REPLACE FUNCTION llmq.grant_worker(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA llmq TO %s', role);
    PERFORM llmq.grant_routines(role, ARRAY['worker_hello', 'worker_poll', 'worker_claim',
        'worker_settle', 'worker_draw', 'worker_claim_messages', 'worker_settle_messages', 'worker_heartbeat',
        'worker_drain', 'worker_reconcile', 'worker_goodbye']);
END
$$;
COMMENT ON FUNCTION llmq.grant_worker(regrole) IS
    'gives a role the functions of a worker outside the server: it sees every prompt and writes every answer';

-- Those who watch the server: every job and attempt, without what was said in it.
GRANT USAGE ON SCHEMA llmq TO pg_monitor;
GRANT SELECT ON llmq.job_status, llmq.worker, llmq.queue_status, llmq.outbox_status, llmq.usage, llmq.budget_status, llmq.metric
    TO pg_monitor;
GRANT SELECT (endpoint, enabled, breaker, opened_at, probe_at, wait_reason, wait_until, requests_per_minute,
    tokens_per_minute, max_in_flight, drawn_at, last_error_at, in_flight) ON llmq.endpoint_status TO pg_monitor;
GRANT SELECT (job_id, delivery, attempt, endpoint, started_at, duration, outcome, http_status,
    error_class, retry_after, model, finish_reason, input_tokens, output_tokens, cached_tokens,
    bytes_in, billing, request_id, traceparent, cost) ON llmq.attempt TO pg_monitor;
GRANT EXECUTE ON FUNCTION llmq.submitter_role(name), llmq.may_see(name), llmq.submitter(uuid), llmq.wait_reason(text), llmq.wait_until(text),
    llmq.lost_sessions(bigint), llmq.queue_lines(), llmq.outbox_lines(), llmq.metric_lines(), llmq.explain(uuid), llmq.budget_lines() TO pg_monitor;
-- Who may do what: nothing for PUBLIC, then what each kind of role needs.

REVOKE ALL ON SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON TYPE llmq.placement, llmq.submission, llmq.http_response FROM PUBLIC;
-- The last act of CREATE EXTENSION: its worker starts when the transaction commits.

SELECT llmq.start_worker();
