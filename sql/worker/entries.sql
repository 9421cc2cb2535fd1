-- What the entries of sql/worker/settle.sql hold: answers, attempts, and what they cost.

-- The answers among entries.  17: json is a keyword where an argument is named.
CREATE OR REPLACE FUNCTION llmq_internal.read_answers(entries jsonb)
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
CREATE OR REPLACE FUNCTION llmq_internal.read_attempts(entries jsonb)
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
            llmq_internal.cost(p, a.input_tokens, a.output_tokens, a.cached_tokens) END
    FROM jsonb_to_recordset(entries) AS e (job_id uuid, delivery int, attempts jsonb),
    jsonb_to_recordset(e.attempts) AS a (attempt int, endpoint text, started_at bigint,
        duration bigint, outcome text, http_status int, error_class text, error_message text,
        retry_after bigint, model text, finish_reason text, input_tokens bigint,
        output_tokens bigint, cached_tokens bigint, bytes_in bigint, billing text, request_id text,
        traceparent text)
    LEFT JOIN llmq.endpoint AS p ON p.name = a.endpoint
$$;

-- Writes the attempts of settled deliveries.
CREATE OR REPLACE FUNCTION llmq_internal.record_attempts(entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH added AS (
        INSERT INTO llmq.attempt (job_id, delivery, attempt, endpoint, started_at, duration, outcome,
            http_status, error_class, error_message, retry_after, model, finish_reason, input_tokens,
            output_tokens, cached_tokens, bytes_in, billing, request_id, traceparent, cost)
        SELECT a.* FROM llmq_internal.read_attempts(entries) AS a
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
CREATE OR REPLACE FUNCTION llmq_internal.cost(
    e llmq.endpoint, input_tokens bigint, output_tokens bigint, cached_tokens bigint)
RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pg_catalog.trim_scale(((input_tokens - least(coalesce(cached_tokens, 0), input_tokens)) * e.input_price +
        least(coalesce(cached_tokens, 0), input_tokens) * coalesce(e.cached_price, e.input_price) +
        coalesce(output_tokens * e.output_price, 0)) / 1000000)
$$;
