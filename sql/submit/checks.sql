-- What llmq.submit refuses, with the SQLSTATE that says so and a hint that helps.
--
-- None of these sets a search_path: it is pinned by the functions whose names end in
-- _as, their only way in, and pinning it in each would double the time of a submit.

-- Raises an error that PostgREST turns into an HTTP status, and people can mend.
CREATE OR REPLACE FUNCTION llmq_internal.fail(code text, message text, detail text, hint text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    IF detail IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.check_length(name text, value text, maximum int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF length(value) NOT BETWEEN 1 AND maximum THEN
        PERFORM llmq_internal.fail('PT400', format('%s must have 1 to %s characters', name, maximum),
            format('It has %s.', length(value)), 'Give a shorter value, or none.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.check_key(idempotency_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF idempotency_key IS NULL THEN
        PERFORM llmq_internal.fail('PT400', 'idempotency_key is required', NULL,
            'Derive it from what makes the request one: llmq.derive_key, or the id of your own row.');
    ELSIF length(idempotency_key) NOT BETWEEN 1 AND 255 OR idempotency_key ~ '[[:cntrl:]]' THEN
        PERFORM llmq_internal.fail('PT400', 'idempotency_key must have 1 to 255 printable characters',
            format('It has %s characters.', length(idempotency_key)),
            'Hash longer keys: encode(sha256(convert_to(key, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

-- What is to be sent must be there, once, and in a shape that a provider could take.
CREATE OR REPLACE FUNCTION llmq_internal.check_prompt(prompt text, messages jsonb, params jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF params IS NOT NULL AND jsonb_typeof(params) <> 'object' THEN
        PERFORM llmq_internal.fail('PT400', 'params must be a JSON object',
            format('It is of type %s.', jsonb_typeof(params)),
            'For example: {"temperature": 0.2, "max_tokens": 300}.');
    END IF;
    IF prompt IS NOT NULL AND messages IS NOT NULL THEN
        PERFORM llmq_internal.fail('PT400', 'prompt and messages cannot both be given', NULL,
            'Put the prompt into messages as the last one, with role "user".');
    ELSIF prompt IS NULL AND messages IS NULL AND NOT coalesce(params ? 'input', false) THEN
        PERFORM llmq_internal.fail('PT400', 'a prompt is required', NULL,
            'Give prompt or messages (for embeddings: prompt or params.input).');
    ELSIF prompt = '' THEN
        PERFORM llmq_internal.fail('PT400', 'prompt must not be empty', NULL, 'Give the text for the model.');
    END IF;
    IF messages IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(messages) <> 'array' OR messages = '[]' THEN
        PERFORM llmq_internal.fail('PT400', 'messages must be a JSON array with at least one message', NULL,
            'For example: [{"role": "user", "content": "Hello"}].');
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements(messages) AS m
        WHERE jsonb_typeof(m) <> 'object' OR jsonb_typeof(m -> 'role') IS DISTINCT FROM 'string')
    THEN
        PERFORM llmq_internal.fail('PT400', 'each message must be an object with a role', NULL,
            'For example: [{"role": "user", "content": "Hello"}].');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.check_params(params jsonb) RETURNS void
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
            PERFORM llmq_internal.fail('PT400', format('params must not hold "%s"', entry.key), NULL,
                'stream is the endpoint''s; model and messages are arguments of their own.');
        ELSIF entry.key IN ('temperature', 'top_p') AND (entry.type <> 'number'
            OR entry.value::numeric < 0) THEN
            PERFORM llmq_internal.fail('PT400', format('params.%s must be a number of at least 0', entry.key),
                format('It is %s.', entry.value), 'Leave it out for the provider''s default.');
        ELSIF entry.key IN ('max_tokens', 'max_completion_tokens', 'n') AND (entry.type <> 'number'
            OR entry.value::numeric < 1 OR entry.value::numeric % 1 <> 0) THEN
            PERFORM llmq_internal.fail('PT400', format('params.%s must be a positive whole number', entry.key),
                format('It is %s.', entry.value), 'Leave it out for the provider''s default.');
        ELSIF entry.key = 'tools' AND entry.type <> 'array' THEN
            PERFORM llmq_internal.fail('PT400', 'params.tools must be an array',
                format('It is of type %s.', entry.type), 'Give the tools in OpenAI form.');
        ELSIF entry.key = 'response_format' AND entry.type <> 'object' THEN
            PERFORM llmq_internal.fail('PT400', 'params.response_format must be an object',
                format('It is of type %s.', entry.type), 'For example: {"type": "json_object"}.');
        END IF;
    END LOOP;
END
$$;

-- policy may tighten or widen what the queue says, within these names and ranges.
CREATE OR REPLACE FUNCTION llmq_internal.check_policy(policy jsonb, q llmq.queue) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    entry record;
    span interval;
BEGIN
    IF jsonb_typeof(policy) <> 'object' THEN
        PERFORM llmq_internal.fail('PT400', 'policy must be a JSON object', NULL, 'For example: {"deadline": "30 s"}.');
    END IF;
    FOR entry IN SELECT key, value, jsonb_typeof(value) AS type FROM jsonb_each(policy) LOOP
        IF entry.key IN ('call_timeout', 'deadline', 'min_attempt', 'backoff_base', 'backoff_cap',
            'redelivery_base', 'redelivery_cap') THEN
            span := CASE WHEN entry.type = 'string' THEN llmq_internal.try_interval(entry.value #>> '{}') END;
            IF span IS NULL OR span < '0' OR span > '1 day'
                OR (span = '0' AND entry.key IN ('call_timeout', 'deadline')) THEN
                PERFORM llmq_internal.fail('PT400', format('policy.%s must be an interval up to a day', entry.key),
                    format('It is %s.', entry.value), 'Write it as text: "20 s", "500 ms", "2 min".');
            END IF;
        ELSIF entry.key IN ('max_attempts', 'max_deliveries') THEN
            IF entry.type <> 'number' OR entry.value::numeric % 1 <> 0
                OR entry.value::numeric NOT BETWEEN 1 AND 1000 THEN
                PERFORM llmq_internal.fail('PT400', format('policy.%s must be a whole number from 1 to 1000', entry.key),
                    format('It is %s.', entry.value), 'Leave it out for the queue''s own.');
            ELSIF entry.key = 'max_deliveries' AND entry.value::numeric > q.max_deliveries THEN
                PERFORM llmq_internal.fail('PT400', 'policy.max_deliveries must not be above the queue''s',
                    format('The queue "%s" allows %s.', q.name, q.max_deliveries),
                    'Ask for fewer, or have the queue changed.');
            END IF;
        ELSIF entry.key IN ('accept_truncated', 'require_json') THEN
            IF entry.type <> 'boolean' THEN
                PERFORM llmq_internal.fail('PT400', format('policy.%s must be true or false', entry.key),
                    format('It is %s.', entry.value), 'Leave it out for the queue''s own.');
            END IF;
        ELSE
            PERFORM llmq_internal.fail('PT400', format('policy cannot set "%s"', entry.key), NULL,
                'It may set call_timeout, deadline, max_attempts, min_attempt, backoff_base, backoff_cap, max_deliveries, redelivery_base, redelivery_cap, accept_truncated and require_json.');
        END IF;
    END LOOP;
END
$$;

-- An interval, or NULL where the text is none.
CREATE OR REPLACE FUNCTION llmq_internal.try_interval(span text) RETURNS interval
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN span ~* '^ *[0-9]{1,9}([.][0-9]{1,6})? *(us|microseconds?|ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?) *$'
        OR span ~ '^ *[0-9]{1,2}:[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})? *$'
        THEN span::interval END
$$;

-- The tenant that the caller acts for: its own (NULL), or one it may name.
CREATE OR REPLACE FUNCTION llmq_internal.check_tenant(caller name, tenant text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    PERFORM llmq_internal.check_length('tenant', tenant, 255);
    IF tenant IS NULL OR tenant = caller OR coalesce(tenant = ANY (llmq_internal.tenants_of(caller)), true) THEN
        RETURN;
    END IF;
    PERFORM llmq_internal.fail('PT403', format('role "%s" may not submit for tenant "%s"', caller, tenant),
        'A role may name itself and the tenants that llmq.role_tenant gives it.',
        format('An admin can INSERT INTO llmq.role_tenant VALUES (%L, %L).', caller, tenant));
END
$$;


-- When a job may run: times that can be counted with, and a rank.
CREATE OR REPLACE FUNCTION llmq_internal.check_schedule(
    run_at timestamptz, expires_at timestamptz, priority int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF NOT isfinite(run_at) OR NOT isfinite(expires_at) THEN
        PERFORM llmq_internal.fail('PT400', 'run_at and expires_at must be finite', NULL,
            'Leave them out for at once and for no end but the queue''s max_age.');
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        PERFORM llmq_internal.fail('PT400', 'priority must be from 0 to 9', NULL,
            'Higher goes first; 0 is the default.');
    END IF;
END
$$;
