-- llmq.metric: what workers have counted and how the database stands, as samples.
BEGIN;
SELECT no_plan();
DELETE FROM llmq.worker_session;

CREATE FUNCTION pg_temp.samples(of_name text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s %s', m.labels - 'worker_id', m.value), ', ' ORDER BY m.labels ->> 'worker', (m.labels ->> 'worker_id')::bigint, m.labels::text)
    FROM llmq.metric AS m WHERE m.name = of_name
$$;
-- A session that lives, since that of this test does.
CREATE FUNCTION pg_temp.worker(name text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat)
    SELECT $1, 'server', pid, backend_start, now() FROM pg_stat_activity WHERE pid = pg_backend_pid() RETURNING id
$$;
CREATE FUNCTION pg_temp.calls(number int) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_array(jsonb_build_object('name', 'llmq_call_duration_seconds', 'type', 'histogram', 'help', 'How long.',
        'samples', jsonb_build_array(jsonb_build_array('_count', '{"endpoint": "e"}'::jsonb, $1))))
$$;

-- -- workers ------------------------------------------------------------------------------------

SELECT pg_temp.worker('a') AS a, pg_temp.worker('b') AS b, pg_temp.worker('b') AS c \gset
SELECT is(pg_temp.samples('llmq_call_duration_seconds_count'), NULL, 'a worker that has told nothing has no samples');
SELECT ok(llmq.worker_heartbeat(:a, 0, pg_temp.calls(5)), 'a heartbeat tells what was counted');
SELECT is(pg_temp.samples('llmq_call_duration_seconds_count'), '{"worker": "a", "endpoint": "e"} 5', 'and so it is shown');
SELECT results_eq($$SELECT type, help FROM llmq.metric WHERE name LIKE 'llmq\_call\_%'$$, $$VALUES ('histogram', 'How long.')$$,
    'with the family''s type and words');
SELECT llmq.worker_heartbeat(:a, 0);
SELECT is(pg_temp.samples('llmq_call_duration_seconds_count'), '{"worker": "a", "endpoint": "e"} 5', 'a heartbeat without it changes nothing');
SELECT llmq.worker_heartbeat(:a, 0, pg_temp.calls(6)), llmq.worker_heartbeat(:b, 0, pg_temp.calls(7)), llmq.worker_heartbeat(:c, 0, pg_temp.calls(8));
SELECT is(pg_temp.samples('llmq_call_duration_seconds_count'),
    '{"worker": "a", "endpoint": "e"} 6, {"worker": "b", "endpoint": "e"} 7, {"worker": "b", "endpoint": "e"} 8', 'the next one replaces it');
SELECT is((SELECT count(DISTINCT labels) FROM llmq.metric WHERE name = 'llmq_call_duration_seconds_count'), 3::bigint,
    'workers of the same name are told apart');
SELECT is(pg_temp.samples('llmq_workers'), '{"kind": "server", "state": "running"} 3', 'workers are counted');
SELECT ok(NOT llmq.worker_heartbeat(-1, 0, pg_temp.calls(1)), 'a session that is not known tells nothing');
UPDATE llmq.worker_session SET pid = 0 WHERE id = :b;
SELECT llmq.worker_goodbye(:c);
SELECT is(pg_temp.samples('llmq_call_duration_seconds_count'), '{"worker": "a", "endpoint": "e"} 6', 'who is lost or has gone is not shown');
SELECT is((SELECT count(*) FROM llmq.worker_metric WHERE worker_id = :c), 0::bigint, 'and who has gone leaves no row behind');

-- -- the database -----------------------------------------------------------------------------------

SELECT is(pg_temp.samples('llmq_queue_oldest_ready_age_seconds'), '{"queue": "default"} 0', 'a queue without ready jobs has no age');
SELECT FROM llmq.submit('Hello', 'metric');
SELECT is(pg_temp.samples('llmq_queue_jobs'), '{"queue": "default", "state": "blocked"} 0, {"queue": "default", "state": "dead"} 0, '
    '{"queue": "default", "state": "ready"} 1, {"queue": "default", "state": "running"} 0, {"queue": "default", "state": "scheduled"} 0',
    'jobs are counted by queue and state');
SELECT llmq.enqueue_outbox('t', '{}', 'k');
SELECT matches(pg_temp.samples('llmq_outbox_messages'), '"state": "pending", "topic": "t"\} 1|"topic": "t", "state": "pending"\} 1', 'messages by topic and state');
INSERT INTO llmq.endpoint (name, api, url) VALUES ('shut', 'openai_chat', 'http://127.0.0.1:9'), ('well', 'openai_chat', 'http://127.0.0.1:9');
INSERT INTO llmq.endpoint_limit (endpoint, state) VALUES ('shut', '{1,0,0,1}');
SELECT is(pg_temp.samples('llmq_endpoint_open'), '{"endpoint": "shut"} 1, {"endpoint": "well"} 0', 'an endpoint whose breaker is open says so');
SELECT is_empty('SELECT name FROM llmq.metric GROUP BY name, labels HAVING count(*) > 1', 'no sample is there twice');
SELECT is_empty($$SELECT name FROM llmq.metric WHERE num_nulls(name, labels, value, type, help) > 0 OR type NOT IN ('counter', 'gauge', 'histogram')$$,
    'and none lacks anything');

-- Who asks for one name does not read all.
CREATE FUNCTION pg_temp.plan(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    plan text := '';
BEGIN
    FOR line IN EXECUTE format('EXPLAIN (COSTS off) SELECT * FROM llmq.metric WHERE name LIKE %L', name) LOOP
        plan := plan || line || E'\n';
    END LOOP;
    RETURN plan;
END
$$;
SELECT matches(pg_temp.plan('llmq_queue_jobs'), 'queue_lines', 'one that asks for queues reads them');
SELECT doesnt_match(pg_temp.plan('llmq_calls_total'), 'queue_lines|outbox_lines', 'one that asks for calls reads neither queues nor outbox');

SET LOCAL ROLE pg_monitor;
SELECT isnt_empty('SELECT * FROM llmq.metric', 'those who watch see it');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
