-- Idempotency of the caller's own work: the marker, the result, the lost lock, the refusals.
BEGIN;
SELECT no_plan();

CREATE FUNCTION pg_temp.expire(key text) RETURNS void LANGUAGE sql AS $$
    UPDATE llmq.idempotency SET expires_at = clock_timestamp() - interval '1 s' WHERE idempotency_key = key
$$;

-- Begin, finish, replay.
CREATE TEMP TABLE first AS SELECT * FROM llmq.idempotency_begin('POST /orders', 'key-1', 'body-1');
SELECT is((SELECT outcome FROM first), 'started', 'a new key is started');
SELECT isnt((SELECT token FROM first), NULL, 'with a token');
SELECT is((SELECT ROW(status, response)::text FROM first), '(,)', 'and no response yet');
SELECT is((SELECT expires_at - begun_at FROM llmq.idempotency), interval '30 s', 'its lock lasts 30 s by default');

SELECT throws_ok($$ SELECT llmq.idempotency_begin('POST /orders', 'key-1', 'body-1') $$,
    'PT409', 'idempotency key "key-1" is in progress', 'a key in progress is a conflict');
SELECT throws_ok($$ SELECT llmq.idempotency_begin('POST /orders', 'key-1', 'body-2') $$,
    'PT422', 'idempotency key "key-1" was used with another request', 'and cannot be used for another request');

SELECT ok(llmq.idempotency_finish('POST /orders', 'key-1', (SELECT token FROM first), 201, '{"order": 7}'),
    'the holder of the token finishes');
SELECT results_eq($$ SELECT * FROM llmq.idempotency_begin('POST /orders', 'key-1', 'body-1') $$,
    $$ VALUES ('replayed'::text, NULL::uuid, 201, '{"order": 7}'::jsonb) $$, 'then its response is replayed');
SELECT results_eq($$ SELECT * FROM llmq.idempotency_begin('POST /orders', 'key-1', 'body-1') $$,
    $$ VALUES ('replayed'::text, NULL::uuid, 201, '{"order": 7}'::jsonb) $$, 'as often as it is asked for');
SELECT throws_ok($$ SELECT llmq.idempotency_begin('POST /orders', 'key-1', 'body-2') $$, 'PT422', NULL,
    'never for another request');
SELECT ok((SELECT expires_at - clock_timestamp() BETWEEN '23:59:00' AND '24:00:00' FROM llmq.idempotency),
    'it is kept for 24 h by default');
SELECT ok(NOT llmq.idempotency_finish('POST /orders', 'key-1', (SELECT token FROM first), 200, '{}'),
    'what is finished cannot be finished again');
SELECT ok(NOT llmq.idempotency_release('POST /orders', 'key-1', (SELECT token FROM first)),
    'nor released');
SELECT is((SELECT response FROM llmq.idempotency_begin('POST /orders', 'key-1', 'body-1')), '{"order": 7}',
    'and stays what it was');

-- An expired result is none.
SELECT pg_temp.expire('key-1');
SELECT is((SELECT outcome FROM llmq.idempotency_begin('POST /orders', 'key-1', 'body-3')), 'started',
    'when the result has expired the key is free, for another request too');

-- A lock that was lost.
CREATE TEMP TABLE slow AS SELECT * FROM llmq.idempotency_begin('s', 'key-2', 'f');
SELECT pg_temp.expire('key-2');
CREATE TEMP TABLE quick AS SELECT * FROM llmq.idempotency_begin('s', 'key-2', 'f', '1 min');
SELECT is((SELECT outcome FROM quick), 'started', 'an expired lock is taken over');
SELECT isnt((SELECT token FROM quick), (SELECT token FROM slow), 'with another token');
SELECT is((SELECT count(*) FROM llmq.idempotency WHERE idempotency_key = 'key-2'), 1::bigint, 'a key is one row');
CREATE TEMP TABLE before AS SELECT * FROM llmq.idempotency WHERE idempotency_key = 'key-2';
SELECT ok(NOT llmq.idempotency_finish('s', 'key-2', (SELECT token FROM slow), 200, '"slow"'),
    'finish with the lost token is false');
SELECT ok(NOT llmq.idempotency_finish('s', 'key-2', (SELECT token FROM slow), 500, '"slow"'),
    'also where it would release');
SELECT ok(NOT llmq.idempotency_release('s', 'key-2', (SELECT token FROM slow)), 'release too');
SELECT results_eq($$ SELECT * FROM llmq.idempotency WHERE idempotency_key = 'key-2' $$, 'SELECT * FROM before',
    'and nothing was changed');
SELECT ok(llmq.idempotency_finish('s', 'key-2', (SELECT token FROM quick), 200, '"quick"'), 'the new holder finishes');
SELECT is((SELECT response FROM llmq.idempotency_begin('s', 'key-2', 'f')), '"quick"', 'its response is the one');

CREATE TEMP TABLE late AS SELECT * FROM llmq.idempotency_begin('s', 'key-3', 'f');
SELECT pg_temp.expire('key-3');
SELECT ok(llmq.idempotency_finish('s', 'key-3', (SELECT token FROM late), 204, NULL),
    'a lock that nobody took over is not lost');
SELECT is((SELECT ROW(outcome, status, response)::text FROM llmq.idempotency_begin('s', 'key-3', 'f')),
    '(replayed,204,)', 'a response may be empty');

-- Failures are not kept.
CREATE TEMP TABLE failing AS SELECT * FROM llmq.idempotency_begin('s', 'key-4', 'f');
SELECT ok(llmq.idempotency_finish('s', 'key-4', (SELECT token FROM failing), 500, '"oops"'), 'a 500 is accepted');
SELECT is((SELECT outcome FROM llmq.idempotency_begin('s', 'key-4', 'another')), 'started', 'and lets the key go');
CREATE TEMP TABLE refusing AS SELECT * FROM llmq.idempotency_begin('s', 'key-5', 'f');
SELECT ok(llmq.idempotency_finish('s', 'key-5', (SELECT token FROM refusing), 499, NULL), 'a 499 is an answer');
SELECT is((SELECT status FROM llmq.idempotency_begin('s', 'key-5', 'f')), 499, 'and is kept');
CREATE TEMP TABLE released AS SELECT * FROM llmq.idempotency_begin('s', 'key-6', 'f');
SELECT ok(llmq.idempotency_release('s', 'key-6', (SELECT token FROM released)), 'the holder releases');
SELECT is((SELECT outcome FROM llmq.idempotency_begin('s', 'key-6', 'g')), 'started', 'and the key is free');
SELECT ok(NOT llmq.idempotency_finish('s', 'nothing', gen_random_uuid(), 200, NULL), 'a key that was never begun is not held');

-- Scopes, tenants, and steps of the same name do not meet.
SELECT is((SELECT outcome FROM llmq.idempotency_begin('t', 'key-2', 'g')), 'started', 'another scope is another key');
SELECT is((SELECT outcome FROM llmq.step_begin('s', 'key-2', '1')), 'started', 'a step is another key');
CREATE ROLE llmq_test_alice;
GRANT USAGE ON SCHEMA llmq TO llmq_test_alice;
GRANT EXECUTE ON FUNCTION llmq.idempotency_begin, llmq.idempotency_finish TO llmq_test_alice;
SET ROLE llmq_test_alice;
CREATE TEMP TABLE hers AS SELECT * FROM llmq.idempotency_begin('s', 'key-2', 'hers');
SELECT is((SELECT outcome FROM hers), 'started', 'another role has keys of its own');
SELECT ok(llmq.idempotency_finish('s', 'key-2', (SELECT token FROM hers), 200, '1'), 'and finishes them');
SELECT throws_ok('SELECT * FROM llmq.idempotency', '42501', NULL, 'but sees no rows of others');
SELECT throws_ok($$ SELECT llmq_internal.idempotency_begin_as('postgres', 's', 'key-2', 'f', '1 s') $$, '42501', NULL,
    'and cannot say who it is');
RESET ROLE;
SELECT is((SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM llmq.idempotency WHERE idempotency_key = 'key-2'
        AND kind = 'request' AND scope = 's'),
    'llmq_test_alice ' || current_user, 'the tenant is the calling role');

-- The longest names that are allowed, in four bytes a character.
SELECT is((SELECT outcome FROM llmq.idempotency_begin(repeat('🔑', 255), repeat('🔑', 255), repeat('🔑', 255))),
    'started', 'names of 255 characters fit');

-- Refusals.
CREATE FUNCTION pg_temp.refusal(call text, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT ' || call;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;
CREATE TEMP TABLE refused (id int GENERATED ALWAYS AS IDENTITY, call text, message text);
INSERT INTO refused (call, message) VALUES
    ($$llmq.idempotency_begin(NULL, 'k', 'f')$$, 'scope is required'),
    ($$llmq.idempotency_begin('', 'k', 'f')$$, 'scope must have 1 to 255 characters'),
    ($$llmq.idempotency_begin(repeat('s', 256), 'k', 'f')$$, 'scope must have 1 to 255 characters'),
    ($$llmq.idempotency_begin('s', NULL, 'f')$$, 'idempotency_key is required'),
    ($$llmq.idempotency_begin('s', '', 'f')$$, 'idempotency_key must have 1 to 255 printable characters'),
    ($$llmq.idempotency_begin('s', repeat('k', 256), 'f')$$, 'idempotency_key must have 1 to 255 printable characters'),
    ($$llmq.idempotency_begin('s', E'a\tb', 'f')$$, 'idempotency_key must have 1 to 255 printable characters'),
    ($$llmq.idempotency_begin('s', 'k', NULL)$$, 'fingerprint is required'),
    ($$llmq.idempotency_begin('s', 'k', '')$$, 'fingerprint must have 1 to 255 characters'),
    ($$llmq.idempotency_begin('s', 'k', repeat('f', 256))$$, 'fingerprint must have 1 to 255 characters'),
    ($$llmq.idempotency_begin('s', 'k', 'f', NULL)$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_begin('s', 'k', 'f', '0')$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_begin('s', 'k', 'f', '-1 s')$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_begin('s', 'k', 'f', '366 days')$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_begin('s', 'k', 'f', '178000000 years')$$, 'lock_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_finish('s', 'k', NULL, 200, NULL)$$, 'token is required'),
    ($$llmq.idempotency_finish(NULL, 'k', gen_random_uuid(), 200, NULL)$$, 'scope is required'),
    ($$llmq.idempotency_finish('s', NULL, gen_random_uuid(), 200, NULL)$$, 'idempotency_key is required'),
    ($$llmq.idempotency_finish('s', 'k', gen_random_uuid(), NULL, NULL)$$, 'status must be from 100 to 599'),
    ($$llmq.idempotency_finish('s', 'k', gen_random_uuid(), 99, NULL)$$, 'status must be from 100 to 599'),
    ($$llmq.idempotency_finish('s', 'k', gen_random_uuid(), 600, NULL)$$, 'status must be from 100 to 599'),
    ($$llmq.idempotency_finish('s', 'k', gen_random_uuid(), 200, NULL, '0')$$, 'result_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_finish('s', 'k', gen_random_uuid(), 200, NULL, NULL)$$, 'result_ttl must be more than 0 and up to 365 days'),
    ($$llmq.idempotency_release('s', 'k', NULL)$$, 'token is required'),
    ($$llmq.derive_key(VARIADIC NULL)$$, 'a key cannot be derived from NULL'),
    ($$llmq.derive_key(VARIADIC '{}')$$, 'a key cannot be derived from NULL'),
    ($$llmq.derive_key('a', NULL)$$, 'a key cannot be derived from NULL');
SELECT results_eq(format('SELECT code, message FROM pg_temp.refusal(%L)', r.call),
    format($$ SELECT 'PT400', %L $$, r.message), 'PT400: ' || r.call)
FROM refused AS r ORDER BY r.id;
SELECT is_empty($$
    SELECT r.call, f.hint FROM refused AS r, pg_temp.refusal(r.call) AS f
    WHERE coalesce(f.hint, '') !~ '\.$'
$$, 'each refusal has a hint, a sentence');
SELECT ok(f.hint ~ 'Retry-After', 'the hint of a conflict says when to retry')
FROM pg_temp.refusal($$llmq.idempotency_begin('s', 'key-6', 'g')$$) AS f;
SELECT lives_ok($$ SELECT llmq.idempotency_begin('s', 'year', 'f', '365 days') $$, 'a year is allowed');

-- The caller's settings and search_path are as they were, and change nothing.
SET LOCAL lock_timeout = '7 s';
SELECT llmq.idempotency_begin('s', 'key-7', 'f');
SELECT is(current_setting('lock_timeout'), '7s', 'the caller''s lock_timeout is as it was');
CREATE SCHEMA trap;
CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT uuid '00000000-0000-0000-0000-000000000000' $$;
CREATE TEMP TABLE idempotency (a int);
SET LOCAL search_path = trap, pg_temp, pg_catalog, public;
SELECT isnt((SELECT token FROM llmq.idempotency_begin('s', 'key-8', 'f')), '00000000-0000-0000-0000-000000000000',
    'nothing is looked up in the caller''s search_path');
RESET search_path;

-- derive_key.
SELECT is(llmq.derive_key('a', 'b'), encode(sha256('["a", "b"]'), 'hex'), 'a derived key is the SHA-256 of the parts as JSON');
SELECT isnt(llmq.derive_key('ab', 'c'), llmq.derive_key('a', 'bc'), 'parts do not run together');
SELECT is(llmq.derive_key(VARIADIC ARRAY['größe', '"']), encode(sha256(convert_to('["größe", "\""]', 'UTF8')), 'hex'),
    'in UTF-8');
SELECT matches(obj_description('llmq.derive_key'::regproc), 'nonce.*time bucket', 'its comment tells of nonces and time buckets');

-- Pruning.
SELECT is(llmq.prune_idempotency(), 0::bigint, 'what is in use is not pruned');
INSERT INTO llmq.idempotency
SELECT gen_random_uuid(), 'request', 'x', 'prune', n::text, 'f', NULL, 200, NULL, now(), now() - interval '61 min'
FROM generate_series(1, 5) AS n;
SELECT pg_temp.expire('key-2');
SELECT is(llmq.prune_idempotency(2), 2::bigint, 'pruning is bounded');
SELECT is(llmq.prune_idempotency(10) + llmq.prune_idempotency(10), 3::bigint, 'and goes on, but leaves what expired just now');
SELECT is(llmq.prune_idempotency(-1), 0::bigint, 'a nonsense bound prunes nothing');

-- -- two that find a key expired -------------------------------------------------------------

-- The one who comes second finds it taken, however it looked before.
SELECT outcome FROM llmq.idempotency_begin('race', 'key', 'f');
SELECT ok(NOT llmq_internal.write_key((SELECT k FROM llmq.idempotency AS k WHERE k.scope = 'race'), 'take over'), 'a key whose lock is in force cannot be taken over');
UPDATE llmq.idempotency SET expires_at = clock_timestamp() - interval '1 s' WHERE scope = 'race';
SELECT ok(llmq_internal.write_key((SELECT jsonb_populate_record(k, jsonb_build_object('expires_at', clock_timestamp() + interval '1 min')) FROM llmq.idempotency AS k WHERE k.scope = 'race'), 'take over'),
    'one whose lock is over can');

SELECT * FROM finish();
ROLLBACK;
