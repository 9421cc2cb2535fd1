-- What submit refuses: the SQLSTATE, a message that says what, and a hint that helps.
BEGIN;
SELECT no_plan();

INSERT INTO llmq.queue (name, max_deliveries) VALUES ('strict', 3);

CREATE FUNCTION pg_temp.refusal(arguments text, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT llmq.submit(%s)', arguments);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;

CREATE TEMP TABLE refused (id int GENERATED ALWAYS AS IDENTITY, code text, arguments text, message text);
INSERT INTO refused (code, arguments, message) VALUES
    -- the key
    ('PT400', $$'x'$$, 'idempotency_key is required'),
    ('PT400', $$'x', ''$$, 'idempotency_key must have 1 to 255 printable characters'),
    ('PT400', $$'x', repeat('k', 256)$$, 'idempotency_key must have 1 to 255 printable characters'),
    ('PT400', $$'x', E'a\nb'$$, 'idempotency_key must have 1 to 255 printable characters'),
    -- what is to be sent
    ('PT400', $$NULL, 'k'$$, 'a prompt is required'),
    ('PT400', $$'', 'k'$$, 'prompt must not be empty'),
    ('PT400', $$'x', 'k', messages => '[{"role": "user", "content": "x"}]'$$, 'prompt and messages cannot both be given'),
    ('PT400', $$NULL, 'k', messages => '{}'$$, 'messages must be a JSON array with at least one message'),
    ('PT400', $$NULL, 'k', messages => '[]'$$, 'messages must be a JSON array with at least one message'),
    ('PT400', $$NULL, 'k', messages => 'null'$$, 'messages must be a JSON array with at least one message'),
    ('PT400', $$NULL, 'k', messages => '["x"]'$$, 'each message must be an object with a role'),
    ('PT400', $$NULL, 'k', messages => '[{"content": "x"}]'$$, 'each message must be an object with a role'),
    ('PT400', $$NULL, 'k', messages => '[{"role": 1}]'$$, 'each message must be an object with a role'),
    ('PT400', $$'x', 'k', model => ''$$, 'model must have 1 to 255 characters'),
    -- params
    ('PT400', $$'x', 'k', params => '[]'$$, 'params must be a JSON object'),
    ('PT400', $$'x', 'k', params => 'null'$$, 'params must be a JSON object'),
    ('PT400', $$'x', 'k', params => '{"stream": true}'$$, 'params must not hold "stream"'),
    ('PT400', $$'x', 'k', params => '{"model": "m"}'$$, 'params must not hold "model"'),
    ('PT400', $$'x', 'k', params => '{"messages": []}'$$, 'params must not hold "messages"'),
    ('PT400', $$'x', 'k', params => '{"temperature": "hot"}'$$, 'params.temperature must be a number of at least 0'),
    ('PT400', $$'x', 'k', params => '{"temperature": -1}'$$, 'params.temperature must be a number of at least 0'),
    ('PT400', $$'x', 'k', params => '{"top_p": null}'$$, 'params.top_p must be a number of at least 0'),
    ('PT400', $$'x', 'k', params => '{"max_tokens": 0}'$$, 'params.max_tokens must be a positive whole number'),
    ('PT400', $$'x', 'k', params => '{"max_tokens": 1.5}'$$, 'params.max_tokens must be a positive whole number'),
    ('PT400', $$'x', 'k', params => '{"n": "2"}'$$, 'params.n must be a positive whole number'),
    ('PT400', $$'x', 'k', params => '{"tools": {}}'$$, 'params.tools must be an array'),
    ('PT400', $$'x', 'k', params => '{"response_format": "json"}'$$, 'params.response_format must be an object'),
    -- policy
    ('PT400', $$'x', 'k', policy => '[]'$$, 'policy must be a JSON object'),
    ('PT400', $$'x', 'k', policy => '{"retention": "1 day"}'$$, 'policy cannot set "retention"'),
    ('PT400', $$'x', 'k', policy => '{"deadline": 30}'$$, 'policy.deadline must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"deadline": "soon"}'$$, 'policy.deadline must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"deadline": "0"}'$$, 'policy.deadline must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"deadline": "0 s"}'$$, 'policy.deadline must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"call_timeout": "-5 s"}'$$, 'policy.call_timeout must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"backoff_cap": "999999999 days"}'$$, 'policy.backoff_cap must be an interval up to a day'),
    ('PT400', $$'x', 'k', policy => '{"max_attempts": 0}'$$, 'policy.max_attempts must be a whole number from 1 to 1000'),
    ('PT400', $$'x', 'k', policy => '{"max_attempts": 1.5}'$$, 'policy.max_attempts must be a whole number from 1 to 1000'),
    ('PT400', $$'x', 'k', policy => '{"max_attempts": 1e400}'$$, 'policy.max_attempts must be a whole number from 1 to 1000'),
    ('PT400', $$'x', 'k', 'strict', policy => '{"max_deliveries": 4}'$$, 'policy.max_deliveries must not be above the queue''s'),
    ('PT400', $$'x', 'k', policy => '{"require_json": "yes"}'$$, 'policy.require_json must be true or false'),
    -- outbox
    ('PT400', $$'x', 'k', outbox => '{}'$$, 'outbox must be a JSON array'),
    ('PT400', $$'x', 'k', outbox => '["t"]'$$, 'each outbox entry must be an object with a topic'),
    ('PT400', $$'x', 'k', outbox => '[{"payload": {}}]'$$, 'each outbox entry must be an object with a topic'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": ""}]'$$, 'topic must have 1 to 128 characters'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "to": "x"}]'$$, 'an outbox entry cannot have "to"'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "on": "never"}]'$$, '"on" of an outbox entry must be succeeded or dead'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "dedupe_key": 1}]'$$, 'dedupe_key must be a string'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "dedupe_key": "a:death 2"}]'$$, 'dedupe_key must not end in ":death n"'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "dedupe_key": ""}]'$$, 'dedupe_key must have 1 to 512 characters'),
    ('PT400', $$'x', 'k', outbox => '[{"topic": "t", "dedupe_key": "d"}, {"topic": "u", "dedupe_key": "d"}]'$$,
        'two outbox entries have the same dedupe_key'),
    ('PT400', $$'x', 'k', outbox => jsonb_build_array('{"topic": "t"}'::jsonb, jsonb_build_object('topic', 'u',
        'dedupe_key', format('t:%s:1', llmq.job_id(current_user, 'submit', 'k'))))$$,
        'two outbox entries have the same dedupe_key'),
    -- the rest
    ('PT400', $$'x', 'k', priority => 10$$, 'priority must be from 0 to 9'),
    ('PT400', $$'x', 'k', priority => -1$$, 'priority must be from 0 to 9'),
    ('PT400', $$'x', 'k', priority => 100000$$, 'priority must be from 0 to 9'),
    ('PT400', $$'x', 'k', priority => NULL$$, 'priority must be from 0 to 9'),
    ('PT400', $$'x', 'k', run_at => 'infinity'$$, 'run_at and expires_at must be finite'),
    ('PT400', $$'x', 'k', expires_at => '-infinity'$$, 'run_at and expires_at must be finite'),
    ('PT400', $$'x', 'k', tenant => ''$$, 'tenant must have 1 to 255 characters'),
    ('PT400', $$'x', 'k', run_id => repeat('r', 256)$$, 'run_id must have 1 to 255 characters'),
    ('PT400', $$'x', 'k', step => ''$$, 'step must have 1 to 255 characters'),
    ('PT400', $$'x', 'k', NULL$$, 'queue must not be NULL'),
    ('PT404', $$'x', 'k', 'nowhere'$$, 'there is no queue "nowhere"');

SELECT results_eq(
    format('SELECT code, message FROM pg_temp.refusal(%L)', r.arguments),
    format('SELECT %L, %L', r.code, r.message),
    format('%s: submit(%s)', r.code, r.arguments))
FROM refused AS r ORDER BY r.id;

SELECT is_empty($$
    SELECT r.arguments, f.hint FROM refused AS r, pg_temp.refusal(r.arguments) AS f
    WHERE coalesce(f.hint, '') !~ '\.$'
$$, 'each refusal has a hint, a sentence');

SELECT is((SELECT count(*) FROM llmq.job), 0::bigint, 'nothing that was refused left a job');

-- What must pass.
SELECT lives_ok(format('SELECT llmq.submit(%s)', arguments), format('accepted: submit(%s)', arguments))
FROM unnest(ARRAY[
    $$'x', repeat('k', 255)$$,
    $$'x', 'ключ 键 🔑'$$,
    $$NULL, 'p-1', params => '{"input": ["a", "b"]}'$$,
    $$'x', 'p-2', params => '{"temperature": 0, "top_p": 1, "max_tokens": 1, "anything": {"else": null}}'$$,
    $$'x', 'p-3', params => '{"max_tokens": 1e2}'$$,
    $$'x', 'p-4', policy => '{"call_timeout": "500 ms", "deadline": "00:01:00", "min_attempt": "0 s", "backoff_base": "0.05 s", "max_deliveries": 5}'$$,
    $$'x', 'p-5', outbox => '[]'$$,
    $$'x', 'p-6', outbox => '[{"topic": "t"}, {"topic": "t"}]'$$,
    $$NULL, 'p-7', messages => '[{"role": "assistant", "content": null, "tool_calls": []}]'$$,
    $$'x', 'p-8', expires_at => '2000-01-01'$$]) AS arguments;

SELECT * FROM finish();
ROLLBACK;
