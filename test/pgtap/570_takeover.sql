-- Sessions of workers: hello, heartbeats, goodbye, who is lost, and what is taken from whom.

BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;
DELETE FROM llmq.worker_session;
SELECT llmq_internal.write_home();

-- -- hello ------------------------------------------------------------------------------------------

SELECT worker_id AS own FROM llmq.worker_hello(3, 'w', 'server', pg_backend_pid(), NULL) \gset
SELECT is((SELECT worker_id FROM llmq.worker_hello(3, 'w', 'server', pg_backend_pid(), NULL)), :own::bigint, 'a worker that says hello again keeps its id');
SELECT isnt((SELECT worker_id FROM llmq.worker_hello(3, 'w', 'server', pg_backend_pid(), now() - interval '1 day')), :own::bigint,
    'one whose pid comes again is another');
SELECT isnt((SELECT worker_id FROM llmq.worker_hello(3, 'x', 'server', pg_backend_pid(), NULL)), :own::bigint, 'so is one of another name');
SELECT is((SELECT state FROM llmq.worker_hello(2, 'old', 'server', pg_backend_pid(), NULL)), 'outdated', 'one that speaks another protocol is told so');
DELETE FROM llmq.worker_session WHERE id <> :own;

-- -- who is lost ------------------------------------------------------------------------------------

-- A session of a process that lives, ours, or of one that does not, with a heartbeat so old.
CREATE FUNCTION pg_temp.session(kind text, lives boolean, age interval, in_flight int) RETURNS bigint LANGUAGE sql
AS $$
    INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat, in_flight, state)
    VALUES ('other', kind, CASE WHEN lives THEN pg_backend_pid() ELSE 1 END,
        CASE WHEN lives THEN llmq_internal.backend_start(pg_backend_pid()) ELSE now() END, clock_timestamp() - age, in_flight, 'running')
    RETURNING id
$$;
CREATE FUNCTION pg_temp.is_lost(kind text, lives boolean, age interval, in_flight int) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    session bigint := pg_temp.session(kind, lives, age, in_flight);
    found boolean := EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL) AS l WHERE l.id = session);
BEGIN
    DELETE FROM llmq.worker_session WHERE id = session;
    RETURN found;
END
$$;
SELECT ok(NOT pg_temp.is_lost('server', true, '0', 1), 'a worker that has just been heard of is there');
SELECT ok(pg_temp.is_lost('server', true, '1 min', 1), 'one with jobs that has long been silent is stuck');
SELECT ok(NOT pg_temp.is_lost('server', true, '1 h', 0), 'one that has nothing in hand need not say anything');
SELECT ok(pg_temp.is_lost('server', true, '-1 h', 1), 'a heartbeat of the future is of a clock that was set back: nobody can tell');
SELECT ok(NOT pg_temp.is_lost('server', true, '-5 s', 1), 'a little of that is no reason');
SELECT ok(pg_temp.is_lost('server', false, '0', 0), 'a worker of the server whose process is gone is lost at once');
SELECT ok(NOT pg_temp.is_lost('program', false, '0', 1), 'a program may have lost its connection alone');
SELECT ok(pg_temp.is_lost('program', false, '1 min', 0), 'until it has been silent for too long');
SELECT ok(NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(:own)), 'nobody takes itself for lost');

-- -- a claim shows life ------------------------------------------------------------------------------

CREATE FUNCTION pg_temp.claim(own bigint, key text) RETURNS uuid LANGUAGE plpgsql
AS $$
DECLARE
    job uuid := (SELECT job_id FROM llmq.submit('Hello', key));
BEGIN
    PERFORM llmq.worker_claim(own, ARRAY(SELECT seq FROM llmq.ready AS r WHERE r.job_id = job));
    RETURN job;
END
$$;
SELECT pg_temp.claim(:own, 'first') AS job \gset
SELECT is((SELECT in_flight FROM llmq.worker_session WHERE id = :own), 1, 'with its first job a worker has something in hand, and must show that it lives');
SELECT is(llmq.worker_heartbeat(:own, 3), true, 'a heartbeat is taken');
SELECT pg_temp.claim(:own, 'second');
SELECT is((SELECT in_flight FROM llmq.worker_session WHERE id = :own), 3, 'what it says of itself stands');
SELECT is(llmq.worker_heartbeat(-1, 0), false, 'a session that is not known hears so');

-- -- what a poll says of transactions --------------------------------------------------------------------

-- This one is open: what it has taken from a sequence may appear later.
SELECT cmp_ok((SELECT (control ->> 'oldest_xid')::bigint FROM llmq.worker_poll(:own, 0, 10, NULL, NULL, 0) WHERE control IS NOT NULL), '<=',
    pg_current_xact_id()::text::bigint, 'no open transaction is newer than the oldest that a poll names');
SELECT cmp_ok((SELECT (control ->> 'next_xid')::bigint FROM llmq.worker_poll(:own, 0, 10, NULL, NULL, 0) WHERE control IS NOT NULL), '>',
    pg_current_xact_id()::text::bigint, 'and each has begun before the next that it names');

-- -- takeover -------------------------------------------------------------------------------------------

-- What a full poll leaves of a job under the lease of a stuck worker.
SELECT pg_temp.session('server', true, '0', 1) AS other \gset
SELECT pg_temp.claim(:other, 'stuck') AS stuck \gset
UPDATE llmq.worker_session SET heartbeat = clock_timestamp() - interval '1 min' WHERE id = :other;
SELECT count(*) FROM llmq.worker_poll(:own, 0, 10, '', '{"clock_set": true}', 0);
SELECT is((SELECT worker_id FROM llmq.lease WHERE job_id = :'stuck'), :other::bigint, 'after the clock was set nobody is taken for stuck');
SELECT count(*) FROM llmq.worker_poll(:own, 0, 10, '', '{}', 0);
SELECT is((SELECT counted FROM llmq.ready WHERE job_id = :'stuck'), 1, 'else its jobs are taken, and the delivery counts');
SELECT is((SELECT format('%s %s', attempt, billing) FROM llmq.attempt WHERE job_id = :'stuck'), '0 unknown', 'whether it was billed nobody knows');
SELECT is((SELECT string_agg(format('%s %s', worker_id, delivery), ', ') FROM llmq.recall WHERE job_id = :'stuck'), format('%s 1', :other),
    'and the worker, should it wake up, hears of it');
SELECT is((SELECT job_id FROM llmq.worker_poll(:other, 0, 10, NULL, NULL, 0) WHERE delivery = 1), :'stuck'::uuid, 'with its next poll');
DELETE FROM llmq.worker_session WHERE id = :other;

-- Trouble that passes leaves a lease for the next time, any other is the job's end.
SELECT pg_temp.claim(:own, 'deadlock') AS job \gset
SELECT is((SELECT array_agg(llmq_internal.give_up_lease(:'job', :own, code, 'it was to be')) FROM unnest('{08006,25006,40P01,53200,55P03,57014,58030}'::text[]) AS code),
    '{0,0,0,0,0,0,0}'::int[], 'a deadlock, a lock, a want of memory, a cancellation pass');
SELECT is((SELECT state FROM llmq.job_status WHERE job_id = :'job'), 'running', 'so the lease stays for the next time');
SELECT is(llmq_internal.give_up_lease(:'job', :own::bigint, '22P02', 'it was to be'), 1, 'what would be the same again does not pass');
SELECT is((SELECT error_class FROM llmq.dead_letter WHERE job_id = :'job'), 'internal', 'that job is dead');

-- Leases of a dump bear ids that other workers had.
SELECT pg_temp.claim(:own, 'restored') AS job \gset
SELECT llmq_internal.takeover(:own, true);
SELECT is((SELECT worker_id FROM llmq.lease WHERE job_id = :'job'), :own::bigint, 'a restore takes nothing from a worker that has claimed it since');
UPDATE llmq.lease SET claimed_at = llmq_internal.backend_start(pg_backend_pid()) - interval '1 s' WHERE job_id = :'job';
SELECT llmq_internal.takeover(:own);
SELECT is((SELECT worker_id FROM llmq.lease WHERE job_id = :'job'), :own::bigint, 'without a restore a worker''s id says whose a lease is');
SELECT llmq_internal.takeover(:own, true);
SELECT is((SELECT state FROM llmq.job_status WHERE job_id = :'job'), 'ready', 'after one a lease that is older than its worker is another''s, and taken');

-- -- goodbye -----------------------------------------------------------------------------------------------

SELECT pg_temp.claim(:own, 'goodbye') AS job \gset
SELECT llmq.worker_goodbye(:own);
SELECT is((SELECT format('%s of %s', counted, deliveries) FROM llmq.ready WHERE job_id = :'job'), '0 of 1', 'what a worker gives back as it leaves is not counted');
SELECT is_empty('SELECT FROM llmq.recall', 'nobody needs to hear of it');
SELECT is_empty('SELECT FROM llmq.worker_session WHERE id = ' || :own, 'and its session is over');

SELECT * FROM finish();
ROLLBACK;
