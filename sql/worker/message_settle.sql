-- A worker settles messages: what its sending them came to.
--
-- entries is an array of objects:
--   id
--   claimed_at  as the claim had it; without one any lease of this worker is meant
--   outcome     sent, dead
--               retry    the attempt failed; another one after delay
--               return   no attempt was made, or none that counts
--   delay       retry and return: microseconds; without one it is pending at once
--   error       for llmq.outbox.last_error
--   remaining   e-mail: array of the recipients that have not got it; without one as before
--   disable     true: the receiver wants no more, its destination is switched off
--
-- One row comes back for each: settled, late (the lease is not this worker's any more;
-- nothing was changed) or busy (somebody has locked it, or the worker is away from home; to be tried again).
CREATE OR REPLACE FUNCTION llmq.worker_settle_messages(own bigint, entries jsonb)
RETURNS TABLE (id bigint, verdict text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    owned llmq.message_lease[];
    settled bigint[];
BEGIN
    IF NOT llmq_internal.is_home() THEN
        RETURN QUERY SELECT e.id, 'busy' FROM jsonb_to_recordset(entries) AS e (id bigint);
        RETURN;
    END IF;
    WITH held AS MATERIALIZED (
        SELECT h.id
        FROM jsonb_to_recordset(entries) AS e (id bigint, claimed_at bigint) CROSS JOIN LATERAL (
            SELECT l.id FROM llmq.message_lease AS l
            WHERE l.id = e.id AND l.worker_id = own
                AND coalesce(e.claimed_at = llmq_internal.epoch_microseconds(l.claimed_at), true)
            FOR UPDATE SKIP LOCKED) AS h
    ), gone AS (
        DELETE FROM llmq.message_lease AS l WHERE l.id = ANY (ARRAY(SELECT h.id FROM held AS h)) RETURNING l.*
    )
    SELECT array_agg(ROW(g.id, g.topic, g.worker_id, g.token, g.attempts, g.last_error, g.remaining,
        g.claimed_at, g.expires_at)::llmq.message_lease), coalesce(array_agg(g.id), '{}')
    INTO owned, settled FROM gone AS g;

    PERFORM llmq_internal.place_settled(owned, entries);
    IF jsonb_path_exists(entries, '$[*] ? (@.disable == true)') THEN
        PERFORM llmq_internal.disable_destinations(ARRAY(
            SELECT l.topic FROM unnest(owned) AS l, jsonb_array_elements(entries) AS e
            WHERE (e.value ->> 'id')::bigint = l.id AND e.value -> 'disable' = 'true'));
    END IF;
    RETURN QUERY SELECT s, 'settled' FROM unnest(settled) AS s;
    RETURN QUERY
        SELECT o.id, CASE WHEN EXISTS (
            SELECT FROM llmq.message_lease AS l
            WHERE l.id = o.id AND l.worker_id = own
                AND coalesce(o.claimed_at = llmq_internal.epoch_microseconds(l.claimed_at), true))
            THEN 'busy' ELSE 'late' END
        FROM jsonb_to_recordset(entries) AS o (id bigint, claimed_at bigint) WHERE o.id <> ALL (settled);
END
$$;
COMMENT ON FUNCTION llmq.worker_settle_messages IS
    'settles outbox messages that a worker has sent or could not send; the protocol stands in sql/worker/message_settle.sql';

-- Puts messages whose leases the caller has deleted where they belong now.
CREATE OR REPLACE FUNCTION llmq_internal.place_settled(owned llmq.message_lease[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_hashjoin = on
AS $$
BEGIN
    WITH entry AS MATERIALIZED (
        SELECT l.id, l.topic, e.outcome, coalesce(e.delay, 0) * interval '1 microsecond' AS delay,
            l.attempts + (e.outcome <> 'return')::int AS attempts,
            CASE WHEN e.outcome = 'sent' THEN e.error ELSE coalesce(e.error, l.last_error) END AS last_error,
            coalesce(e.remaining, l.remaining) AS remaining
        FROM jsonb_to_recordset(entries)
            AS e (id bigint, claimed_at bigint, outcome text, delay bigint, error text, remaining jsonb)
        JOIN unnest(owned) AS l ON l.id = e.id
        WHERE coalesce(e.claimed_at = llmq_internal.epoch_microseconds(l.claimed_at), true)
    ), done AS (
        INSERT INTO llmq.message_done (id, attempts, sent_at, dead_at, last_error, remaining)
        SELECT e.id, e.attempts, CASE WHEN e.outcome = 'sent' THEN clock_timestamp() END,
            CASE WHEN e.outcome = 'dead' THEN clock_timestamp() END, e.last_error,
            CASE WHEN e.outcome = 'dead' THEN e.remaining END
        FROM entry AS e WHERE e.outcome IN ('sent', 'dead')
    ), later AS (
        INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at, last_error, remaining)
        SELECT e.id, e.topic, e.attempts, clock_timestamp() + e.delay, e.last_error, e.remaining
        FROM entry AS e WHERE e.outcome NOT IN ('sent', 'dead') AND e.delay > '0'
    )
    INSERT INTO llmq.message_pending (id, topic, attempts, last_error, remaining)
    SELECT e.id, e.topic, e.attempts, e.last_error, e.remaining
    FROM entry AS e WHERE e.outcome NOT IN ('sent', 'dead') AND e.delay <= '0';
END
$$;

-- Switches off where messages of these topics go, and says so.  A destination that somebody
-- has locked is left: its receiver will say it again.
CREATE OR REPLACE FUNCTION llmq_internal.disable_destinations(topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone text;
BEGIN
    FOR gone IN
        SELECT d.topic FROM llmq.destination AS d
        WHERE d.enabled AND d.topic IN (SELECT (llmq_internal.destination_of(t)).topic FROM unnest(topics) AS t)
        ORDER BY d.topic FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE llmq.destination AS d SET enabled = false WHERE d.topic = gone;
        RAISE LOG USING
            MESSAGE = format('llmq: destination "%s" was switched off', gone),
            DETAIL = 'Its receiver answered 410 Gone: it wants no more messages.',
            HINT = format('UPDATE llmq.destination SET enabled = true WHERE topic = %L switches it on again.', gone);
    END LOOP;
END
$$;
