-- Sight: how queues and outbox stand, for those who watch the server.  However much waits,
-- little is read: where there is more than that, `at_least` says so.

-- What llmq.queue_status shows; those who look need no right on what it is made of.
-- The first `most` rows of each table of waiting and running jobs are read, whatever their
-- queues are, and as many dead jobs of each queue.  Where there are that many, the numbers
-- are lower bounds.  Not so the ready jobs of queues with max_ready, as long as somebody
-- works: workers publish their depth.
-- Long: one statement, so that all numbers are of one moment.
CREATE OR REPLACE FUNCTION llmq_internal.queue_lines()
RETURNS TABLE (queue text, paused boolean, ready bigint, scheduled bigint, blocked bigint, running bigint,
    dead bigint, at_least text[], oldest_ready interval, next_due timestamptz, in_flight bigint,
    max_in_flight int, max_ready int, wait_reason text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    most constant int := 10000;
BEGIN
    RETURN QUERY
        WITH RECURSIVE place AS MATERIALIZED (
            (SELECT r.queue, 'ready' AS state, r.seq, NULL::timestamptz AS due_at, false AS leased
            FROM llmq.ready AS r ORDER BY r.seq LIMIT most)
            UNION ALL
            (SELECT d.queue, 'scheduled', NULL, d.due_at, false
            FROM llmq.deferred AS d ORDER BY d.due_at LIMIT most)
            UNION ALL
            (SELECT b.queue, 'blocked', NULL, NULL, false
            FROM llmq.blocked AS b ORDER BY b.job_id LIMIT most)
            UNION ALL
            (SELECT l.queue, 'running', NULL, NULL, true
            FROM llmq.lease AS l ORDER BY l.job_id LIMIT most)
            UNION ALL
            (SELECT n.queue, 'running', NULL, NULL, false
            FROM llmq.answer AS n WHERE NOT n.dead ORDER BY n.due_at LIMIT most)
        ), cut AS MATERIALIZED (
            SELECT p.state FROM place AS p GROUP BY p.state HAVING count(*) >= most
        ), line AS MATERIALIZED (
            SELECT p.queue, count(*) FILTER (WHERE p.state = 'ready') AS ready,
                count(*) FILTER (WHERE p.state = 'scheduled') AS scheduled,
                count(*) FILTER (WHERE p.state = 'blocked') AS blocked,
                count(*) FILTER (WHERE p.state = 'running') AS running,
                count(*) FILTER (WHERE p.leased) AS in_flight, min(p.seq) AS seq, min(p.due_at) AS next_due
            FROM place AS p GROUP BY p.queue
        ), dead_queue (name) AS ( -- from one to the next in the index
            SELECT min(d.queue) FROM llmq.dead_job AS d
            UNION ALL
            SELECT (SELECT min(d.queue) FROM llmq.dead_job AS d WHERE d.queue > q.name)
            FROM dead_queue AS q WHERE q.name IS NOT NULL
        ), known AS MATERIALIZED (
            SELECT p.name FROM llmq.queue_policy AS p
            UNION SELECT l.queue FROM line AS l
            UNION SELECT q.name FROM dead_queue AS q WHERE q.name IS NOT NULL
        ), published AS MATERIALIZED ( -- old news when nobody works, no news when all were counted
            SELECT d.queue, d.ready FROM llmq.queue_depth AS d
            WHERE EXISTS (SELECT FROM cut WHERE cut.state = 'ready')
                AND EXISTS (SELECT FROM llmq_internal.working_sessions())
        )
        SELECT k.name, coalesce(p.paused, false), greatest(l.ready, u.ready, 0), coalesce(l.scheduled, 0),
            coalesce(l.blocked, 0), coalesce(l.running, 0), d.count,
            ARRAY(SELECT c.state FROM cut AS c WHERE c.state <> 'ready' OR u.queue IS NULL
                UNION ALL SELECT 'dead' WHERE d.count >= most),
            clock_timestamp() - (
                SELECT greatest(j.submitted_at, j.run_at)
                FROM llmq.ready AS r JOIN llmq.job AS j ON j.job_id = r.job_id WHERE r.seq = l.seq),
            l.next_due, coalesce(l.in_flight, 0), p.max_in_flight, p.max_ready, llmq_internal.wait_reason(k.name)
        FROM known AS k
        LEFT JOIN line AS l ON l.queue = k.name
        LEFT JOIN llmq.queue_policy AS p ON p.name = k.name
        LEFT JOIN published AS u ON u.queue = k.name
        CROSS JOIN LATERAL (
            SELECT count(*) FROM (SELECT FROM llmq.dead_job AS f WHERE f.queue = k.name LIMIT most) AS t) AS d;
END
$$;
COMMENT ON FUNCTION llmq_internal.queue_lines() IS 'what llmq.queue_status shows';

CREATE OR REPLACE VIEW llmq.queue_status AS SELECT * FROM llmq_internal.queue_lines();
COMMENT ON VIEW llmq.queue_status IS
    'one row a queue that is configured, or has jobs that wait, run or are dead: how many, how long they have waited, and why; of each state 10,000 jobs are counted at most, and at_least names the states with more';

-- What llmq.outbox_status shows, in the same way: the first `most` messages of each state.
CREATE OR REPLACE FUNCTION llmq_internal.outbox_lines()
RETURNS TABLE (topic text, destination text, enabled boolean, pending bigint, deferred bigint, in_flight bigint,
    dead bigint, at_least text[], oldest_pending interval, next_attempt_at timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    most constant int := 10000;
BEGIN
    RETURN QUERY
        WITH place AS MATERIALIZED (
            (SELECT p.topic, 'pending' AS state, p.id, NULL::timestamptz AS next_attempt_at
            FROM llmq.message_pending AS p ORDER BY p.id LIMIT most)
            UNION ALL
            (SELECT w.topic, 'deferred', w.id, w.next_attempt_at
            FROM llmq.message_deferred AS w ORDER BY w.next_attempt_at LIMIT most)
            UNION ALL
            (SELECT l.topic, 'in_flight', l.id, NULL
            FROM llmq.message_lease AS l ORDER BY l.id LIMIT most)
            UNION ALL
            (SELECT m.topic, 'dead', d.id, NULL
            FROM (SELECT k.id FROM llmq.message_done AS k
                WHERE k.dead_at IS NOT NULL ORDER BY k.dead_at DESC LIMIT most) AS d
            JOIN llmq.message AS m ON m.id = d.id)
        ), cut AS MATERIALIZED (
            SELECT p.state FROM place AS p GROUP BY p.state HAVING count(*) >= most
        ), line AS MATERIALIZED (
            SELECT p.topic, count(*) FILTER (WHERE p.state = 'pending') AS pending,
                count(*) FILTER (WHERE p.state = 'deferred') AS deferred,
                count(*) FILTER (WHERE p.state = 'in_flight') AS in_flight,
                count(*) FILTER (WHERE p.state = 'dead') AS dead,
                min(p.id) FILTER (WHERE p.state = 'pending') AS first_id,
                min(p.next_attempt_at) AS next_attempt_at
            FROM place AS p GROUP BY p.topic
        )
        SELECT l.topic, t.topic, t.enabled, l.pending, l.deferred, l.in_flight, l.dead,
            ARRAY(SELECT c.state FROM cut AS c),
            clock_timestamp() - (SELECT m.created_at FROM llmq.message AS m WHERE m.id = l.first_id),
            l.next_attempt_at
        FROM line AS l CROSS JOIN LATERAL llmq_internal.destination_of(l.topic) AS t;
END
$$;
COMMENT ON FUNCTION llmq_internal.outbox_lines() IS 'what llmq.outbox_status shows';

CREATE OR REPLACE VIEW llmq.outbox_status AS SELECT * FROM llmq_internal.outbox_lines();
COMMENT ON VIEW llmq.outbox_status IS
    'one row a topic with messages that are not sent: where they go (destination NULL: they are pulled), and how many wait, are under way or are dead; of each state 10,000 are counted at most, and at_least names the states with more';
