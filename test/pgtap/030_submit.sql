-- Submitting: new, replayed, refused; where the job then stands.
BEGIN;
SELECT no_plan();

CREATE TEMP TABLE first AS SELECT * FROM llmq.submit('Say hello', 'key-1', metadata => '{"b": 1, "a": 2}');
SELECT is((SELECT state FROM first), 'ready', 'a new job is ready');
SELECT is((SELECT replayed FROM first), false, 'and not replayed');
SELECT results_eq($$ SELECT job_id FROM llmq.ready $$, $$ SELECT job_id FROM first $$,
    'it stands in the ready table');
SELECT is((SELECT s FROM llmq.submit('Say hello', 'key-1', metadata => '{"a":2,"b":1}') AS s),
    (SELECT ROW(job_id, 'ready', true)::llmq.submission FROM first),
    'the same request under the same key is the same job, replayed');
SELECT is((SELECT count(*) FROM llmq.job), 1::bigint, 'a replay adds no job');
SELECT is((SELECT count(*) FROM llmq.ready), 1::bigint, 'and enqueues nothing');

SELECT is((SELECT tenant || ' ' || scope || ' ' || submitted_by FROM llmq.job),
    format('%1$s submit %1$s', current_user), 'the tenant is the calling role by default');

-- The fingerprint: a change of any of these is another request.
SELECT throws_ok(format('SELECT llmq.submit(%s)', arguments), 'PT422',
    'idempotency key "key-1" was used with another request', 'another request is refused: ' || arguments)
FROM unnest(ARRAY[
    $$'Say goodbye', 'key-1', metadata => '{"a": 2, "b": 1}'$$,
    $$'Say hello', 'key-1'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 2}'$$,
    $$'Say hello', 'key-1', metadata => '{"traceparent": "x"}'$$,
    $$'Say hello', 'key-1', metadata => '"traceparent"'$$,
    $$'Say hello', 'key-1', metadata => '["traceparent"]'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', system => 'Be brief'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', model => 'm'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', params => '{"temperature": 1}'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', outbox => '[{"topic": "t"}]'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', run_id => 'r'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', step => 's'$$,
    $$'Say hello', 'key-1', metadata => '{"a": 2, "b": 1}', policy => '{"max_attempts": 2}'$$,
    $$NULL, 'key-1', messages => '[{"role": "user", "content": "Say hello"}]',
        metadata => '{"a": 2, "b": 1}'$$]) AS arguments;

-- When it runs is not part of the request.
SELECT ok((SELECT replayed FROM llmq.submit('Say hello', 'key-1', metadata => '{"a": 2, "b": 1}',
    priority => 9, run_at => now() + '1 day', expires_at => now() + '2 days')),
    'priority, run_at and expires_at may differ in a replay');

INSERT INTO llmq.queue (name) VALUES ('other');
SELECT throws_ok($$ SELECT llmq.submit('Say hello', 'key-1', 'other', metadata => '{"a": 2, "b": 1}') $$,
    'PT422', NULL, 'another queue is another request');

-- Later.
SELECT is((SELECT state FROM llmq.submit('Later', 'key-2', run_at => now() + '1 h')), 'scheduled',
    'a job with a run_at to come is scheduled');
SELECT is((SELECT due_at FROM llmq.deferred), now() + '1 h', 'it stands in the deferred table');
SELECT is((SELECT state FROM llmq.submit('Now', 'key-3', run_at => now() - interval '1 h')), 'ready',
    'a run_at that has passed is at once');

-- What the job keeps.
SELECT llmq.submit(NULL, 'key-4', queue => 'other', system => 'Be brief',
    messages => '[{"role": "user", "content": "Hi"}]', model => 'm-1', params => '{"max_tokens": 10}',
    outbox => '[{"topic": "a", "payload": {"x": 1}}, {"topic": "b", "on": "dead", "dedupe_key": "k"}]',
    priority => 7, run_id => 'run', step => 'one', policy => '{"deadline": "30 s", "require_json": true}');
SELECT is((SELECT to_jsonb(j) - '{fingerprint, submitted_at}'::text[] FROM llmq.job AS j WHERE idempotency_key = 'key-4'),
    jsonb_build_object('job_id', llmq.job_id(current_user, 'submit', 'key-4'), 'tenant', current_user,
        'scope', 'submit', 'idempotency_key', 'key-4', 'queue', 'other', 'priority', 7, 'prompt', NULL,
        'system', 'Be brief', 'messages', '[{"role": "user", "content": "Hi"}]'::jsonb, 'model', 'm-1',
        'params', '{"max_tokens": 10}'::jsonb, 'metadata', NULL,
        'outbox', '[{"topic": "a", "payload": {"x": 1}}, {"topic": "b", "on": "dead", "dedupe_key": "k"}]'::jsonb,
        'on_complete', NULL, 'run_at', NULL, 'expires_at', NULL, 'after', NULL, 'run_id', 'run',
        'step', 'one', 'policy', '{"deadline": "30 s", "require_json": true}'::jsonb,
        'submitted_by', current_user),
    'every argument is kept in the job');
SELECT is((SELECT octet_length(fingerprint) FROM llmq.job WHERE idempotency_key = 'key-4'), 32,
    'the fingerprint is a SHA-256');
SELECT is(llmq_internal.fingerprint('q', text, NULL, json, 'm', json, json, NULL, 'public.f', ids, 'r', text, json),
    sha256(convert_to(jsonb_build_array('q', text, NULL, json, 'm', json, json, NULL, 'public.f', ids, 'r', text, json)::text, 'UTF8')),
    format('of the text of a jsonb array: %s, %s, %s', text, json, ids))
FROM (VALUES
    ('plain', jsonb '{"b": [1, 2.50, {"c": null}], "a": ""}', NULL::uuid[]),
    (E'"quoted" \\ \b\f\n\r\t\x01 é 漢 😀', jsonb '"a \"scalar\" é"', ARRAY[gen_random_uuid()]),
    ('', jsonb '[]', ARRAY[gen_random_uuid(), gen_random_uuid()]),
    (NULL, jsonb '{}', NULL),
    ('null', jsonb 'null', NULL),
    ('1', jsonb '-1e3', NULL),
    ('none', NULL, NULL)) AS v (text, json, ids);
SELECT is(llmq_internal.fingerprint('q', 'p', NULL, NULL, NULL, NULL, traced, NULL, NULL, NULL, NULL, NULL, NULL),
    llmq_internal.fingerprint('q', 'p', NULL, NULL, NULL, NULL, plain, NULL, NULL, NULL, NULL, NULL, NULL),
    format('without the trace: %s', traced))
FROM (VALUES
    (jsonb '{"traceparent": "00-1-2-01", "a": 1}', jsonb '{"a": 1}'),
    ('{"traceparent": "00-1-2-01"}', NULL)) AS v (traced, plain);
SELECT is((SELECT fingerprint FROM llmq.job WHERE idempotency_key = 'key-3'),
    sha256('["default", "Now", null, null, null, null, null, null, null, null, null, null, null]'),
    'over the documented text');

-- Rolled back.
SAVEPOINT before;
SELECT llmq.submit('x', 'key-5');
ROLLBACK TO before;
SELECT is((SELECT replayed FROM llmq.submit('y', 'key-5')), false,
    'what was rolled back never was: its key is free for another request');

SELECT is((SELECT count(*) FROM llmq.home), 1::bigint, 'the first submit notes the home of its jobs, once');
SELECT is((SELECT ROW(h.*)::text FROM llmq.home AS h),
    (SELECT ROW(llmq_internal.system_identifier(), d.oid, i.id)::text FROM pg_database AS d, llmq.installation AS i
    WHERE d.datname = current_database()),
    'which is this database, and this installation in it');

-- Replays give the present state.
DELETE FROM llmq.ready WHERE job_id = llmq.job_id(current_user, 'submit', 'key-3');
INSERT INTO llmq.result (job_id, text, queue, deliveries, deaths)
VALUES (llmq.job_id(current_user, 'submit', 'key-3'), 'answer', 'default', 1, 0);
SELECT is((SELECT state FROM llmq.submit('Now', 'key-3')), 'succeeded', 'a replay tells the present state');

-- insert_jobs, the part in C.
SELECT is(llmq_internal.insert_jobs('{}'), '{}', 'no jobs give no ids');
SELECT is(
    (SELECT llmq_internal.insert_jobs(array_agg(j ORDER BY j.job_id DESC)) FROM llmq.job AS j),
    '{}', 'jobs whose keys are taken are left out');
SELECT is(
    (SELECT llmq_internal.insert_jobs(array_agg(j ORDER BY n DESC)) FROM (
        SELECT n, jsonb_populate_record(k, jsonb_build_object('job_id',
            lpad(n::text, 32, '0'))) AS j
        FROM llmq.job AS k, generate_series(1, 3) AS n WHERE k.idempotency_key = 'key-1') AS x),
    '{00000000-0000-0000-0000-000000000001, 00000000-0000-0000-0000-000000000002,
      00000000-0000-0000-0000-000000000003}'::uuid[], 'jobs are inserted in the order of their ids');
SELECT is(current_setting('lock_timeout'), '0', 'the caller''s lock_timeout is as it was');

SELECT * FROM finish();
ROLLBACK;
