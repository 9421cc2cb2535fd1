-- Where messages stand, and how they come back to where they can be sent or pulled.

-- A random wait: full jitter up to base, doubled with each attempt, and to cap at most.
CREATE OR REPLACE FUNCTION llmq_internal.full_jitter(base interval, cap interval, attempts int) RETURNS interval
LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT random() * least(llmq_internal.microseconds(cap), llmq_internal.microseconds(base) * 2.0 ^ least(attempts, 30))
        * interval '1 microsecond'
$$;

-- An attempt at a message failed; its lease is deleted.  It is dead when its attempts are
-- used up, else pending again (true) or, with a delay, deferred.
CREATE OR REPLACE FUNCTION llmq_internal.fail_message(
    l llmq.message_lease, max_attempts int, delay interval, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF l.attempts + 1 >= max_attempts THEN
        INSERT INTO llmq.message_done (id, attempts, dead_at, last_error, remaining)
        VALUES (l.id, l.attempts + 1, clock_timestamp(), error, l.remaining);
        RETURN false;
    ELSIF delay > '0' THEN
        INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at, last_error, remaining)
        VALUES (l.id, l.topic, l.attempts + 1, clock_timestamp() + delay, error, l.remaining);
        RETURN false;
    END IF;
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    VALUES (l.id, l.topic, l.attempts + 1, error, l.remaining);
    RETURN true;
END
$$;

-- Two objects of topics and their lowest ids become one; NULL is none.
CREATE OR REPLACE FUNCTION llmq_internal.merge_topics(topics jsonb, others jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF topics IS NULL OR others IS NULL THEN
        RETURN coalesce(topics, others);
    END IF;
    RETURN (
        SELECT jsonb_object_agg(t.topic, t.lowest)
        FROM (
            SELECT e.key AS topic, min(e.value::bigint) AS lowest
            FROM (SELECT * FROM jsonb_each(topics) UNION ALL SELECT * FROM jsonb_each(others)) AS e
            GROUP BY e.key) AS t);
END
$$;

-- Makes pending what is due: of one topic or of all, at most max_rows.  Returns an object
-- of the topics and the lowest ids among those; NULL if there are none.
CREATE OR REPLACE FUNCTION llmq_internal.promote_messages(max_rows int, of_topic text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    topics jsonb;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.id FROM llmq.message_deferred AS d
        WHERE d.next_attempt_at <= now AND (of_topic IS NULL OR d.topic = of_topic)
            AND llmq_internal.has_message(d.id)
        ORDER BY d.next_attempt_at LIMIT max_rows
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.message_deferred AS d WHERE d.id = ANY (ARRAY(SELECT due.id FROM due)) RETURNING d.*
    ), placed AS (
        INSERT INTO llmq.message_pending AS p (id, topic, attempts, last_error, remaining)
        SELECT g.id, g.topic, g.attempts, g.last_error, g.remaining FROM gone AS g
        RETURNING p.id, p.topic
    )
    SELECT jsonb_object_agg(t.topic, t.lowest) INTO topics
    FROM (SELECT p.topic, min(p.id) AS lowest FROM placed AS p GROUP BY p.topic) AS t;
    IF EXISTS (SELECT FROM llmq.message_lease AS l WHERE l.expires_at <= now) THEN
        topics := llmq_internal.merge_topics(topics, llmq_internal.take_expired(max_rows, of_topic));
    END IF;
    RETURN topics;
END
$$;

-- Takes messages from consumers whose leases have expired, each an attempt that failed.
CREATE OR REPLACE FUNCTION llmq_internal.take_expired(max_rows int, of_topic text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.destination := llmq_internal.default_destination();
    now constant timestamptz := clock_timestamp();
    l llmq.message_lease;
    topics jsonb;
BEGIN
    FOR l IN
        WITH expired AS MATERIALIZED (
            SELECT k.id FROM llmq.message_lease AS k
            WHERE k.expires_at <= now AND (of_topic IS NULL OR k.topic = of_topic)
                AND llmq_internal.has_message(k.id)
            ORDER BY k.expires_at LIMIT max_rows
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM llmq.message_lease AS k WHERE k.id = ANY (ARRAY(SELECT e.id FROM expired AS e)) RETURNING k.*
    LOOP
        IF llmq_internal.fail_message(l, standard.max_attempts, interval '0', 'its consumer let the lease expire'::text) THEN
            topics := llmq_internal.merge_topics(topics, jsonb_build_object(l.topic, l.id));
        END IF;
    END LOOP;
    RETURN topics;
END
$$;

-- Takes the messages that workers were sending, uncounted: those of these workers and, if
-- asked for, those of no session (see takeover for `restored`), but not these.  Returns how many.
CREATE OR REPLACE FUNCTION llmq_internal.return_messages(
    of_workers bigint[], orphans boolean, restored boolean, but bigint[] DEFAULT '{}')
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    count bigint;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT l.id FROM llmq.message_lease AS l
        WHERE l.id <> ALL (but) AND llmq_internal.has_message(l.id)
            AND (l.worker_id = ANY (of_workers)
            OR (orphans AND l.worker_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM llmq.worker_session AS w
                WHERE w.id = l.worker_id AND (w.backend_start <= l.claimed_at OR NOT restored))))
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.message_lease AS l WHERE l.id = ANY (ARRAY(SELECT h.id FROM held AS h)) RETURNING l.*
    )
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    SELECT g.id, g.topic, g.attempts, g.last_error, g.remaining FROM gone AS g;
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END
$$;

-- Deletes messages that were sent, or have been dead, since before cutoff; at most max_rows
-- of each kind.  Their keys are free then.
CREATE OR REPLACE FUNCTION llmq_internal.prune_messages(cutoff timestamptz, max_rows int) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    old bigint[] := ARRAY(
        SELECT d.id FROM llmq.message_done AS d
        WHERE d.sent_at < cutoff AND llmq_internal.has_message(d.id) ORDER BY d.sent_at LIMIT max_rows FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT d.id FROM llmq.message_done AS d
        WHERE d.dead_at < cutoff AND llmq_internal.has_message(d.id) ORDER BY d.dead_at LIMIT max_rows FOR UPDATE SKIP LOCKED);
BEGIN
    RETURN llmq_internal.delete_done(old);
END
$$;

-- Deletes those of these messages that are sent or dead; returns how many.
CREATE OR REPLACE FUNCTION llmq_internal.delete_done(messages bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    count bigint;
BEGIN
    IF messages = '{}' THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM llmq.message_done AS d WHERE d.id = ANY (messages) RETURNING d.id
    )
    DELETE FROM llmq.message AS m WHERE m.id = ANY (ARRAY(SELECT g.id FROM gone AS g));
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END
$$;
