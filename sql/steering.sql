-- Steering jobs: cancel, redrive, prune.

CREATE OR REPLACE FUNCTION llmq.cancel(job_id uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.cancel(uuid) IS
    'cancels a job that is not final, and ends its network call or keeps its on_complete from being run; false if it is final; PT404 for a job that is not the caller''s';

CREATE OR REPLACE FUNCTION llmq.cancel_as(caller name, job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
BEGIN
    PERFORM FROM llmq.job AS j
    WHERE j.job_id = cancel_as.job_id
        AND pg_has_role(caller, to_regrole(quote_ident(j.submitted_by)), 'MEMBER')
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM llmq.fail('PT404', format('there is no job %s', coalesce(cancel_as.job_id::text, 'NULL')), NULL,
            'A role can cancel the jobs that it, or a role it is a member of, has submitted.');
    END IF;
    place := llmq.take_place(cancel_as.job_id, 'the job was cancelled while it ran');
    IF place.job_id IS NULL THEN
        place := llmq.take_answer(cancel_as.job_id);
    END IF;
    IF place.job_id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by)
    VALUES (place.job_id, place.queue, place.deliveries, caller);
    PERFORM llmq.notify_done(ARRAY[place]), llmq.release_dependents(ARRAY[place]), llmq.wake_worker();
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.redrive(job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT llmq.redrive_alone(redrive.job_id) THEN
        RETURN false;
    END IF;
    PERFORM llmq.revive_dependents(redrive.job_id), llmq.wake_worker();
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.redrive(uuid) IS
    'makes a dead job ready again, with all its deliveries before it; one whose on_complete failed is settled from its answer, without a call; false if it is not dead';

-- Redrives a job, but not those that come after it.
CREATE OR REPLACE FUNCTION llmq.redrive_alone(dead_job uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d llmq.dead_job;
BEGIN
    PERFORM FROM llmq.job AS j WHERE j.job_id = redrive_alone.dead_job FOR NO KEY UPDATE;
    DELETE FROM llmq.dead_job AS k WHERE k.job_id = redrive_alone.dead_job RETURNING * INTO d;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF llmq.revive_answer(d) THEN
        NULL;
    ELSIF d.error_class = 'dependency_failed' THEN
        INSERT INTO llmq.blocked (job_id, queue, tenant, priority, deliveries, counted, deaths)
        VALUES (d.job_id, d.queue, d.tenant, d.priority, d.deliveries, 0, d.deaths);
    ELSE
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        VALUES (d.job_id, d.queue, d.tenant, d.priority, d.deliveries, 0, d.deaths);
    END IF;
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.redrive_queue(
    queue text, error_class text DEFAULT NULL, max_jobs int DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dead uuid;
    count bigint := 0;
BEGIN
    IF max_jobs < 0 THEN
        PERFORM llmq.fail('PT400', 'max_jobs must not be negative', format('It is %s.', max_jobs),
            'Leave it out for all.');
    END IF;
    FOR dead IN
        SELECT d.job_id FROM llmq.dead_job AS d
        WHERE d.queue = redrive_queue.queue
            AND (redrive_queue.error_class IS NULL OR d.error_class = redrive_queue.error_class)
        ORDER BY d.died_at LIMIT max_jobs
    LOOP
        count := count + llmq.redrive(dead)::int;
    END LOOP;
    RETURN count;
END
$$;
COMMENT ON FUNCTION llmq.redrive_queue IS
    'redrives the dead jobs of a queue, the oldest first, those of one error_class or all; returns how many';

-- Deletes jobs of a queue, with all that belongs to them but messages that are
-- still to be sent: those go some time after they were (prune_messages).
CREATE OR REPLACE FUNCTION llmq.delete_jobs(jobs uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id
    JOIN llmq.job AS j ON j.job_id = id, unnest(j.after) AS p
    WHERE d.parent = p AND d.child = id;
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id WHERE d.parent = id;
    DELETE FROM llmq.attempt AS a USING unnest(jobs) AS id WHERE a.job_id = id;
    DELETE FROM llmq.result AS r USING unnest(jobs) AS id WHERE r.job_id = id;
    DELETE FROM llmq.answer AS n USING unnest(jobs) AS id WHERE n.job_id = id;
    DELETE FROM llmq.dead_job AS d USING unnest(jobs) AS id WHERE d.job_id = id;
    DELETE FROM llmq.cancelled_job AS c USING unnest(jobs) AS id WHERE c.job_id = id;
    PERFORM llmq.delete_done(ARRAY(SELECT m.id FROM llmq.message AS m WHERE m.job_id = ANY (jobs)));
    DELETE FROM llmq.job AS j USING unnest(jobs) AS id WHERE j.job_id = id;
END
$$;

-- The same one by one where something, a user's foreign key say, keeps some of them.
-- Returns how many were deleted.
CREATE OR REPLACE FUNCTION llmq.try_delete_jobs(jobs uuid[]) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    job uuid;
    count int := 0;
BEGIN
    PERFORM llmq.delete_jobs(jobs);
    RETURN cardinality(jobs);
EXCEPTION WHEN integrity_constraint_violation OR raise_exception THEN
    IF cardinality(jobs) = 1 THEN
        RAISE WARNING USING
            MESSAGE = format('job %s is older than its queue''s retention and cannot be deleted', jobs[1]),
            DETAIL = SQLERRM;
        RETURN 0;
    END IF;
    FOREACH job IN ARRAY jobs LOOP
        count := count + llmq.try_delete_jobs(ARRAY[job]);
    END LOOP;
    RETURN count;
END
$$;

-- The queues that final jobs belong to, also queues that are not there any more.
CREATE OR REPLACE FUNCTION llmq.final_queues() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE q (name) AS (
        SELECT min(queue) FROM llmq.result
        UNION ALL
        SELECT (SELECT min(r.queue) FROM llmq.result AS r WHERE r.queue > q.name)
        FROM q WHERE q.name IS NOT NULL
    )
    SELECT name FROM q WHERE name IS NOT NULL
    UNION SELECT DISTINCT queue FROM llmq.dead_job
    UNION SELECT DISTINCT queue FROM llmq.cancelled_job
$$;

-- One bounded step of retention: at most 1,000 jobs of each kind and queue, and as many
-- messages.  Those belong to no queue, and a time that is the same for all can be looked
-- up in an index: what was sent, or has been dead, for the retention of the queue "default"
-- goes, if its job did not take it along before.
CREATE OR REPLACE FUNCTION llmq.prune() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    step constant int := 1000;
    standard constant llmq.queue := llmq.default_queue();
    of_queue text;
    cutoff timestamptz;
    old uuid[];
    count bigint := 0;
BEGIN
    FOR of_queue IN SELECT * FROM llmq.final_queues() LOOP
        cutoff := clock_timestamp() - coalesce(
            (SELECT q.retention FROM llmq.queue AS q WHERE q.name = of_queue), standard.retention);
        old := ARRAY(
            SELECT r.job_id FROM llmq.result AS r
            WHERE r.queue = of_queue AND r.created_at < cutoff AND NOT llmq.is_awaited(r.job_id)
            ORDER BY r.created_at LIMIT step FOR UPDATE SKIP LOCKED) || ARRAY(
            SELECT d.job_id FROM llmq.dead_job AS d
            WHERE d.queue = of_queue AND d.died_at < cutoff AND NOT llmq.is_awaited(d.job_id)
            ORDER BY d.died_at LIMIT step FOR UPDATE SKIP LOCKED) || ARRAY(
            SELECT c.job_id FROM llmq.cancelled_job AS c
            WHERE c.queue = of_queue AND c.cancelled_at < cutoff
            ORDER BY c.cancelled_at LIMIT step FOR UPDATE SKIP LOCKED);
        IF old <> '{}' THEN
            count := count + llmq.try_delete_jobs(old);
        END IF;
    END LOOP;
    RETURN count + llmq.prune_idempotency(step) + llmq.prune_messages(
        clock_timestamp() - coalesce((SELECT q.retention FROM llmq.queue AS q WHERE q.name = 'default'),
            standard.retention), step);
END
$$;
COMMENT ON FUNCTION llmq.prune() IS
    'deletes final jobs older than their queue''s retention with their finished messages, messages finished before the retention of the queue "default", and expired keys and checkpoints, in one bounded step; returns how many, 0 when none are left; the worker calls it';
