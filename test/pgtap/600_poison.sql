-- One job that cannot be dealt with keeps nobody from the others.

BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;
SELECT llmq.stop_worker();

-- Leaves a job under the lease of a worker that is gone.
CREATE FUNCTION pg_temp.lease(key text, policy jsonb DEFAULT NULL, outbox jsonb DEFAULT NULL) RETURNS uuid LANGUAGE sql
AS $$
    WITH j AS (SELECT job_id FROM llmq.submit('Hello', key, policy => policy, outbox => outbox))
    INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
    SELECT job_id, -1, 'default', current_user, 0, 1, 0, 0, now(), now() FROM j RETURNING job_id
$$;
CREATE FUNCTION pg_temp.take(VARIADIC jobs uuid[]) RETURNS text LANGUAGE sql
AS $$
    SELECT llmq_internal.takeover(NULL);
    SELECT string_agg(state, ' ' ORDER BY o) FROM unnest(jobs) WITH ORDINALITY AS u (id, o) JOIN llmq.job_status ON job_id = id
$$;

-- -- numbers as JSON may write them -----------------------------------------------------------

SELECT pg_temp.lease('n1', '{"max_deliveries": 2.0, "max_attempts": 3.0}') AS a, pg_temp.lease('n2', '{"max_deliveries": 1.0}') AS b \gset
DELETE FROM llmq.ready;
SELECT is(pg_temp.take(:'a', :'b'), 'ready dead', 'max_deliveries may be written 2.0');
SELECT is(llmq_internal.worker_policy('{"max_attempts": 3.0, "deadline": "2 s", "require_json": true}'),
    '{"max_attempts": 3, "deadline": 2000000, "require_json": true}', 'the worker gets whole numbers as such');
SELECT is(llmq_internal.worker_policy('{"max_attempts": 3.0}') ->> 'max_attempts', '3', 'in their spelling too');

-- -- a lost worker's jobs ------------------------------------------------------------------------

CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON llmq.ready FOR EACH ROW WHEN (new.priority = 7 AND new.deliveries > 0)
    EXECUTE FUNCTION pg_temp.refuse('P0001');

SELECT pg_temp.lease('t1') AS a, pg_temp.lease('t2') AS b, pg_temp.lease('t3') AS c \gset
DELETE FROM llmq.ready;
UPDATE llmq.lease SET priority = 7 WHERE job_id = :'b';
SELECT is(pg_temp.take(:'a', :'b', :'c'), 'ready dead ready', 'a job that cannot be put back dies alone');
SELECT matches((SELECT error_class || ': ' || error_message FROM llmq.dead_letter WHERE job_id = :'b'),
    '^internal: .*not this one', 'it says why');
SELECT is((SELECT outcome || ' ' || billing FROM llmq.attempt WHERE job_id = :'b'), 'retry unknown', 'its call is on record');

DROP TRIGGER refuse ON llmq.ready;
CREATE TRIGGER refuse BEFORE INSERT ON llmq.ready FOR EACH ROW WHEN (new.priority = 7 AND new.deliveries > 0)
    EXECUTE FUNCTION pg_temp.refuse('55P03');
SELECT pg_temp.lease('p1') AS a, pg_temp.lease('p2') AS b \gset
DELETE FROM llmq.ready;
UPDATE llmq.lease SET priority = 7 WHERE job_id = :'a';
SELECT is(pg_temp.take(:'a', :'b'), 'running ready', 'trouble that passes leaves it for the next time');
DROP TRIGGER refuse ON llmq.ready;
SELECT is(pg_temp.take(:'a'), 'ready', 'which comes');

-- -- keys that no index could hold --------------------------------------------------------------------

-- Characters of four bytes that do not compress.
CREATE FUNCTION pg_temp.wide(count int) RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT string_agg(chr(65536 + (random() * 60000)::int), '') FROM generate_series(1, count) $$;
SELECT throws_ok(format($$SELECT * FROM llmq.submit('Hello', 'w1', outbox => jsonb_build_array(
    jsonb_build_object('topic', 't', 'dedupe_key', %L::text)))$$, pg_temp.wide(401)), 'PT400', NULL, 'a dedupe_key is limited in bytes');
SELECT job_id AS job FROM llmq.submit('Hello', 'w2', tenant => pg_temp.wide(255), outbox => jsonb_build_array(
    jsonb_build_object('topic', 't', 'on', 'dead', 'dedupe_key', pg_temp.wide(400)),
    jsonb_build_object('topic', pg_temp.wide(128), 'on', 'dead'))) \gset
SELECT llmq_internal.bury(ARRAY[llmq_internal.take_place(:'job', 'test')], 'auth', 'it was to be');
SELECT llmq.redrive(:'job');
SELECT llmq_internal.bury(ARRAY[llmq_internal.take_place(:'job', 'test')], 'auth', 'it was to be');
SELECT is((SELECT count(*) FROM llmq.message WHERE job_id = :'job'), 4::bigint, 'the longest fit, with the longest tenant');

-- -- configuration --------------------------------------------------------------------------------

-- Every span, in a row that is in order but for that.
CREATE FUNCTION pg_temp.insert_with(table_name text, columns jsonb) RETURNS text LANGUAGE sql
AS $$
    SELECT format('INSERT INTO llmq.%1$I (%2$s) SELECT %2$s FROM jsonb_populate_record(NULL::llmq.%1$I, %3$L)', table_name,
        string_agg(quote_ident(key), ', '), columns) FROM jsonb_object_keys(columns) AS key
$$;
CREATE TEMP TABLE sound (table_name, columns) AS VALUES
    ('endpoint', '{"name": "sound", "api": "gemini", "url": "http://localhost"}'::jsonb), ('queue', '{"name": "sound"}'),
    ('destination', '{"topic": "sound", "kind": "notify", "url": "x"}'), ('budget', '{"tenant": "sound"}');
CREATE TEMP TABLE span AS
    SELECT s.*, a.attname FROM sound AS s JOIN pg_attribute AS a ON a.attrelid = format('llmq.%I', s.table_name)::regclass
    WHERE a.atttypid = 'interval'::regtype AND NOT a.attisdropped;
SELECT cmp_ok(count(*), '>', 15::bigint, 'there are many spans') FROM span;
SELECT throws_ok(pg_temp.insert_with(table_name, columns || jsonb_build_object(attname, value)), '23514', NULL,
    format('%s.%s cannot be %s', table_name, attname, value))
FROM span, unnest('{-1 s, 101 years, 178000000 years, 361 days -1 year, 10000 years -3600000 days}'::text[]) AS value;
SELECT lives_ok(pg_temp.insert_with(table_name, columns || spans), format('those of %s can all be 100 years', table_name))
FROM (SELECT table_name, columns, jsonb_object_agg(attname, '100 years') AS spans FROM span GROUP BY 1, 2) AS s;

SELECT llmq_internal.worker_config() IS NOT NULL AS read \gset
SELECT ok(:'read', 'the worker can read them');
SELECT job_id AS job, llmq_internal.take_place(job_id, 'test') AS place FROM llmq.submit('Hello', 's1', queue => 'sound') \gset
SELECT is(llmq_internal.redeliver(:'place', false, interval '100 years' - interval '1 day', NULL, NULL), 'deferred', 'and count with them');
SELECT is(llmq.prune(), 0::bigint, 'so can prune');

SELECT throws_ok(pg_temp.insert_with(table_name, columns || jsonb_build_object(name, value)), '23514', NULL,
    format('%s.%s cannot be %s', table_name, name, value))
FROM (SELECT table_name, columns, name FROM sound, unnest('{input_price, cached_price, output_price}'::text[]) AS name
    WHERE table_name = 'endpoint'
    UNION ALL SELECT table_name, columns || '{"period": "1 day"}', 'max_cost' FROM sound WHERE table_name = 'budget') AS amount,
    unnest('{-1, 1e19, NaN, Infinity}'::text[]) AS value;

SELECT throws_ok(pg_temp.insert_with('endpoint', columns || '{"name": "bad"}' || jsonb_build_object('headers', value::jsonb)), '23514', NULL,
    format('headers cannot be %s', value))
FROM sound, unnest(ARRAY['{"x": 1e400}', '{"x": null}', '{"x": ["y"]}', '{"x": {"y": "z"}}', '["x"]', '"x"', '{"x": "y", "z": true}']) AS value
WHERE table_name = 'endpoint';
SELECT lives_ok(pg_temp.insert_with('endpoint', columns || '{"name": "good", "headers": {"x": "y", "z": ""}}'), 'headers are strings')
FROM sound WHERE table_name = 'endpoint';

SELECT * FROM finish();
ROLLBACK;
