-- The outbox as a worker sees it: what a poll says of messages, claims, and what becomes of them.
BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;
SET LOCAL jit = off; -- as workers do

SELECT worker_id AS worker FROM llmq.worker_hello(3, 'outbox', 'server', pg_backend_pid(), NULL) \gset
CREATE FUNCTION pg_temp.say(topic text, key text, payload jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql
AS $$ SELECT llmq.enqueue_outbox(topic, payload, key) $$;
-- However slow this test is, workers live unless their heartbeat is from before it.
CREATE FUNCTION pg_temp.beat() RETURNS void LANGUAGE sql
AS $$ UPDATE llmq.worker_session SET heartbeat = clock_timestamp() WHERE heartbeat > now() - interval '30 s' $$;
-- What a poll says of messages; it is a full one if it has a hash.
CREATE FUNCTION pg_temp.poll(own bigint, after bigint, hash text DEFAULT NULL) RETURNS jsonb LANGUAGE sql
AS $$ SELECT pg_temp.beat(); SELECT control -> 'messages' FROM llmq.worker_poll(own, 0, 1000, hash, NULL, after) WHERE control IS NOT NULL $$;
CREATE FUNCTION pg_temp.swept(own bigint, after bigint, topics_after text) RETURNS jsonb LANGUAGE sql
AS $$ SELECT pg_temp.beat(); SELECT control -> 'messages' FROM llmq.worker_poll(own, 0, 1000, NULL, NULL, after, topics_after) WHERE control IS NOT NULL $$;
CREATE FUNCTION pg_temp.due_in(own bigint) RETURNS bigint LANGUAGE sql
AS $$ SELECT pg_temp.beat(); SELECT (control ->> 'due_in')::bigint FROM llmq.worker_poll(own, 0, 1000, 'x', NULL, NULL) WHERE control IS NOT NULL $$;
CREATE FUNCTION pg_temp.claimed(own bigint, topic text, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(coalesce(id::text, 'not now'), ' ') FROM llmq.worker_claim_messages(own, jsonb_build_array(
    '{"kind": "webhook", "after": 0, "max": 10}' || jsonb_build_object('topic', topic) || more)) $$;
CREATE FUNCTION pg_temp.notified(own bigint, channel text) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(concat_ws(' ', id, remaining), ', ') FROM llmq.worker_claim_messages(own,
    jsonb_build_array(jsonb_build_object('topic', 'n', 'kind', 'notify', 'after', 0, 'max', 10, 'url', channel))) $$;
CREATE FUNCTION pg_temp.body(own bigint, topic text, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql
AS $$ SELECT body::jsonb FROM llmq.worker_claim_messages(own, jsonb_build_array(
    '{"kind": "webhook", "after": 0, "max": 1}' || jsonb_build_object('topic', topic) || more)) $$;
CREATE FUNCTION pg_temp.settle(own bigint, entries jsonb) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(verdict, ' ' ORDER BY id) FROM llmq.worker_settle_messages(own, entries) $$;
CREATE FUNCTION pg_temp.place(of_id bigint) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(place, ' and ') FROM llmq.message_place WHERE id = of_id $$;

-- -- looking -----------------------------------------------------------------------------------

SELECT is(pg_temp.poll(:worker, 0), NULL, 'without messages a poll says nothing of them');
SELECT is(pg_temp.swept(:worker, -1, ''), NULL, 'nor does a sweep');
SELECT pg_temp.say('a', 'a1') AS a1, pg_temp.say('b', 'b1') AS b1, pg_temp.say('a', 'a2') AS a2 \gset
SELECT is(pg_temp.poll(:worker, NULL), NULL, 'a poll that does not ask is told nothing');
SELECT is(pg_temp.poll(:worker, 0), jsonb_build_object('tip', :a2, 'more', false, 'topics', jsonb_build_object('a', :a1, 'b', :b1)),
    'a look names the topics of what it saw, the lowest id of each, and the highest of all');
SELECT is(pg_temp.poll(:worker, :a1), jsonb_build_object('tip', :a2, 'more', false, 'topics', jsonb_build_object('a', :a2, 'b', :b1)),
    'behind a tip it sees what is higher');
SELECT is(pg_temp.poll(:worker, :a2), NULL, 'and behind all of them nothing');
SELECT is(pg_temp.swept(:worker, -1, ''), format('{"tip": %s, "more": false, "topics": {}, "page": [["a", %s], ["b", %s]], "page_full": false}', :a2, :a1, :b1)::jsonb,
    'a sweep names every topic and its lowest id');
SELECT is(pg_temp.swept(:worker, :a1, 'a'), format('{"tip": %s, "more": false, "topics": {"a": %s, "b": %s}, "page": [["b", %s]], "page_full": false}', :a2, :a2, :b1, :b1)::jsonb,
    'when it goes on, the same poll looks behind the tip');
SAVEPOINT many;
SELECT count(pg_temp.say('many', 'many' || n)) FROM generate_series(1, 1001) AS n \gset many_
SELECT is((pg_temp.poll(:worker, :a2) ->> 'tip')::bigint, :a2 + 1000::bigint, 'one look sees 1,000 messages');
SELECT is(pg_temp.poll(:worker, :a2) -> 'more', 'true', 'and says that there are more');
SELECT is(pg_temp.poll(:worker, :a2 + 1000), jsonb_build_object('tip', :a2 + 1001, 'more', false, 'topics', jsonb_build_object('many', :a2 + 1001)),
    'the next one goes on behind them');
ROLLBACK TO many;
SELECT count(pg_temp.say('wide' || to_char(n, '000'), 'wide' || n)) FROM generate_series(1, 501) AS n \gset many_
SELECT pg_temp.swept(:worker, -1, '') AS page \gset
SELECT is(jsonb_array_length(:'page'::jsonb -> 'page') || ' ' || (:'page'::jsonb ->> 'page_full'), '500 true', 'a page of a sweep has 500 topics');
SELECT is(pg_temp.swept(:worker, :a2 + 501, :'page'::jsonb #>> '{page,-1,0}') #>> '{page,2,0}', 'wide 501', 'the next one goes on behind them');
ROLLBACK TO many;

-- -- limits --------------------------------------------------------------------------------------

SELECT lives_ok($$SELECT llmq.enqueue_outbox('large', to_jsonb(repeat('x', 16 * 1024 * 1024 - 2)), 'large')$$, 'a payload may have 16 MiB');
SELECT throws_ok($$SELECT llmq.enqueue_outbox('large', to_jsonb(repeat('x', 16 * 1024 * 1024 - 1)), 'larger')$$, '54000',
    'the payload of an outbox message must have at most 16 MiB', 'and no more');
SELECT throws_ok($$SELECT llmq.submit('Hello', 'larger', outbox => jsonb_build_array(jsonb_build_object(
    'topic', 'large', 'payload', repeat('x', 16 * 1024 * 1024 - 1))))$$, '54000', NULL, 'nor has that of a job''s message');
ROLLBACK TO many;

-- -- claiming ----------------------------------------------------------------------------------

SELECT is(pg_temp.claimed(:worker, 'a', '{"max": 1}'), :'a1', 'messages are claimed in order of id, as many as are wanted');
SELECT is(pg_temp.place(:a1), 'message_lease', 'they are under leases then');
SELECT is((SELECT worker_id FROM llmq.message_lease WHERE id = :a1), :worker::bigint, 'of this worker');
SELECT is(pg_temp.claimed(:worker, 'a', format('{"after": %s}', :a2)::jsonb), NULL, 'none is claimed that is not behind "after"');
SELECT is(pg_temp.claimed(:worker, 'a'), :'a2', 'what is claimed is not claimed again');
SELECT is(pg_temp.claimed(:worker, 'b'), :'b1', 'another topic is another matter');
SELECT is(pg_temp.claimed(:worker, 'c'), NULL, 'a topic without messages has none');
SELECT is((SELECT in_flight FROM llmq.worker_session WHERE id = :worker), 1, 'a worker with messages has something in hand, and must show that it lives');
SELECT throws_ok('SELECT * FROM llmq.worker_claim_messages(-1, ''[]'')', '55000', NULL, 'a session that is not known claims nothing');
SELECT row_to_json(c)::jsonb - 'body' AS row FROM llmq.worker_claim_messages(:worker,
    jsonb_build_array(jsonb_build_object('topic', 'd', 'kind', 'webhook', 'after', 0, 'max', 1 + 0 * pg_temp.say('d', 'key of d')))) AS c \gset
SELECT is((:'row'::jsonb ->> 'claimed_at')::bigint, (SELECT (extract(epoch FROM claimed_at) * 1000000)::bigint FROM llmq.message_lease WHERE topic = 'd'),
    'and when that was');
SELECT is(pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :'row'::jsonb -> 'id', 'claimed_at', (:'row'::jsonb ->> 'claimed_at')::bigint - 1, 'outcome', 'sent'))),
    'late', 'what an earlier claim of a message came to says nothing of the present one');
SELECT is(pg_temp.place((:'row'::jsonb ->> 'id')::bigint), 'message_lease', 'and changes nothing');
SELECT is(pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :'row'::jsonb -> 'id', 'claimed_at', 1, 'outcome', 'dead'),
    jsonb_build_object('id', :'row'::jsonb -> 'id', 'claimed_at', :'row'::jsonb -> 'claimed_at', 'outcome', 'sent'))), 'settled', 'the present one counts');
SELECT ok((SELECT sent_at IS NOT NULL FROM llmq.message_done WHERE id = (:'row'::jsonb ->> 'id')::bigint), 'alone');
SELECT is(:'row'::jsonb - 'id' - 'created_at' - 'claimed_at', '{"topic": "d", "attempts": 0, "dedupe_key": "key of d", "remaining": null, "traceparent": null}', 'a claim tells what sending needs');
SELECT is((:'row'::jsonb ->> 'created_at')::bigint, (SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM llmq.message WHERE topic = 'd'),
    'its time in microseconds');

SAVEPOINT broken;
CREATE OR REPLACE FUNCTION llmq_internal.webhook_body(m llmq.message) RETURNS text LANGUAGE plpgsql STABLE
AS $$ BEGIN IF m.dedupe_key = 'broken' THEN RAISE 'not this one'; END IF; RETURN '{}'; END $$;
SELECT pg_temp.say('torn', 'broken') AS broken, pg_temp.say('torn', 'whole') AS whole \gset
SELECT throws_ok(format('SELECT pg_temp.claimed(%s, ''torn'')', :worker), 'P0001', 'not this one', 'a message that cannot be read fails the claim');
SELECT is(pg_temp.claimed(:worker, 'torn', '{"doubtful": true, "max": 1}'), :'whole', 'when it is doubtful, it fails alone');
SELECT is(pg_temp.place(:broken), 'message_deferred', 'to be tried again');
SELECT is((SELECT last_error FROM llmq.message_deferred WHERE id = :broken), 'the message cannot be read: not this one', 'and says why');
UPDATE llmq.message_deferred SET attempts = 9, next_attempt_at = now() WHERE id = :broken;
SELECT pg_temp.poll(:worker, 0, 'x') \gset polled_
SELECT is(pg_temp.claimed(:worker, 'torn', '{"doubtful": true}'), NULL, 'it is not claimed in its last attempt either');
SELECT ok((SELECT dead_at IS NOT NULL FROM llmq.message_done WHERE id = :broken), 'and is dead then');
ROLLBACK TO broken;

-- Another worker: one that could be on another machine.
SELECT worker_id AS other FROM llmq.worker_hello(3, 'other', 'program', 1, now()) \gset
SELECT pg_temp.say('a', 'a3') AS a3 \gset
SELECT is(pg_temp.claimed(:other, 'a', '{"exclusive": true}'), 'not now', 'a topic that another worker has in hand is not to be had if its order counts');
SELECT is(pg_temp.claimed(:worker, 'a', '{"exclusive": true}'), :'a3', 'for the worker that has it, it is');
SELECT pg_temp.say('a', 'a4') AS a4 \gset
SELECT is(pg_temp.claimed(:other, 'a'), :'a4', 'and for others where it does not');

-- -- settling ----------------------------------------------------------------------------------

SELECT is(pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :a4, 'outcome', 'sent'))), 'late', 'a worker settles no message of another''s');
SELECT is(pg_temp.place(:a4), 'message_lease', 'it stays where it is');
SELECT is(pg_temp.settle(:worker, jsonb_build_array(
    jsonb_build_object('id', :a1, 'outcome', 'sent', 'error', 'one of two refused'),
    jsonb_build_object('id', :a2, 'outcome', 'retry', 'delay', 3600000000, 'error', 'HTTP 500', 'remaining', '["b@example.org"]'::jsonb),
    jsonb_build_object('id', :a3, 'outcome', 'dead', 'error', 'HTTP 410', 'delay', 0),
    jsonb_build_object('id', :b1, 'outcome', 'return', 'delay', 0))), 'settled settled settled settled', 'messages are settled together');
SELECT results_eq(format('SELECT id, attempts, sent_at IS NOT NULL, dead_at IS NOT NULL, next_attempt_at > now() + interval ''50 s'', last_error
    FROM llmq.outbox WHERE id IN (%s, %s, %s, %s) ORDER BY id', :a1, :a2, :a3, :b1), format($$VALUES
    (%s::bigint, 1, true, false, NULL::boolean, 'one of two refused'), (%s, 0, false, false, false, NULL),
    (%s, 1, false, false, true, 'HTTP 500'), (%s, 1, false, true, NULL, 'HTTP 410')$$, :a1, :b1, :a2, :a3),
    'sent, returned without being counted, to be tried again, dead');
SELECT is(pg_temp.place(:b1), 'message_pending', 'what was returned can be sent at once');
SELECT is(pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :a1, 'outcome', 'dead'))), 'late', 'what is settled stays so');

SELECT pg_temp.claimed(:worker, 'b') AS claimed \gset
SELECT pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :b1, 'outcome', 'return', 'delay', 3600000000, 'error', 'no secret'))) AS settled \gset
SELECT results_eq(format('SELECT attempts, last_error, next_attempt_at > clock_timestamp() FROM llmq.message_deferred WHERE id = %s', :b1),
    $$VALUES (0, 'no secret', true)$$, 'what is returned may wait, too');

-- -- coming back -------------------------------------------------------------------------------

SELECT ok(pg_temp.due_in(:worker) BETWEEN 1 AND 3600000000, 'a full poll says when the next message is due');
SELECT is(pg_temp.poll(:worker, :a4, 'x'), NULL, 'before that it says nothing of it');
UPDATE llmq.message_deferred SET next_attempt_at = clock_timestamp();
SELECT is(pg_temp.poll(:worker, :a4), NULL, 'a light poll moves nothing');
SELECT is(pg_temp.poll(:worker, :a4, 'x'), jsonb_build_object('tip', :a4, 'more', false, 'topics', jsonb_build_object('a', :a2, 'b', :b1)),
    'a full poll makes pending what is due, and names it whatever its id');
SELECT is((SELECT remaining FROM llmq.worker_claim_messages(:worker, '[{"topic": "a", "kind": "email", "after": 0, "max": 1}]')), '["b@example.org"]',
    'a mail remembers who has not got it');
SELECT pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :a2, 'outcome', 'retry', 'remaining', NULL, 'delay', 0))) AS settled \gset
SELECT is((SELECT remaining FROM llmq.message_pending WHERE id = :a2), '["b@example.org"]', 'also after an attempt that reached nobody');

-- -- a worker that is lost ------------------------------------------------------------------------

UPDATE llmq.worker_session SET heartbeat = now() - interval '1 min', in_flight = 1 WHERE id = :other;
SELECT pg_temp.beat() AS beat \gset
SELECT is((SELECT control -> 'sweep' FROM llmq.worker_poll(:worker, 0, 1000, 'x', NULL, :a4) WHERE control IS NOT NULL), 'true', 'a poll takes the messages of a lost worker, and asks for a sweep');
SELECT is((SELECT row(p.attempts)::text || pg_temp.place(p.id) FROM llmq.message_pending AS p WHERE id = :a4), '(0)message_pending', 'they are pending again, uncounted');
SELECT is((SELECT count(*) FROM llmq.worker_session WHERE id = :other), 0::bigint, 'and its session is over');
SELECT pg_temp.claimed(:worker, 'a') AS claimed \gset
SELECT llmq.worker_goodbye(:worker) AS bye \gset
SELECT is(pg_temp.place(:a4), 'message_pending', 'a worker that leaves gives its messages back');
SELECT is((SELECT count(*) FROM llmq.worker_session WHERE id = :worker), 0::bigint, 'and its session is over, too');
INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, claimed_at) SELECT id, topic, 77, attempts, now() FROM llmq.message_pending WHERE id = :a4;
DELETE FROM llmq.message_pending WHERE id = :a4;
SELECT worker_id AS worker FROM llmq.worker_hello(3, 'outbox', 'server', pg_backend_pid(), NULL) \gset
SELECT is(pg_temp.place(:a4), 'message_pending', 'the messages of no session come back with the first worker');

-- -- bodies --------------------------------------------------------------------------------------

SELECT pg_temp.say('plain', 'p1', '{"n": 1}') AS p1, pg_temp.say('plain', 'p2', '[1, 2]') AS p2, pg_temp.say('plain', 'p3', NULL) AS p3 \gset
SELECT pg_temp.body(:worker, 'plain') AS b1, pg_temp.body(:worker, 'plain') AS b2, pg_temp.body(:worker, 'plain') AS b3 \gset
SELECT is(:'b1'::jsonb - 'timestamp', '{"type": "plain", "data": {"n": 1}}', 'the body of a webhook is its topic and its payload');
SELECT matches(:'b1'::jsonb ->> 'timestamp', '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$', 'its time is ISO 8601, UTC');
SELECT is((:'b1'::jsonb ->> 'timestamp')::timestamptz, (SELECT created_at FROM llmq.message WHERE id = :p1), 'that of the message');
SELECT is(:'b2'::jsonb -> 'data', '{"payload": [1, 2]}', 'a payload that is no object stands in data.payload');
SELECT is(:'b3'::jsonb -> 'data', '{}', 'and one that is NULL nowhere');

SELECT job_id AS done FROM llmq.submit('x', 'done', outbox => '[{"topic": "t1", "payload": {"k": 2, "job": 3}}]') \gset
SELECT job_id AS dead FROM llmq.submit('x', 'dead', outbox => '[{"topic": "t2", "payload": {}, "on": "dead"}]') \gset
SELECT count(*) FROM llmq.worker_claim(:worker, ARRAY(SELECT seq FROM llmq.ready)) \gset jobs_
SELECT count(*) FROM llmq.worker_settle(:worker, jsonb_build_array(
    jsonb_build_object('job_id', :'done', 'delivery', 1, 'outcome', 'succeeded', 'text', 'Hi', 'model', 'm', 'finish_reason', 'stop',
        'input_tokens', 3, 'output_tokens', 4, 'cached_tokens', 1, 'attempts', '[{"attempt": 1, "outcome": "success", "started_at": 0, "duration": 0, "billing": "billed"}]'::jsonb),
    jsonb_build_object('job_id', :'dead', 'delivery', 1, 'outcome', 'dead', 'error_class', 'refusal', 'error_message', 'no', 'attempts', '[]'::jsonb))) \gset settled_
SELECT is(pg_temp.body(:worker, 't1') -> 'data', jsonb_build_object('k', 2, 'job', jsonb_build_object('id', :'done', 'state', 'succeeded', 'text', 'Hi',
    'model', 'm', 'finish_reason', 'stop', 'usage', '{"input_tokens": 3, "output_tokens": 4, "cached_tokens": 1}'::jsonb)), 'the message of a job has it in its data');
SELECT is(pg_temp.body(:worker, 't2') #> '{data,job}', jsonb_build_object('id', :'dead', 'state', 'dead', 'text', NULL, 'model', NULL, 'finish_reason', NULL,
    'usage', NULL, 'error_class', 'refusal', 'error_message', 'no'), 'that of a dead one says why');
UPDATE llmq.message_lease SET worker_id = NULL, token = gen_random_uuid(), expires_at = now() WHERE topic IN ('t1', 't2');
SELECT llmq_internal.delete_jobs(ARRAY[:'done', :'dead']::uuid[]) AS deleted \gset
SELECT pg_temp.poll(:worker, 0, 'x') AS polled \gset
SELECT is(pg_temp.body(:worker, 't1') -> 'data', '{"k": 2, "job": 3}', 'one whose job retention has deleted goes out without it');

SELECT pg_temp.say('mail', 'm1', '{"to": "a@example.org", "subject": "S", "text": "T"}') AS m1,
    pg_temp.say('mail', 'm2', '{"to": ["a@example.org", "b@example.org"], "cc": "c@example.org", "text": ""}') AS m2,
    pg_temp.say('mail', 'm3', '{"to": "a@example.org\nBcc: x@example.org"}') AS m3, pg_temp.say('mail', 'm4', '{"to": "a@example.org"}') AS m4 \gset
SELECT results_eq(format($$SELECT body::jsonb FROM llmq.worker_claim_messages(%s, '[{"topic": "mail", "kind": "email", "after": 0, "max": 4}]')$$, :worker), $$VALUES
    ('{"to": ["a@example.org"], "cc": [], "subject": "S", "text": "T"}'::jsonb),
    ('{"to": ["a@example.org", "b@example.org"], "cc": ["c@example.org"], "subject": "", "text": ""}'),
    ('{"error": "\"to\" must not hold line breaks or other control characters"}'),
    ('{"error": "there is no \"text\", and no answer to take it from"}')$$, 'an e-mail is normalised, or says why it cannot be one');

-- -- size ------------------------------------------------------------------------------------------

SELECT count(pg_temp.say('big', 'big' || n, jsonb_build_object('x', repeat('x', 7 * 1024 * 1024)))) FROM generate_series(1, 4) AS n \gset big_
SELECT pg_temp.say('small', 's1') AS s1 \gset
SELECT results_eq(format($$SELECT topic, count(id), count(*) FILTER (WHERE id IS NULL) FROM llmq.worker_claim_messages(%s,
    '[{"topic": "big", "kind": "webhook", "after": 0, "max": 10}, {"topic": "small", "kind": "webhook", "after": 0, "max": 10}]') GROUP BY topic ORDER BY topic$$, :worker),
    $$VALUES ('big', 3::bigint, 1::bigint), ('small', 0, 1)$$, 'one claim takes 16 MB and what completes a message, and says where there may be more');

-- -- notifications -----------------------------------------------------------------------------------

SELECT pg_temp.say('n', 'n1') AS n1, pg_temp.say('n', 'n2', jsonb_build_object('x', repeat('x', 9000))) AS n2 \gset
SELECT is(llmq_internal.notify_body(m)::jsonb - 'timestamp', '{"type": "n", "data": {}}', 'a notification has the body of a webhook') FROM llmq.message AS m WHERE id = :n1;
SELECT is(llmq_internal.notify_body(m)::jsonb - 'timestamp', jsonb_build_object('type', 'n', 'id', :n2), 'one that would be too long says where it is') FROM llmq.message AS m WHERE id = :n2;
SELECT results_eq(format($$SELECT id, body FROM llmq.worker_claim_messages(%s, '[{"topic": "n", "kind": "notify", "after": 0, "max": 10, "url": "channel"}]')$$, :worker),
    format('VALUES (%s::bigint, NULL::text), (%s, NULL)', :n1, :n2), 'notifications are sent by the claim, and come back without a body');
SELECT is((SELECT count(*) FROM llmq.message_done WHERE id IN (:n1, :n2) AND sent_at IS NOT NULL AND attempts = 1), 2::bigint, 'they are done');
INSERT INTO llmq.destination (topic, kind, url, max_attempts) VALUES ('n*', 'notify', 'channel', 2);
SELECT pg_temp.say('n', 'n3') AS n3 \gset
SELECT is(pg_temp.notified(:worker, repeat('x', 64)), :'n3' || ' retry', 'one that PostgreSQL does not take comes back as well, and says so');
SELECT results_eq(format('SELECT attempts, next_attempt_at IS NOT NULL, last_error FROM llmq.outbox WHERE id = %s', :n3), $$VALUES (1, true, 'channel name too long')$$, 'and is tried again');
UPDATE llmq.message_deferred SET next_attempt_at = now() WHERE id = :n3;
SELECT pg_temp.poll(:worker, 0, 'x') AS polled, pg_temp.notified(:worker, repeat('x', 64)) AS notified \gset
SELECT is(:'notified', :'n3' || ' dead', 'at last it comes back as dead');
SELECT ok((SELECT dead_at IS NOT NULL AND attempts = 2 FROM llmq.outbox WHERE id = :n3), 'as often as its destination says');

-- -- a receiver that wants no more -------------------------------------------------------------------

INSERT INTO llmq.destination (topic, kind, url) VALUES ('hook.*', 'webhook', 'http://127.0.0.1:9/'), ('hook.x', 'webhook', 'http://127.0.0.1:9/x');
SELECT pg_temp.say('hook.x', 'h1') AS h1 \gset
SELECT pg_temp.claimed(:worker, 'hook.x') AS claimed, pg_temp.settle(:worker, jsonb_build_array(jsonb_build_object('id', :h1, 'outcome', 'dead', 'disable', true))) AS settled \gset
SELECT results_eq($$SELECT topic, enabled FROM llmq.destination WHERE topic LIKE 'hook%' ORDER BY topic$$, $$VALUES ('hook.*', true), ('hook.x', false)$$,
    'the destination that took the message is switched off, no other');

SELECT is_empty($$SELECT * FROM llmq.check()$$, 'nothing is broken');
SELECT * FROM finish();
ROLLBACK;
