-- on_complete: what submit takes, how an answer is kept, and what becomes of it, as far as one
-- transaction shows it.  Functions are called by the settler alone: test/e2e/610_callback.pl.

BEGIN;
SELECT no_plan();

CREATE ROLE llmq_caller;
SELECT llmq.grant_submit('llmq_caller');
CREATE SCHEMA "My Schema";
CREATE SCHEMA closed;
GRANT USAGE ON SCHEMA "My Schema" TO llmq_caller;
CREATE FUNCTION "My Schema"."Do it"(answer jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION "My Schema".forbidden(jsonb) RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION "My Schema".forbidden(jsonb) FROM PUBLIC;
CREATE FUNCTION "My Schema".text_only(text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION "My Schema".two(jsonb, int DEFAULT 1) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION "My Schema".twice(jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION "My Schema".twice(text) RETURNS void LANGUAGE sql AS '';
CREATE PROCEDURE "My Schema".proc(jsonb) LANGUAGE sql AS '';
CREATE AGGREGATE "My Schema".agg(jsonb) (SFUNC = jsonb_concat, STYPE = jsonb);
CREATE FUNCTION closed.f(jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION pg_temp.passing(jsonb) RETURNS void LANGUAGE sql AS '';

CREATE FUNCTION pg_temp.refusal(statement text, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;

-- -- submit -------------------------------------------------------------------------------

SET LOCAL ROLE llmq_caller;
SELECT job_id AS named FROM llmq.submit('x', 'named', on_complete => '"My Schema"."Do it"') \gset
SELECT is((SELECT replayed FROM llmq.submit('x', 'named', on_complete => '"My Schema"."Do it"')), true, 'the same function again is a replay');
SELECT is((SELECT code FROM pg_temp.refusal($$SELECT llmq.submit('x', 'named')$$)), 'PT422', 'without it is another request');
SELECT is((SELECT job_id FROM llmq.submit_many('[{"prompt": "x", "idempotency_key": "named", "on_complete": "\"My Schema\".\"Do it\"(jsonb)"}]')),
    :'named'::uuid, 'submit_many takes it as text, with its argument');
SELECT is((SELECT replayed FROM llmq.submit_many('[{"prompt": "x", "idempotency_key": "named", "on_complete": "\"My Schema\".\"Do it\""}]')),
    true, 'or without');
SELECT is((SELECT status FROM llmq.http_submit(NULL, 'POST', '/x', '0123456789abcdef', '{"prompt": "x"}', on_complete => '"My Schema"."Do it"')),
    202, 'http_submit takes it too');

CREATE TEMP TABLE refused (id int GENERATED ALWAYS AS IDENTITY, given text, message text);
INSERT INTO refused (given, message) VALUES
    ('"My Schema".forbidden', 'role "llmq_caller" may not execute on_complete'),
    ('closed.f', 'role "llmq_caller" may not use schema "closed" of on_complete'),
    ('"My Schema".text_only', 'on_complete must take one argument of type jsonb'),
    ('"My Schema".two', 'on_complete must take one argument of type jsonb'),
    ('"My Schema".proc', 'on_complete must be a function, not a procedure or an aggregate'),
    ('"My Schema".agg', 'on_complete must be a function, not a procedure or an aggregate');
SELECT is(r.code || ' ' || r.message, 'PT400 ' || d.message, 'refused: ' || given) FROM refused AS d
CROSS JOIN LATERAL (SELECT p.oid FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE format('%I.%I', nspname, proname) = given) AS f
CROSS JOIN LATERAL pg_temp.refusal(format('SELECT llmq.submit(''x'', ''r'', on_complete => %s::oid::regproc)', f.oid)) AS r;
SELECT isnt(r.hint, '', 'with a hint: ' || given) FROM refused AS d
CROSS JOIN LATERAL pg_temp.refusal(format('SELECT llmq.submit_many(%L)', jsonb_build_array(jsonb_build_object('prompt', 'x',
    'idempotency_key', 'r', 'on_complete', given)))) AS r;
SELECT is((SELECT code FROM pg_temp.refusal($$SELECT llmq.submit('x', 'r', on_complete => 'pg_temp.passing')$$)), 'PT400',
    'a temporary function is refused');
SELECT is((SELECT code FROM pg_temp.refusal($$SELECT llmq.submit('x', 'r', on_complete => 0::regproc)$$)), 'PT400', 'so is one that is not there');
SELECT is((SELECT code FROM pg_temp.refusal(format('SELECT llmq.submit_many(%L)', jsonb_build_array(jsonb_build_object('prompt', 'x',
    'idempotency_key', 'r', 'on_complete', given))))), 'PT400', 'submit_many refuses ' || given)
FROM unnest('{f, closed.g, a.b.c, "closed.f(", "closed.f(text)", "", \"My Schema\".twice, -, 1}'::text[]) AS given;
SELECT is((SELECT code FROM pg_temp.refusal($$SELECT llmq.submit_many('[{"prompt": "x", "idempotency_key": "t", "on_complete": "\"My Schema\".twice(jsonb)"}]')$$)),
    NULL, 'of two with one name the argument says which');
RESET ROLE;
SELECT is((SELECT on_complete FROM llmq.job WHERE job_id = :'named'), '"My Schema"."Do it"(jsonb)', 'it is stored by its qualified name');

-- -- an answer that is kept ---------------------------------------------------------------------

CREATE FUNCTION pg_temp.lease(job uuid) RETURNS int LANGUAGE sql
AS $$
    INSERT INTO llmq.lease SELECT job, 0, queue, tenant, priority, deliveries + 1, counted, deaths, now(), now() + interval '1 min'
    FROM llmq_internal.take_place(job, 'test') RETURNING deliveries
$$;
CREATE FUNCTION pg_temp.settle(job uuid, delivery int, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$
    SELECT verdict FROM llmq.worker_settle(0, jsonb_build_array('{"outcome": "succeeded", "text": "Hi", "response": "{\"a\": 1}",
        "input_tokens": 3, "output_tokens": 5, "attempts": [{"attempt": 1, "started_at": 0, "outcome": "success", "billing": "billed"}]}'::jsonb ||
        jsonb_build_object('job_id', job, 'delivery', delivery) || more))
$$;
CREATE FUNCTION pg_temp.state(job uuid) RETURNS text LANGUAGE sql AS $$ SELECT state FROM llmq.job_status WHERE job_id = job $$;
CREATE FUNCTION pg_temp.new_job(key text, parents uuid[] DEFAULT NULL, callback regproc DEFAULT '"My Schema"."Do it"') RETURNS uuid LANGUAGE sql
AS $$
    SELECT job_id FROM llmq.submit('x', key, on_complete => callback, after => parents, metadata => '{"m": 1}', run_id => 'run', step => 'one',
        policy => '{"max_deliveries": 2, "redelivery_base": "0 s"}',
        outbox => '[{"topic": "good", "payload": 1}, {"topic": "sad", "payload": 2, "on": "dead"}]')
$$;

SELECT pg_temp.new_job('a') AS a \gset
SELECT pg_temp.new_job('plain', NULL, NULL) AS plain \gset
SELECT pg_temp.new_job('child', ARRAY[:'a']::uuid[]) AS child \gset
SELECT pg_temp.lease(:'a'), pg_temp.lease(:'plain');
SELECT throws_ok(format('SELECT pg_temp.settle(%L, 1, ''{"response": "{"}'')', :'a'), '22P02', NULL,
    'what PostgreSQL does not take is refused while the worker can mend it');
SELECT throws_ok(format('SELECT pg_temp.settle(%L, 1, ''{"attempts": [{"attempt": "x"}]}'')', :'a'), '22P02', NULL, 'attempts too');
SELECT results_eq(format($$SELECT verdict FROM llmq.worker_settle(0, (SELECT jsonb_agg('{"outcome": "succeeded", "text": "Hi", "delivery": 1,
        "attempts": [{"attempt": 1, "started_at": 0, "outcome": "success", "billing": "billed"}]}'::jsonb || jsonb_build_object('job_id', j))
    FROM unnest('{%s, %s}'::uuid[]) AS j))$$, :'a', :'plain'), ARRAY['settled', 'settled'], 'a worker settles both kinds in one batch');
SELECT is(pg_temp.state(:'plain'), 'succeeded', 'a job without on_complete has succeeded');
SELECT is(pg_temp.state(:'a'), 'running', 'one with it still runs');
SELECT is((SELECT state FROM llmq.submit('x', 'a', on_complete => '"My Schema"."Do it"', metadata => '{"m": 1}', run_id => 'run', step => 'one',
        policy => '{"max_deliveries": 2, "redelivery_base": "0 s"}',
        outbox => '[{"topic": "good", "payload": 1}, {"topic": "sad", "payload": 2, "on": "dead"}]')), 'running', 'and says so on replay');
SELECT is((SELECT wait_reason FROM llmq.job_status WHERE job_id = :'a'), 'on_complete', 'and what it waits for');
SELECT is((SELECT count(*) FROM llmq.lease WHERE job_id = :'a') + (SELECT count(*) FROM llmq.attempt WHERE job_id = :'a') +
    (SELECT count(*) FROM llmq.outbox WHERE job_id = :'a'), 0::bigint, 'its lease has ended, and nothing else is written');
SELECT is(pg_temp.state(:'child'), 'blocked', 'its child waits');
SELECT is(pg_temp.settle(:'a', 7), 'late', 'a second answer is late');
SELECT is((SELECT string_agg(delivery::text, ' ') FROM llmq.attempt WHERE job_id = :'a'), '7', 'and only its attempts are recorded');
SELECT results_eq('SELECT job_id FROM llmq_internal.settler_look(10) WHERE job_id IS NOT NULL', ARRAY[:'a'::uuid], 'the settler sees it');
SELECT is((SELECT invariant FROM llmq.check() WHERE invariant NOT LIKE 'a lease%' LIMIT 1), NULL, 'nothing is broken');

-- -- failing, dying, reviving ----------------------------------------------------------------------

SELECT llmq_internal.settler_fail(:'a', 'first', true), llmq_internal.settler_fail(:'a', 'a passing one', false);
SELECT results_eq(format('SELECT failures, dead, error_message FROM llmq.answer WHERE job_id = %L', :'a'), $$VALUES (1, false, 'a passing one')$$,
    'a failure is counted, one that passes is not');
SELECT is((SELECT error_class FROM llmq.job_status WHERE job_id = :'a'), 'callback_failed', 'the status says that it fails');
SELECT llmq_internal.settler_fail(:'a', 'second', true);
SELECT results_eq(format('SELECT state, error_class, error_message, text FROM llmq.job_status WHERE job_id = %L', :'a'),
    $$VALUES ('dead', 'callback_failed', 'on_complete failed 2 times, the answer is kept; the last time: second', 'Hi')$$, 'after max_deliveries it is dead');
SELECT is((SELECT dead FROM llmq.answer WHERE job_id = :'a'), true, 'and its answer is kept');
SELECT is((SELECT string_agg(topic, ' ') FROM llmq.outbox WHERE job_id = :'a'), 'sad', 'the message of its death is there');
SELECT is((SELECT error_class FROM llmq.job_status WHERE job_id = :'child'), 'dependency_failed', 'its child dies of it');
SELECT is((SELECT billing FROM llmq.attempt WHERE job_id = :'a' AND delivery = 1), 'billed', 'what it cost is on record');
SELECT is(pg_temp.settle(:'a', 8), 'late', 'a late answer does not wake the dead');
SELECT is((SELECT count(*) FROM llmq_internal.settler_look(10) WHERE job_id IS NOT NULL), 0::bigint, 'the settler does not see it any more');
SELECT llmq_internal.settler_fail(:'a', 'third', true);
SELECT is((SELECT invariant FROM llmq.check() LIMIT 1), NULL, 'nothing is broken');

SELECT is(llmq.redrive_queue('default', 'callback_failed'), 1::bigint, 'it can be redriven');
SELECT is(pg_temp.state(:'a') || ' ' || pg_temp.state(:'child'), 'running blocked', 'to be settled, not called; its child waits again');
SELECT is((SELECT failures || ' ' || deaths FROM llmq.answer WHERE job_id = :'a' AND NOT dead), '0 1', 'with all its tries before it');
SELECT results_eq(format('SELECT role, function, argument, search_path FROM llmq_internal.settler_settle(%L)', :'a'),
    format($$VALUES (current_user, '"My Schema"."Do it"(jsonb)', '{"job_id": "%s", "state": "succeeded", "text": "Hi", "json": null,
        "finish_reason": null, "usage": {"input_tokens": null, "output_tokens": null, "cached_tokens": null},
        "metadata": {"m": 1}, "run_id": "run", "step": "one"}'::jsonb, NULL)$$, :'a'), 'the settler settles it and knows whom to call with what');
SELECT is(pg_temp.state(:'a') || ' ' || pg_temp.state(:'child'), 'succeeded ready', 'it has succeeded, its child is ready');
SELECT is((SELECT string_agg(topic, ' ' ORDER BY topic) FROM llmq.outbox WHERE job_id = :'a'), 'good sad', 'the message of its success is there');
SELECT is((SELECT count(*) FROM llmq_internal.settler_settle(:'a')), 0::bigint, 'and that was all');
SELECT is((SELECT invariant FROM llmq.check() LIMIT 1), NULL, 'nothing is broken');

-- -- cancel, prune ------------------------------------------------------------------------------------

SELECT pg_temp.new_job('c') AS c \gset
SELECT pg_temp.settle(:'c', pg_temp.lease(:'c'));
SELECT is(llmq.cancel(:'c'), true, 'a job that was answered but not settled can be cancelled');
SELECT is(pg_temp.state(:'c'), 'cancelled', 'it is cancelled');
SELECT is((SELECT billing FROM llmq.attempt WHERE job_id = :'c'), 'billed', 'what it cost is on record');
SELECT is((SELECT count(*) FROM llmq.answer WHERE job_id = :'c'), 0::bigint, 'its answer is gone');

SELECT pg_temp.new_job('d') AS d \gset
SELECT pg_temp.settle(:'d', pg_temp.lease(:'d'));
SELECT llmq_internal.settler_fail(:'d', 'no', true), llmq_internal.settler_fail(:'d', 'no', true);
UPDATE llmq.dead_job SET died_at = now() - interval '31 days' WHERE job_id = :'d';
SELECT is(llmq.prune(), 1::bigint, 'prune deletes a dead job');
SELECT is((SELECT count(*) FROM llmq.answer), 0::bigint, 'and its answer');

-- -- the search_path of a role -------------------------------------------------------------------------

SELECT is(llmq_internal.search_path_of('llmq_caller'), NULL, 'a role without settings has the server''s search_path');
ALTER ROLE ALL SET search_path = 'everyone';
SELECT is(llmq_internal.search_path_of('llmq_caller'), 'everyone', 'or that of all roles');
SELECT set_config('llmq_test.db', current_database(), true);
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = ''base'', "$user"', current_database()); END $$;
SELECT is(llmq_internal.search_path_of('llmq_caller'), 'base, "$user"', 'or the database''s');
ALTER ROLE llmq_caller SET search_path = 'one', 'my two';
SELECT is(llmq_internal.search_path_of('llmq_caller'), 'one, "my two"', 'or its own');
DO $$ BEGIN EXECUTE format('ALTER ROLE llmq_caller IN DATABASE %I SET search_path = ''here''', current_database()); END $$;
SELECT is(llmq_internal.search_path_of('llmq_caller'), 'here', 'or its own in this database');

-- -- the waits between its tries ---------------------------------------------------------------

INSERT INTO llmq.queue (name, max_deliveries, redelivery_base, redelivery_cap) VALUES ('patient', 1000, '1 s', '1 h');
SELECT job_id AS slow FROM llmq.submit('x', 'slow', queue => 'patient', on_complete => '"My Schema"."Do it"') \gset
SELECT pg_temp.lease(:'slow');
SELECT pg_temp.settle(:'slow', 1);
-- The longest wait after so many further failures.
CREATE FUNCTION pg_temp.longest(job uuid, failures int) RETURNS interval LANGUAGE plpgsql
AS $$
DECLARE
    longest interval := '0';
BEGIN
    FOR i IN 1..failures LOOP
        PERFORM llmq_internal.settler_fail(job, 'not yet', true);
        longest := greatest(longest, (SELECT due_at - clock_timestamp() FROM llmq.answer WHERE job_id = job));
    END LOOP;
    RETURN longest;
END
$$;
SELECT cmp_ok(pg_temp.longest(:'slow', 1), '<=', interval '1 s', 'after the first failure an answer waits for redelivery_base at most');
SELECT cmp_ok(pg_temp.longest(:'slow', 30), '>', interval '1 min', 'the wait grows with each failure');
SELECT cmp_ok(pg_temp.longest(:'slow', 30), '<=', interval '1 h', 'up to redelivery_cap');
UPDATE llmq.answer SET failures = 0 WHERE job_id = :'slow';
SELECT llmq_internal.settler_fail(:'slow', 'the server was busy', false);
SELECT is((SELECT failures FROM llmq.answer WHERE job_id = :'slow'), 0, 'what was not the function''s fault is not counted');

SELECT finish();
ROLLBACK;
