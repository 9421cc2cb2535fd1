-- The Idempotency-Key protocol for a web framework, in one call.
--
-- draft-ietf-httpapi-idempotency-key-header for the key, RFC 9457 for what is wrong.

-- The key from the header's value: a structured field's string (RFC 9651), or bare.
CREATE OR REPLACE FUNCTION llmq_internal.http_key(header text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    key text := btrim(header, E' \t');
BEGIN
    IF coalesce(key, '') = '' THEN
        PERFORM llmq_internal.fail('PT400', 'the header Idempotency-Key is required', NULL,
            'Send a key of 16 to 128 characters, a new one for each new request.');
    ELSIF starts_with(key, '"') THEN
        IF key !~ E'^"([ !#-\\[\\]-~]|\\\\["\\\\])*"$' THEN
            PERFORM llmq_internal.fail('PT400', 'the header Idempotency-Key is not a well-formed string', NULL,
                E'Between the quotation marks there may be printable ASCII, with \\ before \\ and ".');
        END IF;
        key := regexp_replace(substr(key, 2, length(key) - 2), E'\\\\(["\\\\])', E'\\1', 'g');
    END IF;
    IF length(key) NOT BETWEEN 16 AND 128 OR key ~ '[[:cntrl:]]' THEN
        PERFORM llmq_internal.fail('PT400', 'an Idempotency-Key must have 16 to 128 printable characters',
            format('It has %s.', length(key)), 'A UUID has 36.');
    END IF;
    RETURN key;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.http_scope(method text, path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF coalesce(method, '') !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,32}$' THEN
        PERFORM llmq_internal.fail('PT400', 'method must be the method of an HTTP request', NULL, 'For example: POST.');
    ELSIF path IS NULL OR length(path) NOT BETWEEN 1 AND 1024 OR path ~ '[[:cntrl:]]' THEN
        PERFORM llmq_internal.fail('PT400', 'path must have 1 to 1024 printable characters', NULL,
            'For example: /v1/summaries.');
    END IF;
    RETURN method || ' ' || path;
END
$$;

-- A problem document (RFC 9457).  Hints speak to whoever runs llmq, so only those
-- about the request itself go out to strangers.
CREATE OR REPLACE FUNCTION llmq_internal.http_problem(code text, message text, detail text, hint text)
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

CREATE OR REPLACE FUNCTION llmq_internal.http_submit_as(
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
    job := llmq_internal.job_of_json(body, '{prompt, system, messages, model, params, metadata}'::text[]);
    job.idempotency_key := llmq_internal.http_key(key);
    job.tenant := tenant;
    job.queue := queue;
    job.outbox := outbox;
    IF on_complete IS NOT NULL THEN
        job.on_complete := llmq_internal.callback_name(on_complete, caller);
    END IF;
    job.policy := policy;
    submitted := llmq_internal.enqueue(llmq_internal.prepare_job(job, caller, llmq_internal.http_scope(method, path)));
    IF submitted.replayed THEN
        headers := headers || '{"Idempotent-Replayed": "true"}';
    END IF;
    RETURN ROW(202, headers, jsonb_build_object('job_id', submitted.job_id, 'status', 'queued'))::llmq.http_response;
EXCEPTION WHEN SQLSTATE 'PT400' OR SQLSTATE 'PT402' OR SQLSTATE 'PT403' OR SQLSTATE 'PT404'
    OR SQLSTATE 'PT409' OR SQLSTATE 'PT422' OR SQLSTATE 'PT429' THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN llmq_internal.http_problem(SQLSTATE, SQLERRM, detail, hint);
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
