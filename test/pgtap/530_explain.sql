-- explain: a job's life in order, for those who may see the job.

BEGIN;
SELECT no_plan();
SELECT llmq.stop_worker();

CREATE ROLE llmq_alice;
CREATE ROLE llmq_bob;
CREATE ROLE llmq_watch IN ROLE pg_monitor;
SELECT llmq.grant_submit('llmq_alice'), llmq.grant_submit('llmq_bob');
GRANT USAGE ON SCHEMA public TO llmq_alice, llmq_bob, llmq_watch;

-- What explain says of a job, in brief.
CREATE FUNCTION pg_temp.life(job uuid) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(concat_ws(' ', event, delivery, attempt, http_status), ', ') FROM llmq.explain(job) $$;

SET LOCAL ROLE llmq_alice;
SELECT job_id AS job FROM llmq.submit('Hello', 'life', outbox => '[{"topic": "glad"}]') \gset
SELECT job_id AS child FROM llmq.submit('Hello', 'child', after => ARRAY[:'job'::uuid]) \gset
SELECT job_id AS later FROM llmq.submit('Hello', 'later', run_at => now() + interval '1 h') \gset
RESET ROLE;

-- -- what waits --------------------------------------------------------------------------------------

SELECT is(pg_temp.life(:'job'), 'submitted, ready', 'a job that waits for its turn is ready');
SELECT is(pg_temp.life(:'child'), 'submitted, blocked', 'one that waits for another is blocked');
SELECT is(pg_temp.life(:'later'), 'submitted, scheduled', 'one that waits for its time is scheduled');
SELECT results_eq(format('SELECT delay, detail FROM llmq.explain(%L) WHERE event = ''scheduled''', :'later'),
    format('SELECT run_at - submitted_at, ''run_at'' FROM llmq.job WHERE job_id = %L', :'later'), 'which row says how long, and what for');
SELECT is((SELECT detail FROM llmq.explain(:'child') LIMIT 1), 'queue default, by llmq_alice, after 1 jobs', 'the first row says what was submitted');

-- -- two deliveries, then an answer -------------------------------------------------------------------

SELECT llmq_internal.take_place(:'job', 'test');
SELECT submitted_at AS t0 FROM llmq.job WHERE job_id = :'job' \gset
INSERT INTO llmq.attempt (job_id, delivery, attempt, endpoint, started_at, duration, outcome, http_status, error_class, error_message, retry_after, billing)
VALUES
    (:'job', 1, 1, 'main', :'t0'::timestamptz + interval '1 s', '0.2 s', 'retry', 503, 'overloaded', 'words', NULL, 'none'),
    (:'job', 1, 2, 'main', :'t0'::timestamptz + interval '2 s', '0.1 s', 'retry', 429, 'rate_limited', 'words', '9 s', 'none'),
    (:'job', 2, 0, NULL, :'t0'::timestamptz + interval '12 s', NULL, 'retry', NULL, 'interrupted', 'its worker was lost', NULL, 'unknown'),
    (:'job', 3, 1, 'main', :'t0'::timestamptz + interval '20 s', '1 s', 'success', 200, NULL, NULL, NULL, 'billed');
INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
VALUES (:'job', 0, 'default', 'llmq_alice', 0, 4, 0, 0, :'t0'::timestamptz + interval '20.5 s', :'t0'::timestamptz + interval '1 min');
SELECT is(pg_temp.life(:'job'), 'submitted, claimed 1, call 1 1 503, call 1 2 429, claimed 2, lost 2, claimed 3, call 3 1 200, claimed 4',
    'calls stand in the order of their deliveries, a lost one too, and the last row is the claim that is in force');
SELECT is((SELECT string_agg(delay::text, ' ') FROM llmq.explain(:'job') WHERE event = 'call'), '00:00:00 00:00:00.8 00:00:00',
    'the delay of a call is the time since the end of what was before it');
SELECT is((SELECT string_agg(detail, ' | ') FROM llmq.explain(:'job') WHERE event IN ('call', 'lost')),
    'main, overloaded: words | main, rate_limited, to be left alone for 00:00:09: words | interrupted, perhaps billed: its worker was lost | main, success',
    'and its detail what came of it');
DELETE FROM llmq.lease WHERE job_id = :'job';
INSERT INTO llmq.result (job_id, endpoint, model, finish_reason, queue, deliveries, deaths, created_at)
VALUES (:'job', 'main', 'm', 'stop', 'default', 3, 0, :'t0'::timestamptz + interval '21 s');
INSERT INTO llmq.message (tenant, topic, dedupe_key, job_id, created_at) VALUES ('llmq_alice', 'glad', 'glad 1', :'job', :'t0'::timestamptz + interval '21 s')
RETURNING id AS message \gset
INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (:message, 1, :'t0'::timestamptz + interval '22 s');
SELECT results_eq(format('SELECT event, delay, detail FROM llmq.explain(%L) OFFSET 8', :'job'), $$VALUES
    ('succeeded', '0 s'::interval, 'main, m, stop'), ('message', '0 s', 'glad, glad 1'), ('message sent', '1 s', 'glad, glad 1')$$,
    'then come its end, and its messages');

-- -- other ends -----------------------------------------------------------------------------------------

SET LOCAL ROLE llmq_alice;
SELECT llmq.cancel(:'later');
RESET ROLE;
SELECT results_eq(format('SELECT event, detail FROM llmq.explain(%L)', :'later'), $$VALUES
    ('submitted', format('queue default, by llmq_alice, not before %s', now() + '1 h')), ('cancelled', 'by llmq_alice')$$, 'who cancelled a job is named');
SELECT llmq_internal.bury(ARRAY[llmq_internal.take_place(:'child', 'test')], 'dependency_failed', 'words');
SELECT is((SELECT concat_ws(' ', event, detail) FROM llmq.explain(:'child') OFFSET 1), 'dead dependency_failed: words', 'what a job died of too');

SELECT job_id AS kept FROM llmq.submit('Hello', 'kept') \gset
SELECT llmq_internal.take_place(:'kept', 'test');
INSERT INTO llmq.answer (job_id, queue, tenant, priority, deliveries, counted, deaths, failures, error_message, due_at, entry)
VALUES (:'kept', 'default', 'postgres', 0, 1, 0, 0, 2, 'words', now(), jsonb_build_object('job_id', :'kept', 'delivery', 1, 'attempts', jsonb_build_array(
    jsonb_build_object('attempt', 1, 'endpoint', 'main', 'started_at', llmq_internal.microseconds(clock_timestamp() - 'epoch'), 'duration', 1, 'outcome', 'success',
        'http_status', 200, 'billing', 'billed'))));
SELECT is(pg_temp.life(:'kept'), 'submitted, claimed 1, call 1 1 200, answered 1', 'an answer that is not settled yet has its calls with it');
SELECT is((SELECT detail FROM llmq.explain(:'kept') WHERE event = 'answered'), 'on_complete failed 2 times: words', 'and how its on_complete fares');

-- -- who sees it ----------------------------------------------------------------------------------------

SET LOCAL ROLE llmq_alice;
SELECT is((SELECT count(*) FROM llmq.explain(:'job')), 11::bigint, 'the role that submitted sees all of it');
SET LOCAL ROLE llmq_bob;
SELECT throws_ok(format('SELECT llmq.explain(%L)', :'job'), 'PT404', NULL, 'for another role there is no such job');
SET LOCAL ROLE llmq_watch;
SELECT is_empty(format('SELECT * FROM llmq.explain(%L) WHERE detail ~ ''words|glad''', :'job'), 'those who watch see no words and no messages');
SELECT is((SELECT count(*) FROM llmq.explain(:'job')), 9::bigint, 'but all else');
RESET ROLE;
SELECT throws_ok('SELECT llmq.explain(NULL)', 'PT404', NULL, 'NULL is no job');

SELECT * FROM finish();
ROLLBACK;
