-- Submitting in bulk: the rules of submit, the order, and errors that name the element.
BEGIN;
SELECT no_plan();

INSERT INTO llmq.queue (name) VALUES ('other');

CREATE TEMP TABLE many AS SELECT * FROM llmq.submit_many('[
    {"prompt": "one", "idempotency_key": "k-1"},
    {"prompt": "two", "idempotency_key": "k-2", "priority": 5, "run_at": null},
    {"messages": [{"role": "user", "content": "three"}], "idempotency_key": "k-3", "queue": "other",
        "run_at": "2100-01-01 00:00:00+00", "expires_at": "2100-01-02T00:00:00Z", "system": "s", "model": "m",
        "params": {"max_tokens": 1}, "metadata": [1], "outbox": [{"topic": "t"}], "run_id": "r", "step": "st",
        "policy": {"deadline": "5 s"}, "tenant": "acme"}]') WITH ORDINALITY;
SELECT results_eq('SELECT job_id, state, replayed FROM many ORDER BY ordinality', $$
    SELECT * FROM (VALUES
        (llmq.job_id(current_user, 'submit', 'k-1'), 'ready', false),
        (llmq.job_id(current_user, 'submit', 'k-2'), 'ready', false),
        (llmq.job_id('acme', 'submit', 'k-3'), 'scheduled', false)) AS v (job_id, state, replayed)
    ORDER BY job_id $$, 'one row a job, in the order of job_id');
SELECT results_eq('SELECT j.idempotency_key FROM llmq.ready AS r JOIN llmq.job AS j USING (job_id) ORDER BY r.seq',
    $$ VALUES ('k-1'), ('k-2') $$, 'they are ready in the order of the array');
SELECT is((SELECT due_at FROM llmq.deferred), '2100-01-01 00:00:00+00', 'or later');
SELECT is((SELECT count(*) FROM llmq.check()), 0::bigint, 'no invariant is broken');

-- The same as single submits.
SELECT results_eq($$
    SELECT replayed, state FROM (VALUES (1)) AS v, llmq.submit('two', 'k-2')
    UNION ALL SELECT replayed, state FROM llmq.submit(NULL, 'k-3', 'other', 'acme', 's',
        '[{"role": "user", "content": "three"}]', 'm', '{"max_tokens": 1}', '[1]', '[{"topic": "t"}]',
        run_id => 'r', step => 'st', policy => '{"deadline": "5 s"}') $$,
    $$ VALUES (true, 'ready'), (true, 'scheduled') $$, 'a single submit of the same request is a replay');
SELECT is((SELECT to_jsonb(j) - '{fingerprint, submitted_at, job_id}'::text[] FROM llmq.job AS j WHERE idempotency_key = 'k-3'),
    jsonb_build_object('tenant', 'acme', 'scope', 'submit', 'idempotency_key', 'k-3', 'queue', 'other', 'priority', 0,
        'prompt', NULL, 'system', 's', 'messages', '[{"role": "user", "content": "three"}]'::jsonb, 'model', 'm',
        'params', '{"max_tokens": 1}'::jsonb, 'metadata', '[1]'::jsonb, 'outbox', '[{"topic": "t"}]'::jsonb,
        'on_complete', NULL, 'run_at', '2100-01-01T00:00:00+00:00'::timestamptz,
        'expires_at', '2100-01-02T00:00:00+00:00'::timestamptz, 'after', NULL, 'run_id', 'r', 'step', 'st',
        'policy', '{"deadline": "5 s"}'::jsonb, 'submitted_by', current_user),
    'every argument is kept in the job');
SELECT is((SELECT priority FROM llmq.job WHERE idempotency_key = 'k-2'), 5::smallint, 'the priority too');

-- Replays among the new, and in one array.
SELECT results_eq($$
    SELECT m.job_id, m.state, m.replayed
    FROM llmq.submit_many('[
        {"prompt": "new", "idempotency_key": "k-4"}, {"prompt": "one", "idempotency_key": "k-1"},
        {"prompt": "new", "idempotency_key": "k-4"}, {"prompt": "new", "idempotency_key": "k-4", "priority": 9}]') AS m
    ORDER BY m.job_id = llmq.job_id(current_user, 'submit', 'k-4') $$, $$
    SELECT llmq.job_id(current_user, 'submit', key), 'ready', replayed
    FROM (VALUES ('k-1', true), ('k-4', false), ('k-4', true), ('k-4', true)) AS v (key, replayed) $$,
    'known keys are replayed, also of the same array');
SELECT is((SELECT priority FROM llmq.job WHERE idempotency_key = 'k-4'), 0::smallint, 'the first of the array is the job');
SELECT is((SELECT count(*) FROM llmq.ready), 3::bigint, 'and is enqueued once');
SELECT results_eq($$ SELECT replayed FROM llmq.submit_many('[{"prompt": "one", "idempotency_key": "k-1"}]') $$,
    'VALUES (true)', 'an array of replays adds nothing');
SELECT is_empty($$ SELECT * FROM llmq.submit_many('[]') $$, 'an empty array is nothing');
SELECT is((SELECT count(*) FROM llmq.job), 4::bigint, 'there are as many jobs as keys');

-- Refusals: the element, counted from 0; and nothing is left.
CREATE FUNCTION pg_temp.refusal(jobs jsonb, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM llmq.submit_many(jobs);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;
CREATE TEMP TABLE refused (id int GENERATED ALWAYS AS IDENTITY, code text, element text, message text);
INSERT INTO refused (code, element, message) VALUES
    ('PT400', '"x"', 'a job must be a JSON object'),
    ('PT400', 'null', 'a job must be a JSON object'),
    ('PT400', '{"prompt": "x"}', 'idempotency_key is required'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "promt": "x"}', 'a job cannot have "promt"'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "job_id": "x"}', 'a job cannot have "job_id"'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "submitted_by": "x"}', 'a job cannot have "submitted_by"'),
    ('PT400', '{"prompt": 1, "idempotency_key": "b"}', 'prompt must be a string'),
    ('PT400', '{"prompt": "x", "idempotency_key": 7}', 'idempotency_key must be a string'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "priority": "high"}', 'invalid input syntax for type smallint: "high"'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "priority": 10}', 'priority must be from 0 to 9'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "priority": 1e6}', 'value "1000000" is out of range for type smallint'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "run_at": "soon"}', 'invalid input syntax for type timestamp with time zone: "soon"'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "run_at": "infinity"}', 'run_at and expires_at must be finite'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "after": ["x"]}', 'invalid input syntax for type uuid: "x"'),
    ('PT400', '{"idempotency_key": "b"}', 'a prompt is required'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "params": []}', 'params must be a JSON object'),
    ('PT400', '{"prompt": "x", "idempotency_key": "b", "outbox": [{}]}', 'each outbox entry must be an object with a topic'),
    ('PT404', '{"prompt": "x", "idempotency_key": "b", "queue": "nowhere"}', 'there is no queue "nowhere"'),
    ('PT422', '{"prompt": "y", "idempotency_key": "k-1"}', 'idempotency key "k-1" was used with another request'),
    ('PT422', '{"prompt": "y", "idempotency_key": "a"}', 'idempotency key "a" was used with another request');
SELECT results_eq(
    format($$ SELECT code, message FROM pg_temp.refusal('[{"prompt": "x", "idempotency_key": "a"}, %s]') $$, element),
    format('SELECT %L, %L', code, 'element 1: ' || message), format('%s: %s', code, element))
FROM refused ORDER BY id;
SELECT is_empty($$
    SELECT r.element, f.hint
    FROM refused AS r, pg_temp.refusal(format('[{"prompt": "x", "idempotency_key": "a"}, %s]', r.element)::jsonb) AS f
    WHERE coalesce(f.hint, '') !~ '\.$'
$$, 'each refusal has a hint, a sentence');
SELECT throws_ok('SELECT llmq.submit_many(' || jobs || ')', 'PT400', 'jobs must be a JSON array of objects', jobs || ' is refused')
FROM unnest(ARRAY['NULL', $$'{}'$$, $$'"x"'$$, $$'null'$$]) AS jobs;
SELECT is((SELECT count(*) FROM llmq.job), 4::bigint, 'nothing that was refused left a job');

CREATE ROLE llmq_test_alice;
GRANT USAGE ON SCHEMA llmq TO llmq_test_alice;
GRANT EXECUTE ON FUNCTION llmq.submit_many TO llmq_test_alice;
SET ROLE llmq_test_alice;
SELECT throws_ok($$ SELECT llmq.submit_many('[{"prompt": "x", "idempotency_key": "b", "tenant": "acme"}]') $$,
    'PT403', 'element 0: role "llmq_test_alice" may not submit for tenant "acme"', 'the tenant is checked for each');
SELECT lives_ok($$ SELECT llmq.submit_many('[{"prompt": "x", "idempotency_key": "b"}]') $$, 'a role submits for itself');
RESET ROLE;
SELECT is((SELECT submitted_by FROM llmq.job WHERE idempotency_key = 'b'), 'llmq_test_alice', 'and is noted');

-- Many.
SELECT is((SELECT count(*) FROM llmq.submit_many((
        SELECT jsonb_agg(jsonb_build_object('prompt', 'x', 'idempotency_key', 'n-' || n)) FROM generate_series(1, 3000) AS n))
    WHERE NOT replayed), 3000::bigint, 'thousands of jobs in one call');
SELECT is_empty($$
    SELECT FROM (
        SELECT substr(j.idempotency_key, 3)::int AS n, lag(substr(j.idempotency_key, 3)::int) OVER (ORDER BY r.seq) AS before
        FROM llmq.ready AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'n-%') AS o
    WHERE n < before $$, 'are ready in the order of the array');
SELECT is((SELECT count(*) FROM llmq.check()), 0::bigint, 'and break no invariant');

SELECT * FROM finish();
ROLLBACK;
