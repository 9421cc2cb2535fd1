-- Who may do what: every function and relation, tried as a role without rights, as a submitter and
-- as one who watches the server.

BEGIN;
SELECT no_plan();

CREATE ROLE llmq_nobody;
CREATE ROLE llmq_alice;
CREATE ROLE llmq_bob;
CREATE ROLE llmq_team ROLE llmq_alice;
CREATE ROLE llmq_admin;
CREATE ROLE llmq_watch IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA public TO llmq_nobody, llmq_alice, llmq_bob, llmq_admin, llmq_watch;
SELECT llmq.grant_submit('llmq_alice'), llmq.grant_submit('llmq_bob'), llmq.grant_admin('llmq_admin');

-- -- nothing for PUBLIC ----------------------------------------------------------------------

SELECT ok(NOT has_schema_privilege('llmq_nobody', 'llmq', 'USAGE') AND NOT has_schema_privilege('llmq_nobody', 'llmq_internal', 'USAGE'),
    'a role without rights cannot even look into the schemas');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND has_function_privilege('llmq_nobody', p.oid, 'EXECUTE')
$$, 'it can execute no routine');
SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v')
        AND (has_table_privilege('llmq_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
            OR has_any_column_privilege('llmq_nobody', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
$$, 'it has no privilege on any relation');
SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid
    WHERE c.relnamespace = 'llmq'::regnamespace
        AND has_sequence_privilege('llmq_nobody', s.seqrelid, 'USAGE, SELECT, UPDATE')
$$, 'nor on any sequence');

-- -- a submitter -------------------------------------------------------------------------------

SELECT set_eq($$
    SELECT c.relname::text FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v')
        AND has_table_privilege('llmq_alice', c.oid, 'SELECT')
$$, ARRAY['job_status', 'dead_letter', 'result', 'attempt', 'outbox', 'outbox_event', 'run', 'usage'], 'a submitter reads what shows its own jobs');
SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v')
        AND has_table_privilege('llmq_alice', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
$$, 'and writes nothing itself');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq'::regnamespace AND has_function_privilege('llmq_alice', p.oid, 'EXECUTE')
        AND (p.proname LIKE 'worker\_%' OR p.proname IN ('redrive', 'prune'))
$$, 'a submitter executes nothing that is a worker''s or an administrator''s');
SELECT set_eq($$
    SELECT p.proname::text FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq_internal'::regnamespace AND has_function_privilege('llmq_alice', p.oid, 'EXECUTE')
$$, ARRAY['submitter_role', 'may_see', 'visible_tenants', 'submitter', 'wait_reason'],
    'of the functions in llmq_internal a submitter executes those that views and row security call for it');

SET LOCAL ROLE llmq_alice;
CREATE TEMP TABLE alice AS SELECT * FROM llmq.submit('Hello', 'of-alice', metadata => '{"a": 1}');
RESET ROLE;
SET LOCAL ROLE llmq_bob;
CREATE TEMP TABLE bob AS SELECT * FROM llmq.submit('Hello', 'of-bob');
RESET ROLE;
GRANT SELECT ON alice, bob TO PUBLIC;
INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, billing, error_message)
SELECT job_id, 1, 1, now(), 'success', 'billed', 'words' FROM alice
UNION ALL SELECT job_id, 1, 1, now(), 'success', 'billed', 'words' FROM bob;
INSERT INTO llmq.result (job_id, text, queue, deliveries, deaths)
SELECT job_id, 'Hi', 'default', 1, 0 FROM alice UNION ALL SELECT job_id, 'Hi', 'default', 1, 0 FROM bob;
INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class)
SELECT job_id, 'default', 't', 0, 1, 1, 1, 'auth' FROM alice UNION ALL SELECT job_id, 'default', 't', 0, 1, 1, 1, 'auth' FROM bob;

SET LOCAL ROLE llmq_alice;
SELECT is((SELECT string_agg(format('%s %s', submitted_by, tenant), ', ') FROM llmq.job_status), 'llmq_alice llmq_alice',
    'a submitter sees its own jobs and no other''s');
SELECT results_eq('SELECT job_id FROM llmq.result', 'SELECT job_id FROM alice', 'its own results and no other''s');
SELECT results_eq('SELECT job_id FROM llmq.attempt', 'SELECT job_id FROM alice', 'its own attempts and no other''s');
SELECT results_eq('SELECT job_id FROM llmq.dead_letter', 'SELECT job_id FROM alice', 'its own dead jobs and no other''s');
SELECT is((SELECT llmq_internal.submitter(job_id)::text FROM alice), 'llmq_alice', 'it is told who submitted its own jobs');
SELECT is((SELECT llmq_internal.submitter(job_id) FROM bob), NULL, 'of another''s it does not even hear that they are there');
SELECT throws_ok('SELECT llmq.cancel(job_id) FROM bob', 'PT404', NULL, 'another''s job cannot be cancelled: there is none');
SELECT throws_ok($$SELECT llmq.redrive(job_id) FROM alice$$, '42501', NULL, 'redrive is for administrators');
SELECT throws_ok($$SELECT * FROM llmq.submit('x', 'k', tenant => 'llmq_bob')$$, 'PT403', NULL, 'a foreign tenant cannot be named');
RESET ROLE;

DELETE FROM llmq.dead_job;

-- Membership counts: what the team submits, its members see.
SELECT llmq.grant_submit('llmq_team');
SET LOCAL ROLE llmq_team;
CREATE TEMP TABLE team AS SELECT * FROM llmq.submit('Hello', 'of-team');
RESET ROLE;
GRANT SELECT ON team TO PUBLIC;
SET LOCAL ROLE llmq_alice;
SELECT results_eq('SELECT count(*) FROM llmq.job_status', 'VALUES (2::bigint)', 'a member sees the jobs of its group');
SELECT lives_ok('SELECT llmq.cancel(job_id) FROM team', 'and may cancel them');
RESET ROLE;
SET LOCAL ROLE llmq_bob;
SELECT results_eq('SELECT count(*) FROM llmq.job_status', 'VALUES (1::bigint)', 'one who is no member does not');
RESET ROLE;

INSERT INTO llmq.role_tenant VALUES ('llmq_alice', 'acme');
SET LOCAL ROLE llmq_alice;
SELECT lives_ok($$SELECT * FROM llmq.submit('x', 'k', tenant => 'acme')$$, 'a tenant of llmq.role_tenant can be named');
RESET ROLE;

-- -- the calling role is the one whose rights the call has ------------------------------------------

CREATE FUNCTION public.of_bob(key text) RETURNS uuid LANGUAGE sql SECURITY DEFINER
AS $$ SELECT job_id FROM llmq.submit('Hello', key) $$;
ALTER FUNCTION public.of_bob(text) OWNER TO llmq_bob;
GRANT EXECUTE ON FUNCTION public.of_bob(text) TO llmq_alice;
SET LOCAL ROLE llmq_alice;
SELECT public.of_bob('definer') AS job_id \gset
RESET ROLE;
SELECT is((SELECT submitted_by::text FROM llmq.job WHERE job_id = :'job_id'), 'llmq_bob',
    'inside a definer function the owner submits');

CREATE TABLE public.notes (id int);
CREATE FUNCTION public.submit_note() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM llmq.submit('Hello', 'note-' || NEW.id); RETURN NEW; END $$;
CREATE TRIGGER submit_note AFTER INSERT ON public.notes FOR EACH ROW EXECUTE FUNCTION public.submit_note();
GRANT INSERT ON public.notes TO llmq_alice;
SET LOCAL ROLE llmq_alice;
INSERT INTO public.notes VALUES (1);
RESET ROLE;
INSERT INTO public.notes VALUES (2);
SELECT is((SELECT string_agg(format('%s %s', idempotency_key, submitted_by), ', ' ORDER BY idempotency_key)
    FROM llmq.job WHERE idempotency_key LIKE 'note-%'), 'note-1 llmq_alice, note-2 ' || current_user, 'in a trigger it is the role that fires it');

-- -- a worker outside the server ------------------------------------------------------------------------

CREATE ROLE llmq_remote;
SELECT llmq.grant_worker('llmq_remote');
SELECT ok(NOT has_schema_privilege('llmq_remote', 'llmq_internal', 'USAGE'), 'a worker outside the server may not use schema llmq_internal');
SELECT set_eq($$
    SELECT p.proname::text FROM pg_proc AS p
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND has_function_privilege('llmq_remote', p.oid, 'EXECUTE')
$$, ARRAY['worker_hello', 'worker_poll', 'worker_claim', 'worker_settle', 'worker_claim_messages', 'worker_settle_messages', 'worker_draw',
    'worker_heartbeat', 'worker_drain', 'worker_reconcile', 'worker_goodbye'], 'it executes the functions of a worker, and no other');
SET LOCAL ROLE llmq_remote;
SELECT lives_ok($$ SELECT * FROM llmq.worker_hello(3, 'remote', 'program', 0, NULL) $$, 'a worker outside the server can say hello');
RESET ROLE;

-- -- an administrator, and one who watches ------------------------------------------------------------

SET LOCAL ROLE llmq_admin;
SELECT lives_ok($$INSERT INTO llmq.queue (name) VALUES ('admin-made')$$, 'an administrator configures');
SELECT lives_ok('SELECT * FROM llmq.check()', 'checks');
SELECT lives_ok('SELECT llmq.prune()', 'prunes');
SELECT lives_ok('SELECT llmq.redrive(job_id) FROM alice', 'redrives');
SELECT throws_ok('SELECT * FROM llmq.job', '42501', NULL, 'and reads no prompt');
SELECT isnt_empty('SELECT * FROM llmq.queue_status', 'it sees how queues stand');
SELECT lives_ok('SELECT * FROM llmq.outbox_status', 'and how topics do');
RESET ROLE;
SELECT set_eq($$
    SELECT p.proname::text FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq_internal'::regnamespace AND has_function_privilege('llmq_admin', p.oid, 'EXECUTE')
$$, ARRAY['submitter_role', 'may_see', 'visible_tenants', 'submitter', 'wait_reason', 'lost_sessions', 'queue_lines', 'outbox_lines',
    'metric_lines'], 'of the functions in llmq_internal an administrator executes those that views and row security call for it');

SET LOCAL ROLE llmq_watch;
SELECT cmp_ok((SELECT count(*) FROM llmq.job_status), '>=', 5::bigint, 'pg_monitor sees all jobs');
SELECT is_empty('SELECT text, json, metadata, error_message FROM llmq.job_status WHERE num_nonnulls(text, json, metadata, error_message) > 0',
    'without what was said in them');
SELECT throws_ok('SELECT * FROM llmq.result', '42501', NULL, 'and no result');
SELECT isnt_empty('SELECT * FROM llmq.queue_status', 'it sees how queues stand');
SELECT lives_ok('SELECT * FROM llmq.outbox_status', 'and how topics do');
SELECT is((SELECT count(*) FROM (SELECT outcome, billing FROM llmq.attempt) AS a), 2::bigint, 'it sees every attempt');
SELECT throws_ok('SELECT error_message FROM llmq.attempt', '42501', NULL, 'without its words');
SELECT lives_ok('SELECT endpoint, breaker, last_error_at, in_flight FROM llmq.endpoint_status', 'it sees how endpoints stand');
SELECT throws_ok('SELECT last_error FROM llmq.endpoint_status', '42501', NULL, 'without their words, too');
RESET ROLE;

-- Who may read the words of attempts sees no other's.
CREATE ROLE llmq_both IN ROLE pg_monitor;
SELECT llmq.grant_submit('llmq_both');
SET LOCAL ROLE llmq_both;
SELECT is((SELECT count(*) FROM llmq.attempt), 0::bigint, 'one who watches and submits sees its own attempts alone, for it could read their words');
RESET ROLE;

-- -- a role that is dropped ----------------------------------------------------------------------------

CREATE ROLE llmq_gone;
SELECT llmq.grant_submit('llmq_gone');
SET LOCAL ROLE llmq_gone;
CREATE TEMP TABLE gone AS SELECT * FROM llmq.submit('Hello', 'of-gone', run_at => now() + interval '1 day', metadata => '{"g": 1}');
RESET ROLE;
CREATE TEMP TABLE left_over AS SELECT * FROM gone;
GRANT SELECT ON left_over TO PUBLIC;
DROP OWNED BY llmq_gone;
DROP ROLE llmq_gone;
SET LOCAL ROLE llmq_alice;
SELECT throws_ok('SELECT llmq.cancel(job_id) FROM left_over', 'PT404', NULL, 'the job of a role that is dropped is no other submitter''s');
SELECT is_empty('SELECT FROM llmq.job_status JOIN left_over USING (job_id)', 'who does not see it either');
RESET ROLE;
SET LOCAL ROLE llmq_admin;
SELECT throws_ok('SELECT llmq.cancel(job_id) FROM left_over', 'PT404', NULL, 'nor is it an administrator''s who is no superuser');
RESET ROLE;
SELECT is((SELECT s.metadata FROM llmq.job_status AS s JOIN left_over USING (job_id)), '{"g": 1}', 'a superuser sees it in full');
SELECT is((SELECT count(*) FROM left_over, llmq_internal.wait_look(job_id, session_user)), 1::bigint, 'can wait for it');
SELECT is((SELECT count(*) FROM left_over, llmq.explain(job_id) AS e WHERE e.event = 'submitted'), 1::bigint, 'has it explained');
SELECT lives_ok($$SELECT llmq.submit('After.', 'after-gone', after => ARRAY[job_id]) FROM left_over$$, 'can come after it');
SELECT is((SELECT llmq.cancel(job_id) FROM left_over), true, 'and can cancel it');

SELECT * FROM finish();
ROLLBACK;
