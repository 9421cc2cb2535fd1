-- Idempotency for the caller's own work: begin, then finish or release.
--
-- Only the functions that end in _as pin the search_path: they are the only way to
-- the others.

CREATE OR REPLACE FUNCTION llmq_internal.check_required(name text, value text, maximum int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF value IS NULL THEN
        PERFORM llmq_internal.fail('PT400', format('%s is required', name), NULL,
            format('Give a text of 1 to %s characters.', maximum));
    ELSIF length(value) NOT BETWEEN 1 AND maximum THEN
        PERFORM llmq_internal.fail('PT400', format('%s must have 1 to %s characters', name, maximum),
            format('It has %s.', length(value)),
            'Hash what is longer: encode(sha256(convert_to(value, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.check_ttl(name text, ttl interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF ttl IS NULL OR ttl <= interval '0' OR ttl > interval '365 days' THEN
        PERFORM llmq_internal.fail('PT400', format('%s must be more than 0 and up to 365 days', name),
            format('It is %s.', coalesce(ttl::text, 'NULL')), 'Leave it out for the default.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.check_token(token uuid) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF token IS NULL THEN
        PERFORM llmq_internal.fail('PT400', 'token is required', NULL, 'Give the token that the begin returned.');
    END IF;
END
$$;

-- The row of a key, empty of what happens to it.
CREATE OR REPLACE FUNCTION llmq_internal.key_row(kind text, tenant text, scope text, idempotency_key text)
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
CREATE OR REPLACE FUNCTION llmq_internal.key_label(entry llmq.idempotency) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE entry.kind
        WHEN 'step' THEN format('step "%s" of run "%s"', entry.idempotency_key, entry.scope)
        ELSE format('idempotency key "%s"', entry.idempotency_key) END
$$;

-- Writes one key, and says whether it could.  In C for its key wait: another open
-- transaction that holds the key is waited for, at most max(llmq.key_wait, 50 ms),
-- and then reported as PT409.
CREATE OR REPLACE FUNCTION llmq_internal.write_key(entry llmq.idempotency, change text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq_internal.write_key_now(entry llmq.idempotency, change text) RETURNS boolean
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
CREATE OR REPLACE FUNCTION llmq_internal.begin_key(entry llmq.idempotency, lock_ttl interval)
RETURNS llmq.idempotency
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    kept llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_ttl('lock_ttl', lock_ttl);
    entry.token := gen_random_uuid();
    FOR look IN 1..3 LOOP
        SELECT * INTO kept FROM llmq.idempotency AS k WHERE k.key_id = entry.key_id;
        IF kept.expires_at > clock_timestamp() THEN
            PERFORM llmq_internal.check_kept(kept, entry.fingerprint);
            RETURN kept;
        END IF;
        entry.begun_at := clock_timestamp();
        entry.expires_at := entry.begun_at + lock_ttl;
        IF llmq_internal.write_key(entry, CASE WHEN kept.key_id IS NULL THEN 'insert' ELSE 'take over' END) THEN
            RETURN entry;
        END IF;
    END LOOP;
    PERFORM llmq_internal.fail('PT409', llmq_internal.key_label(entry) || ' is changing hands',
        'Other transactions took it and let it go.', 'Retry after a second.');
END
$$;

-- Refuses a key that is in use, or was used for something else.
CREATE OR REPLACE FUNCTION llmq_internal.check_kept(kept llmq.idempotency, fingerprint text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    IF kept.fingerprint <> check_kept.fingerprint THEN
        PERFORM llmq_internal.fail('PT422',
            llmq_internal.key_label(kept) || ' was used with another ' || CASE kept.kind WHEN 'step' THEN 'input' ELSE 'request' END,
            format('It was begun at %s.', kept.begun_at),
            'Send the same again to get its answer, or choose a new key for a new one.');
    ELSIF kept.token IS NOT NULL THEN
        PERFORM llmq_internal.fail('PT409', llmq_internal.key_label(kept) || ' is in progress',
            format('Its lock ends at %s unless its holder is done before.', kept.expires_at),
            'Retry after a second; over HTTP, answer 409 with Retry-After: 1.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.idempotency_begin_as(
    caller name, scope text, idempotency_key text, fingerprint text, lock_ttl interval,
    OUT outcome text, OUT token uuid, OUT status int, OUT response jsonb)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('scope', scope, 255), llmq_internal.check_key(idempotency_key),
        llmq_internal.check_required('fingerprint', fingerprint, 255);
    entry := llmq_internal.key_row('request'::text, caller::text, scope, idempotency_key);
    entry.fingerprint := fingerprint;
    entry := llmq_internal.begin_key(entry, lock_ttl);
    outcome := CASE WHEN entry.token IS NULL THEN 'replayed' ELSE 'started' END;
    token := entry.token;
    status := entry.status;
    response := entry.response;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.idempotency_finish_as(
    caller name, scope text, idempotency_key text, token uuid, status int, response jsonb,
    result_ttl interval)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('scope', scope, 255), llmq_internal.check_key(idempotency_key),
        llmq_internal.check_token(token), llmq_internal.check_ttl('result_ttl', result_ttl);
    IF status IS NULL OR status NOT BETWEEN 100 AND 599 THEN
        PERFORM llmq_internal.fail('PT400', 'status must be from 100 to 599',
            'It is ' || coalesce(status::text, 'NULL') || '.', 'Give the HTTP status of the response.');
    END IF;
    entry := llmq_internal.key_row('request'::text, caller::text, scope, idempotency_key);
    entry.token := token;
    entry.status := status;
    entry.response := response;
    entry.expires_at := clock_timestamp() + result_ttl;
    -- A failure that is the server's would stay one for a day: let the client retry.
    RETURN llmq_internal.write_key(entry, CASE WHEN status >= 500 THEN 'release' ELSE 'finish' END);
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.idempotency_release_as(
    caller name, scope text, idempotency_key text, token uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry llmq.idempotency;
BEGIN
    PERFORM llmq_internal.check_required('scope', scope, 255), llmq_internal.check_key(idempotency_key),
        llmq_internal.check_token(token);
    entry := llmq_internal.key_row('request'::text, caller::text, scope, idempotency_key);
    entry.token := token;
    RETURN llmq_internal.write_key(entry, 'release');
END
$$;
