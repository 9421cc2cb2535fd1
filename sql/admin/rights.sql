-- Rights: what each kind of role is given.  PUBLIC has nothing (grants.sql).
--
-- Views and row security call functions of llmq_internal with the rights of whoever reads, and those
-- call others by name: readers may use that schema, and execute in it what is named here.
-- What workers call runs as llmq's owner, so they may not.

-- A role sees results and attempts of the jobs that roles it is a member of have
-- submitted.  Of others' jobs it does not even hear that they are there: job ids can be computed from
-- keys that are guessed.
CREATE OR REPLACE FUNCTION llmq_internal.submitter(of_job uuid) RETURNS name
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';

CREATE OR REPLACE FUNCTION llmq_internal.submitter_as(caller name, of_job uuid) RETURNS name
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT j.submitted_by FROM llmq.job AS j
        WHERE j.job_id = of_job
            AND (pg_has_role(caller, llmq_internal.submitter_role(j.submitted_by), 'MEMBER')
                OR pg_has_role(caller, 'pg_monitor', 'MEMBER')));
END
$$;
COMMENT ON FUNCTION llmq_internal.submitter(uuid) IS
    'the role that submitted a job, NULL if the caller may not see that job; row security of llmq.result and llmq.attempt asks for it';

DO $$
BEGIN
    ALTER TABLE llmq.result ENABLE ROW LEVEL SECURITY;
    ALTER TABLE llmq.attempt ENABLE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS submitter ON llmq.result;
    CREATE POLICY submitter ON llmq.result FOR SELECT USING (llmq_internal.may_see(llmq_internal.submitter(job_id)));
    DROP POLICY IF EXISTS submitter ON llmq.attempt;
    -- Those who watch the server see every attempt, unless they could read its words too.  Asked
    -- first, and once: whose job it is would have to be looked up for each row.
    CREATE POLICY submitter ON llmq.attempt FOR SELECT USING (
        (SELECT pg_has_role('pg_monitor', 'USAGE')
            AND NOT has_column_privilege('llmq.attempt', 'error_message', 'SELECT'))
        OR llmq_internal.may_see(llmq_internal.submitter(job_id)));
END
$$;

-- Grants a list of routines, each with its argument types.
CREATE OR REPLACE FUNCTION llmq_internal.grant_routines(to_role regrole, names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND p.proname = ANY (names)
    LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', routine, to_role);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION llmq.grant_submit(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA llmq, llmq_internal TO %s', role);
    EXECUTE format('GRANT SELECT ON llmq.job_status, llmq.dead_letter, llmq.result, llmq.attempt,
        llmq.outbox, llmq.outbox_event, llmq.run, llmq.usage TO %s', role);
    PERFORM llmq_internal.grant_routines(role, ARRAY['submit', 'submit_many', 'http_submit', 'wait', 'cancel', 'explain',
        'idempotency_begin', 'idempotency_finish', 'idempotency_release', 'step_begin', 'step_finish',
        'step_release', 'enqueue_outbox', 'outbox_claim', 'outbox_ack', 'outbox_nack', 'derive_key',
        'job_id', 'namespace', 'uuid5', 'submitter_role', 'may_see', 'visible_tenants', 'submitter', 'wait_reason', 'wait_until']);
END
$$;
COMMENT ON FUNCTION llmq.grant_submit(regrole) IS
    'gives a role what submitting jobs and reading its own needs';

CREATE OR REPLACE FUNCTION llmq.grant_admin(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq.grant_submit(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON llmq.endpoint, llmq.queue, llmq.destination,
        llmq.budget, llmq.role_tenant TO %s', role);
    EXECUTE format('GRANT SELECT ON llmq.worker, llmq.queue_policy, llmq.queue_status, llmq.outbox_status, llmq.endpoint_status, llmq.budget_status, llmq.metric TO %s', role);
    PERFORM llmq_internal.grant_routines(role, ARRAY['redrive', 'redrive_queue', 'redrive_outbox', 'prune', 'check',
        'start_worker', 'stop_worker', 'reset_breaker', 'budget_lines', 'resume_after_restore', 'lost_sessions', 'queue_lines', 'outbox_lines', 'metric_lines', 'default_queue']);
END
$$;
COMMENT ON FUNCTION llmq.grant_admin(regrole) IS
    'gives a role what grant_submit does, and configuration, redrive, prune and the worker''s switch';

CREATE OR REPLACE FUNCTION llmq.grant_worker(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA llmq TO %s', role);
    PERFORM llmq_internal.grant_routines(role, ARRAY['worker_hello', 'worker_poll', 'worker_claim',
        'worker_settle', 'worker_draw', 'worker_claim_messages', 'worker_settle_messages', 'worker_heartbeat',
        'worker_drain', 'worker_reconcile', 'worker_goodbye']);
END
$$;
COMMENT ON FUNCTION llmq.grant_worker(regrole) IS
    'gives a role the functions of a worker outside the server: it sees every prompt and writes every answer';

-- Those who watch the server: every job and attempt, without what was said in it.
GRANT USAGE ON SCHEMA llmq, llmq_internal TO pg_monitor;
GRANT SELECT ON llmq.job_status, llmq.worker, llmq.queue_status, llmq.outbox_status, llmq.usage, llmq.budget_status, llmq.metric
    TO pg_monitor;
GRANT SELECT (endpoint, enabled, breaker, opened_at, probe_at, wait_reason, wait_until, requests_per_minute,
    tokens_per_minute, max_in_flight, drawn_at, last_error_at, in_flight) ON llmq.endpoint_status TO pg_monitor;
GRANT SELECT (job_id, delivery, attempt, endpoint, started_at, duration, outcome, http_status,
    error_class, retry_after, model, finish_reason, input_tokens, output_tokens, cached_tokens,
    bytes_in, billing, request_id, traceparent, cost) ON llmq.attempt TO pg_monitor;
GRANT EXECUTE ON FUNCTION llmq_internal.submitter_role(name), llmq_internal.may_see(name), llmq_internal.submitter(uuid), llmq_internal.wait_reason(text), llmq.wait_until(text),
    llmq_internal.lost_sessions(bigint), llmq_internal.queue_lines(), llmq_internal.outbox_lines(), llmq_internal.metric_lines(), llmq.explain(uuid), llmq.budget_lines() TO pg_monitor;
