-- Steering jobs: cancel, redrive.

CREATE OR REPLACE FUNCTION llmq.cancel(job_id uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.cancel(uuid) IS
    'cancels a job that is not final, and ends its network call or keeps its on_complete from being run; false if it is final; PT404 for a job that is not the caller''s';

CREATE OR REPLACE FUNCTION llmq_internal.cancel_as(caller name, job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
BEGIN
    PERFORM FROM llmq.job AS j
    WHERE j.job_id = cancel_as.job_id
        AND pg_has_role(caller, llmq_internal.submitter_role(j.submitted_by), 'MEMBER')
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM llmq_internal.fail('PT404', format('there is no job %s', coalesce(cancel_as.job_id::text, 'NULL')), NULL,
            'A role can cancel the jobs that it, or a role it is a member of, has submitted.');
    END IF;
    place := llmq_internal.take_place(cancel_as.job_id, 'the job was cancelled while it ran');
    IF place.job_id IS NULL THEN
        place := llmq_internal.take_answer(cancel_as.job_id);
    END IF;
    IF place.job_id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by)
    VALUES (place.job_id, place.queue, place.deliveries, caller);
    PERFORM llmq_internal.notify_done(ARRAY[place]), llmq_internal.release_dependents(ARRAY[place]), llmq_internal.wake_worker();
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION llmq.redrive(job_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT llmq_internal.redrive_alone(redrive.job_id) THEN
        RETURN false;
    END IF;
    PERFORM llmq_internal.revive_dependents(redrive.job_id), llmq_internal.wake_worker();
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.redrive(uuid) IS
    'makes a dead job ready again, with all its deliveries before it; one whose on_complete failed is settled from its answer, without a call; false if it is not dead';

-- Redrives a job, but not those that come after it.
CREATE OR REPLACE FUNCTION llmq_internal.redrive_alone(dead_job uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d llmq.dead_job;
BEGIN
    PERFORM FROM llmq.job AS j WHERE j.job_id = redrive_alone.dead_job FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM llmq.dead_job AS k WHERE k.job_id = redrive_alone.dead_job RETURNING * INTO d;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF llmq_internal.revive_answer(d) THEN
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
        PERFORM llmq_internal.fail('PT400', 'max_jobs must not be negative', format('It is %s.', max_jobs),
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
