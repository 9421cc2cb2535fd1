-- The queue "default" without a row, and intervals in a policy.
BEGIN;
SELECT no_plan();

SELECT is((SELECT count(*) FROM llmq.queue WHERE name = 'default'), 0::bigint, 'the queue "default" has no row');
SELECT results_eq($$ SELECT name FROM llmq.queue_policy $$, $$ VALUES ('default') $$,
    'it is among the policies nevertheless');

INSERT INTO llmq.queue (name) VALUES ('default');
SELECT is(to_jsonb(llmq.default_queue()), (SELECT to_jsonb(q) FROM llmq.queue AS q WHERE name = 'default'),
    'default_queue() is what the column defaults give');
UPDATE llmq.queue SET max_attempts = 2;
SELECT results_eq($$ SELECT name, max_attempts FROM llmq.queue_policy $$, $$ VALUES ('default', 2) $$,
    'a row for "default" takes its place');

SELECT is(llmq_internal.try_interval(span), expected, format('"%s" is an interval', span))
FROM (VALUES ('20 s', interval '20 s'), ('500ms', '0.5 s'), ('0.25 s', '0.25 s'), ('2 min', '2 min'),
    ('1 day', '1 day'), ('00:01:30', '90 s')) AS t (span, expected);
SELECT is(llmq_internal.try_interval(span), NULL, format('"%s" is none', span))
FROM unnest('{"", "s", "-1 s", "1 month", "1e3 s", "1 s ago", "99999999999 s", "1 s; 2 s", "infinity"}'::text[]) AS span;

SELECT is(llmq_internal.microseconds('1.5 s'), 1500000::bigint, 'intervals are counted in microseconds');

-- -- fallback_on ------------------------------------------------------------------------------

SELECT lives_ok($$ INSERT INTO llmq.queue (name, fallback_on) SELECT 'all', llmq_internal.error_classes() $$,
    'each class that an attempt can end with can be in fallback_on');
SELECT lives_ok($$ INSERT INTO llmq.queue (name, fallback_on) VALUES ('none', '{}'), ('null', NULL) $$, 'as can none');

-- What an error says: its code, message, detail and hint.
CREATE FUNCTION pg_temp.words_of(sql text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    code text;
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE sql;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN ARRAY[code, message, detail, hint];
END
$$;
CREATE TEMP TABLE refused AS
SELECT pg_temp.words_of($$ INSERT INTO llmq.queue (name, fallback_on) VALUES ('typo', '{context_length,contxt_length,NULL}') $$) AS words;
SELECT is(words[1:3], ARRAY['23514', 'fallback_on of queue "typo" names what is no class of errors', 'It names "contxt_length", NULL.'],
    'what is no class is refused by name') FROM refused;
SELECT matches(words[4], '^The classes are rate_limited, .*context_length, .*internal[.]$', 'the hint lists the classes') FROM refused;
SELECT throws_ok($$ UPDATE llmq.queue SET fallback_on = '{deadline_exceeded}' WHERE name = 'all' $$, '23514', NULL,
    'a class of deliveries is none of attempts, and a change is looked at, too');

SELECT * FROM finish();
ROLLBACK;
