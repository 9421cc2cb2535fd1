-- What users find: names, arguments, comments, and no right for PUBLIC.
BEGIN;
SELECT no_plan();

SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v')
        AND obj_description(c.oid, 'pg_class') IS NULL
$$, 'every table and view has a comment');

SELECT is_empty($$
    SELECT t.oid::regtype FROM pg_type AS t JOIN pg_class AS c ON c.oid = t.typrelid
    WHERE t.typnamespace = 'llmq'::regnamespace AND c.relkind = 'c' AND t.typname <> 'placement'
        AND obj_description(t.oid, 'pg_type') IS NULL
$$, 'every composite type that users meet has a comment');

CREATE TEMP TABLE public_function (name text);
INSERT INTO public_function
SELECT unnest('{submit, submit_many, http_submit, idempotency_begin, idempotency_finish, idempotency_release, step_begin,
    step_finish, step_release, derive_key, prune_idempotency, wait, start_worker, stop_worker, wake_worker, resume_after_restore, job_id,
    namespace, uuid5, system_identifier, next_xid, default_queue, worker_hello, worker_heartbeat,
    worker_goodbye, worker_poll, worker_claim, worker_settle, worker_config}'::text[]);

SELECT is_empty($$
    SELECT f.name FROM public_function AS f
    WHERE NOT EXISTS (
        SELECT FROM pg_proc AS p
        WHERE p.pronamespace = 'llmq'::regnamespace AND p.proname = f.name
            AND obj_description(p.oid, 'pg_proc') IS NOT NULL)
$$, 'every public function is there and has a comment');

SELECT isnt(obj_description('llmq'::regnamespace, 'pg_namespace'), NULL, 'the schema has a comment');

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

SELECT * FROM finish();
ROLLBACK;
