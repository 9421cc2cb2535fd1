-- Settling: which delivery's answer counts, what is recorded of the others, and when a job comes again.

BEGIN;
SELECT no_plan();
SELECT llmq_internal.write_home();
SELECT worker_id AS own FROM llmq.worker_hello(3, 'settle', 'program', pg_backend_pid(), NULL) \gset

-- A job under a lease of this worker, its first delivery.
CREATE FUNCTION pg_temp.claim(own bigint, key text, expires timestamptz DEFAULT NULL) RETURNS uuid LANGUAGE plpgsql
AS $$
DECLARE
    job uuid := (SELECT job_id FROM llmq.submit('Hello', key, expires_at => expires));
BEGIN
    PERFORM llmq.worker_claim(own, ARRAY(SELECT seq FROM llmq.ready AS r WHERE r.job_id = job));
    RETURN job;
END
$$;
-- What a worker hears when it settles a delivery, whose one attempt used so many tokens.
CREATE FUNCTION pg_temp.settle(own bigint, job uuid, delivery int, outcome text, delay interval DEFAULT '0', is_counted boolean DEFAULT true)
RETURNS text LANGUAGE sql
AS $$
    SELECT verdict FROM llmq.worker_settle(own, jsonb_build_array(jsonb_build_object('job_id', job, 'delivery', delivery,
        'outcome', outcome, 'counted', is_counted, 'delay', llmq_internal.microseconds(delay), 'error_class', 'timeout', 'text', 'Hi', 'response', '{}',
        'attempts', '[{"attempt": 1, "started_at": 1700000000000000, "duration": 1, "outcome": "success", "billing": "billed"}]'::jsonb)))
$$;
CREATE FUNCTION pg_temp.state(job uuid) RETURNS text LANGUAGE sql AS $$ SELECT state FROM llmq.job_status WHERE job_id = job $$;
CREATE FUNCTION pg_temp.attempts(job uuid) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(format('%s.%s', delivery, attempt), ' ' ORDER BY delivery, attempt) FROM llmq.attempt WHERE job_id = job $$;

-- -- the lease that is held ---------------------------------------------------------------------

SELECT pg_temp.claim(:own, 'other') AS job \gset
SELECT is(pg_temp.settle(:own, :'job', 2, 'dead'), 'late', 'another delivery than the one under lease cannot be settled');
SELECT is(pg_temp.state(:'job'), 'running', 'the one under lease goes on');
SELECT is(pg_temp.attempts(:'job'), '2.1', 'what was called is on record');
SELECT is(pg_temp.settle(:own + 1, :'job', 1, 'dead'), 'late', 'nor can another worker settle it');
SELECT is(pg_temp.state(:'job'), 'running', 'which goes on, too');
SELECT is(pg_temp.settle(:own, :'job', 1, 'dead'), 'settled', 'the worker that holds it can');
SELECT is(pg_temp.state(:'job'), 'dead', 'and that is its end');
SELECT is(pg_temp.settle(:own, gen_random_uuid(), 1, 'dead'), 'gone', 'of a job that is not there a worker hears so');

-- -- answers that come late ------------------------------------------------------------------------

-- The lease is lost: the job is ready again, and an attempt 0 says that nobody knows what was called.
CREATE FUNCTION pg_temp.lose(job uuid) RETURNS int LANGUAGE sql
AS $$ SELECT llmq_internal.take_lease(job, worker_id) FROM llmq.lease WHERE job_id = job $$;

SELECT pg_temp.claim(:own, 'late success') AS job, pg_temp.claim(:own, 'late failure') AS failing \gset
SELECT pg_temp.lose(:'job'), pg_temp.lose(:'failing');
SELECT is(pg_temp.attempts(:'job'), '1.0', 'a lost delivery leaves an attempt 0');
SELECT is(pg_temp.settle(:own, :'failing', 1, 'dead'), 'late', 'a failure that comes late ends no job');
SELECT is(pg_temp.state(:'failing'), 'ready', 'another delivery follows all the same');
SELECT is(pg_temp.attempts(:'failing'), '1.1', 'its own attempts replace the one of which nothing was known');
SELECT is(pg_temp.settle(:own, :'failing', 1, 'retry', '1 h'), 'late', 'nor does one that would be tried again put it off');
SELECT is(pg_temp.state(:'failing'), 'ready', 'it stays where it is');
SELECT is(pg_temp.settle(:own, :'job', 1, 'succeeded'), 'settled', 'an answer that comes late, but first, is the job''s');
SELECT is(pg_temp.state(:'job'), 'succeeded', 'which has succeeded');
SELECT is(pg_temp.attempts(:'job'), '1.1', 'by the attempt that brought it');
SELECT is(pg_temp.settle(:own, :'job', 2, 'succeeded'), 'late', 'a second answer changes nothing');
SELECT is(pg_temp.attempts(:'job'), '1.1 2.1', 'but what it cost is on record');

-- -- another delivery --------------------------------------------------------------------------------

SELECT pg_temp.claim(:own, 'in time', now() + interval '2 h') AS job \gset
SELECT is(pg_temp.settle(:own, :'job', 1, 'retry', '1 h'), 'settled', 'a delivery that failed is settled');
SELECT is(pg_temp.state(:'job'), 'scheduled', 'its job comes again later');
SELECT pg_temp.claim(:own, 'too late', now() + interval '30 min') AS job \gset
SELECT pg_temp.settle(:own, :'job', 1, 'retry', '1 h');
SELECT is((SELECT error_class FROM llmq.dead_letter WHERE job_id = :'job'), 'expired', 'one that would come again too late is dead at once');
SELECT pg_temp.claim(:own, 'counted') AS job \gset
SELECT pg_temp.settle(:own, :'job', 1, 'retry');
SELECT is((SELECT counted FROM llmq.ready WHERE job_id = :'job'), 1::int, 'a delivery that failed counts');
SELECT pg_temp.claim(:own, 'uncounted') AS job \gset
SELECT pg_temp.settle(:own, :'job', 1, 'retry', '0', false);
SELECT is((SELECT counted || ' of ' || deliveries FROM llmq.ready WHERE job_id = :'job'), '0 of 1', 'one that was nobody''s failure does not');

SELECT * FROM finish();
ROLLBACK;
