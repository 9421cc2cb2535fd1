-- Submitting: the key, the job and its place in the queue, in the caller's own
-- transaction.

-- Raises an error that PostgREST turns into an HTTP status, and people can mend.
CREATE OR REPLACE FUNCTION llmq.fail(code text, message text, detail text, hint text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = coalesce(detail, ''), HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_length(name text, value text, maximum int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF length(value) NOT BETWEEN 1 AND maximum THEN
        PERFORM llmq.fail('PT400', format('%s must have 1 to %s characters', name, maximum),
            format('It has %s.', length(value)), 'Give a shorter value, or none.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.check_key(idempotency_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
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
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
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
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
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
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
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
            IF entry.type = 'string' AND entry.value #>> '{}' ~ '^[ 0-9.:a-z]{1,64}$' THEN
                span := llmq.try_interval(entry.value #>> '{}');
            ELSE
                span := NULL;
            END IF;
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
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN span ~* '^ *[0-9]{1,9}(\.[0-9]{1,6})? *(us|microseconds?|ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?) *$'
        OR span ~ '^ *[0-9]{1,2}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})? *$'
        THEN span::interval END
$$;

-- The outbox entries of a submission: shape, lengths, keys that differ.
CREATE OR REPLACE FUNCTION llmq.check_outbox(outbox jsonb) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
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
        IF coalesce(entry ->> 'on', 'succeeded') NOT IN ('succeeded', 'dead') THEN
            PERFORM llmq.fail('PT400', '"on" of an outbox entry must be succeeded or dead',
                format('It is %s.', entry -> 'on'), 'Leave it out for succeeded.');
        END IF;
    END LOOP;
    IF (SELECT count(*) <> count(DISTINCT value ->> 'dedupe_key')
        FROM jsonb_array_elements(outbox) WHERE value ? 'dedupe_key') THEN
        PERFORM llmq.fail('PT400', 'two outbox entries have the same dedupe_key', NULL,
            'Give each entry its own key, or none.');
    END IF;
END
$$;

-- The tenant that the caller acts for: its own, or one it may name.
CREATE OR REPLACE FUNCTION llmq.check_tenant(caller name, tenant text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq.check_length('tenant', tenant, 255);
    IF tenant = caller
        OR (SELECT rolsuper FROM pg_roles WHERE rolname = caller)
        OR EXISTS (
            SELECT FROM llmq.role_tenant AS t
            WHERE t.tenant = check_tenant.tenant
                AND pg_has_role(caller, to_regrole(quote_ident(t.role)), 'MEMBER'))
    THEN
        RETURN;
    END IF;
    PERFORM llmq.fail('PT403', format('role "%s" may not submit for tenant "%s"', caller, tenant),
        'A role may name itself and the tenants that llmq.role_tenant gives it.',
        format('An admin can INSERT INTO llmq.role_tenant VALUES (%L, %L).', caller, tenant));
END
$$;

-- Finds the policy of a queue that jobs may be submitted to.
CREATE OR REPLACE FUNCTION llmq.find_queue(queue text) RETURNS llmq.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    q llmq.queue;
BEGIN
    SELECT * INTO q FROM llmq.queue WHERE name = queue;
    IF NOT FOUND THEN
        IF queue IS DISTINCT FROM 'default' THEN
            PERFORM llmq.fail('PT404', format('there is no queue "%s"', queue), NULL,
                format('INSERT INTO llmq.queue (name) VALUES (%L) makes it.', queue));
        END IF;
        q := llmq.default_queue();
    END IF;
    RETURN q;
END
$$;

-- Notes, with the first submit, which database jobs are submitted in.
CREATE OR REPLACE FUNCTION llmq.note_home() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.home) THEN
        INSERT INTO llmq.home (system_identifier, database_oid)
        SELECT llmq.system_identifier(), oid FROM pg_database WHERE datname = current_database();
    END IF;
END
$$;

-- Inserts jobs whose keys are free and returns their ids.  In C for its key
-- wait: another open transaction that holds a key is waited for, at most
-- max(llmq.key_wait, 50 ms), and then reported as PT409.
CREATE OR REPLACE FUNCTION llmq.insert_jobs(jobs llmq.job[]) RETURNS uuid[]
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_insert_jobs_1';

-- The fingerprint of a request: what must be the same under the same key.
CREATE OR REPLACE FUNCTION llmq.fingerprint(job llmq.job) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(
        job.queue, job.prompt, job.system, job.messages, job.model, job.params, job.metadata,
        job.outbox, job.on_complete, job.after, job.run_id, job.step, job.policy)::text, 'UTF8'))
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
DECLARE
    job llmq.job;
    q llmq.queue;
BEGIN
    PERFORM llmq.check_key(idempotency_key);
    job.tenant := coalesce(tenant, caller);
    IF tenant IS NOT NULL THEN
        PERFORM llmq.check_tenant(caller, tenant);
    END IF;
    q := llmq.find_queue(queue);
    PERFORM llmq.check_prompt(prompt, messages, params);
    IF params IS NOT NULL THEN
        PERFORM llmq.check_params(params);
    END IF;
    IF policy IS NOT NULL THEN
        PERFORM llmq.check_policy(policy, q);
    END IF;
    IF outbox IS NOT NULL THEN
        PERFORM llmq.check_outbox(outbox);
    END IF;
    PERFORM llmq.check_length('model', model, 255);
    PERFORM llmq.check_length('run_id', run_id, 255);
    PERFORM llmq.check_length('step', step, 255);
    IF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        PERFORM llmq.fail('PT400', 'priority must be from 0 to 9', format('It is %s.', priority),
            'Higher goes first; 0 is the default.');
    END IF;
    IF on_complete IS NOT NULL OR after IS NOT NULL THEN
        PERFORM llmq.fail('0A000', 'on_complete and after are not supported by this version of llmq', NULL,
            'Submit the next job when llmq.job_status shows this one as final.');
    END IF;

    job.scope := 'submit';
    job.idempotency_key := idempotency_key;
    job.job_id := llmq.job_id(job.tenant, job.scope, idempotency_key);
    job.queue := queue;
    job.priority := priority;
    job.prompt := prompt;
    job.system := system;
    job.messages := messages;
    job.model := model;
    job.params := params;
    job.metadata := metadata;
    job.outbox := outbox;
    job.run_at := run_at;
    job.expires_at := expires_at;
    job.run_id := run_id;
    job.step := step;
    job.policy := policy;
    job.submitted_by := caller;
    job.submitted_at := clock_timestamp();
    job.fingerprint := llmq.fingerprint(job);

    IF cardinality(llmq.insert_jobs(ARRAY[job])) = 0 THEN
        RETURN llmq.replay(job);
    END IF;
    PERFORM llmq.note_home();
    RETURN ROW(job.job_id, llmq.place_new(job), false)::llmq.submission;
END
$$;

-- Puts a new job where it first belongs, and says what state that is.
CREATE OR REPLACE FUNCTION llmq.place_new(job llmq.job) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF job.run_at > clock_timestamp() THEN
        INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
        VALUES (job.job_id, job.run_at, job.queue, job.tenant, job.priority);
        RETURN 'scheduled';
    END IF;
    INSERT INTO llmq.ready (job_id, queue, tenant, priority)
    VALUES (job.job_id, job.queue, job.tenant, job.priority);
    RETURN 'ready';
END
$$;

-- The answer to a key that exists: the same request is replayed, another refused.
CREATE OR REPLACE FUNCTION llmq.replay(asked llmq.job) RETURNS llmq.submission
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept bytea;
BEGIN
    SELECT fingerprint INTO kept FROM llmq.job WHERE job_id = asked.job_id;
    IF NOT FOUND THEN
        -- Pruned in between, or not visible to this transaction's snapshot.
        PERFORM llmq.fail('40001', 'the idempotency key was taken by a concurrent transaction', NULL,
            'Retry the transaction.');
    ELSIF kept <> asked.fingerprint THEN
        PERFORM llmq.fail('PT422',
            format('idempotency key "%s" was used with another request', asked.idempotency_key),
            format('Job %s was submitted under it.', asked.job_id),
            'Send the same request again to get its answer, or choose a new key for a new request.');
    END IF;
    RETURN ROW(asked.job_id, llmq.state(asked.job_id), true)::llmq.submission;
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
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_submit_1';
COMMENT ON FUNCTION llmq.submit IS
    'submits one request to a model in the caller''s transaction; the same key and request give the same job, PT422 for another request, PT409 while another transaction holds the key';
