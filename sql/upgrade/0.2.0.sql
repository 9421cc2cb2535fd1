-- What the state of 0.1.0 lacks.  The rule: whatever a part of SQL_STATE gets (a table, a
-- column, an index, a type, a comment, a line in dump.sql), this file adds to what is there,
-- with the same result; a column that is added comes last in both.  Code is replaced without
-- it, but for what CREATE OR REPLACE cannot do: a function whose arguments or result change, a
-- view whose columns are not only added to, and what is gone, are dropped here
-- (DROP FUNCTION llmq.old_name(text), not IF EXISTS).  test/e2e/900_upgrade.pl compares what comes
-- out with a fresh install.

ALTER TABLE llmq.job DROP CONSTRAINT job_priority_check;
ALTER TABLE llmq.attempt ADD COLUMN traceparent text;
COMMENT ON COLUMN llmq.attempt.traceparent IS 'the header that was sent: the trace of the job''s metadata, with this call as the parent';
DROP FUNCTION llmq.worker_claim(bigint, bigint[]), llmq.read_attempts(jsonb), llmq.fingerprint(llmq.job);

-- -- the outbox -----------------------------------------------------------------------------

ALTER TABLE llmq.destination
    ADD COLUMN max_in_flight int NOT NULL DEFAULT 1 CHECK (max_in_flight BETWEEN 1 AND 100),
    ADD CONSTRAINT destination_topic_prefix CHECK (topic !~ '[*].'),
    ADD CONSTRAINT destination_url_of_kind CHECK (CASE kind
        WHEN 'webhook' THEN url ~* '^https?://[^/?#@[:space:][:cntrl:]]+([/?][^#[:space:][:cntrl:]]*)?$'
        WHEN 'email' THEN url ~* '^smtps?://[^/?#@:[:space:][:cntrl:]]+(:[0-9]{1,5})?$'
            OR url ~* '^smtps?://[[][0-9a-f:.]+[]](:[0-9]{1,5})?$'
        ELSE octet_length(url) BETWEEN 1 AND 63 END),
    ADD CONSTRAINT destination_sender_of_email CHECK (kind <> 'email'
        OR coalesce(sender ~ '^([^[:cntrl:]<>]*<)?[^@<>[:space:][:cntrl:]]+@[^@<>[:space:][:cntrl:]]+>?$'
            AND (sender ~ '<') = (sender ~ '>') AND length(sender) <= 320, false));
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

CREATE INDEX message_job_id_idx ON llmq.message (job_id) WHERE job_id IS NOT NULL;

-- The code's view replaces this one, which only lets go of the column.
CREATE OR REPLACE VIEW llmq.outbox WITH (security_barrier) AS
    SELECT m.id, m.tenant, m.topic, m.dedupe_key, m.payload, m.job_id, m.created_at, 0 AS attempts,
        NULL::timestamptz AS next_attempt_at, NULL::timestamptz AS sent_at, NULL::text AS last_error,
        NULL::timestamptz AS dead_at
    FROM llmq.message AS m WHERE false;
ALTER TABLE llmq.message_pending DROP COLUMN next_attempt_at, ADD COLUMN remaining jsonb;
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

ALTER TABLE llmq.message_done ADD COLUMN remaining jsonb;
CREATE INDEX message_done_sent_at_idx ON llmq.message_done (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX message_done_dead_at_idx ON llmq.message_done (dead_at) WHERE dead_at IS NOT NULL;

SELECT pg_catalog.pg_extension_config_dump('llmq.message_deferred', '');
SELECT pg_catalog.pg_extension_config_dump('llmq.message_lease', '');

DROP FUNCTION llmq.worker_poll(bigint, bigint, int, text, jsonb);

-- -- sight ------------------------------------------------------------------------------------

CREATE TABLE llmq.worker_metric (
    worker_id bigint PRIMARY KEY REFERENCES llmq.worker_session (id) ON DELETE CASCADE,
    families jsonb NOT NULL, -- bgworker/core/metric.h says what they are
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.worker_metric IS
    'what workers have counted since they began, as of a heartbeat; written each 5 s at most, and only when it changes';
DROP FUNCTION llmq.worker_heartbeat(bigint, int);
CREATE INDEX attempt_started_at_idx ON llmq.attempt USING brin (started_at) WITH (autosummarize = on);
DROP POLICY monitor ON llmq.attempt;

-- -- words ------------------------------------------------------------------------------------

COMMENT ON COLUMN llmq.endpoint.name IS 'what queues, results and attempts call it';
COMMENT ON COLUMN llmq.endpoint.stream IS 'ask for a stream; the answer is committed when it is whole';
COMMENT ON COLUMN llmq.endpoint.max_in_flight IS 'calls at once, of all workers together; NULL: no limit';
COMMENT ON COLUMN llmq.endpoint.requests_per_minute IS 'the provider''s quota, for all workers together; NULL: none';
COMMENT ON COLUMN llmq.endpoint.tokens_per_minute IS 'the provider''s quota, for all workers together; NULL: none';
COMMENT ON COLUMN llmq.endpoint.idempotency_header IS
    'name of a header that carries a key of job and endpoint, the same in every attempt';
COMMENT ON COLUMN llmq.endpoint.connect_timeout IS 'until the connection, with TLS, is there';
COMMENT ON COLUMN llmq.endpoint.first_byte_timeout IS 'from the connection to the first byte of the answer; NULL: none of its own';
COMMENT ON COLUMN llmq.endpoint.idle_timeout IS 'between two portions of the answer; NULL: none of its own';
COMMENT ON COLUMN llmq.endpoint.input_price IS 'price per million tokens of what is sent';
COMMENT ON COLUMN llmq.endpoint.cached_price IS 'price per million tokens that were read from a cache';
COMMENT ON COLUMN llmq.endpoint.output_price IS 'price per million tokens of answers';
COMMENT ON COLUMN llmq.endpoint.breaker_failures IS 'failures in a row after which it is left alone';
COMMENT ON COLUMN llmq.endpoint.breaker_cooldown IS 'how long it is left alone before one call tries it out';
COMMENT ON COLUMN llmq.endpoint.enabled IS 'false: no call is made there';
COMMENT ON COLUMN llmq.queue.name IS 'what submit calls it';
COMMENT ON COLUMN llmq.queue.paused IS 'true: no delivery starts; jobs can be submitted, and calls under way go on';
COMMENT ON COLUMN llmq.queue.max_in_flight IS 'deliveries at once, of all workers together; NULL: no limit';
COMMENT ON COLUMN llmq.queue.max_ready IS 'ready jobs, beyond which submit is refused (PT429); NULL: no limit';
COMMENT ON COLUMN llmq.queue.max_attempts IS 'network calls in one delivery, to each endpoint';
COMMENT ON COLUMN llmq.queue.min_attempt IS 'no attempt starts with less time left (never more than call_timeout, nor half of deadline)';
COMMENT ON COLUMN llmq.queue.backoff_base IS
    'the wait after a first failed attempt is random up to this, and may be twice as long after each further one';
COMMENT ON COLUMN llmq.queue.redelivery_base IS
    'the wait after a first failed delivery is random up to this, and may be twice as long after each further one';
COMMENT ON COLUMN llmq.queue.redelivery_cap IS 'longest wait between two deliveries';
COMMENT ON COLUMN llmq.queue.accept_truncated IS 'an answer that stopped at the token limit is a success';
COMMENT ON COLUMN llmq.queue.require_json IS 'the text must be JSON, and stands in llmq.result.json';
COMMENT ON COLUMN llmq.queue.fallback_on IS
    'classes of errors after which the next endpoint is called, beyond those that are retried';
COMMENT ON COLUMN llmq.queue.notify_done IS 'NOTIFY llmq_done with the job_id of each final job';
COMMENT ON COLUMN llmq.budget.tenant IS 'whose budget it is; *: of each tenant without a row, by itself';
COMMENT ON COLUMN llmq.budget.period IS 'after which it begins anew, counted from 2000-01-01 UTC';
COMMENT ON COLUMN llmq.budget.max_cost IS 'by the prices of endpoints; NULL: no limit';
COMMENT ON COLUMN llmq.budget.max_tokens IS 'input and output; NULL: no limit';
COMMENT ON COLUMN llmq.budget.hard IS 'true: submit is refused (PT402) when it is spent; false: jobs wait';
COMMENT ON COLUMN llmq.role_tenant.role IS 'a role, whose members count too';
COMMENT ON COLUMN llmq.role_tenant.tenant IS 'whom it may name as tenant';

-- -- limits ---------------------------------------------------------------------------------

CREATE TABLE llmq.endpoint_limit (
    endpoint text PRIMARY KEY,
    state bigint[] NOT NULL DEFAULT '{}', -- its numbers are named in extension/limit.c
    last_error text,
    last_error_at timestamptz,
    drawn_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE llmq.endpoint_limit IS
    'what workers share of an endpoint: its quota, drawn in slices once a second at most, and its breaker; no claim touches it';
COMMENT ON TABLE llmq.endpoint_trouble IS
    'endpoints that a worker cannot call just now: no_secret, or rate_limited, breaker or limiter until a time';

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

ALTER TABLE llmq.lease ADD COLUMN reserved_cost numeric, ADD COLUMN reserved_tokens bigint;
CREATE INDEX lease_tenant_idx ON llmq.lease (tenant) WHERE reserved_tokens IS NOT NULL;
ALTER TABLE llmq.attempt ADD COLUMN cost numeric;
COMMENT ON COLUMN llmq.attempt.cost IS 'by the prices of that time, if it was billed; NULL where they or its usage are not known';
DO $$
BEGIN
    PERFORM pg_catalog.pg_extension_config_dump('llmq.spending', '');
    PERFORM pg_catalog.pg_extension_config_dump('llmq.budget_spent', '');
    PERFORM pg_catalog.pg_extension_config_dump('llmq.spending_id_seq', '');
END
$$;

-- A class that there is not had no effect, and is refused now.
DO $$
DECLARE
    classes constant text[] := '{rate_limited, overloaded, server_error, timeout, connection, interrupted, incomplete,
        invalid_response, empty_response, conflict, request_timeout, bad_request, auth, not_found, context_length,
        content_filter, refusal, truncated, quota_exhausted, too_large, redirect, internal}';
    q record;
BEGIN
    FOR q IN
        SELECT k.name, k.fallback_on FROM llmq.queue AS k
        WHERE NOT k.fallback_on <@ classes OR array_position(k.fallback_on, NULL) IS NOT NULL
    LOOP
        RAISE WARNING USING MESSAGE = format('fallback_on of queue "%s" loses what is no class of errors', q.name),
            DETAIL = format('It was %s.', q.fallback_on);
        UPDATE llmq.queue AS k
        SET fallback_on = ARRAY(SELECT c FROM unnest(q.fallback_on) AS c WHERE c = ANY (classes))
        WHERE k.name = q.name;
    END LOOP;
END
$$;

-- -- retention -------------------------------------------------------------------------------

CREATE TABLE llmq.kept_job (
    job_id uuid PRIMARY KEY,
    tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error text NOT NULL
);
COMMENT ON TABLE llmq.kept_job IS
    'final jobs that retention could not delete, since something of a user''s refused; the worker tries them again after a day';

-- Spans as the worker measures them, and numbers that it can read.  What is there must be so already.
DO $$
DECLARE
    span constant text := 'extract(epoch FROM %1$s) %2$s 0 AND %1$s <= ''100 years'' AND extract(year FROM %1$s) BETWEEN 0 AND 100';
    c record;
BEGIN
    FOR c IN
        SELECT t AS relation, format('%s_%s_check', t, n) AS name, format(rule, n, above) AS rule
        FROM (VALUES ('endpoint', span, '>', '{connect_timeout, first_byte_timeout, idle_timeout, breaker_cooldown}'::text[]),
            ('endpoint', '%s BETWEEN 0 AND 1e9', '', '{input_price, cached_price, output_price}'),
            ('queue', span, '>', '{call_timeout, deadline, max_age, retention}'),
            ('queue', span, '>=', '{min_attempt, backoff_base, backoff_cap, redelivery_base, redelivery_cap}'),
            ('destination', span, '>', '{timeout}'), ('destination', span, '>=', '{backoff_base, backoff_cap}'),
            ('budget', span, '>', '{period}'), ('budget', '%s BETWEEN 0 AND 1e15', '', '{max_cost}')) AS v (t, rule, above, names),
            unnest(v.names) AS n
    LOOP
        EXECUTE format('ALTER TABLE llmq.%1$I DROP CONSTRAINT %2$I, ADD CONSTRAINT %2$I CHECK (%3$s)', c.relation, c.name, c.rule);
    END LOOP;
END
$$;
