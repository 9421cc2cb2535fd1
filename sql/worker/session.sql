-- A worker's session: hello, heartbeat, goodbye, and who is lost.

-- A worker whose heartbeat is older is taken for stuck.
CREATE OR REPLACE FUNCTION llmq.lease_ttl() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '15 s' $$;
COMMENT ON FUNCTION llmq.lease_ttl() IS
    'how old the heartbeat of a worker with leases may be before its jobs are given to others';

-- Sessions that are gone, or stuck with leases in hand.  A program may lose its connection
-- and make another: it has the ttl to come back, as long as its last heartbeat is fresh.
CREATE OR REPLACE FUNCTION llmq_internal.lost_sessions(own bigint) RETURNS SETOF llmq.worker_session
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        SELECT w.*
        FROM llmq.worker_session AS w
        WHERE w.id IS DISTINCT FROM own
            AND ((w.in_flight > 0 AND w.heartbeat NOT BETWEEN
                    clock_timestamp() - llmq.lease_ttl() AND clock_timestamp() + llmq.lease_ttl())
                OR ((w.kind = 'server' OR w.heartbeat < clock_timestamp() - llmq.lease_ttl())
                    AND llmq_internal.backend_start(w.pid) IS DISTINCT FROM w.backend_start));
END
$$;
COMMENT ON FUNCTION llmq_internal.lost_sessions(bigint) IS
    'workers other than this one that are gone, or stuck with jobs in hand; llmq.worker leaves them out';

-- Sessions that work: not lost, and with leave to call.  Those that drain still have calls.
CREATE OR REPLACE FUNCTION llmq_internal.working_sessions() RETURNS SETOF llmq.worker_session
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.* FROM llmq.worker_session AS w
    WHERE w.state IN ('running', 'draining')
        AND NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL::bigint) AS l WHERE l.id = w.id)
$$;

-- Refuses a worker whose session has ended, or that would work in a copy.  As note_claim it
-- pins no search_path: its callers do.
CREATE OR REPLACE FUNCTION llmq_internal.check_session(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = own AND w.state = 'running')
        OR NOT llmq_internal.is_home() THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the session of worker %s has ended', own),
            HINT = 'It was taken for lost, jobs of another database were loaded, or the extension was updated; it must say hello again.';
    END IF;
END
$$;

-- Notes that a worker has something in hand, whose heartbeats count from now on.
CREATE OR REPLACE FUNCTION llmq_internal.note_claim(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    UPDATE llmq.worker_session AS w
    SET heartbeat = clock_timestamp(), in_flight = greatest(w.in_flight, 1)
    WHERE w.id = own
        AND (w.in_flight = 0 OR w.heartbeat < clock_timestamp() - llmq.lease_ttl() / 3);
END
$$;

-- Whether a worker has jobs or messages under leases.
CREATE OR REPLACE FUNCTION llmq_internal.holds_leases(worker bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM llmq.lease AS l WHERE l.worker_id = worker)
        OR EXISTS (SELECT FROM llmq.message_lease AS l WHERE l.worker_id = worker)
$$;

CREATE OR REPLACE FUNCTION llmq.worker_hello(
    protocol int, name text, kind text, pid int, backend_start timestamptz)
RETURNS TABLE (worker_id bigint, state text, reason text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expected constant int := 3;
    began constant timestamptz := coalesce(worker_hello.backend_start,
        llmq_internal.backend_start(pg_backend_pid()));
BEGIN
    state := CASE
        WHEN protocol <> expected THEN 'outdated'
        WHEN llmq_internal.is_home() OR llmq_internal.is_unused() THEN 'running'
        ELSE 'quarantined' END;
    reason := CASE state
        WHEN 'outdated' THEN format(
            'the worker speaks protocol %s, the SQL of the extension %s: restart the server, or run ALTER EXTENSION llmq UPDATE',
            protocol, expected)
        WHEN 'quarantined' THEN
            'jobs here were submitted in another database or server, or loaded from a dump: when all are there, run SELECT llmq.resume_after_restore() if this one shall run them'
        END;
    -- One that says hello again keeps its id, and with it the leases that it holds.
    UPDATE llmq.worker_session AS w SET heartbeat = clock_timestamp(), state = worker_hello.state
    WHERE w.kind = worker_hello.kind AND w.name = worker_hello.name AND w.pid = worker_hello.pid
        AND w.backend_start = began
    RETURNING w.id INTO worker_id;
    IF NOT FOUND THEN
        INSERT INTO llmq.worker_session AS w (name, kind, pid, backend_start, heartbeat, state)
        VALUES (worker_hello.name, worker_hello.kind, worker_hello.pid, began, clock_timestamp(),
            worker_hello.state)
        RETURNING w.id INTO worker_id;
    END IF;
    IF state = 'running' AND llmq_internal.is_home() THEN
        PERFORM llmq_internal.takeover(worker_id, false);
    END IF;
    IF kind = 'program' THEN
        PERFORM llmq_internal.note_backend(worker_id);
    END IF;
    PERFORM llmq_internal.wake_worker(); -- the others' shares are smaller now
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION llmq.worker_hello IS
    'registers a worker, which then takes over the leases of lost ones; state is running, quarantined or outdated';

-- metrics is what the worker has counted (bgworker/core/metric.h), NULL while that is what it was.
-- A worker of 0.1.0 that still runs knows nothing of it.
CREATE OR REPLACE FUNCTION llmq.worker_heartbeat(own bigint, in_flight int, metrics jsonb DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.worker_session AS w
    SET heartbeat = clock_timestamp(), in_flight = worker_heartbeat.in_flight
    WHERE w.id = own;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF metrics IS NOT NULL THEN
        INSERT INTO llmq.worker_metric AS m (worker_id, families) VALUES (own, metrics)
        ON CONFLICT (worker_id) DO UPDATE SET families = EXCLUDED.families, noted_at = EXCLUDED.noted_at;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.worker_heartbeat IS
    'says that a worker is alive, and what it has counted; false if its session is no longer known, so that it must say hello again';

-- Ends a session; leases that it still holds are given back uncounted, but for those
-- that somebody has locked, or whose jobs are not there: they, and the session, are left to a takeover.
CREATE OR REPLACE FUNCTION llmq.worker_goodbye(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    FOR l IN
        WITH held AS MATERIALIZED (
            SELECT k.job_id FROM llmq.lease AS k
            WHERE k.worker_id = own AND llmq_internal.is_home()
                AND llmq_internal.has_job(k.job_id)
            FOR UPDATE SKIP LOCKED)
        DELETE FROM llmq.lease AS k USING held AS h WHERE k.job_id = h.job_id RETURNING k.*
    LOOP
        PERFORM llmq_internal.recall_lease(l, 'the worker was stopped while it ran this delivery');
        PERFORM llmq_internal.redeliver(llmq_internal.placement(l), false, interval '0', 'interrupted'::text, 'its worker was stopped'::text);
    END LOOP;
    DELETE FROM llmq.recall WHERE worker_id = own;
    IF llmq_internal.is_home() THEN
        PERFORM llmq_internal.return_messages(ARRAY[own], false, false, '{}'::bigint[]);
    END IF;
    DELETE FROM llmq.worker_session WHERE id = own AND NOT llmq_internal.holds_leases(own);
    PERFORM llmq_internal.forget_listeners();
    PERFORM llmq_internal.wake_worker(); -- the others' shares are larger now
END
$$;
COMMENT ON FUNCTION llmq.worker_goodbye IS 'ends a worker''s session and gives its leases back, uncounted';
