-- What has no job, or no message, is left where it stands; and who is away from home touches nothing.
BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;
SET LOCAL jit = off; -- as workers do
SELECT llmq.stop_worker();

CREATE FUNCTION pg_temp.beat() RETURNS void LANGUAGE sql
AS $$ UPDATE llmq.worker_session SET heartbeat = clock_timestamp() $$;
-- A full poll, with retention.
CREATE FUNCTION pg_temp.poll(own bigint) RETURNS jsonb LANGUAGE sql
AS $$ SELECT pg_temp.beat(); SELECT control FROM llmq.worker_poll(own, 0, 1000, 'x', '{"prune": true}', -1, '') WHERE control IS NOT NULL $$;
-- All rows of the places, as text.
CREATE FUNCTION pg_temp.contents() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    relation text;
    lines text;
    contents text := '';
BEGIN
    FOREACH relation IN ARRAY '{ready,deferred,blocked,lease,answer,result,dead_job,cancelled_job,attempt,
        message_pending,message_deferred,message_lease,message_done,recall,spending}'::text[] LOOP
        EXECUTE format('SELECT string_agg(t::text, chr(10) ORDER BY t::text) FROM llmq.%I AS t', relation) INTO lines;
        contents := contents || relation || ': ' || coalesce(lines, '') || chr(10);
    END LOOP;
    RETURN contents;
END
$$;

SELECT llmq.submit('Hello', 'first');
SELECT worker_id AS own, state FROM llmq.worker_hello(3, 'here', 'server', pg_backend_pid(), NULL) \gset
SELECT is(:'state'::text, 'running', 'where the first job was submitted a worker runs');
DELETE FROM llmq.ready;
DELETE FROM llmq.job;

-- -- rows whose jobs are still to come ---------------------------------------------------------------

CREATE TEMP TABLE id (name text PRIMARY KEY, job_id uuid DEFAULT gen_random_uuid());
INSERT INTO id (name) SELECT unnest('{ready,due,fresh,leased,mine,answered,done,dead,cancelled}'::text[]);
CREATE FUNCTION pg_temp.id(text) RETURNS uuid LANGUAGE sql AS $$ SELECT job_id FROM id WHERE name = $1 $$;
INSERT INTO llmq.ready (job_id, queue, tenant, priority) VALUES (pg_temp.id('ready'), 'default', 't', 0);
INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority) VALUES (pg_temp.id('due'), now() - interval '1 h', 'default', 't', 0);
INSERT INTO llmq.blocked (job_id, queue, tenant, priority) VALUES (pg_temp.id('fresh'), 'default', 't', 0);
INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
SELECT pg_temp.id(n), w, 'default', 't', 0, 1, 0, 0, now() - interval '1 day', now() - interval '1 day'
FROM (VALUES ('leased', -1), ('mine', :own)) AS v (n, w);
INSERT INTO llmq.answer (job_id, queue, tenant, priority, deliveries, counted, deaths, entry, due_at)
VALUES (pg_temp.id('answered'), 'default', 't', 0, 1, 0, 0, '{}', now() - interval '1 h');
INSERT INTO llmq.result (job_id, queue, deliveries, deaths, created_at) VALUES (pg_temp.id('done'), 'default', 1, 0, '2001-01-01');
INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class, died_at)
VALUES (pg_temp.id('dead'), 'default', 't', 0, 1, 1, 1, 'auth', '2001-01-01');
INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by, cancelled_at) VALUES (pg_temp.id('cancelled'), 'default', 1, 't', '2001-01-01');
INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at) VALUES (101, 'a', 1, now() - interval '1 h');
INSERT INTO llmq.message_lease (id, topic, token, attempts, claimed_at, expires_at)
VALUES (102, 'a', gen_random_uuid(), 1, now() - interval '1 h', now() - interval '1 h');
INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, claimed_at) VALUES (103, 'a', -1, 1, now() - interval '1 h');
INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (104, 1, '2001-01-01');
INSERT INTO llmq.message_done (id, attempts, dead_at) VALUES (105, 1, '2001-01-01');
SELECT pg_temp.contents() AS before \gset

SELECT is(pg_temp.poll(:own) ->> 'state', 'running', 'a worker at home looks at everything');
SELECT is(pg_temp.contents(), :'before'::text, 'it moves, buries and deletes nothing that has no job or message');
SELECT is((SELECT count(job_id) || ' claimed, ' || count(seq) || ' left' FROM llmq.worker_claim(:own, ARRAY(SELECT seq FROM llmq.ready))),
    '0 claimed, 1 left', 'a ready row without a job cannot be claimed');
SELECT is((SELECT count(job_id) FROM llmq_internal.settler_look(10)), 0::bigint, 'the settler does not find an answer without a job');
SELECT is_empty($$SELECT * FROM llmq_internal.settler_settle(pg_temp.id('answered'))$$, 'nor settles it');
SELECT llmq_internal.settler_fail(pg_temp.id('answered'), 'no', true);
SELECT is(llmq_internal.takeover(:own), 0::bigint, 'leases without jobs are not taken over');
SELECT is(llmq.worker_reconcile(:own, '{}', '{}'), 0::bigint, 'nor given back');
SELECT is(llmq.prune(), 0::bigint, 'retention deletes nothing of them');
SELECT is(llmq.redrive(pg_temp.id('dead')), false, 'a dead row without a job cannot be redriven');
SELECT llmq.worker_goodbye(:own);
SELECT is(pg_temp.contents(), :'before'::text, 'and all stands where it stood');

-- With their jobs they move on.
INSERT INTO llmq.job (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority, prompt, submitted_by, submitted_at)
SELECT job_id, 't', 'submit', name, '', 'default', 0, 'x', current_user, now() FROM id;
INSERT INTO llmq.message (id, tenant, topic, dedupe_key) OVERRIDING SYSTEM VALUE SELECT n, 't', 'a', n FROM generate_series(101, 105) AS n;
SELECT worker_id AS own FROM llmq.worker_hello(3, 'here', 'server', pg_backend_pid(), NULL) \gset
SELECT pg_temp.poll(:own);
SELECT is((SELECT string_agg(name || ' ' || place, ', ' ORDER BY name) FROM id JOIN llmq.job_place USING (job_id)),
    'answered answer, due ready, fresh ready, leased ready, mine ready, ready ready',
    'when their jobs are there, all go on, and what is old enough is deleted');
SELECT is((SELECT string_agg(id || ' ' || place, ', ' ORDER BY id) FROM llmq.message_place),
    '101 message_pending, 102 message_pending, 103 message_pending', 'so do messages');

-- -- leases of nobody -----------------------------------------------------------------------------------

SELECT pg_temp.beat();
SELECT count(*) FROM llmq.worker_claim(:own, ARRAY(SELECT seq FROM llmq.ready));
SELECT count(*) AS held FROM llmq.lease \gset
SELECT pg_temp.poll(:own);
SELECT is((SELECT count(*) FROM llmq.lease), :held::bigint, 'a worker keeps the leases that it has');
UPDATE llmq.lease SET deadline = clock_timestamp() - llmq.lease_ttl() - interval '1 s' WHERE job_id = pg_temp.id('mine');
SELECT pg_temp.poll(:own);
SELECT is_empty($$SELECT FROM llmq.lease WHERE job_id = pg_temp.id('mine')$$, 'but not one that is long past its deadline');
SELECT is((SELECT place FROM llmq.job_place WHERE job_id = pg_temp.id('mine')), 'ready', 'whose job is delivered again');

-- -- away from home ---------------------------------------------------------------------------------------

UPDATE llmq.deferred SET due_at = now() - interval '1 h';
INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at) VALUES (106, 'a', 1, now() - interval '1 h');
INSERT INTO llmq.message (id, tenant, topic, dedupe_key) OVERRIDING SYSTEM VALUE VALUES (106, 't', 'a', '106');
INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted, deaths, claimed_at, deadline)
VALUES (pg_temp.id('done'), -1, 'default', 't', 0, 1, 0, 0, now() - interval '1 day', now() - interval '1 day');
INSERT INTO llmq.blocked (job_id, queue, tenant, priority) VALUES (pg_temp.id('dead'), 'default', 't', 0);
INSERT INTO llmq.job (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority, prompt, submitted_by, submitted_at)
SELECT job_id, 't', 'submit', name, '', 'default', 0, 'x', current_user, now() FROM id ON CONFLICT DO NOTHING;
INSERT INTO llmq.message (id, tenant, topic, dedupe_key) OVERRIDING SYSTEM VALUE VALUES (107, 't', 'a', '107');
INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, claimed_at) VALUES (107, 'a', :own, 0, now());

-- Tests that nothing is touched while llmq.home is as it is now.
CREATE FUNCTION pg_temp.untouched(own bigint, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    before constant text := pg_temp.contents();
    control constant jsonb := pg_temp.poll(own);
    job constant uuid := (SELECT l.job_id FROM llmq.lease AS l WHERE l.worker_id = own LIMIT 1);
BEGIN
    RETURN NEXT is(control ->> 'state', 'quarantined', what || ': a worker is told that it is in quarantine');
    RETURN NEXT is(control -> 'due_in', 'null', what || ': nothing is due');
    RETURN NEXT is((SELECT count(*) FROM llmq.worker_poll(own, 0, 1000, NULL, NULL, -1, '')), 1::bigint, what || ': nothing is to be claimed');
    RETURN NEXT throws_ok(format('SELECT * FROM llmq.worker_claim(%s, ARRAY(SELECT seq FROM llmq.ready))', own), '55000', NULL, what || ': nor can be');
    RETURN NEXT is((SELECT verdict FROM llmq.worker_settle(own, jsonb_build_array(jsonb_build_object('job_id', job, 'delivery', 1, 'outcome', 'succeeded',
        'attempts', '[]'::jsonb)))), 'busy', what || ': what a delivery came to is kept by its worker');
    RETURN NEXT is((SELECT verdict FROM llmq.worker_settle_messages(own, '[{"id": 107, "outcome": "sent"}]')), 'busy', what || ': so is what became of a message');
    RETURN NEXT is(llmq.worker_reconcile(own, '{}', '{}'), 0::bigint, what || ': leases are not given back');
    RETURN NEXT is((SELECT count(job_id) FROM llmq_internal.settler_look(10)), 0::bigint, what || ': no answer is settled');
    RETURN NEXT is((SELECT h.state FROM llmq.worker_hello(3, 'other', 'program', 1, now()) AS h), 'quarantined', what || ': so is one that says hello');
    RETURN NEXT is(pg_temp.contents(), before, what || ': nothing is touched');
    RETURN NEXT throws_ok($s$SELECT llmq.submit('x', 'new')$s$, 'PT503', NULL, what || ': no job is taken');
    RETURN NEXT throws_ok($s$SELECT llmq.submit_many('[{"prompt": "x", "idempotency_key": "new"}]')$s$, 'PT503', NULL, what || ': nor many');
    RETURN NEXT throws_ok($s$SELECT llmq.enqueue_outbox('t', '{}', 'new')$s$, 'PT503', NULL, what || ': nor a message');
END
$$;

UPDATE llmq.home SET installation = gen_random_uuid();
SELECT pg_temp.untouched(:own, 'a home of another installation');
UPDATE llmq.home SET installation = NULL;
SELECT pg_temp.untouched(:own, 'a home of a dump of an older version');
SELECT llmq_internal.write_home();
SELECT pg_temp.untouched(:own, 'a foreign home beside ours');
DELETE FROM llmq.home;
SELECT pg_temp.untouched(:own, 'jobs without a home');
SELECT llmq_internal.write_home();
UPDATE llmq.home SET database_oid = database_oid::bigint + 1;
SELECT lives_ok($$SELECT llmq.submit('x', 'new')$$, 'a copy of the files, which is complete, takes jobs');
SELECT is(pg_temp.poll(:own) ->> 'state', 'quarantined', 'though nobody works in it');
SELECT llmq.resume_after_restore();
SELECT is(pg_temp.poll(:own) ->> 'state', 'running', 'before somebody says so');
SELECT lives_ok($$SELECT llmq.submit('x', 'newer')$$, 'then jobs are taken as ever');

SELECT * FROM finish();
ROLLBACK;
