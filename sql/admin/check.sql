-- llmq.check(): a row for every broken invariant.  What foreign keys would prove
-- in other schemas is proven here, from one snapshot, without slowing anyone down.

-- Every place that a job can be in, as rows of (job_id, place).
CREATE OR REPLACE VIEW llmq.job_place AS
    SELECT job_id, 'ready' AS place FROM llmq.ready
    UNION ALL SELECT job_id, 'deferred' FROM llmq.deferred
    UNION ALL SELECT job_id, 'blocked' FROM llmq.blocked
    UNION ALL SELECT job_id, 'lease' FROM llmq.lease
    UNION ALL SELECT job_id, 'answer' FROM llmq.answer WHERE NOT dead
    UNION ALL SELECT job_id, 'result' FROM llmq.result
    UNION ALL SELECT job_id, 'dead_job' FROM llmq.dead_job
    UNION ALL SELECT job_id, 'cancelled_job' FROM llmq.cancelled_job;
COMMENT ON VIEW llmq.job_place IS 'where jobs stand: exactly one row for every job';

-- The same for messages, as rows of (id, topic, place).
CREATE OR REPLACE VIEW llmq.message_place AS
    SELECT id, topic, 'message_pending' AS place FROM llmq.message_pending
    UNION ALL SELECT id, topic, 'message_deferred' FROM llmq.message_deferred
    UNION ALL SELECT id, topic, 'message_lease' FROM llmq.message_lease
    UNION ALL SELECT id, NULL, 'message_done' FROM llmq.message_done;
COMMENT ON VIEW llmq.message_place IS 'where messages stand: exactly one row for every message';

-- Jobs and the rows that belong to them.
CREATE OR REPLACE FUNCTION llmq_internal.check_jobs()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a job is in exactly one place', j.job_id,
        coalesce('it is in ' || string_agg(p.place, ' and ' ORDER BY p.place), 'it is in none')
    FROM llmq.job AS j LEFT JOIN llmq.job_place AS p ON p.job_id = j.job_id
    GROUP BY j.job_id HAVING count(p.place) <> 1
    UNION ALL
    SELECT 'what is in a place is a job', p.job_id, 'it is in ' || p.place
    FROM llmq.job_place AS p
    WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = p.job_id)
    UNION ALL
    SELECT 'an attempt belongs to a job', a.job_id,
        format('delivery %s, attempt %s', a.delivery, a.attempt)
    FROM llmq.attempt AS a
    WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = a.job_id)
    UNION ALL
    SELECT 'a result comes from a successful attempt', r.job_id, NULL
    FROM llmq.result AS r
    WHERE NOT EXISTS (
        SELECT FROM llmq.attempt AS a WHERE a.job_id = r.job_id AND a.outcome = 'success')
    UNION ALL
    SELECT 'a job''s id follows from its key', j.job_id, j.idempotency_key
    FROM llmq.job AS j
    WHERE j.job_id <> llmq.job_id(j.tenant, j.scope, j.idempotency_key)
    UNION ALL
    SELECT 'a blocked job waits for a parent that is not final', b.job_id, NULL
    FROM llmq.blocked AS b JOIN llmq.job AS j ON j.job_id = b.job_id
    WHERE NOT b.fresh AND NOT EXISTS (
        SELECT FROM unnest(j.after) AS p JOIN llmq.job_place AS q ON q.job_id = p
        WHERE q.place NOT IN ('result', 'dead_job', 'cancelled_job'))
    UNION ALL
    SELECT 'a blocked job is known to its parents', b.job_id, p::text
    FROM llmq.blocked AS b JOIN llmq.job AS j ON j.job_id = b.job_id, unnest(j.after) AS p
    WHERE NOT EXISTS (SELECT FROM llmq.dependency AS d WHERE d.parent = p AND d.child = b.job_id)
    UNION ALL
    SELECT 'a job''s queue exists', j.job_id, j.queue
    FROM llmq.job AS j
    WHERE j.queue <> 'default'
        AND NOT EXISTS (SELECT FROM llmq.queue AS q WHERE q.name = j.queue)
        AND NOT EXISTS (
            SELECT FROM llmq.job_place AS p
            WHERE p.job_id = j.job_id AND p.place IN ('result', 'dead_job', 'cancelled_job'))
$$;

-- Leases: no running job without a worker and a deadline.  In a copy, where workers touch
-- nothing until llmq.resume_after_restore(), leases are as old as the copy.
CREATE OR REPLACE FUNCTION llmq_internal.check_leases()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a lease belongs to a worker that lives', l.job_id,
        format('worker %s holds it since %s', l.worker_id, l.claimed_at)
    FROM llmq.lease AS l
    WHERE l.claimed_at < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq_internal.is_home()
        AND NOT EXISTS (
            SELECT FROM llmq.worker_session AS w
            WHERE w.id = l.worker_id
                AND w.heartbeat > clock_timestamp() - 2 * llmq.lease_ttl())
    UNION ALL
    SELECT 'a delivery ends by its deadline', l.job_id, format('it was due at %s', l.deadline)
    FROM llmq.lease AS l
    WHERE l.deadline < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq_internal.is_home()
    UNION ALL
    SELECT 'a lease''s delivery has not been settled', l.job_id, format('delivery %s', l.deliveries)
    FROM llmq.lease AS l
    WHERE EXISTS (
        SELECT FROM llmq.attempt AS a
        WHERE a.job_id = l.job_id AND a.delivery = l.deliveries)
$$;

-- Answers that wait for their on_complete, or were given up with their jobs.
CREATE OR REPLACE FUNCTION llmq_internal.check_answers()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'an answer that is kept is the success of a job with on_complete', n.job_id, n.entry ->> 'outcome'
    FROM llmq.answer AS n LEFT JOIN llmq.job AS j ON j.job_id = n.job_id
    WHERE j.on_complete IS NULL OR (n.entry ->> 'outcome') IS DISTINCT FROM 'succeeded'
        OR (n.entry ->> 'job_id')::uuid IS DISTINCT FROM n.job_id
    UNION ALL
    SELECT 'a dead answer belongs to a dead job', n.job_id, n.error_message
    FROM llmq.answer AS n
    WHERE n.dead AND NOT EXISTS (SELECT FROM llmq.dead_job AS d WHERE d.job_id = n.job_id)
    UNION ALL
    SELECT 'a job whose callback failed has its answer', d.job_id, d.error_message
    FROM llmq.dead_job AS d
    WHERE d.error_class = 'callback_failed'
        AND NOT EXISTS (SELECT FROM llmq.answer AS n WHERE n.job_id = d.job_id AND n.dead)
$$;

-- The outbox: every effect that a job's end promised is there, once.
CREATE OR REPLACE FUNCTION llmq_internal.check_outbox_messages()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a message is in exactly one place', m.job_id,
        format('message %s is in %s', m.id, coalesce(string_agg(p.place, ' and ' ORDER BY p.place), 'none'))
    FROM llmq.message AS m LEFT JOIN llmq.message_place AS p ON p.id = m.id
    GROUP BY m.id HAVING count(p.place) <> 1
    UNION ALL
    SELECT 'what is in a place of the outbox is a message', NULL, format('message %s is in %s', p.id, p.place)
    FROM llmq.message_place AS p
    WHERE NOT EXISTS (SELECT FROM llmq.message AS m WHERE m.id = p.id)
    UNION ALL
    SELECT 'a message keeps its topic', m.job_id, format('message %s is in %s as "%s"', m.id, p.place, p.topic)
    FROM llmq.message_place AS p JOIN llmq.message AS m ON m.id = p.id
    WHERE p.topic <> m.topic
    UNION ALL
    SELECT 'a message is sent by a worker that lives', m.job_id,
        format('worker %s has message %s since %s', l.worker_id, l.id, l.claimed_at)
    FROM llmq.message_lease AS l LEFT JOIN llmq.message AS m ON m.id = l.id
    WHERE l.worker_id IS NOT NULL AND l.claimed_at < clock_timestamp() - 2 * llmq.lease_ttl() AND llmq_internal.is_home()
        AND NOT EXISTS (
            SELECT FROM llmq.worker_session AS w
            WHERE w.id = l.worker_id AND w.heartbeat > clock_timestamp() - 2 * llmq.lease_ttl())
    UNION ALL
    SELECT 'a succeeded job has its outbox messages', r.job_id, e.value ->> 'topic'
    FROM llmq.result AS r
    JOIN llmq.job AS j ON j.job_id = r.job_id,
    jsonb_array_elements(j.outbox) WITH ORDINALITY AS e
    WHERE coalesce(e.value ->> 'on', 'succeeded') = 'succeeded'
        AND r.created_at > clock_timestamp() - ( -- else they may have been deleted before their job
            SELECT q.retention FROM llmq.queue_policy AS q WHERE q.name = 'default')
        AND NOT EXISTS (
            SELECT FROM llmq.message AS m
            WHERE m.tenant = j.tenant AND m.dedupe_key = coalesce(e.value ->> 'dedupe_key',
                format('%s:%s:%s', e.value ->> 'topic', j.job_id, e.ordinality)))
    UNION ALL
    SELECT 'a message of a job follows from its end', m.job_id, format('message %s', m.id)
    FROM llmq.message AS m
    WHERE EXISTS ( -- else retention has deleted the job that it is from
            SELECT FROM llmq.job AS j
            WHERE j.job_id = m.job_id AND j.submitted_at <= m.created_at)
        AND NOT EXISTS (SELECT FROM llmq.result AS r WHERE r.job_id = m.job_id)
        AND NOT EXISTS (SELECT FROM llmq.dead_job AS d WHERE d.job_id = m.job_id)
        AND NOT EXISTS (
            SELECT FROM llmq.ready AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.deferred AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.blocked AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.lease AS d WHERE d.job_id = m.job_id AND d.deaths > 0
            UNION ALL SELECT FROM llmq.answer AS d WHERE d.job_id = m.job_id AND d.deaths > 0)
        AND NOT EXISTS ( -- it may have died, and been redriven, before it was cancelled
            SELECT FROM llmq.cancelled_job AS c JOIN llmq.job AS j ON j.job_id = c.job_id,
            jsonb_array_elements(j.outbox) AS e
            WHERE c.job_id = m.job_id AND e.value ->> 'on' = 'dead' AND e.value ->> 'topic' = m.topic)
$$;

-- Configuration that names what is not there.
CREATE OR REPLACE FUNCTION llmq_internal.check_configuration()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'a queue''s endpoints exist', NULL::uuid, format('queue "%s" names "%s"', q.name, e)
    FROM llmq.queue AS q, unnest(q.endpoints) AS e
    WHERE NOT EXISTS (SELECT FROM llmq.endpoint AS p WHERE p.name = e)
    UNION ALL
    SELECT 'a role of role_tenant exists', NULL, t.role::text
    FROM llmq.role_tenant AS t
    WHERE to_regrole(quote_ident(t.role)) IS NULL
$$;

CREATE OR REPLACE FUNCTION llmq.check()
RETURNS TABLE (invariant text, job_id uuid, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM llmq_internal.check_jobs()
    UNION ALL SELECT * FROM llmq_internal.check_leases()
    UNION ALL SELECT * FROM llmq_internal.check_answers()
    UNION ALL SELECT * FROM llmq_internal.check_outbox_messages()
    UNION ALL SELECT * FROM llmq_internal.check_configuration()
$$;
COMMENT ON FUNCTION llmq.check() IS
    'a row for every broken invariant: none, if all is well; reads every table, so not for every minute';
