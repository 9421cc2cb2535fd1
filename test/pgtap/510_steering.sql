-- Cancel, redrive and retention, as far as one transaction shows them.

BEGIN;
SELECT no_plan();
SELECT llmq.stop_worker();

CREATE FUNCTION pg_temp.new_job(key text, queue text DEFAULT 'default') RETURNS uuid LANGUAGE sql
AS $$ SELECT job_id FROM llmq.submit('Hello', key, queue => queue) $$;
CREATE FUNCTION pg_temp.kill(job uuid, class text) RETURNS void LANGUAGE sql
AS $$ SELECT llmq_internal.bury(ARRAY[llmq_internal.take_place(job, 'test')], class, 'it was to be') $$;

-- -- cancel --------------------------------------------------------------------------------------

SELECT pg_temp.new_job('c1') AS job \gset
SELECT ok(llmq.cancel(:'job'), 'a ready job can be cancelled');
SELECT is((SELECT state FROM llmq.job_status WHERE job_id = :'job'), 'cancelled', 'and is then final');
SELECT ok(NOT llmq.cancel(:'job'), 'a final job cannot');
SELECT is((SELECT (state, replayed)::text FROM llmq.submit('Hello', 'c1')), '(cancelled,t)', 'its key still answers');
SELECT throws_ok($$SELECT llmq.cancel('00000000-0000-0000-0000-000000000000')$$, 'PT404', NULL, 'a job that is not there is an error');

-- A worker that runs a job hears that it is cancelled.
SELECT pg_temp.new_job('c2') AS job \gset
WITH gone AS (DELETE FROM llmq.ready WHERE job_id = :'job' RETURNING *)
INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
SELECT job_id, 4711, queue, tenant, priority, 3, 2, 0, now(), now() + interval '1 min' FROM gone;
SELECT ok(llmq.cancel(:'job'), 'a running job can be cancelled');
SELECT is((SELECT format('%s %s', worker_id, delivery) FROM llmq.recall WHERE job_id = :'job'), '4711 3', 'its delivery is recalled from the worker');
SELECT is((SELECT format('%s.%s %s %s', delivery, attempt, error_class, billing) FROM llmq.attempt WHERE job_id = :'job'), '3.0 interrupted unknown',
    'and leaves an attempt, since a call may be under way');
DELETE FROM llmq.recall;

-- -- a breaker that is closed by hand -----------------------------------------------------------------

DELETE FROM llmq.endpoint;
INSERT INTO llmq.endpoint (name, api, url, model) VALUES ('shaky', 'openai_chat', 'http://127.0.0.1:9/v1', 'm');
SELECT throws_ok($$SELECT llmq.reset_breaker('steady')$$, 'PT404', NULL, 'an endpoint that is not there has no breaker');
SELECT ok(NOT llmq.reset_breaker('shaky'), 'one that has never been called has nothing to close');
SELECT count(*) FROM llmq.worker_draw(1, '[{"endpoint": "shaky", "draw": false, "least": 0, "charge": 0, "event": 1, "error": "overloaded"}]');
SELECT is((SELECT breaker FROM llmq.endpoint_status WHERE endpoint = 'shaky'), 'open', 'a worker that saw too many failures opens it');
SELECT pg_temp.new_job('b1') AS job, pg_temp.new_job('b2') AS other \gset
INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths, due_at, error_class)
SELECT p.*, now() + interval '1 hour', class
FROM (VALUES (:'job'::uuid, 'breaker'), (:'other', 'timeout')) AS v (id, class), llmq_internal.take_place(id, 'test') AS p;
SELECT ok(llmq.reset_breaker('shaky'), 'it is closed by hand');
SELECT is((SELECT breaker FROM llmq.endpoint_status WHERE endpoint = 'shaky'), 'closed', 'for all');
SELECT is((SELECT string_agg(idempotency_key, ' ') FROM llmq.deferred JOIN llmq.job USING (job_id) WHERE due_at <= clock_timestamp()), 'b1',
    'jobs that waited for it, and no others, are due at once');
SELECT llmq.cancel(job_id) FROM llmq.deferred;

-- -- redrive ---------------------------------------------------------------------------------------

SELECT pg_temp.new_job('r1') AS job \gset
SELECT ok(NOT llmq.redrive(:'job'), 'a job that lives is not redriven');
UPDATE llmq.ready SET deliveries = 5, counted = 5 WHERE job_id = :'job';
SELECT pg_temp.kill(:'job', 'max_deliveries');
SELECT is((SELECT deaths FROM llmq.dead_letter WHERE job_id = :'job'), 1, 'a death is counted');
SELECT ok(llmq.redrive(:'job'), 'a dead job is redriven');
SELECT is((SELECT (state, deliveries)::text FROM llmq.job_status WHERE job_id = :'job'), '(ready,5)',
    'it is ready again; its deliveries are all on record');
SELECT is((SELECT counted FROM llmq.ready WHERE job_id = :'job'), 0, 'and none of them counts any more');
SELECT pg_temp.kill(:'job', 'auth');
SELECT is((SELECT deaths FROM llmq.dead_letter WHERE job_id = :'job'), 2, 'the next death is the second');

INSERT INTO llmq.queue (name) VALUES ('q');
SELECT pg_temp.kill(pg_temp.new_job('q' || i, 'q'), CASE WHEN i <= 3 THEN 'auth' ELSE 'timeout' END) FROM generate_series(1, 5) AS i;
UPDATE llmq.dead_job AS d SET died_at = now() - substr(j.idempotency_key, 2)::int * interval '1 hour'
FROM llmq.job AS j WHERE j.job_id = d.job_id AND d.queue = 'q';
SELECT is(llmq.redrive_queue('q', 'auth', 2), 2::bigint, 'a queue is redriven up to a number of jobs');
SELECT set_eq($$SELECT idempotency_key FROM llmq.ready JOIN llmq.job USING (job_id) WHERE job.queue = 'q'$$, ARRAY['q2', 'q3'],
    'those that died first come first');
SELECT is(llmq.redrive_queue('q', 'auth'), 1::bigint, 'of one class');
SELECT is(llmq.redrive_queue('q'), 2::bigint, 'or of all');
SELECT is(llmq.redrive_queue('q'), 0::bigint, 'and then none is left');
SELECT throws_ok($$SELECT llmq.redrive_queue('q', max_jobs => -1)$$, 'PT400', NULL, 'a negative number is refused');

-- -- messages of the n-th death ---------------------------------------------------------------------

SELECT job_id AS job FROM llmq.submit('Hello', 'd1', outbox => '[
    {"topic": "sad", "on": "dead"}, {"topic": "own", "on": "dead", "dedupe_key": "mine"}]') \gset
SELECT pg_temp.kill(:'job', 'auth');
SELECT llmq.redrive(:'job');
SELECT pg_temp.kill(:'job', 'auth');
SELECT set_eq(format('SELECT dedupe_key FROM llmq.message WHERE job_id = %L', :'job'), ARRAY[
    format('sad:%s:1:death 1', :'job'), format('sad:%s:1:death 2', :'job'), 'mine', 'mine:death 2'],
    'each death has its message; a key of one''s own names the death from the second on');

-- -- prune ---------------------------------------------------------------------------------------------

INSERT INTO llmq.queue (name, retention) VALUES ('short', '1 day'), ('long', '1 year');
CREATE TEMP TABLE old AS
    SELECT pg_temp.new_job(queue || i, queue) AS job_id, queue FROM unnest('{short,long}'::text[]) AS queue, generate_series(1, 3) AS i;
SELECT llmq_internal.take_place(job_id, 'test') FROM old;
INSERT INTO llmq.result (job_id, queue, deliveries, deaths, created_at) SELECT job_id, queue, 1, 0, now() - interval '2 days' FROM old;
INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, billing) SELECT job_id, 1, 1, now(), 'success', 'none' FROM old;
INSERT INTO llmq.message (tenant, topic, dedupe_key, job_id) SELECT current_user, 't', job_id, job_id FROM old;
INSERT INTO llmq.message_pending (id, topic) SELECT m.id, m.topic FROM llmq.message AS m JOIN old USING (job_id);
SELECT is(llmq.prune(), 3::bigint, 'what is older than its queue''s retention is deleted');
SELECT is(llmq.prune(), 0::bigint, 'once');
SELECT is((SELECT count(*) FROM llmq.job WHERE queue = 'short'), 0::bigint, 'with the job');
SELECT is((SELECT count(*) FROM llmq.attempt AS a JOIN old USING (job_id)), 3::bigint, 'and its attempts');
SELECT is((SELECT (state, replayed)::text FROM llmq.submit('Hello', 'short1', queue => 'short')), '(ready,f)', 'the key is free again');
DELETE FROM llmq.queue WHERE name = 'long';
UPDATE llmq.result SET created_at = now() - interval '31 days' WHERE queue = 'long';
SELECT is(llmq.prune(), 3::bigint, 'the results of a queue that is gone follow the default retention');

-- Messages that are dead follow the retention of the queue "default", as those that were sent.
SELECT llmq.enqueue_outbox('dead', '{}', 'old'), llmq.enqueue_outbox('dead', '{}', 'young');
WITH dead AS (DELETE FROM llmq.message_pending WHERE topic = 'dead' RETURNING id)
INSERT INTO llmq.message_done (id, attempts, dead_at)
SELECT d.id, 9, now() - CASE m.dedupe_key WHEN 'old' THEN interval '31 days' ELSE '29 days' END FROM dead AS d JOIN llmq.message AS m USING (id);
SELECT is(llmq.prune(), 1::bigint, 'a message that has long been dead is deleted');
SELECT is((SELECT string_agg(dedupe_key, ' ') FROM llmq.message WHERE topic = 'dead'), 'young', 'and one that has not is kept');

CREATE TABLE public.child (job_id uuid PRIMARY KEY REFERENCES llmq.job ON DELETE CASCADE);
CREATE SEQUENCE public.refused; -- counts what is rolled back, too
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM nextval('public.refused') / 0; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON public.child FOR EACH ROW EXECUTE FUNCTION public.refuse();
INSERT INTO llmq.queue (name, retention) VALUES ('mixed', '1 day');
CREATE TEMP TABLE mixed AS SELECT pg_temp.new_job('mixed' || i, 'mixed') AS job_id, i FROM generate_series(1, 4) AS i;
SELECT llmq.cancel(job_id) FROM mixed;
UPDATE llmq.cancelled_job SET cancelled_at = now() - interval '2 days' WHERE queue = 'mixed';
INSERT INTO public.child SELECT job_id FROM mixed WHERE i = 1;
SELECT is(llmq_internal.take_report('{"prune": true}'), 3::bigint, 'an error of any class keeps the job whose deletion raises it, and no other');
SELECT is((SELECT array_agg((k.job_id, k.error)::text) FROM llmq.kept_job AS k),
    (SELECT ARRAY[(job_id, 'division by zero')::text] FROM mixed WHERE i = 1), 'it is on record, with its error');
SELECT last_value AS refused FROM public.refused \gset
SELECT is(llmq_internal.take_report('{"prune": true}'), 0::bigint, 'a worker has nothing more to delete');
SELECT is((SELECT last_value FROM public.refused), :refused::bigint, 'and does not try that one again');
UPDATE llmq.kept_job SET tried_at = now() - interval '25 hours';
SELECT is(llmq_internal.take_report('{"prune": true}'), 0::bigint, 'until a day later');
SELECT cmp_ok((SELECT last_value FROM public.refused), '>', :refused::bigint, 'then it does');
INSERT INTO llmq.result (job_id, queue, deliveries, deaths, created_at) SELECT job_id, queue, 1, 0, cancelled_at FROM llmq.cancelled_job WHERE queue = 'mixed';
DELETE FROM llmq.cancelled_job WHERE queue = 'mixed';
SELECT last_value AS refused FROM public.refused \gset
SELECT is(llmq_internal.take_report('{"prune": true}'), 0::bigint, 'with a job that succeeded it is the same');
SELECT is((SELECT last_value FROM public.refused), :refused::bigint, 'one that cannot be deleted is left alone for a day');
INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class, died_at)
SELECT job_id, queue, 't', 0, 1, 1, 1, 'auth', created_at FROM llmq.result WHERE queue = 'mixed';
DELETE FROM llmq.result WHERE queue = 'mixed';
SELECT is(llmq_internal.take_report('{"prune": true}'), 0::bigint, 'and with a dead one');
SELECT is((SELECT last_value FROM public.refused), :refused::bigint, 'which is left alone, too');
DROP TRIGGER refuse ON public.child;
SELECT is(llmq.prune(), 1::bigint, 'prune tries it at once');
SELECT is_empty('SELECT * FROM llmq.kept_job', 'and what it deletes is off the record');

-- Somebody holds a lock.
CREATE FUNCTION public.busy() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM nextval('public.refused'); RAISE EXCEPTION 'busy' USING ERRCODE = '55P03'; END $$;
CREATE TRIGGER busy BEFORE DELETE ON public.child FOR EACH ROW EXECUTE FUNCTION public.busy();
CREATE TEMP TABLE held AS SELECT pg_temp.new_job('held' || i, 'mixed') AS job_id FROM generate_series(1, 4) AS i;
SELECT llmq.cancel(job_id) FROM held;
UPDATE llmq.cancelled_job SET cancelled_at = now() - interval '2 days' WHERE queue = 'mixed';
INSERT INTO public.child SELECT job_id FROM held;
SELECT last_value AS refused FROM public.refused \gset
SELECT is(llmq.prune(), 0::bigint, 'jobs that somebody has locked stay');
SELECT is((SELECT last_value FROM public.refused), :refused::bigint + 1, 'and are not waited for one by one');
SELECT is_empty('SELECT * FROM llmq.kept_job', 'nor put off for a day');
DROP TRIGGER busy ON public.child;
SELECT is(llmq.prune(), 4::bigint, 'they go when he is done');

-- More than a step may take, for each job.
CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.11); RETURN OLD; END $$;
CREATE TRIGGER dawdle BEFORE DELETE ON public.child FOR EACH ROW EXECUTE FUNCTION public.dawdle();
CREATE TEMP TABLE slow AS SELECT pg_temp.new_job('slow' || i, 'mixed') AS job_id FROM generate_series(1, 8) AS i;
SELECT llmq.cancel(job_id) FROM slow;
UPDATE llmq.cancelled_job SET cancelled_at = now() - interval '2 days' WHERE queue = 'mixed';
INSERT INTO public.child SELECT job_id FROM slow;
SELECT is(llmq_internal.take_report('{"prune": true}'), 1::bigint, 'a worker looks after its calls between two slow deletions');
SELECT is(llmq_internal.take_report('{"prune": true}'), 1::bigint, 'and goes on with the next step');
SELECT cmp_ok((SELECT count(*) FROM public.child), '>=', 6::bigint, 'with the next job');
SELECT is(llmq.prune(), (SELECT count(*) FROM slow JOIN llmq.job USING (job_id)), 'prune takes the time that it needs');
SELECT is_empty('SELECT * FROM public.child', 'to delete them all');

-- A message that something of a user's keeps.
CREATE TABLE public.receipt (message bigint REFERENCES llmq.message);
INSERT INTO public.receipt SELECT llmq.enqueue_outbox('kept', '{}', 'kept');
UPDATE llmq.message SET created_at = now() - interval '60 days' WHERE id IN (SELECT message FROM public.receipt);
WITH sent AS (DELETE FROM llmq.message_pending WHERE id IN (SELECT message FROM public.receipt) RETURNING id)
INSERT INTO llmq.message_done (id, attempts, sent_at) SELECT id, 1, now() - interval '60 days' FROM sent;
SELECT lives_ok('SELECT llmq.prune()', 'a message that cannot be deleted does not stop retention');
SELECT is((SELECT count(*) FROM llmq.message WHERE id IN (SELECT message FROM public.receipt)), 1::bigint, 'and is kept');

SELECT is_empty($$SELECT * FROM llmq.check() WHERE invariant NOT LIKE 'a result comes%'$$, 'nothing is left behind');

SELECT * FROM finish();
ROLLBACK;
