-- Sight: llmq.queue_status and outbox_status tell how queues and topics stand, and read little for it.
BEGIN;
SELECT no_plan();
SELECT llmq_internal.write_home();

-- A job of a queue that is in one of the places, put there by hand.
CREATE FUNCTION pg_temp.job(queue text, name text, submitted_at timestamptz DEFAULT now()) RETURNS uuid LANGUAGE sql AS $$
    INSERT INTO llmq.job (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority, prompt, submitted_by, submitted_at)
    VALUES (llmq.job_id('t', 'submit', $1 || $2), 't', 'submit', $1 || $2, '', $1, 0, 'x', current_user, $3) RETURNING job_id
$$;
CREATE FUNCTION pg_temp.line(queue text) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s ready %s scheduled %s blocked %s running %s dead %s', s.ready, s.scheduled, s.blocked, s.running, s.dead,
        s.at_least)
    FROM llmq.queue_status AS s WHERE s.queue = $1
$$;

-- -- a row a queue --------------------------------------------------------------------------------

SELECT results_eq('SELECT queue, paused, ready, max_in_flight FROM llmq.queue_status',
    $$VALUES ('default', false, 0::bigint, NULL::int)$$, 'an empty database has the queue "default"');
INSERT INTO llmq.queue (name, paused, max_in_flight, max_ready) VALUES ('idle', true, 7, 20000);
SELECT results_eq($$SELECT paused, max_in_flight, max_ready, wait_reason, oldest_ready FROM llmq.queue_status WHERE queue = 'idle'$$,
    $$VALUES (true, 7, 20000, 'paused', NULL::interval)$$, 'a queue without jobs shows how it is configured');

INSERT INTO llmq.ready (job_id, queue, tenant, priority)
SELECT pg_temp.job('busy', 'r1', now() - interval '5 min'), 'busy', 't', 0;
INSERT INTO llmq.ready (job_id, queue, tenant, priority) SELECT pg_temp.job('busy', 'r2'), 'busy', 't', 0;
INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
SELECT pg_temp.job('busy', 'd' || n), 'epoch'::timestamptz + n * interval '1 day', 'busy', 't', 0 FROM generate_series(1, 3) AS n;
INSERT INTO llmq.blocked (job_id, queue, tenant, priority, fresh) SELECT pg_temp.job('busy', 'b1'), 'busy', 't', 0, false;
INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
SELECT pg_temp.job('busy', 'l' || n), 1, 'busy', 't', 0, 1, 1, 0, now(), now() FROM generate_series(1, 4) AS n;
INSERT INTO llmq.answer (job_id, queue, tenant, priority, deliveries, counted, deaths, entry, due_at)
SELECT pg_temp.job('busy', 'a1'), 'busy', 't', 0, 1, 1, 0, '{}', now();
INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class)
SELECT pg_temp.job('gone', 'k' || n), 'gone', 't', 0, 1, 1, 1, 'auth' FROM generate_series(1, 2) AS n;
SELECT is(pg_temp.line('busy'), '2 ready 3 scheduled 1 blocked 5 running 0 dead {}', 'jobs are counted by state');
SELECT is(pg_temp.line('gone'), '0 ready 0 scheduled 0 blocked 0 running 2 dead {}', 'a queue with nothing but dead jobs has a row');
SELECT is((SELECT in_flight FROM llmq.queue_status WHERE queue = 'busy'), 4::bigint,
    'those whose on_complete is to run are not in flight');
SELECT is((SELECT wait_reason FROM llmq.queue_status WHERE queue = 'gone'), 'no_queue', 'a queue without a row says so');
SELECT is((SELECT date_trunc('minute', oldest_ready) FROM llmq.queue_status WHERE queue = 'busy'), interval '5 min',
    'oldest_ready is the age of the job that comes first');
SELECT is((SELECT next_due FROM llmq.queue_status WHERE queue = 'busy'), 'epoch'::timestamptz + interval '1 day',
    'next_due is when the next scheduled job is');

-- -- with a backlog ----------------------------------------------------------------------------------

INSERT INTO llmq.ready (job_id, queue, tenant, priority)
SELECT gen_random_uuid(), 'idle', 't', 0 FROM generate_series(1, 30000);
INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class)
SELECT gen_random_uuid(), 'gone', 't', 0, 1, 1, 1, 'auth' FROM generate_series(1, 30000);
SELECT is(pg_temp.line('gone'), '0 ready 0 scheduled 0 blocked 0 running 10000 dead {ready,dead}', 'at_least names the states with more');
SELECT is(pg_temp.line('idle'), '9998 ready 0 scheduled 0 blocked 0 running 0 dead {ready}', 'ready jobs are counted in their order');
DELETE FROM llmq.worker_session;
INSERT INTO llmq.queue_depth (queue, ready, published_at) VALUES ('idle', 30000, now());
SELECT is(pg_temp.line('idle'), '9998 ready 0 scheduled 0 blocked 0 running 0 dead {ready}',
    'what a worker published says nothing while nobody works');
INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat)
SELECT 'w', 'server', pid, backend_start, now() FROM pg_stat_activity WHERE pid = pg_backend_pid();
SELECT is(pg_temp.line('idle'), '30000 ready 0 scheduled 0 blocked 0 running 0 dead {}',
    'while somebody works it is the depth');
SELECT is(pg_temp.line('busy'), '2 ready 3 scheduled 1 blocked 5 running 0 dead {ready}', 'of that queue alone');

CREATE TEMP TABLE seen (pass int, name text, rows bigint);
CREATE FUNCTION pg_temp.see(pass int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO seen SELECT $1, t.name,
        pg_stat_get_xact_tuples_returned(t.name::regclass) + pg_stat_get_xact_tuples_fetched(t.name::regclass)
            + coalesce((SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index AS i WHERE i.indrelid = t.name::regclass), 0)
    FROM unnest('{llmq.ready,llmq.dead_job}'::text[]) AS t (name)
$$;
SELECT pg_temp.see(1);
CREATE TEMP TABLE looked AS SELECT * FROM llmq.queue_status;
SELECT pg_temp.see(2);
SELECT cmp_ok(b.rows - a.rows, '>=', 10000::bigint, format('one look reads %s, and rows of it count', a.name))
FROM seen AS a JOIN seen AS b ON b.name = a.name AND a.pass = 1 AND b.pass = 2;
SELECT cmp_ok(b.rows - a.rows, '<', 21000::bigint, 'but of its 30,000 no more than 10,000, each in the index and in the table')
FROM seen AS a JOIN seen AS b ON b.name = a.name AND a.pass = 1 AND b.pass = 2;

-- -- endpoints ----------------------------------------------------------------------------------------

INSERT INTO llmq.endpoint (name, api, url) SELECT n, 'openai_chat', 'http://127.0.0.1:9' FROM unnest('{one,two,three}'::text[]) AS n;
INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat)
SELECT 'w2', 'program', pid, backend_start, now() FROM pg_stat_activity WHERE pid = pg_backend_pid();
INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat) VALUES ('lost', 'server', 1, now(), now());
SELECT llmq.worker_heartbeat(w.id, 1, jsonb_build_array('{"name": "llmq_calls_total", "samples": [["", {"endpoint": "one"}, 100]]}'::jsonb,
    jsonb_build_object('name', 'llmq_calls_in_flight', 'samples', c.samples)))
FROM llmq.worker_session AS w JOIN (VALUES ('w', '[["", {"endpoint": "one"}, 4], ["", {"endpoint": "two"}, 3]]'::jsonb),
    ('w2', '[["", {"endpoint": "one"}, 2], ["", {"endpoint": "(others)"}, 9]]'), ('lost', '[["", {"endpoint": "one"}, 5]]')) AS c (name, samples)
    USING (name);
SELECT results_eq('SELECT endpoint, in_flight FROM llmq.endpoint_status ORDER BY endpoint',
    $$VALUES ('one', 6::bigint), ('three', 0), ('two', 3)$$, 'the calls of an endpoint are those of all workers but lost ones');
DELETE FROM llmq.worker_session WHERE name IN ('w2', 'lost');

-- -- the outbox -----------------------------------------------------------------------------------------

SELECT is_empty('SELECT * FROM llmq.outbox_status', 'an empty outbox has no row');
INSERT INTO llmq.destination (topic, kind, url, enabled) VALUES ('hook.*', 'webhook', 'http://127.0.0.1:9/', false);
SELECT llmq.enqueue_outbox('hook.a', '{}', 'a' || n) FROM generate_series(1, 3) AS n;
SELECT llmq.enqueue_outbox('pulled', '{}', 'p' || n) FROM generate_series(1, 4) AS n;
SELECT * FROM llmq.outbox_claim('pulled', 1);
WITH late AS (DELETE FROM llmq.message_pending WHERE id = (SELECT max(id) FROM llmq.message WHERE topic = 'pulled') RETURNING id)
INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at) SELECT id, 'pulled', 1, '2100-01-01 00:00+00' FROM late;
WITH dead AS (DELETE FROM llmq.message_pending WHERE id = (SELECT max(id) FROM llmq.message WHERE topic = 'hook.a') RETURNING id)
INSERT INTO llmq.message_done (id, attempts, dead_at) SELECT id, 10, now() FROM dead;
SELECT results_eq('SELECT topic, destination, enabled, pending, deferred, in_flight, dead, next_attempt_at FROM llmq.outbox_status ORDER BY 1',
    $$VALUES ('hook.a', 'hook.*', false, 2::bigint, 0::bigint, 0::bigint, 1::bigint, NULL::timestamptz),
        ('pulled', NULL, NULL, 2, 1, 1, 0, '2100-01-01 00:00+00')$$, 'messages that are not sent are counted by topic');
SELECT ok(bool_and(oldest_pending >= '0' AND at_least = '{}'), 'with the age of the first that waits') FROM llmq.outbox_status;
INSERT INTO llmq.message_pending (id, topic) SELECT -n, 'hook.b' FROM generate_series(1, 30000) AS n;
SELECT is((SELECT format('%s %s', pending, at_least) FROM llmq.outbox_status WHERE topic = 'hook.b'), '10000 {pending}',
    'up to a limit');

SELECT * FROM finish();
ROLLBACK;
