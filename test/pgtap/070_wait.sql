-- What llmq.wait sees for whom, and where it refuses to run.
BEGIN;
SELECT no_plan();

CREATE ROLE llmq_test_alice;
CREATE ROLE llmq_test_bob;
CREATE ROLE llmq_test_boss;
GRANT llmq_test_alice TO llmq_test_boss;
CREATE TEMP TABLE submitted AS SELECT llmq.job_id('acme', 'submit', 'k') AS job_id;
GRANT SELECT ON submitted TO PUBLIC;
GRANT USAGE ON SCHEMA llmq TO PUBLIC;
GRANT EXECUTE ON FUNCTION llmq.submit TO PUBLIC;
INSERT INTO llmq.role_tenant VALUES ('llmq_test_alice', 'acme');
SET ROLE llmq_test_alice;
SELECT llmq.submit('x', 'k', tenant => 'acme', metadata => '{"mine": true}');
RESET ROLE;

CREATE FUNCTION pg_temp.look(caller name) RETURNS text LANGUAGE sql AS $$
    SELECT (status ->> 'state') || ' ' || final || ' ' || (status -> 'metadata')
    FROM submitted, llmq_internal.wait_look(job_id, caller)
$$;
SELECT is(pg_temp.look('llmq_test_alice'), 'ready false {"mine": true}', 'who submitted sees the job');
SELECT is(pg_temp.look('llmq_test_boss'), 'ready false {"mine": true}', 'and so does a member of that role');
SELECT is(pg_temp.look('llmq_test_bob'), NULL, 'a stranger does not');
INSERT INTO llmq.result (job_id, text, queue, deliveries, deaths) SELECT job_id, 'done', 'default', 1, 0 FROM submitted;
SELECT is(pg_temp.look('llmq_test_alice'), 'succeeded true {"mine": true}', 'an answered job is final');
SELECT is((SELECT final FROM llmq_internal.wait_look(gen_random_uuid(), 'llmq_test_alice')), NULL, 'an unknown job has no row');

SELECT throws_ok($$ CALL llmq.wait(gen_random_uuid()) $$, '25001',
    'llmq.wait cannot run inside a transaction block', 'wait refuses to run in a transaction block');

SELECT * FROM finish();
ROLLBACK;
