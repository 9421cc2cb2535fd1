-- The public face of idempotency.sql and steps.sql.  Each of these is a C entry point
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
