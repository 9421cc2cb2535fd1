-- What users find: names, arguments, comments, and no right for PUBLIC.
BEGIN;
SELECT no_plan();

-- -- comments: psql's \d+, \df+, \dT+ and \dx show them ---------------------------------------

SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind NOT IN ('i', 'S', 't', 'c')
        AND obj_description(c.oid, 'pg_class') IS NULL
$$, 'every table and view, of whatever kind, has a comment');

SELECT is_empty($$
    SELECT format('%s.%s', c.relname, a.attname)
    FROM unnest('{endpoint, queue, destination, budget, role_tenant}'::text[]) AS t (name)
    JOIN pg_class AS c ON c.oid = ('llmq.' || t.name)::regclass
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE col_description(c.oid, a.attnum) IS NULL
$$, 'every column of a table of configuration has a comment');

SELECT is_empty($$
    SELECT t.oid::regtype FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
    WHERE t.typnamespace = 'llmq'::regnamespace AND t.typelem = 0
        AND (c.relkind IS NULL OR c.relkind = 'c')
        AND obj_description(t.oid, 'pg_type') IS NULL
$$, 'every type has a comment');

-- What users find: what roles are given, and what a superuser is told to call.
CREATE ROLE llmq_user;
SELECT llmq.grant_submit('llmq_user'), llmq.grant_admin('llmq_user'), llmq.grant_worker('llmq_user');
CREATE TEMP TABLE public_function (name text);
INSERT INTO public_function
SELECT unnest('{submit, submit_many, http_submit, idempotency_begin, idempotency_finish, idempotency_release, step_begin,
    step_finish, step_release, derive_key, wait, cancel, redrive, redrive_queue, prune, prune_idempotency, check,
    start_worker, stop_worker, wake_worker, resume_after_restore, grant_submit, grant_admin, grant_worker, lease_ttl, job_id,
    namespace, uuid5, system_identifier, next_xid, default_queue, worker_hello, worker_heartbeat,
    worker_goodbye, worker_poll, worker_claim, worker_settle, worker_config}'::text[])
UNION
SELECT proname FROM pg_proc
WHERE pronamespace = 'llmq'::regnamespace AND has_function_privilege('llmq_user', oid, 'EXECUTE');

SELECT is_empty($$
    SELECT f.name FROM public_function AS f
    WHERE NOT EXISTS (
        SELECT FROM pg_proc AS p WHERE p.pronamespace = 'llmq'::regnamespace AND p.proname = f.name)
$$, 'every public function is there');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p JOIN public_function AS f ON f.name = p.proname
    WHERE p.pronamespace = 'llmq'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
$$, 'and has a comment, in each of its forms');

SELECT isnt((SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'llmq'), NULL,
    'the extension has a comment');
SELECT isnt(obj_description('llmq'::regnamespace, 'pg_namespace'), NULL, 'the schema has a comment');

-- -- rights ----------------------------------------------------------------------------------

SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq'::regnamespace
        AND EXISTS (
            SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
            WHERE a.grantee = 0)
$$, 'PUBLIC may execute no function');

SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c, aclexplode(c.relacl) AS a
    WHERE c.relnamespace = 'llmq'::regnamespace AND a.grantee = 0
$$, 'PUBLIC may read or write no relation');

SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq'::regnamespace AND p.prosecdef
        AND NOT coalesce(p.proconfig && ARRAY['search_path=pg_catalog, pg_temp'], false)
$$, 'every definer function pins its search_path');

-- -- names ------------------------------------------------------------------------------------

SELECT is(
    (SELECT p.proargnames FROM pg_proc AS p WHERE p.oid = 'llmq.submit'::regproc),
    '{prompt, idempotency_key, queue, tenant, system, messages, model, params, metadata, outbox,
      on_complete, run_at, priority, expires_at, after, run_id, step, policy}'::text[],
    'submit has the documented arguments in the documented order');
SELECT is(
    (SELECT p.pronargdefaults::int FROM pg_proc AS p WHERE p.oid = 'llmq.submit'::regproc), 18,
    'and a default for each');
SELECT is(
    (SELECT p.provolatile::text || p.proparallel::text FROM pg_proc AS p WHERE p.oid = 'llmq.submit'::regproc),
    'vu', 'submit is volatile and unsafe in parallel plans');

SELECT is(
    ARRAY(SELECT name FROM pg_settings WHERE name LIKE 'llmq.%' ORDER BY name),
    '{llmq.callback_timeout, llmq.databases, llmq.enabled, llmq.key_wait, llmq.max_in_flight,
      llmq.poll_interval, llmq.secrets_directory, llmq.workers}'::text[],
    'the settings are the documented ones');
SELECT throws_ok($$ SET llmq.max_inflight = 1 $$, '42602', NULL,
    'a mistyped setting is refused');

-- Bodies are read under the settings of whoever calls: of these, standard_conforming_strings says what
-- a backslash is, but in E'...'.
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
    WHERE p.pronamespace = 'llmq'::regnamespace AND l.lanname IN ('sql', 'plpgsql')
        AND position(chr(92) IN regexp_replace(p.prosrc, '\mE''([^'']|'''')*''', '', 'g')) > 0
$$, 'no function has a backslash outside of an E literal');

SELECT * FROM finish();
ROLLBACK;
