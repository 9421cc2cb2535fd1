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

-- \df llmq.* is the manual.
SELECT set_eq($$ SELECT p.proname::text FROM pg_proc AS p WHERE p.pronamespace = 'llmq'::regnamespace $$,
    '{submit, submit_many, http_submit, wait, cancel, explain, idempotency_begin, idempotency_finish, idempotency_release,
      step_begin, step_finish, step_release, enqueue_outbox, outbox_claim, outbox_ack, outbox_nack, derive_key, job_id,
      namespace, uuid5, redrive, redrive_queue, redrive_outbox, prune, prune_idempotency, check, start_worker, stop_worker,
      reset_breaker, resume_after_restore, grant_submit, grant_admin, grant_worker, budget_lines, default_queue, lease_ttl,
      wait_until, worker_hello, worker_poll, worker_claim, worker_settle, worker_claim_messages, worker_settle_messages,
      worker_draw, worker_heartbeat, worker_drain, worker_reconcile, worker_goodbye}'::text[],
    'schema llmq has the functions for users, and those that a worker calls, and no other');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
$$, 'every function and procedure in schema llmq has a comment, in each of its forms');

SELECT is_empty($$
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend AS d
    WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'llmq_internal'::regnamespace
        AND d.classid <> 'pg_proc'::regclass
$$, 'schema llmq_internal has functions only');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'llmq_internal'::regnamespace
        AND EXISTS (SELECT FROM pg_proc AS q WHERE q.pronamespace = 'llmq'::regnamespace AND q.proname = p.proname)
$$, 'no function of schema llmq_internal has the name of one in schema llmq');

SELECT isnt((SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'llmq'), NULL,
    'the extension has a comment');
SELECT is_empty($$
    SELECT n FROM unnest('{llmq, llmq_internal}'::regnamespace[]) AS n WHERE obj_description(n, 'pg_namespace') IS NULL
$$, 'both schemas have a comment');

-- -- rights ----------------------------------------------------------------------------------

SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace)
        AND EXISTS (
            SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
            WHERE a.grantee = 0)
$$, 'PUBLIC may execute no function');

SELECT is_empty($$
    SELECT n.nspname FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
    WHERE n.nspname IN ('llmq', 'llmq_internal') AND a.grantee = 0
$$, 'PUBLIC may use neither schema');

SELECT is_empty($$
    SELECT c.oid::regclass FROM pg_class AS c, aclexplode(c.relacl) AS a
    WHERE c.relnamespace = 'llmq'::regnamespace AND a.grantee = 0
$$, 'PUBLIC may read or write no relation');

SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND p.prosecdef
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
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND l.lanname IN ('sql', 'plpgsql')
        AND position(chr(92) IN regexp_replace(p.prosrc, '\mE''([^'']|'''')*''', '', 'g')) > 0
$$, 'no function has a backslash outside of an E literal');

SELECT * FROM finish();
ROLLBACK;
