-- Steps of a run: checkpoints that are done once.
BEGIN;
SELECT no_plan();

CREATE TEMP TABLE first AS SELECT * FROM llmq.step_begin('run-1', 'search', '{"q": "cats", "n": 3}');
SELECT is((SELECT outcome FROM first), 'started', 'a new step is started');
SELECT is((SELECT expires_at - begun_at FROM llmq.idempotency), interval '5 min', 'its lock lasts 5 min by default');
SELECT throws_ok($$ SELECT llmq.step_begin('run-1', 'search', '{"n": 3, "q": "cats"}') $$,
    'PT409', 'step "search" of run "run-1" is in progress', 'a step in progress is a conflict');
SELECT throws_ok($$ SELECT llmq.step_begin('run-1', 'search', '{"q": "dogs"}') $$,
    'PT422', 'step "search" of run "run-1" was used with another input', 'another input is refused');
SELECT ok(llmq.step_finish('run-1', 'search', (SELECT token FROM first), '["tabby"]'), 'the holder finishes');
SELECT results_eq($$ SELECT * FROM llmq.step_begin('run-1', 'search', '{"n": 3, "q": "cats"}') $$,
    $$ VALUES ('replayed'::text, NULL::uuid, '["tabby"]'::jsonb) $$, 'then its output is replayed, whatever the order of keys');
SELECT throws_ok($$ SELECT llmq.step_begin('run-1', 'search', NULL) $$, 'PT422', NULL, 'no input is another input');
SELECT is((SELECT outcome FROM llmq.step_begin('run-1', 'write', '{"q": "cats", "n": 3}')), 'started', 'another step is another key');
SELECT is((SELECT outcome FROM llmq.step_begin('run-2', 'search', '{"q": "cats", "n": 3}')), 'started', 'so is another run');

-- Outputs have no time to live but the retention.
SELECT ok((SELECT expires_at - clock_timestamp() BETWEEN '29 days' AND '30 days' FROM llmq.idempotency
    WHERE scope = 'run-1' AND idempotency_key = 'search'), 'an output is kept for 30 days');
INSERT INTO llmq.queue (name, retention) VALUES ('default', '400 days');
CREATE TEMP TABLE kept AS SELECT * FROM llmq.step_begin('run-3', 'a', NULL);
SELECT ok(llmq.step_finish('run-3', 'a', (SELECT token FROM kept), NULL), 'an output may be NULL');
SELECT ok((SELECT expires_at - clock_timestamp() > '399 days' FROM llmq.idempotency WHERE scope = 'run-3'),
    'or for the retention of the queue "default"');
SELECT is((SELECT ROW(outcome, output)::text FROM llmq.step_begin('run-3', 'a', 'null')), '(replayed,)',
    'NULL is the input null');

-- Release, and the lost lock.
CREATE TEMP TABLE released AS SELECT * FROM llmq.step_begin('run-4', 'a', '1');
SELECT ok(llmq.step_release('run-4', 'a', (SELECT token FROM released)), 'the holder releases');
CREATE TEMP TABLE slow AS SELECT * FROM llmq.step_begin('run-4', 'a', '2');
SELECT is((SELECT outcome FROM slow), 'started', 'and the step can begin with another input');
UPDATE llmq.idempotency SET expires_at = clock_timestamp() WHERE scope = 'run-4';
CREATE TEMP TABLE quick AS SELECT * FROM llmq.step_begin('run-4', 'a', '2');
SELECT ok(NOT llmq.step_finish('run-4', 'a', (SELECT token FROM slow), '"slow"'), 'who lost the lock cannot finish');
SELECT ok(NOT llmq.step_release('run-4', 'a', (SELECT token FROM slow)), 'nor release');
SELECT ok(llmq.step_finish('run-4', 'a', (SELECT token FROM quick), '"quick"'), 'the new holder can');
SELECT is((SELECT output FROM llmq.step_begin('run-4', 'a', '2')), '"quick"', 'and its output is the one');

-- Refusals.
SELECT throws_ok('SELECT ' || call, 'PT400', message, 'PT400: ' || call)
FROM (VALUES
    ($$llmq.step_begin(NULL, 's', '1')$$, 'run_id is required'),
    ($$llmq.step_begin('', 's', '1')$$, 'run_id must have 1 to 255 characters'),
    ($$llmq.step_begin('r', NULL, '1')$$, 'step is required'),
    ($$llmq.step_begin('r', repeat('s', 256), '1')$$, 'step must have 1 to 255 characters'),
    ($$llmq.step_begin('r', 's', '1', '0 s')$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.step_finish('r', 's', NULL, '1')$$, 'token is required'),
    ($$llmq.step_finish('r', NULL, gen_random_uuid(), '1')$$, 'step is required'),
    ($$llmq.step_release('r', 's', NULL)$$, 'token is required')) AS v (call, message);

SELECT * FROM finish();
ROLLBACK;
