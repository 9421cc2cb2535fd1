-- The Idempotency-Key protocol: what a web handler is told to answer.
BEGIN;
SELECT no_plan();

INSERT INTO llmq.queue (name) VALUES ('web');

CREATE FUNCTION pg_temp.post(body jsonb, key text DEFAULT '"abcdefgh-12345678"', path text DEFAULT '/v1/summaries',
    method text DEFAULT 'POST', tenant text DEFAULT 'acme', queue text DEFAULT 'default')
RETURNS llmq.http_response LANGUAGE sql AS $$ SELECT llmq.http_submit(tenant, method, path, key, body, queue) $$;

-- 202 and replay.
CREATE TEMP TABLE answer AS SELECT * FROM pg_temp.post('{"prompt": "Summarise"}');
SELECT is((SELECT status FROM answer), 202, 'a new request is accepted');
SELECT is((SELECT headers FROM answer), '{"Content-Type": "application/json"}', 'as JSON, and not as a replay');
SELECT is((SELECT body FROM answer), jsonb_build_object('status', 'queued', 'job_id',
    llmq.uuid5(llmq.namespace(), '["acme", "POST", "/v1/summaries", "abcdefgh-12345678"]')),
    'the job''s id is made of tenant, method, path and key');
SELECT is((SELECT body ->> 'job_id' FROM answer), llmq.job_id('acme', 'POST /v1/summaries', 'abcdefgh-12345678')::text,
    'as job_id tells');
SELECT is((SELECT state FROM llmq.job_status), 'ready', 'the job is ready');
SELECT results_eq($$ SELECT * FROM pg_temp.post('{"prompt": "Summarise"}') $$, $$
    SELECT status, headers || '{"Idempotent-Replayed": "true"}', body FROM answer $$, 'a replay is the same answer, and says so');
SELECT results_eq($$ SELECT (pg_temp.post('{"prompt": "Summarise"}', 'abcdefgh-12345678')).body $$, 'SELECT body FROM answer',
    'a bare key is the quoted one');
SELECT is((SELECT count(*) FROM llmq.job), 1::bigint, 'there is one job');
SELECT is((SELECT count(*) FROM llmq.check()), 0::bigint, 'and no invariant is broken');

-- Scopes.
SELECT is((SELECT headers ? 'Idempotent-Replayed' FROM pg_temp.post('{"prompt": "Another"}', path => '/v1/other')), false, 'another path is another key');
SELECT is((SELECT headers ? 'Idempotent-Replayed' FROM pg_temp.post('{"prompt": "Another"}', method => 'PUT')), false, 'so is another method');
SELECT is((SELECT headers ? 'Idempotent-Replayed' FROM pg_temp.post('{"prompt": "Another"}', tenant => 'umbrella')), false, 'and another tenant');
SELECT is((SELECT status FROM pg_temp.post('{"prompt": "Another"}', tenant => NULL)), 202, 'no tenant is the calling role');
SELECT is((SELECT replayed FROM llmq.submit('Another', 'abcdefgh-12345678', tenant => 'acme')), false, 'submit has keys of its own');
SELECT is((SELECT status FROM pg_temp.post('{"prompt": "x"}', path => '/a b/c')), 202, 'a path may hold a space');
SELECT is((SELECT count(*) FROM llmq.check()), 0::bigint, 'all ids follow from their keys');

-- 422.
CREATE TEMP TABLE reused AS SELECT * FROM pg_temp.post('{"prompt": "Something else"}');
SELECT is((SELECT status FROM reused), 422, 'another body under the key is refused');
SELECT is((SELECT headers FROM reused), '{"Content-Type": "application/problem+json"}', 'with a problem document');
SELECT is((SELECT body - 'detail' FROM reused), '{"type": "about:blank", "title": "Unprocessable Content", "status": 422}',
    'of type, title and status');
SELECT matches((SELECT body ->> 'detail' FROM reused), 'was used with another request', 'and a detail');
SELECT is((pg_temp.post('{"prompt": "Summarise", "metadata": {}}')).status, 422, 'the whole body counts');
SELECT is((pg_temp.post('{"prompt": "Summarise"}', queue => 'web')).status, 422, 'and the queue');

-- 400: keys.
SELECT is((pg_temp.post('{"prompt": "x"}', key)).status, 400, format('400 for the key %L', key))
FROM unnest(ARRAY[NULL, '', '   ', 'short', '"short"', 'fifteen-letters', repeat('k', 129), '"' || repeat('k', 129) || '"',
    '"unfinished-string', '"two-strings-here"x', '"a-stray-"quotation', '"a-stray-\backslash"', E'a-control\tcharacter',
    '"größe-größe-größe"']) AS key;
SELECT is((pg_temp.post('{"prompt": "x"}', key)).status, 202, format('202 for the key %s', key))
FROM unnest(ARRAY['sixteen-letters-', repeat('k', 128), '"' || repeat('q', 128) || '"', '  "padded-with-blanks"  ',
    '"with \"quotes\" and \\"', '8e03978e-40d5-43dd-bc93-6894a57f9324', 'größe-größe-größe']) AS key;
SELECT ok(EXISTS (SELECT FROM llmq.job WHERE idempotency_key = 'with "quotes" and \'), 'escapes in a quoted key are undone');
SELECT matches((pg_temp.post('{"prompt": "x"}', NULL)).body ->> 'detail', 'Idempotency-Key is required', 'a missing key is named');

-- 400: bodies.
SELECT is(ROW(a.status, a.headers, a.body ->> 'title', a.body -> 'status')::text,
    ROW(400, '{"Content-Type": "application/problem+json"}'::jsonb, 'Bad Request', '400'::jsonb)::text,
    format('400 for the body %s', coalesce(b.body::text, 'NULL')))
FROM unnest(ARRAY[NULL, 'null', '[]', '"x"', '{}', '{"prompt": ""}', '{"prompt": 1}', '{"prompt": ["x"]}', '{"prompt": "x", "model": 1}',
    '{"prompt": "x", "system": {}}', '{"messages": "x"}', '{"messages": []}', '{"prompt": "x", "params": "x"}',
    '{"prompt": "x", "params": {"temperature": -1}}', '{"prompt": "x", "queue": "web"}', '{"prompt": "x", "tenant": "umbrella"}',
    '{"prompt": "x", "outbox": []}', '{"prompt": "x", "on_complete": "f"}', '{"prompt": "x", "policy": {}}',
    '{"prompt": "x", "idempotency_key": "k"}', '{"prompt": "x", "priority": 9}', '{"prompt": "x", "run_at": "2100-01-01"}',
    '{"prompt": "x", "after": []}', '{"prompt": "x", "run_id": "r"}', '{"prompt": "x", "anything": null}']::jsonb[]) AS b (body),
    pg_temp.post(b.body, 'a-key-that-is-free') AS a;
SELECT is((pg_temp.post('{"prompt": "x", "extra": 1}', 'a-key-that-is-free')).body ->> 'detail',
    'a job cannot have "extra". It may have prompt, system, messages, model, params, metadata.', 'the detail says what is wrong and what is right');
SELECT is((pg_temp.post('{"messages": [{"role": "user", "content": "x"}], "system": "s", "model": "m", "params": {"max_tokens": 1},
    "metadata": {"a": null}, "prompt": null}', 'everything-at-once')).status, 202, 'all that a body may hold is taken');
SELECT results_eq($$ SELECT system, model, params, metadata FROM llmq.job WHERE idempotency_key = 'everything-at-once' $$,
    $$ VALUES ('s', 'm', '{"max_tokens": 1}'::jsonb, '{"a": null}'::jsonb) $$, 'and kept');

-- 400, 403, 404: what the handler says.
SELECT is((pg_temp.post('{"prompt": "x"}', method => method)).status, 400, format('400 for the method %L', method))
FROM unnest(ARRAY[NULL, '', 'PO ST', E'P\nT']) AS method;
SELECT is((pg_temp.post('{"prompt": "x"}', path => path)).status, 400, format('400 for the path %L', left(path, 20)))
FROM unnest(ARRAY[NULL, '', repeat('p', 1025), E'/a\nb']) AS path;
SELECT results_eq($$ SELECT status, body ->> 'title' FROM pg_temp.post('{"prompt": "x"}', queue => 'nowhere') $$,
    $$ VALUES (404, 'Not Found') $$, '404 for a queue that is not there');
SELECT is((pg_temp.post('{"prompt": "x"}', queue => NULL)).status, 400, '400 for no queue');
CREATE ROLE llmq_test_alice;
GRANT USAGE ON SCHEMA llmq TO llmq_test_alice;
GRANT EXECUTE ON FUNCTION llmq.http_submit TO llmq_test_alice;
SET ROLE llmq_test_alice;
SELECT results_eq($$ SELECT status, body ->> 'title' FROM pg_temp.post('{"prompt": "x"}') $$,
    $$ VALUES (403, 'Forbidden') $$, '403 for a tenant that the handler''s role may not name');
SELECT is((pg_temp.post('{"prompt": "x"}', tenant => NULL)).status, 202, 'a role submits for itself');
RESET ROLE;
SELECT is((SELECT submitted_by FROM llmq.job WHERE tenant = 'llmq_test_alice'), 'llmq_test_alice', 'and is noted');

-- 402 and 429 come from submit's own checks; what they look like.
SELECT is(llmq_internal.http_problem('PT429', 'the queue is full', NULL, 'Wait.')::text,
    ROW(429, '{"Retry-After": "1", "Content-Type": "application/problem+json"}'::jsonb,
        '{"type": "about:blank", "title": "Too Many Requests", "detail": "the queue is full.", "status": 429}'::jsonb)::text,
    '429 says when to retry');
SELECT is((llmq_internal.http_problem('PT402', 'no', NULL, NULL)).body ->> 'title', 'Payment Required', '402 has its title');

-- The handler's arguments.
SELECT is((llmq.http_submit('acme', 'POST', '/v1/mail', 'abcdefgh-12345678', '{"prompt": "x"}', 'web',
    '[{"topic": "mail"}]', NULL, '{"deadline": "5 s"}')).status, 202, 'the handler adds queue, outbox and policy');
SELECT results_eq($$ SELECT queue, outbox, policy FROM llmq.job WHERE scope = 'POST /v1/mail' $$,
    $$ VALUES ('web', '[{"topic": "mail"}]'::jsonb, '{"deadline": "5 s"}'::jsonb) $$, 'which are kept');
SELECT is((llmq.http_submit('acme', 'POST', '/v1/mail', 'abcdefgh-12345679', '{"prompt": "x"}', outbox => '{}')).status, 400,
    'a bad one is a 400 too');
SELECT is((SELECT count(*) FROM llmq.check()), 0::bigint, 'no invariant is broken');

SELECT * FROM finish();
ROLLBACK;
