-- The outbox for its users: adding messages, pulling them, redriving dead ones.  Of the
-- functions that end in _as the C entry point is the only caller; it notes the calling role.
--
-- Where plans are pinned a scan that has no alternative counts as infinitely dear, and would be
-- compiled each time: jit is off there, as it is in workers.

-- -- adding ---------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION llmq.enqueue_outbox(topic text, payload jsonb, dedupe_key text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.enqueue_outbox IS
    'adds a message to the outbox in the caller''s transaction, and returns its id; the same key, topic and payload give the same message, PT422 for another one, PT409 while another transaction holds the key';

CREATE OR REPLACE FUNCTION llmq_internal.enqueue_outbox_as(caller name, topic text, payload jsonb, dedupe_key text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    entry llmq.message;
    kept llmq.message;
BEGIN
    PERFORM llmq_internal.check_required('topic', topic, 128), llmq_internal.check_required('dedupe_key', dedupe_key, 512),
        llmq_internal.check_dedupe_key(dedupe_key), llmq_internal.check_mail(topic, payload, false),
        llmq_internal.check_payload(topic, payload);
    entry.tenant := caller;
    entry.topic := topic;
    entry.dedupe_key := dedupe_key;
    entry.payload := payload;
    PERFORM llmq_internal.note_home();
    FOR look IN 1..2 LOOP
        entry.id := llmq_internal.insert_message(entry);
        IF entry.id IS NOT NULL THEN
            INSERT INTO llmq.message_pending (id, topic) VALUES (entry.id, topic);
            PERFORM llmq_internal.wake_for(ARRAY[topic]);
            RETURN entry.id;
        END IF;
        SELECT * INTO kept FROM llmq.message AS m
        WHERE m.tenant = entry.tenant AND m.dedupe_key = entry.dedupe_key;
        IF (kept.topic, kept.payload) IS NOT DISTINCT FROM (entry.topic, entry.payload) THEN
            RETURN kept.id;
        ELSIF FOUND THEN
            PERFORM llmq_internal.fail('PT422', format('dedupe_key "%s" was used for another message', dedupe_key),
                format('It is that of message %s, topic "%s".', kept.id, kept.topic),
                'Send the same message again to get its id, or choose a new key for a new one.');
        END IF;
    END LOOP;
    PERFORM llmq_internal.fail('PT409', format('dedupe_key "%s" is changing hands', dedupe_key),
        'Its message was just deleted.', 'Retry after a second.');
END
$$;

-- Inserts a message whose key is free, and returns its id, else NULL.  In C for its key wait.
CREATE OR REPLACE FUNCTION llmq_internal.insert_message(entry llmq.message) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq_internal.insert_message_now(entry llmq.message) RETURNS bigint
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

CREATE OR REPLACE FUNCTION llmq_internal.outbox_claim_as(caller name, of_topic text, max_messages int, lease interval)
RETURNS TABLE (id bigint, tenant text, topic text, dedupe_key text, payload jsonb, job_id uuid,
    created_at timestamptz, attempts int, token uuid)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    tenants constant text[] := llmq_internal.visible_tenants_as(caller);
    now constant timestamptz := clock_timestamp();
    picked bigint[];
BEGIN
    PERFORM llmq_internal.check_required('topic', of_topic, 128), llmq_internal.check_pull(max_messages, lease);
    PERFORM llmq_internal.promote_messages(1000, of_topic);
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

CREATE OR REPLACE FUNCTION llmq_internal.check_pull(max_messages int, lease interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF max_messages IS NULL OR max_messages NOT BETWEEN 1 AND 1000 THEN
        PERFORM llmq_internal.fail('PT400', 'max_messages must be from 1 to 1000',
            format('It is %s.', coalesce(max_messages::text, 'NULL')), 'Claim again for more.');
    ELSIF lease IS NULL OR lease <= '0' OR lease > '1 day' THEN
        PERFORM llmq_internal.fail('PT400', 'lease must be more than 0 and up to a day',
            format('It is %s.', coalesce(lease::text, 'NULL')),
            'Make it a few times as long as handling the messages takes.');
    END IF;
END
$$;

-- Deletes the lease that a consumer holds under a token.
CREATE OR REPLACE FUNCTION llmq_internal.end_pull(caller name, message_id bigint, of_token uuid)
RETURNS llmq.message_lease
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    tenants constant text[] := llmq_internal.visible_tenants_as(caller);
    l llmq.message_lease;
BEGIN
    IF message_id IS NULL OR of_token IS NULL THEN
        PERFORM llmq_internal.fail('PT400', 'id and token are required', NULL,
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

CREATE OR REPLACE FUNCTION llmq_internal.outbox_ack_as(caller name, message_id bigint, of_token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l constant llmq.message_lease := llmq_internal.end_pull(caller, message_id, of_token);
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

CREATE OR REPLACE FUNCTION llmq_internal.outbox_nack_as(caller name, message_id bigint, of_token uuid, error text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept constant int := 1000; -- characters of an error
    standard constant llmq.destination := llmq_internal.default_destination();
    l constant llmq.message_lease := llmq_internal.end_pull(caller, message_id, of_token);
BEGIN
    IF l.id IS NULL THEN
        RETURN false;
    END IF;
    PERFORM llmq_internal.fail_message(l, standard.max_attempts,
        llmq_internal.full_jitter(standard.backoff_base, standard.backoff_cap, l.attempts), left(error, kept));
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
    PERFORM llmq_internal.wake_worker();
    RETURN count;
END
$$;
COMMENT ON FUNCTION llmq.redrive_outbox IS
    'makes the dead messages of a topic, or of all, pending again with all their attempts before them; returns how many';
