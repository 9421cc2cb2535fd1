-- What the state of 0.2.0 lacks, by the rule of 0.2.0.sql.

-- -- the schema of what is not for users --------------------------------------------------------
--
-- What follows this part finds such functions in llmq_internal already, but their bodies still
-- call one another in llmq, until the code replaces them: rows of tables with triggers
-- (endpoint, queue, destination, budget) are changed before it.

DO $$
BEGIN
    IF to_regnamespace('llmq_internal') IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_schema',
            MESSAGE = 'schema "llmq_internal" exists already',
            DETAIL = 'llmq keeps the functions there that are not for users, and shares that schema with nobody.',
            HINT = 'Run ALTER SCHEMA llmq_internal RENAME TO another name, or drop it, before ALTER EXTENSION llmq UPDATE.';
    END IF;
END
$$;
CREATE SCHEMA llmq_internal;
COMMENT ON SCHEMA llmq_internal IS 'functions that llmq calls itself: none is for users, and each may change with any version';

-- A module of before looks in schema llmq for what stands behind llmq.submit and others, so that
-- nobody could submit until the server is restarted.
DO $$
BEGIN
    CREATE FUNCTION llmq_internal.module_version() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_module_version_1';
EXCEPTION WHEN undefined_function THEN
    RAISE EXCEPTION USING
        ERRCODE = 'object_not_in_prerequisite_state',
        MESSAGE = 'the server runs a module of llmq that is older than this update',
        DETAIL = 'The module that this session has loaded could not call the functions that the update moves.',
        HINT = 'Restart the server, which then loads the module that is installed, and run ALTER EXTENSION llmq UPDATE again.';
END
$$;

-- Moved are all functions of the extension but these.
DO $$
DECLARE
    for_users constant text[] := '{submit, submit_many, http_submit, wait, cancel, explain, idempotency_begin,
        idempotency_finish, idempotency_release, step_begin, step_finish, step_release, enqueue_outbox, outbox_claim,
        outbox_ack, outbox_nack, derive_key, job_id, namespace, uuid5, redrive, redrive_queue, redrive_outbox, prune,
        prune_idempotency, check, start_worker, stop_worker, reset_breaker, resume_after_restore, grant_submit,
        grant_admin, grant_worker, budget_lines, default_queue, lease_ttl, wait_until, worker_hello, worker_poll,
        worker_claim, worker_settle, worker_claim_messages, worker_settle_messages, worker_draw, worker_heartbeat,
        worker_drain, worker_reconcile, worker_goodbye}';
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid
        FROM pg_extension AS e
        JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE e.extname = 'llmq' AND p.pronamespace = 'llmq'::regnamespace AND p.proname <> ALL (for_users)
    LOOP
        EXECUTE format('ALTER ROUTINE %s SET SCHEMA llmq_internal', routine);
    END LOOP;
END
$$;

-- -- the home of jobs ----------------------------------------------------------------------------

CREATE TABLE llmq.installation (
    id uuid PRIMARY KEY
);
COMMENT ON TABLE llmq.installation IS
    'which CREATE EXTENSION made the tables here; copies of the files share it, dumps do not';
INSERT INTO llmq.installation (id) VALUES (pg_catalog.gen_random_uuid());
ALTER TABLE llmq.home ADD COLUMN installation uuid;
UPDATE llmq.home SET installation = (SELECT i.id FROM llmq.installation AS i);
