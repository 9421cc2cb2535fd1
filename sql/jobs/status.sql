-- Looking: where a job stands, and what came of it.

-- The state of a job; NULL if there is none.
CREATE OR REPLACE FUNCTION llmq_internal.state(of_job uuid) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN EXISTS (SELECT FROM llmq.result WHERE job_id = of_job) THEN 'succeeded'
        WHEN EXISTS (SELECT FROM llmq.lease WHERE job_id = of_job) THEN 'running'
        WHEN EXISTS (SELECT FROM llmq.answer WHERE job_id = of_job AND NOT dead) THEN 'running'
        WHEN EXISTS (SELECT FROM llmq.ready WHERE job_id = of_job) THEN 'ready'
        WHEN EXISTS (SELECT FROM llmq.deferred WHERE job_id = of_job) THEN 'scheduled'
        WHEN EXISTS (SELECT FROM llmq.blocked WHERE job_id = of_job) THEN 'blocked'
        WHEN EXISTS (SELECT FROM llmq.dead_job WHERE job_id = of_job) THEN 'dead'
        WHEN EXISTS (SELECT FROM llmq.cancelled_job WHERE job_id = of_job) THEN 'cancelled'
    END
$$;

-- The role of a submitter's name, of which a member may see and steer what it submitted: once it
-- is dropped, the bootstrap superuser's, of which all superusers count as members.
-- Pins no search_path, so that it can be inlined: views and row security ask for each row.
CREATE OR REPLACE FUNCTION llmq_internal.submitter_role(submitted_by name) RETURNS oid
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT coalesce(pg_catalog.to_regrole(pg_catalog.quote_ident(submitted_by))::pg_catalog.oid, 10::pg_catalog.oid) $$;
COMMENT ON FUNCTION llmq_internal.submitter_role(name) IS
    'the role whose members may see and steer what a role of that name submitted; a superuser''s, if it is dropped';

-- Whether the caller may see what a role submitted, and in full.
CREATE OR REPLACE FUNCTION llmq_internal.may_see(submitted_by name) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_has_role(llmq_internal.submitter_role(submitted_by), 'MEMBER') $$;
COMMENT ON FUNCTION llmq_internal.may_see(name) IS
    'whether the caller is a member of the role that submitted; what views and row security ask';

-- Why jobs of a queue that are ready are not run, as far as configuration says.
CREATE OR REPLACE FUNCTION llmq_internal.wait_reason(queue text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN q.name IS NULL THEN 'no_queue'
        WHEN q.paused THEN 'paused'
        WHEN NOT EXISTS (
            SELECT FROM llmq.endpoint AS e
            WHERE e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints)))
        THEN 'no_endpoint'
        ELSE (
            -- A quota is waited for, the others are passed over for the next one of the chain.
            SELECT t.reason
            FROM llmq.endpoint AS e LEFT JOIN llmq.endpoint_trouble AS t
                ON t.endpoint = e.name AND coalesce(t.until, 'infinity') > clock_timestamp()
            WHERE e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints))
            ORDER BY coalesce(t.reason, 'limiter') <> 'limiter',
                CASE WHEN coalesce(t.reason, 'limiter') <> 'limiter' THEN t.until END,
                array_position(q.endpoints, e.name), e.name
            LIMIT 1) END
    FROM (VALUES (wait_reason.queue)) AS v (name)
    LEFT JOIN llmq.queue_policy AS q ON q.name = v.name
$$;
COMMENT ON FUNCTION llmq_internal.wait_reason(text) IS
    'why the ready jobs of a queue are not run, as far as configuration and endpoints say; NULL: nothing is in their way';

-- Until when, as far as that is known: the first endpoint that can be called again.
CREATE OR REPLACE FUNCTION llmq.wait_until(queue text) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN llmq_internal.wait_reason(wait_until.queue) IN ('limiter', 'breaker', 'rate_limited') THEN (
        SELECT min(t.until)
        FROM llmq.queue_policy AS q JOIN llmq.endpoint_trouble AS t
            ON (q.endpoints IS NULL OR t.endpoint = ANY (q.endpoints)) AND t.until > clock_timestamp()
        WHERE q.name = wait_until.queue) END
$$;
COMMENT ON FUNCTION llmq.wait_until(text) IS
    'when the ready jobs of a queue can be run again, as far as endpoints say; NULL: nobody knows, or nothing is in their way';

-- One row a job, for whoever asks as llmq's owner and judges what the caller may see.
CREATE OR REPLACE VIEW llmq.job_line AS
    SELECT j.job_id, j.tenant, j.queue,
        CASE
            WHEN r.job_id IS NOT NULL THEN 'succeeded'
            WHEN l.job_id IS NOT NULL OR n.job_id IS NOT NULL THEN 'running'
            WHEN y.job_id IS NOT NULL THEN 'ready'
            WHEN w.job_id IS NOT NULL THEN 'scheduled'
            WHEN b.job_id IS NOT NULL THEN 'blocked'
            WHEN d.job_id IS NOT NULL THEN 'dead'
            WHEN c.job_id IS NOT NULL THEN 'cancelled'
        END AS state,
        j.priority::int AS priority, j.run_at,
        coalesce(r.deliveries, l.deliveries, n.deliveries, y.deliveries, w.deliveries, b.deliveries,
            d.deliveries, c.deliveries)
            AS deliveries,
        a.attempts, j.submitted_by, j.submitted_at, a.started_at,
        coalesce(r.created_at, d.died_at, c.cancelled_at) AS finished_at,
        coalesce(r.endpoint, a.endpoint) AS endpoint, coalesce(r.model, a.model) AS model,
        coalesce(r.finish_reason, a.finish_reason) AS finish_reason,
        coalesce(r.text, d.text) AS text, r.json,
        r.input_tokens, r.output_tokens, r.cached_tokens, r.cost,
        coalesce(d.error_class, CASE WHEN w.error_class NOT IN ('limiter', 'breaker', 'budget') THEN w.error_class END,
            CASE WHEN n.failures > 0 THEN 'callback_failed' END)
            AS error_class,
        coalesce(d.error_message, w.error_message, n.error_message) AS error_message,
        CASE
            WHEN n.job_id IS NOT NULL THEN 'on_complete'
            WHEN w.job_id IS NOT NULL THEN coalesce(w.error_class, 'run_at')
            WHEN b.job_id IS NOT NULL THEN 'after'
            WHEN y.job_id IS NOT NULL THEN llmq_internal.wait_reason(j.queue)
        END AS wait_reason,
        coalesce(w.due_at, n.due_at, CASE WHEN y.job_id IS NOT NULL THEN llmq.wait_until(j.queue) END)
            AS wait_until,
        j.metadata, j.run_id, j.step
    FROM llmq.job AS j
    LEFT JOIN llmq.result AS r ON r.job_id = j.job_id
    LEFT JOIN llmq.lease AS l ON l.job_id = j.job_id
    LEFT JOIN llmq.answer AS n ON n.job_id = j.job_id AND NOT n.dead
    LEFT JOIN llmq.ready AS y ON y.job_id = j.job_id
    LEFT JOIN llmq.deferred AS w ON w.job_id = j.job_id
    LEFT JOIN llmq.blocked AS b ON b.job_id = j.job_id
    LEFT JOIN llmq.dead_job AS d ON d.job_id = j.job_id
    LEFT JOIN llmq.cancelled_job AS c ON c.job_id = j.job_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE attempt > 0)::int AS attempts,
            min(started_at) FILTER (WHERE attempt > 0) AS started_at,
            (array_agg(endpoint ORDER BY delivery DESC, attempt DESC) FILTER (WHERE attempt > 0))[1]
                AS endpoint,
            (array_agg(model ORDER BY delivery DESC, attempt DESC) FILTER (WHERE attempt > 0))[1]
                AS model,
            (array_agg(finish_reason ORDER BY delivery DESC, attempt DESC)
                FILTER (WHERE attempt > 0))[1] AS finish_reason
        FROM llmq.attempt WHERE job_id = j.job_id) AS a;
COMMENT ON VIEW llmq.job_line IS 'the columns of llmq.job_status, of every job in full';

CREATE OR REPLACE VIEW llmq.job_status WITH (security_barrier) AS
    SELECT l.job_id, l.tenant, l.queue, l.state, l.priority, l.run_at, l.deliveries, l.attempts, l.submitted_by,
        l.submitted_at, l.started_at, l.finished_at, l.endpoint, l.model, l.finish_reason,
        CASE WHEN s.full_sight THEN l.text END AS text,
        CASE WHEN s.full_sight THEN l.json END AS json,
        l.input_tokens, l.output_tokens, l.cached_tokens, l.cost, l.error_class,
        CASE WHEN s.full_sight THEN l.error_message END AS error_message,
        l.wait_reason, l.wait_until,
        CASE WHEN s.full_sight THEN l.metadata END AS metadata,
        l.run_id, l.step
    FROM llmq.job_line AS l
    CROSS JOIN LATERAL (SELECT llmq_internal.may_see(l.submitted_by) AS full_sight) AS s
    WHERE s.full_sight OR pg_has_role('pg_monitor', 'MEMBER');
COMMENT ON VIEW llmq.job_status IS
    'one row a job, for the roles that submitted it and their members; pg_monitor sees all without contents';

CREATE OR REPLACE VIEW llmq.dead_letter WITH (security_barrier) AS
    SELECT d.job_id, j.tenant, d.queue, d.error_class, d.error_message, d.text, d.deliveries,
        d.deaths, d.died_at, j.idempotency_key, j.submitted_by, j.submitted_at, j.metadata,
        j.run_id, j.step
    FROM llmq.dead_job AS d JOIN llmq.job AS j ON j.job_id = d.job_id
    WHERE llmq_internal.may_see(j.submitted_by);
COMMENT ON VIEW llmq.dead_letter IS
    'dead jobs with their last error, and the text of an answer that was truncated or could not be settled';

CREATE OR REPLACE VIEW llmq.run WITH (security_barrier) AS
    SELECT s.run_id, s.tenant, count(*) AS jobs,
        count(*) FILTER (WHERE s.state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE s.state = 'dead') AS dead,
        count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE s.state = 'running') AS running,
        count(*) FILTER (WHERE s.state IN ('ready', 'scheduled', 'blocked')) AS waiting,
        sum(s.attempts) AS attempts, sum(s.input_tokens) AS input_tokens,
        sum(s.output_tokens) AS output_tokens, sum(s.cost) AS cost,
        min(s.submitted_at) AS submitted_at, min(s.started_at) AS started_at,
        CASE WHEN bool_and(s.finished_at IS NOT NULL) THEN max(s.finished_at) END AS finished_at
    FROM llmq.job_status AS s
    WHERE s.run_id IS NOT NULL
    GROUP BY s.run_id, s.tenant;
COMMENT ON VIEW llmq.run IS 'one row a run_id (of a tenant): how far its jobs are and what they cost';
