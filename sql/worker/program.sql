-- What workers outside of the server need besides: to be known by their sessions, to
-- leave by degrees, and to find out what a broken connection has left behind.

-- Says whether programs listen for new work: submits then NOTIFY (extension/wakeup.c).
CREATE OR REPLACE FUNCTION llmq_internal.note_listeners(are_there boolean) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_note_listeners_1';

-- Notes which session is a program's, after each of its connections; another kind of
-- worker has one for life.  One that listens has a session of its own and is alive as long
-- as that is.  One that does not has it from a pooler: its pid is 0, and it says that it
-- is alive.
CREATE OR REPLACE FUNCTION llmq_internal.note_backend(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    listens constant boolean := EXISTS (SELECT FROM pg_listening_channels() AS c WHERE c = 'llmq_wake');
    own_pid constant int := CASE WHEN listens THEN pg_backend_pid() ELSE 0 END;
    began constant timestamptz := llmq_internal.backend_start(pg_backend_pid());
BEGIN
    UPDATE llmq.worker_session AS w SET pid = own_pid, backend_start = began
    WHERE w.id = own AND (w.pid <> own_pid OR (listens AND w.backend_start <> began));
    IF listens THEN
        PERFORM llmq_internal.note_listeners(true);
    END IF;
END
$$;

-- The last program has gone: submits need not NOTIFY any more.
CREATE OR REPLACE FUNCTION llmq_internal.forget_listeners() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.kind = 'program' AND w.pid <> 0) THEN
        PERFORM llmq_internal.note_listeners(false);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION llmq.worker_drain(own bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.worker_session AS w SET state = 'draining' WHERE w.id = own;
END
$$;
COMMENT ON FUNCTION llmq.worker_drain IS 'says that a worker claims no more and leaves when its calls have ended';

-- Gives back, uncounted, the leases of jobs and messages that a worker does not know: a claim was
-- committed, and the connection broke before the worker heard of it.  Nobody was called.
CREATE OR REPLACE FUNCTION llmq.worker_reconcile(own bigint, known uuid[], known_messages bigint[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    l llmq.lease;
    given_back bigint := 0;
BEGIN
    IF NOT llmq_internal.is_home() THEN
        RETURN 0;
    END IF;
    FOR l IN
        WITH held AS MATERIALIZED (
            SELECT k.job_id FROM llmq.lease AS k
            WHERE k.worker_id = own AND k.job_id <> ALL (known)
                AND llmq_internal.has_job(k.job_id)
            FOR UPDATE SKIP LOCKED)
        DELETE FROM llmq.lease AS k USING held AS h WHERE k.job_id = h.job_id RETURNING k.*
    LOOP
        PERFORM llmq_internal.redeliver(llmq_internal.placement(l), false, interval '0', 'interrupted'::text,
            'its worker did not hear that it had it'::text);
        given_back := given_back + 1;
    END LOOP;
    RETURN given_back + llmq_internal.return_messages(ARRAY[own], false, false, known_messages);
END
$$;
COMMENT ON FUNCTION llmq.worker_reconcile IS
    'gives back the leases of a worker that are not of the jobs and messages it knows, after a claim whose end it did not see';
