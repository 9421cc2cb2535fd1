-- Where a job stands, and how it is taken from there.

-- Whether a job's row is there.  What has none is left where it stands: it may be of a dump that is
-- being loaded.  In plpgsql, so that the planner sees no join that it could begin with.
CREATE OR REPLACE FUNCTION llmq_internal.has_job(of_job uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = of_job);
END
$$;

-- The same of a message's row.
CREATE OR REPLACE FUNCTION llmq_internal.has_message(of_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM llmq.message AS m WHERE m.id = of_id);
END
$$;

-- What travels with a job, from the lease it was under.
CREATE OR REPLACE FUNCTION llmq_internal.placement(l llmq.lease) RETURNS llmq.placement
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ROW(l.job_id, l.queue, l.tenant, l.priority, l.deliveries, l.counted, l.deaths)::llmq.placement
$$;

-- What follows when a lease that was deleted is not its worker's doing: the
-- delivery leaves an attempt 0 (what was called, and whether that was billed,
-- nobody knows yet), and the worker, if it lives, hears of it.
CREATE OR REPLACE FUNCTION llmq_internal.recall_lease(l llmq.lease, reason text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, error_class,
        error_message, billing)
    VALUES (l.job_id, l.deliveries, 0, l.claimed_at, 'retry', 'interrupted', reason, 'unknown')
    ON CONFLICT DO NOTHING;
    INSERT INTO llmq.recall (worker_id, job_id, delivery)
    VALUES (l.worker_id, l.job_id, l.deliveries);
END
$$;

-- Takes a job that is not final out of its place; the caller holds the job row.
-- A claim moves a job from ready to lease without that lock, so ready and deferred are
-- looked at before lease, a statement each; a settle moves it back, so that a lease
-- which was waited for and is gone means another look.
CREATE OR REPLACE FUNCTION llmq_internal.take_place(taken_job uuid, reason text) RETURNS llmq.placement
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
    l llmq.lease;
BEGIN
    FOR look IN 1..3 LOOP
        DELETE FROM llmq.deferred WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.blocked WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.ready WHERE job_id = taken_job
        RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
        IF FOUND THEN
            RETURN place;
        END IF;
        DELETE FROM llmq.lease WHERE job_id = taken_job RETURNING * INTO l;
        IF FOUND THEN
            PERFORM llmq_internal.recall_lease(l, reason);
            RETURN llmq_internal.placement(l);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
