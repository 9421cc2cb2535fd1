-- Configuration is rows: endpoints, queues, destinations, budgets, tenants.
-- There are no foreign keys among them (a queue row would collect a multixact
-- with every submit); llmq.check() proves what they would.
--
-- What would make a worker fail is refused here: it reads the configuration as one value, and
-- adds intervals to the present time; the rule for these stands at the end.  Numerics are bounded,
-- because the worker reads numbers of 64 bits; that excludes NaN and Infinity, which are above all.

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
    connect_timeout interval NOT NULL DEFAULT '5 s',
    first_byte_timeout interval,
    idle_timeout interval,
    input_price numeric CHECK (input_price BETWEEN 0 AND 1e9),
    cached_price numeric CHECK (cached_price BETWEEN 0 AND 1e9),
    output_price numeric CHECK (output_price BETWEEN 0 AND 1e9),
    breaker_failures int NOT NULL DEFAULT 5 CHECK (breaker_failures > 0),
    breaker_cooldown interval NOT NULL DEFAULT '30 s',
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
    call_timeout interval NOT NULL DEFAULT '20 s',
    deadline interval NOT NULL DEFAULT '60 s',
    max_attempts int NOT NULL DEFAULT 4 CHECK (max_attempts BETWEEN 1 AND 1000),
    min_attempt interval NOT NULL DEFAULT '1 s',
    backoff_base interval NOT NULL DEFAULT '0.5 s',
    backoff_cap interval NOT NULL DEFAULT '8 s',
    max_deliveries int NOT NULL DEFAULT 5 CHECK (max_deliveries BETWEEN 1 AND 1000),
    redelivery_base interval NOT NULL DEFAULT '5 s',
    redelivery_cap interval NOT NULL DEFAULT '10 min',
    max_age interval NOT NULL DEFAULT '7 days',
    retention interval NOT NULL DEFAULT '30 days',
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
    timeout interval NOT NULL DEFAULT '10 s',
    max_attempts int NOT NULL DEFAULT 10 CHECK (max_attempts BETWEEN 1 AND 1000),
    backoff_base interval NOT NULL DEFAULT '5 s',
    backoff_cap interval NOT NULL DEFAULT '1 h',
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
    period interval NOT NULL,
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

-- Every interval that a worker reckons with.  It is measured as the worker measures it
-- (llmq_internal.microseconds), so '361 days -1 year' is less than nothing; its years are bounded by
-- themselves, because days could balance any number of them.  The rule is a constraint of each column
-- rather than a domain: an error then names the column, and views on it do not stop an update.
DO $$
DECLARE
    above_zero constant text[] := '{
        endpoint.connect_timeout, endpoint.first_byte_timeout, endpoint.idle_timeout,
        endpoint.breaker_cooldown, queue.call_timeout, queue.deadline, queue.max_age,
        queue.retention, destination.timeout, budget.period
        }';
    from_zero constant text[] := '{
        queue.min_attempt, queue.backoff_base, queue.backoff_cap, queue.redelivery_base,
        queue.redelivery_cap, destination.backoff_base, destination.backoff_cap
        }';
    relation text;
    col text;
BEGIN
    FOR relation, col IN
        SELECT split_part(c, '.', 1), split_part(c, '.', 2) FROM unnest(above_zero || from_zero) AS c
    LOOP
        EXECUTE format($sql$
            ALTER TABLE llmq.%1$I ADD CONSTRAINT %1$s_%2$s_check CHECK (extract(epoch FROM %2$I) %3$s 0
                AND %2$I <= '100 years' AND extract(year FROM %2$I) BETWEEN 0 AND 100)$sql$,
            relation, col, CASE WHEN concat(relation, '.', col) = ANY (from_zero) THEN '>=' ELSE '>' END);
    END LOOP;
END
$$;
