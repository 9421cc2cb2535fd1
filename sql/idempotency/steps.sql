-- Steps of a longer run: checkpoints by the same rules as idempotency.sql.

CREATE OR REPLACE FUNCTION llmq_internal.step_begin_as(
    caller name, run_id text, step text, input jsonb, lock_ttl interval,
    OUT outcome text, OUT token uuid, OUT output jsonb)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('run_id', run_id, 255), llmq_internal.check_required('step', step, 255);
    entry := llmq_internal.key_row('step'::text, caller::text, run_id, step);
    entry.fingerprint := encode(sha256(convert_to(coalesce(input, 'null')::text, 'UTF8')), 'hex');
    entry := llmq_internal.begin_key(entry, lock_ttl);
    outcome := CASE WHEN entry.token IS NULL THEN 'replayed' ELSE 'started' END;
    token := entry.token;
    output := entry.response;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.step_finish_as(
    caller name, run_id text, step text, token uuid, output jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('run_id', run_id, 255), llmq_internal.check_required('step', step, 255),
        llmq_internal.check_token(token);
    entry := llmq_internal.key_row('step'::text, caller::text, run_id, step);
    entry.token := token;
    entry.response := output;
    SELECT clock_timestamp() + q.retention INTO entry.expires_at
    FROM llmq.queue_policy AS q WHERE q.name = 'default';
    RETURN llmq_internal.write_key(entry, 'finish');
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.step_release_as(caller name, run_id text, step text, token uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('run_id', run_id, 255), llmq_internal.check_required('step', step, 255),
        llmq_internal.check_token(token);
    entry := llmq_internal.key_row('step'::text, caller::text, run_id, step);
    entry.token := token;
    RETURN llmq_internal.write_key(entry, 'release');
END
$$;
