-- Jobs that come after others, as far as one transaction shows it.

BEGIN;
SELECT no_plan();

CREATE FUNCTION pg_temp.new_job(key text, parents uuid[] DEFAULT NULL) RETURNS uuid LANGUAGE sql
AS $$ SELECT job_id FROM llmq.submit('Hello', key, after => parents) $$;
CREATE FUNCTION pg_temp.state(job uuid) RETURNS text LANGUAGE sql AS $$ SELECT state FROM llmq.job_status WHERE job_id = job $$;

-- Settles as a worker would: a lease, then its end.
CREATE FUNCTION pg_temp.settle(job uuid, outcome text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO llmq.lease SELECT job, 0, queue, tenant, priority, deliveries + 1, counted, deaths, now(), now() + interval '1 min'
    FROM llmq_internal.take_place(job, 'test');
    PERFORM llmq.worker_settle(0, jsonb_build_array(jsonb_build_object('job_id', job,
        'delivery', (SELECT deliveries FROM llmq.lease WHERE job_id = job), 'outcome', outcome, 'error_class', 'auth', 'text', 'Hi',
        'attempts', '[{"attempt": 1, "started_at": 0, "outcome": "success", "billing": "none"}]'::jsonb)));
END
$$;

-- -- refused ----------------------------------------------------------------------------------------

SELECT throws_ok($$SELECT pg_temp.new_job('x', '{}')$$, 'PT400', NULL, 'no parent at all is refused');
SELECT throws_ok($$SELECT pg_temp.new_job('x', ARRAY[NULL::uuid])$$, 'PT400', NULL, 'so is NULL');
SELECT throws_ok($$SELECT pg_temp.new_job('x', ARRAY[gen_random_uuid()])$$, 'PT404', NULL, 'a parent must be there');
CREATE ROLE llmq_stranger;
SELECT llmq.grant_submit('llmq_stranger');
SELECT pg_temp.new_job('mine') AS mine \gset
SET LOCAL ROLE llmq_stranger;
SELECT throws_ok(format('SELECT * FROM llmq.submit(''x'', ''y'', after => ARRAY[%L]::uuid[])', :'mine'), 'PT404', NULL,
    'and be the submitter''s to wait for');
RESET ROLE;

-- -- fan-in, fan-out ------------------------------------------------------------------------------------

SELECT pg_temp.new_job('a') AS a \gset
SELECT pg_temp.new_job('b') AS b \gset
SELECT pg_temp.new_job('c', ARRAY[:'a', :'b', :'a']::uuid[]) AS c \gset
SELECT pg_temp.new_job('d', ARRAY[:'a']::uuid[]) AS d \gset
SELECT is(pg_temp.state(:'c'), 'blocked', 'a job with parents is blocked');
SELECT is((SELECT (state, replayed)::text FROM llmq.submit('Hello', 'c', after => ARRAY[:'a', :'b', :'a']::uuid[])), '(blocked,t)',
    'and says so when it is submitted again');
SELECT pg_temp.settle(:'a', 'succeeded');
SELECT is(pg_temp.state(:'c'), 'blocked', 'it waits for the last of its parents');
SELECT is(pg_temp.state(:'d'), 'ready', 'one whose only parent has succeeded is ready');
SELECT pg_temp.settle(:'b', 'succeeded');
SELECT is(pg_temp.state(:'c'), 'ready', 'then it is ready too');

SELECT pg_temp.new_job('p0') AS p0 \gset
SELECT job_id AS timed FROM llmq.submit('Hello', 'timed', after => ARRAY[:'p0']::uuid[], run_at => '2100-01-01') \gset
SELECT pg_temp.settle(:'p0', 'succeeded');
SELECT is((SELECT state || ' ' || wait_until::date FROM llmq.job_status WHERE job_id = :'timed'), 'scheduled 2100-01-01', 'one that is to run later waits for its time');

SELECT pg_temp.new_job('e', ARRAY[:'a']::uuid[]) AS e \gset
SELECT llmq_internal.resolve_fresh(100);
SELECT is(pg_temp.state(:'e'), 'ready', 'a parent that succeeded before is seen at the child''s own commit');

-- -- death and revival ---------------------------------------------------------------------------------------

SELECT pg_temp.new_job('p') AS p \gset
SELECT pg_temp.new_job('q', ARRAY[:'p']::uuid[]) AS q \gset
SELECT pg_temp.new_job('r', ARRAY[:'q']::uuid[]) AS r \gset
SELECT pg_temp.settle(:'p', 'dead');
SELECT results_eq(format('SELECT error_class FROM llmq.dead_letter WHERE job_id IN (%L, %L)', :'q', :'r'),
    ARRAY['dependency_failed', 'dependency_failed'], 'a parent''s death is its children''s, and theirs');
SELECT llmq.redrive(:'p');
SELECT is(pg_temp.state(:'q') || ' ' || pg_temp.state(:'r'), 'blocked blocked', 'its redrive revives them');
SELECT is_empty('SELECT * FROM llmq.check() WHERE job_id <> ' || quote_literal(:'mine'), 'and all is well');
SELECT pg_temp.settle(:'p', 'succeeded');
SELECT is(pg_temp.state(:'q') || ' ' || pg_temp.state(:'r'), 'ready blocked', 'so that the chain goes on');
SELECT llmq.cancel(:'q');
SELECT is(pg_temp.state(:'r'), 'dead', 'a cancelled parent fails its children');

-- A chain longer than any stack is deep.
SELECT pg_temp.new_job('chain-0') AS p \gset
SELECT count(pg_temp.new_job('chain-' || i, ARRAY[llmq.job_id(current_user, 'submit', 'chain-' || i - 1)])) AS n FROM generate_series(1, 1200) AS i \gset
SELECT llmq_internal.resolve_fresh(2000);
SELECT pg_temp.settle(:'p', 'dead');
SELECT is((SELECT count(*) FROM llmq.dead_job AS d JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'chain-%'),
    1001::bigint, 'a chain of 1,200 dies, 1,000 of it at once');
SELECT llmq_internal.resolve_fresh(2000);
SELECT is((SELECT count(*) FROM llmq.dead_job AS d JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'chain-%'),
    1201::bigint, 'and the rest at the next look');
SELECT llmq.redrive(:'p');
SELECT is((SELECT string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (
    SELECT s.state, count(*) AS n FROM llmq.job_status AS s JOIN llmq.job AS j USING (job_id)
    WHERE j.idempotency_key LIKE 'chain-%' GROUP BY 1) AS t), 'blocked 1200, ready 1', 'it is revived as a whole');

-- -- prune -----------------------------------------------------------------------------------------------------

SELECT pg_temp.new_job('s') AS s \gset
SELECT pg_temp.new_job('t', ARRAY[:'a', :'s']::uuid[]) AS t \gset
UPDATE llmq.result SET created_at = now() - interval '31 days';
SELECT llmq.prune();
SELECT is((SELECT count(*) FROM llmq.result WHERE job_id IN (:'a', :'b')), 1::bigint, 'what a blocked job waits for is not pruned');
SELECT is_empty($$SELECT * FROM llmq.dependency AS d WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = d.child)$$,
    'and what is pruned leaves no dependency behind');
SELECT is_empty($$SELECT * FROM llmq.dependency AS d WHERE NOT EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = d.parent)$$,
    'nor does a parent that is pruned before its children');

-- A child that has not yet been looked at.
SELECT pg_temp.new_job('dead parent') AS d \gset
SELECT pg_temp.new_job('unseen', ARRAY[:'d']::uuid[]) AS u \gset
SELECT llmq_internal.bury_alone(ARRAY[llmq_internal.take_place(:'d', 'test')], 'auth', 'test');
UPDATE llmq.dead_job SET died_at = now() - interval '31 days' WHERE job_id = :'d';
SELECT llmq.prune();
SELECT is(pg_temp.state(:'d') || ' ' || pg_temp.state(:'u'), 'dead blocked', 'a dead job stays as long as a child waits for it');
SELECT llmq_internal.resolve_fresh(10000);
SELECT is(pg_temp.state(:'u'), 'dead', 'which dies with the next look');

SELECT pg_temp.new_job('lasting') AS l \gset
SELECT pg_temp.new_job('failing') AS f \gset
SELECT pg_temp.new_job('both', ARRAY[:'l', :'f']::uuid[]) AS b \gset
SELECT pg_temp.settle(:'l', 'succeeded'), pg_temp.settle(:'f', 'dead');
UPDATE llmq.result SET created_at = now() - interval '31 days';
SELECT llmq.prune();
SELECT llmq.redrive(:'f');
SELECT pg_temp.settle(:'f', 'succeeded');
SELECT is(pg_temp.state(:'b'), 'ready', 'a job that died of one parent finds the success of another when it is revived, however late');
SELECT pg_temp.settle(:'b', 'succeeded');
UPDATE llmq.result SET created_at = now() - interval '31 days';
SELECT llmq.prune();
SELECT is_empty(format('SELECT FROM llmq.job WHERE job_id IN (%L, %L, %L)', :'l', :'f', :'b'), 'when none waits any more all are pruned');

-- -- a whole graph in one call ------------------------------------------------------------------------------------

SELECT is((SELECT string_agg(state, ' ' ORDER BY state) FROM llmq.submit_many(jsonb_build_array(
    '{"prompt": "one", "idempotency_key": "g1"}'::jsonb,
    jsonb_build_object('prompt', 'two', 'idempotency_key', 'g2', 'after', jsonb_build_array(llmq.job_id(current_user, 'submit', 'g1')))))),
    'blocked ready', 'a child and its parent can be submitted together');

-- Elements of one call: key, and the keys of those that it comes after.
CREATE FUNCTION pg_temp.graph(VARIADIC edges text[]) RETURNS bigint LANGUAGE sql
AS $$
    SELECT count(*) FROM llmq.submit_many((
        SELECT jsonb_agg(jsonb_build_object('prompt', 'x', 'idempotency_key', split_part(e, '<', 1), 'after', (
            SELECT jsonb_agg(llmq.job_id(current_user, 'submit', p)) FROM string_to_table(nullif(split_part(e, '<', 2), ''), ',') AS p))
            ORDER BY n)
        FROM unnest(edges) WITH ORDINALITY AS u (e, n)))
$$;
CREATE FUNCTION pg_temp.refusal(VARIADIC edges text[]) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
    detail text;
BEGIN
    RETURN pg_temp.graph(VARIADIC edges);
EXCEPTION WHEN SQLSTATE 'PT400' THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(' - ', SQLERRM, detail);
END
$$;
SELECT is(pg_temp.refusal('y1<y2', 'y2<y1'),
    'element 0: the job would come after itself, and never run - Each of these elements comes after the next: 0, 1, 0.',
    'two that come after each other are refused');
SELECT is(pg_temp.refusal('z0', 'z1<z0,z2', 'z2<z0,z4', 'z3<z2', 'z4<z3', 'z5<z4'),
    'element 2: the job would come after itself, and never run - Each of these elements comes after the next: 2, 4, 3, 2.',
    'a longer circle is found and named, without those that only come after it or lead to it');
SELECT is(pg_temp.refusal('y0<y0'),
    'element 0: the job would come after itself, and never run - Each of these elements comes after the next: 0, 0.',
    'so is a job that comes after itself');
SELECT is(pg_temp.graph('w4<w3,w2', 'w3<w1', 'w2<w1', 'w1', 'w5<w1,g1', 'w2<w1'), 6::bigint,
    'many ways to one job are no circle, and children may stand before their parents');
SELECT is(pg_temp.graph(VARIADIC ARRAY(SELECT format('v%s<v%s', i, i + 1) FROM generate_series(1, 2000) AS i) || ARRAY['v2001']),
    2001::bigint, 'a chain of 2,000 that begins with its end is taken');
SELECT is((SELECT count(*) FROM llmq.job WHERE idempotency_key ~ '^[yz][0-9]'), 0::bigint, 'of those that were refused nothing is left');
SELECT is((SELECT (jobs, waiting)::text FROM llmq.run WHERE run_id = 'none'), NULL, 'a run that is not there has no row');
SELECT llmq.submit('x', 'run-' || i, run_id => 'r', step => 's' || i) FROM generate_series(1, 3) AS i;
SELECT is((SELECT (jobs, waiting, finished_at)::text FROM llmq.run WHERE run_id = 'r'), '(3,3,)', 'a run is one row');

SELECT * FROM finish();
ROLLBACK;
