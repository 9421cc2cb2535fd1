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
    SELECT llmq.takeover(NULL);
    SELECT string_agg(state, ' ' ORDER BY o) FROM unnest(jobs) WITH ORDINALITY AS u (id, o) JOIN llmq.job_status ON job_id = id
$$;

-- -- numbers as JSON may write them -----------------------------------------------------------

SELECT pg_temp.lease('n1', '{"max_deliveries": 2.0, "max_attempts": 3.0}') AS a, pg_temp.lease('n2', '{"max_deliveries": 1.0}') AS b \gset
DELETE FROM llmq.ready;
SELECT is(pg_temp.take(:'a', :'b'), 'ready dead', 'max_deliveries may be written 2.0');
SELECT is(llmq.worker_policy('{"max_attempts": 3.0, "deadline": "2 s", "require_json": true}'),
    '{"max_attempts": 3, "deadline": 2000000, "require_json": true}', 'the worker gets whole numbers as such');
SELECT is(llmq.worker_policy('{"max_attempts": 3.0}') ->> 'max_attempts', '3', 'in their spelling too');

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

SELECT * FROM finish();
ROLLBACK;
