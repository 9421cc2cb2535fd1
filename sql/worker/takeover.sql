-- The takeover of leases that a lost worker held.

-- Takes every lease of lost sessions, of no session, and past its deadline by more than the ttl, whoever
-- holds it, and puts the jobs and messages back.  Each job's leaves an attempt 0: what the lost worker called, and
-- whether that was billed, nobody knows.  Returns the number of leases taken.
-- `restored` says that leases may come from another database, where other workers
-- had the ids of those that are here: what is older than its worker is not its own.
CREATE OR REPLACE FUNCTION llmq_internal.takeover(own bigint, restored boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost bigint[] := ARRAY(SELECT id FROM llmq_internal.lost_sessions(own));
    taken record;
    count bigint := 0;
BEGIN
    FOR taken IN
        SELECT j.job_id, l.worker_id
        FROM llmq.lease AS l JOIN llmq.job AS j USING (job_id)
        WHERE l.worker_id = ANY (lost)
            OR llmq_internal.is_overdue(l)
            OR NOT EXISTS (
                SELECT FROM llmq.worker_session AS w
                WHERE w.id = l.worker_id AND (w.backend_start <= l.claimed_at OR NOT restored))
        ORDER BY j.job_id
        FOR UPDATE OF j SKIP LOCKED
    LOOP
        BEGIN
            count := count + llmq_internal.take_lease(taken.job_id, taken.worker_id);
        EXCEPTION WHEN OTHERS THEN
            count := count + llmq_internal.give_up_lease(taken.job_id, taken.worker_id, SQLSTATE, SQLERRM);
        END;
    END LOOP;
    count := count + llmq_internal.return_messages(lost, true, restored, '{}'::bigint[]);
    DELETE FROM llmq.worker_session AS w
    WHERE w.id = ANY (lost)
        AND NOT llmq_internal.holds_leases(w.id)
        AND llmq_internal.backend_start(w.pid) IS DISTINCT FROM w.backend_start; -- one that was only stuck must read what was recalled
    DELETE FROM llmq.recall AS c
    WHERE NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = c.worker_id);
    UPDATE llmq.worker_session AS w SET in_flight = 0
    WHERE w.id = ANY (lost) AND NOT llmq_internal.holds_leases(w.id);
    PERFORM llmq_internal.forget_listeners();
    RETURN count;
END
$$;

-- Whether a delivery should have been settled long ago: whoever had it does not know of it.
CREATE OR REPLACE FUNCTION llmq_internal.is_overdue(l llmq.lease) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN l.deadline < clock_timestamp() - llmq.lease_ttl();
END
$$;

-- Whether there is such a lease.  Reads them all, so not with every poll.
CREATE OR REPLACE FUNCTION llmq_internal.has_overdue() RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM llmq.lease AS l WHERE llmq_internal.is_overdue(l));
END
$$;

-- Takes one lease; the caller holds the job row.  Returns 1, or 0 if it is gone.
CREATE OR REPLACE FUNCTION llmq_internal.take_lease(taken_job uuid, from_worker bigint) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    DELETE FROM llmq.lease WHERE job_id = taken_job AND worker_id = from_worker RETURNING * INTO l;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM llmq_internal.recall_lease(l, format('worker %s was lost while it ran this delivery', from_worker));
    PERFORM llmq_internal.redeliver(llmq_internal.placement(l), true, interval '0', 'interrupted'::text, 'its worker was lost'::text);
    RETURN 1;
END
$$;

-- What becomes of a lease that could not be taken, so that one job keeps no worker from
-- the others: an error that passes leaves it for the next time, any other ends the job
-- without the effects of its death.  Returns the number of leases taken.
CREATE OR REPLACE FUNCTION llmq_internal.give_up_lease(
    taken_job uuid, from_worker bigint, code text, message text) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
BEGIN
    RAISE WARNING USING
        MESSAGE = format('llmq: job %s of a lost worker could not be put back: %s', taken_job, message);
    IF code ~ '^(08|25006|40|53|55|57|58)' THEN -- as llmq_store_error_passes has it
        RETURN 0;
    END IF;
    DELETE FROM llmq.lease WHERE job_id = taken_job AND worker_id = from_worker RETURNING * INTO l;
    INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths,
        error_class, error_message)
    VALUES (l.job_id, l.queue, l.tenant, l.priority, l.deliveries, l.counted, l.deaths + 1, 'internal',
        format('its worker was lost, and it could not be put back: %s', message));
    PERFORM llmq_internal.recall_lease(l, format('worker %s was lost while it ran this delivery', from_worker));
    RETURN 1;
END
$$;
