-- Steering: waiting for a job, starting and stopping the worker, seeing that it is there.

CREATE OR REPLACE PROCEDURE llmq.wait(
    job_id uuid, timeout interval DEFAULT '60 s', INOUT status jsonb DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'llmq_wait_1';
COMMENT ON PROCEDURE llmq.wait IS
    'waits until a job is final, or for timeout, and sets status to its job_status row; not in a transaction block';

-- One look at a job, for llmq.wait, which runs it as llmq's owner: no row if `caller` is no
-- member of the role that submitted it.
CREATE OR REPLACE FUNCTION llmq_internal.wait_look(of_job uuid, caller name)
RETURNS TABLE (status jsonb, final boolean)
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT to_jsonb(s), s.state IN ('succeeded', 'dead', 'cancelled')
    FROM llmq.job_line AS s
    WHERE s.job_id = of_job
        AND pg_has_role(caller, llmq_internal.submitter_role(s.submitted_by), 'MEMBER')
$$;

CREATE OR REPLACE VIEW llmq.worker AS
    SELECT w.name, w.pid, w.kind, w.backend_start, w.heartbeat,
        (SELECT count(*)::int FROM llmq.lease AS l WHERE l.worker_id = w.id) AS in_flight, w.state
    FROM llmq.worker_session AS w
    WHERE NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL::bigint) AS l WHERE l.id = w.id);
COMMENT ON VIEW llmq.worker IS
    'the workers of this database; the heartbeat moves only while jobs are in flight';

-- Whether a worker on another machine serves this database.
-- In plpgsql, because each submit asks, and SQL would be parsed anew.
CREATE OR REPLACE FUNCTION llmq_internal.has_program() RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM llmq.worker_session AS w
        WHERE w.kind = 'program' AND w.state = 'running'
            AND NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL::bigint) AS l WHERE l.id = w.id));
END
$$;

CREATE OR REPLACE FUNCTION llmq.start_worker() RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_start_worker_1';
COMMENT ON FUNCTION llmq.start_worker() IS
    'starts the workers of this database when the transaction commits; true if none ran';

CREATE OR REPLACE FUNCTION llmq.stop_worker() RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_stop_worker_1';
COMMENT ON FUNCTION llmq.stop_worker() IS
    'stops the workers of this database, until llmq.start_worker() or the next start of the server; true if any ran';

CREATE OR REPLACE FUNCTION llmq.resume_after_restore() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM llmq.home;
    PERFORM llmq_internal.write_home();
    PERFORM llmq_internal.takeover(NULL::bigint, true);
    UPDATE llmq.worker_session SET state = 'running' WHERE state = 'quarantined';
    PERFORM llmq_internal.wake_worker(), llmq_internal.wake_settler();
END
$$;
COMMENT ON FUNCTION llmq.resume_after_restore() IS
    'declares this database, a copy or a restored dump, to be the one that runs the jobs in it';

CREATE OR REPLACE FUNCTION llmq_internal.wake_worker() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_worker_1';
COMMENT ON FUNCTION llmq_internal.wake_worker() IS 'wakes the workers of this database when the transaction commits';

CREATE OR REPLACE FUNCTION llmq_internal.wake_settler() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_settler_1';
COMMENT ON FUNCTION llmq_internal.wake_settler() IS 'wakes the settler of this database when the transaction commits';

-- Changed configuration wakes the worker, which then reads it again.
CREATE OR REPLACE FUNCTION llmq_internal.wake_on_change() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq_internal.wake_worker();
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.endpoint
    FOR EACH STATEMENT EXECUTE FUNCTION llmq_internal.wake_on_change();
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.queue
    FOR EACH STATEMENT EXECUTE FUNCTION llmq_internal.wake_on_change();
CREATE OR REPLACE TRIGGER wake_on_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.destination
    FOR EACH STATEMENT EXECUTE FUNCTION llmq_internal.wake_on_change();
