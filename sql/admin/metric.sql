-- Sight for Prometheus: what workers count, and how the database stands, one row a sample.

-- The part of llmq.metric about workers.  Those of one name are told apart by worker_id.  A planner
-- expects far more of jsonb_array_elements than there is, and would compile the query.
CREATE OR REPLACE FUNCTION llmq_internal.metric_lines()
RETURNS TABLE (name text, labels jsonb, value double precision, type text, help text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    RETURN QUERY
        SELECT (f.value ->> 'name') || (s.value ->> 0),
            s.value -> 1 || jsonb_build_object('worker', w.name, 'worker_id', w.id::text),
            (s.value ->> 2)::double precision, f.value ->> 'type', f.value ->> 'help'
        FROM llmq.worker_metric AS m
        JOIN llmq.worker_session AS w ON w.id = m.worker_id
        CROSS JOIN jsonb_array_elements(m.families) AS f
        CROSS JOIN jsonb_array_elements(f.value -> 'samples') AS s
        WHERE NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL::bigint) AS l WHERE l.id = w.id);
END
$$;
COMMENT ON FUNCTION llmq_internal.metric_lines() IS 'what llmq.metric shows of workers';

-- The other parts have constant names, so that who asks for a name reads none of those in vain.
CREATE OR REPLACE VIEW llmq.metric AS
    SELECT m.* FROM llmq_internal.metric_lines() AS m
    UNION ALL
    SELECT 'llmq_queue_jobs', jsonb_build_object('queue', q.queue, 'state', n.state), n.jobs, 'gauge',
        'Jobs that wait, run or are dead; of each state 10,000 are counted at most.'
    FROM llmq.queue_status AS q
    CROSS JOIN LATERAL (VALUES ('ready', q.ready), ('scheduled', q.scheduled), ('blocked', q.blocked),
        ('running', q.running), ('dead', q.dead)) AS n (state, jobs)
    UNION ALL
    SELECT 'llmq_queue_oldest_ready_age_seconds', jsonb_build_object('queue', q.queue),
        coalesce(extract(epoch FROM q.oldest_ready), 0), 'gauge', 'How long the first of the ready jobs has been ready, 0 without one.'
    FROM llmq.queue_status AS q
    UNION ALL
    SELECT 'llmq_outbox_messages', jsonb_build_object('topic', o.topic, 'state', n.state), n.messages, 'gauge',
        'Outbox messages that are not sent; of each state 10,000 are counted at most.'
    FROM llmq.outbox_status AS o
    CROSS JOIN LATERAL (VALUES ('pending', o.pending), ('deferred', o.deferred), ('in_flight', o.in_flight),
        ('dead', o.dead)) AS n (state, messages)
    UNION ALL
    SELECT 'llmq_outbox_oldest_pending_age_seconds', jsonb_build_object('topic', o.topic),
        coalesce(extract(epoch FROM o.oldest_pending), 0), 'gauge', 'Age of the first of the pending messages, 0 without one.'
    FROM llmq.outbox_status AS o
    UNION ALL
    SELECT 'llmq_endpoint_open', jsonb_build_object('endpoint', e.endpoint), (e.breaker <> 'closed')::int, 'gauge',
        'Whether the endpoint''s breaker keeps calls from it: 1, or 0.'
    FROM llmq.endpoint_status AS e
    UNION ALL
    SELECT 'llmq_workers', jsonb_build_object('kind', w.kind, 'state', w.state), count(*), 'gauge', 'Workers of the database.'
    FROM llmq.worker AS w GROUP BY w.kind, w.state;
COMMENT ON VIEW llmq.metric IS
    'samples for Prometheus, one row each: what the workers have counted, as of a heartbeat, and how queues, outbox, endpoints and workers stand';
