-- The life of a job, in order: what every table that knows of it tells.

CREATE OR REPLACE FUNCTION llmq.explain(job_id uuid)
RETURNS TABLE (at timestamptz, event text, delivery int, attempt int, delay interval, duration interval,
    http_status int, detail text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.explain(uuid) IS
    'a job''s life in order: submitted, claimed, its calls, its end, its messages, or what it waits for; delay is the time since the row before; PT404 for a job that the caller may not see';

CREATE OR REPLACE FUNCTION llmq_internal.explain_as(caller name, job_id uuid)
RETURNS TABLE (at timestamptz, event text, delivery int, attempt int, delay interval, duration interval,
    http_status int, detail text)
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    full_sight boolean;
BEGIN
    SELECT pg_has_role(caller, llmq_internal.submitter_role(j.submitted_by), 'MEMBER')
    INTO full_sight FROM llmq.job AS j WHERE j.job_id = explain_as.job_id;
    IF full_sight IS NULL OR NOT (full_sight OR pg_has_role(caller, 'pg_monitor', 'MEMBER')) THEN
        PERFORM llmq_internal.fail('PT404', format('there is no job %s', coalesce(explain_as.job_id::text, 'NULL')), NULL,
            'A role sees the jobs that it, or a role it is a member of, has submitted.');
    END IF;
    RETURN QUERY
        SELECT e.at, e.event, e.delivery, e.attempt,
            e.at - lag(e.at + coalesce(e.duration, '0')) OVER life, e.duration, e.http_status, e.detail
        FROM llmq_internal.life(explain_as.job_id, full_sight) AS e
        WINDOW life AS (ORDER BY e.at, e.rank, e.delivery, e.attempt)
        ORDER BY e.at, e.rank, e.delivery, e.attempt;
END
$$;

-- The events of a job, in no order.  The words of errors, and messages, are for those with
-- full sight.  rank orders what has one time: calls may begin in the moment of their claim.
-- Long: each place that knows something of a job has a branch of its own.
CREATE OR REPLACE FUNCTION llmq_internal.life(of_job uuid, full_sight boolean)
RETURNS TABLE (at timestamptz, rank int, event text, delivery int, attempt int, duration interval,
    http_status int, detail text)
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH attempt AS ( -- also those of an answer that is not settled yet
        SELECT a.* FROM llmq.attempt AS a WHERE a.job_id = of_job
        UNION ALL
        SELECT r.* FROM llmq.answer AS n, llmq_internal.read_attempts(jsonb_build_array(n.entry)) AS r
        WHERE n.job_id = of_job AND NOT EXISTS (
            SELECT FROM llmq.attempt AS a
            WHERE a.job_id = of_job AND a.delivery = r.delivery AND a.attempt = r.attempt)
    )
    SELECT j.submitted_at, 0, 'submitted', NULL::int, NULL::int, NULL::interval, NULL::int,
        concat_ws(', ', format('queue %s', j.queue), format('by %s', j.submitted_by),
            'not before ' || j.run_at, 'after ' || cardinality(j.after) || ' jobs')
    FROM llmq.job AS j WHERE j.job_id = of_job
UNION ALL -- A claim that is over left no time of its own but that of its first call.
    SELECT min(a.started_at), 1, 'claimed', a.delivery, NULL, NULL, NULL, NULL
    FROM attempt AS a GROUP BY a.delivery
UNION ALL
    SELECT l.claimed_at, 1, 'claimed', l.deliveries, NULL, NULL, NULL, format('until %s', l.deadline)
    FROM llmq.lease AS l WHERE l.job_id = of_job
UNION ALL
    SELECT a.started_at, 2, CASE a.attempt WHEN 0 THEN 'lost' ELSE 'call' END, a.delivery,
        nullif(a.attempt, 0), a.duration, a.http_status,
        concat_ws(', ', a.endpoint, coalesce(a.error_class, a.outcome),
            'to be left alone for ' || a.retry_after,
            CASE a.billing WHEN 'unknown' THEN 'perhaps billed' END)
        || CASE WHEN full_sight AND a.error_message IS NOT NULL THEN ': ' || a.error_message ELSE '' END
    FROM attempt AS a
UNION ALL
    SELECT n.answered_at, 3, 'answered', n.deliveries, NULL, NULL, NULL,
        format('on_complete failed %s times', n.failures)
        || CASE WHEN full_sight AND n.error_message IS NOT NULL THEN ': ' || n.error_message ELSE '' END
    FROM llmq.answer AS n WHERE n.job_id = of_job
UNION ALL
    SELECT r.created_at, 4, 'succeeded', r.deliveries, NULL, NULL, NULL,
        concat_ws(', ', r.endpoint, r.model, r.finish_reason)
    FROM llmq.result AS r WHERE r.job_id = of_job
UNION ALL
    SELECT d.died_at, 4, 'dead', nullif(d.deliveries, 0), NULL, NULL, NULL,
        d.error_class
        || CASE WHEN full_sight AND d.error_message IS NOT NULL THEN ': ' || d.error_message ELSE '' END
    FROM llmq.dead_job AS d WHERE d.job_id = of_job
UNION ALL
    SELECT c.cancelled_at, 4, 'cancelled', nullif(c.deliveries, 0), NULL, NULL, NULL,
        format('by %s', c.cancelled_by)
    FROM llmq.cancelled_job AS c WHERE c.job_id = of_job
UNION ALL
    SELECT m.created_at, 5, 'message', NULL, NULL, NULL, NULL, format('%s, %s', m.topic, m.dedupe_key)
    FROM llmq.message AS m WHERE m.job_id = of_job AND full_sight
UNION ALL
    SELECT coalesce(d.sent_at, d.dead_at), 6,
        CASE WHEN d.sent_at IS NULL THEN 'message dead' ELSE 'message sent' END, NULL, NULL, NULL, NULL,
        concat_ws(', ', m.topic, m.dedupe_key) || coalesce(': ' || d.last_error, '')
    FROM llmq.message AS m JOIN llmq.message_done AS d ON d.id = m.id
    WHERE m.job_id = of_job AND full_sight
UNION ALL -- What it waits for; a time that nobody knows comes last.
    SELECT s.wait_until, 7, s.state, NULL, NULL, NULL, NULL, s.wait_reason
    FROM llmq.job_line AS s
    WHERE s.job_id = of_job AND s.state IN ('scheduled', 'blocked', 'ready')
$$;
