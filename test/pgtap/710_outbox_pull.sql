-- The outbox as its users see it: adding messages, pulling them, redriving, retention, destinations.
BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;

CREATE ROLE llmq_ann;
CREATE ROLE llmq_ben;
CREATE ROLE llmq_boss;
SELECT llmq.grant_submit('llmq_ann'), llmq.grant_submit('llmq_ben'), llmq.grant_admin('llmq_boss');
CREATE FUNCTION pg_temp.place(of_id bigint) RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(place, ' and ') FROM llmq.message_place WHERE id = of_id $$;
CREATE FUNCTION pg_temp.claimed(topic text, VARIADIC more text[] DEFAULT '{10,"30 s"}') RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(id::text, ' ') FROM llmq.outbox_claim(topic, more[1]::int, more[2]::interval) $$;

-- -- adding ------------------------------------------------------------------------------------

SELECT llmq.enqueue_outbox('t', '{"a": 1}', 'k1') AS m1 \gset
SELECT results_eq(format('SELECT tenant, topic, dedupe_key, payload, job_id, attempts, next_attempt_at = created_at, sent_at, dead_at FROM llmq.outbox WHERE id = %s', :m1),
    $$VALUES (current_user::text COLLATE "default", 't', 'k1', '{"a": 1}'::jsonb, NULL::uuid, 0, true, NULL::timestamptz, NULL::timestamptz)$$, 'a message is the calling role''s, and can be pulled');
SELECT is(llmq.enqueue_outbox('t', '{"a": 1.0}', 'k1'), :m1::bigint, 'the same message again is the same message');
SELECT throws_ok($$SELECT llmq.enqueue_outbox('t', '{"a": 2}', 'k1')$$, 'PT422', 'dedupe_key "k1" was used for another message', 'another payload under its key is refused');
SELECT throws_ok($$SELECT llmq.enqueue_outbox('u', '{"a": 1}', 'k1')$$, 'PT422', NULL, 'and another topic');
SELECT throws_ok($$SELECT llmq.enqueue_outbox('t', NULL, 'k1')$$, 'PT422', NULL, 'and none');
SELECT is(llmq.enqueue_outbox('t', NULL, 'k2'), llmq.enqueue_outbox('t', NULL, 'k2'), 'a message without payload is one');
SELECT throws_ok(format('SELECT llmq.enqueue_outbox(%L, NULL, %L)', t, k), 'PT400', NULL, 'refused: ' || what)
FROM (VALUES (NULL, 'k', 'no topic'), ('', 'k', 'an empty topic'), (repeat('t', 129), 'k', 'a topic too long'), ('t', NULL, 'no key'), ('t', '', 'an empty key'),
    ('t', repeat('k', 513), 'a key too long'), ('t', repeat(U&'\+01F40C', 401), 'a key of too many bytes'), ('t', 'k:death 2', 'a key that a death could need')) AS v (t, k, what);
SELECT is((SELECT count(*) FROM llmq.home), 1::bigint, 'a message is a reason to know where home is');
SET LOCAL ROLE llmq_ann;
SELECT isnt(llmq.enqueue_outbox('t', '{"a": 1}', 'k1'), :m1::bigint, 'another role''s keys are its own');
SELECT lives_ok('SELECT * FROM llmq.outbox_event', 'the router''s view can be read');
SELECT is((SELECT count(*) FROM llmq.outbox), 1::bigint, 'a role sees its own messages');
RESET ROLE;
SELECT columns_are('llmq', 'outbox_event', '{id,aggregatetype,aggregateid,type,payload}', 'the router''s columns are those it expects');
SELECT results_eq($$SELECT pg_typeof(id)::text, aggregatetype, aggregateid, type, payload FROM llmq.outbox_event WHERE aggregateid = 'k1' LIMIT 1$$,
    $$VALUES ('uuid', 't', 'k1', 't', '{"a": 1}'::jsonb)$$, 'and hold the message');

-- -- pulling -----------------------------------------------------------------------------------

SELECT llmq.enqueue_outbox('p', '1', 'p1') AS p1, llmq.enqueue_outbox('p', '2', 'p2') AS p2, llmq.enqueue_outbox('p', '3', 'p3') AS p3, llmq.enqueue_outbox('q', '4', 'q1') AS q1 \gset
SELECT id, token, row_to_json(c)::jsonb - 'id' - 'token' - 'created_at' AS message FROM llmq.outbox_claim('p', max_messages => 1) AS c \gset
SELECT is(:id, :p1, 'the first of a topic is claimed first');
SELECT is(:'message'::jsonb, jsonb_build_object('tenant', current_user, 'topic', 'p', 'dedupe_key', 'p1', 'payload', 1, 'job_id', NULL, 'attempts', 0), 'with what handling it needs');
SELECT is(pg_temp.place(:p1), 'message_lease', 'it is under a lease');
SELECT is((SELECT next_attempt_at FROM llmq.outbox WHERE id = :p1), (SELECT expires_at FROM llmq.message_lease WHERE id = :p1), 'the view says until when');
SELECT is(pg_temp.claimed('p'), format('%s %s', :p2, :p3), 'the next claim has the others, in order');
SELECT is(pg_temp.claimed('p'), NULL, 'then there is none');
SELECT is(llmq.outbox_ack(:p1, gen_random_uuid()), false, 'with another token nothing is acknowledged');
SELECT is(llmq.outbox_ack(:p2, :'token'), false, 'nor is another message with this one');
SELECT is(llmq.outbox_ack(:p1, :'token'), true, 'with its own it is');
SELECT is(llmq.outbox_ack(:p1, :'token'), false, 'once');
SELECT results_eq(format('SELECT attempts, sent_at IS NOT NULL, dead_at FROM llmq.outbox WHERE id = %s', :p1), $$VALUES (1, true, NULL::timestamptz)$$, 'and is sent');
SELECT is(llmq.outbox_nack(:p2, (SELECT token FROM llmq.message_lease WHERE id = :p2), repeat('no', 1000)), true, 'another one is not handled');
SELECT results_eq(format('SELECT attempts, next_attempt_at BETWEEN now() AND clock_timestamp() + interval ''5 s'', length(last_error) FROM llmq.outbox WHERE id = %s', :p2),
    $$VALUES (1, true, 1000)$$, 'it comes again within 5 s, with the reason');
UPDATE llmq.message_deferred SET next_attempt_at = clock_timestamp() + interval '1 h';
SELECT is(pg_temp.claimed('p'), NULL, 'before its time it is not claimed');
UPDATE llmq.message_deferred SET next_attempt_at = clock_timestamp();
SELECT is(pg_temp.claimed('q'), :'q1', 'a claim of another topic');
SELECT is(pg_temp.place(:p2), 'message_deferred', 'leaves it alone');
SELECT is(pg_temp.claimed('p'), :'p2', 'then it is, and no worker is needed for that');

-- -- leases that end, attempts that are used up ---------------------------------------------------

SELECT token AS token FROM llmq.message_lease WHERE id = :p3 \gset
UPDATE llmq.message_lease SET expires_at = clock_timestamp() WHERE id = :p3;
SELECT is((SELECT c.attempts FROM llmq.outbox_claim('p') AS c WHERE c.id = :p3), 1, 'a lease that has ended is an attempt, and the message can be had again');
SELECT is(llmq.outbox_ack(:p3, :'token'), false, 'its first consumer is too late');
SELECT is((SELECT last_error FROM llmq.outbox WHERE id = :p3), 'its consumer let the lease expire', 'and the view says what was');
UPDATE llmq.message_lease SET attempts = 9;
SELECT is(llmq.outbox_nack(:p2, (SELECT token FROM llmq.message_lease WHERE id = :p2), 'no'), true, 'the tenth time');
UPDATE llmq.message_lease SET expires_at = clock_timestamp() WHERE id = :p3;
SELECT is(pg_temp.claimed('p'), NULL, 'that a message is not handled');
SELECT is((SELECT count(*) FROM llmq.outbox WHERE id IN (:p2, :p3) AND dead_at IS NOT NULL AND attempts = 10), 2::bigint, 'it is dead');
SELECT is(llmq.redrive_outbox('nothing'), 0::bigint, 'redriven are those of a topic');
SELECT is(llmq.redrive_outbox('p'), 2::bigint, 'all that are dead');
SELECT is(llmq.redrive_outbox(), 0::bigint, 'and no others');
SELECT results_eq($$SELECT id, attempts FROM llmq.outbox_claim('p')$$, format('VALUES (%s::bigint, 0), (%s, 0)', :p2, :p3), 'with all attempts before them');
SELECT throws_ok(sql, 'PT400', NULL, 'refused: ' || sql)
FROM unnest(ARRAY['SELECT llmq.outbox_claim(NULL)', 'SELECT llmq.outbox_claim('''')', 'SELECT llmq.outbox_claim(''t'', 0)', 'SELECT llmq.outbox_claim(''t'', 1001)',
    'SELECT llmq.outbox_claim(''t'', NULL)', 'SELECT llmq.outbox_claim(''t'', 1, ''0'')', 'SELECT llmq.outbox_claim(''t'', 1, ''25 h'')',
    'SELECT llmq.outbox_ack(1, NULL)', 'SELECT llmq.outbox_nack(NULL, gen_random_uuid(), NULL)']) AS sql;

-- -- whose they are --------------------------------------------------------------------------------

SET LOCAL ROLE llmq_ben;
SELECT is(pg_temp.claimed('t'), NULL, 'a role pulls no message of another''s');
RESET ROLE;
INSERT INTO llmq.role_tenant VALUES ('llmq_ben', 'llmq_ann');
SET LOCAL ROLE llmq_ben;
SELECT id AS ann, token AS token FROM llmq.outbox_claim('t') \gset
SELECT is((SELECT tenant FROM llmq.outbox WHERE id = :ann), 'llmq_ann', 'but those of tenants that it may name');
SELECT throws_ok('SELECT llmq.redrive_outbox()', '42501', NULL, 'redriving is for administrators');
SELECT throws_ok('SELECT llmq_internal.visible_tenants_as(''llmq_ann'')', '42501', NULL, 'nobody asks in another''s name');
RESET ROLE;
DELETE FROM llmq.role_tenant;
SET LOCAL ROLE llmq_ben;
SELECT is(llmq.outbox_ack(:ann, :'token'), false, 'who may name a tenant no more acknowledges nothing of it');
SET LOCAL ROLE llmq_boss;
SELECT is(llmq_internal.visible_tenants(), NULL, 'an administrator sees all tenants');
SELECT is((SELECT count(*) FROM llmq.outbox), (SELECT count(*) FROM llmq.outbox_event), 'in both views');
SELECT ok(llmq.outbox_ack(:ann, :'token'), 'and acknowledges for all');
SELECT is(pg_temp.claimed('t', '1', '30 s'), :'m1', 'and pulls of all');
RESET ROLE;

-- -- retention --------------------------------------------------------------------------------------

SELECT token AS token FROM llmq.message_lease WHERE id = :m1 \gset
SELECT llmq.outbox_ack(:m1, :'token') AS acknowledged \gset
UPDATE llmq.message_done SET sent_at = now() - interval '29 days';
SELECT is(llmq.prune(), 0::bigint, 'what was sent is kept for the retention of the queue "default"');
INSERT INTO llmq.queue (name, retention) VALUES ('default', '28 days');
SELECT cmp_ok(llmq.prune(), '>', 0::bigint, 'then it is deleted');
SELECT is((SELECT count(*) FROM llmq.message WHERE id = :m1), 0::bigint, 'with its message');
SELECT is(pg_temp.place(:p2), 'message_lease', 'what was not handled stays');
SELECT isnt(llmq.enqueue_outbox('t', '{"a": 2}', 'k1'), :m1::bigint, 'its key is free again');
SELECT job_id AS job FROM llmq.submit('x', 'job', outbox => '[{"topic": "j", "dedupe_key": "j1"}, {"topic": "j", "dedupe_key": "j2"}]') \gset
SELECT llmq_internal.take_place(:'job', 'test') AS taken \gset
INSERT INTO llmq.result (job_id, queue, deliveries, deaths, created_at) VALUES (:'job', 'default', 1, 0, now() - interval '40 days');
SELECT llmq_internal.emit_messages(ARRAY[ROW(:'job', 'default', current_user, 0, 1, 1, 0)::llmq.placement], 'succeeded'),
    llmq_internal.emit_messages(ARRAY[ROW(:'job', 'default', current_user, 0, 1, 1, 0)::llmq.placement], 'succeeded') \gset emitted_
SELECT is((SELECT count(*) FROM llmq.message_pending WHERE topic = 'j'), 2::bigint, 'a key that exists adds nothing');
SELECT count(llmq.outbox_ack(c.id, c.token)) FROM llmq.outbox_claim('j', 1) AS c \gset acked_
SELECT llmq.prune() AS pruned \gset
SELECT results_eq($$SELECT dedupe_key FROM llmq.message WHERE topic = 'j'$$, $$VALUES ('j2')$$, 'a job takes its finished messages along, and no other');

-- -- destinations ------------------------------------------------------------------------------------

CREATE FUNCTION pg_temp.takes(topic text, kind text, url text, sender text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO llmq.destination (topic, kind, url, sender) VALUES (topic, kind, url, sender);
    RETURN true;
EXCEPTION WHEN check_violation THEN
    RETURN false;
END
$$;
SELECT is(pg_temp.takes('d' || n, kind, url, sender), good, concat_ws(' ', CASE WHEN good THEN 'taken:' ELSE 'refused:' END, kind, url, sender))
FROM (VALUES (1, 'webhook', 'https://example.org/hook?x=1', NULL, true), (2, 'webhook', 'https://u:p@example.org/', NULL, false),
    (3, 'webhook', 'https://example.org/#f', NULL, false), (4, 'webhook', 'ftp://example.org', NULL, false), (5, 'email', 'smtp://mail.example.org:587', 'a@example.org', true),
    (6, 'email', 'smtps://[::1]:465', 'a@example.org', true), (7, 'email', 'smtp://u:p@mail.example.org', 'a@example.org', false),
    (8, 'email', 'smtp://mail.example.org/path', 'a@example.org', false), (9, 'email', 'http://mail.example.org', 'a@example.org', false),
    (10, 'email', 'smtp://mail.example.org', NULL, false), (11, 'email', 'smtp://mail.example.org', E'a@example.org\r\nBcc: b@example.org', false),
    (12, 'email', 'smtp://mail.example.org', 'nobody', false), (13, 'notify', 'channel', NULL, true), (14, 'notify', '', NULL, false),
    (15, 'notify', repeat('c', 64), NULL, false)) AS v (n, kind, url, sender, good);
SELECT ok(pg_temp.takes('e*', 'notify', 'c') AND NOT pg_temp.takes('e*f', 'notify', 'c') AND NOT pg_temp.takes('**', 'notify', 'c'), 'a * is the last character of a topic, or in none');
SELECT throws_ok($$UPDATE llmq.destination SET max_in_flight = $$ || n, '23514', NULL, 'refused: max_in_flight ' || n) FROM unnest(ARRAY[0, 101]) AS n;
DELETE FROM llmq.destination;
INSERT INTO llmq.destination (topic, kind, url, enabled) VALUES ('*', 'notify', 'c', true), ('x.*', 'notify', 'c', true), ('x.y.*', 'notify', 'c', false), ('x.y.z', 'notify', 'c', true);
SELECT results_eq($$SELECT t, (llmq_internal.destination_of(t)).topic FROM unnest('{a,x,x.a,x.y.a,x.y.z,x.y.zz}'::text[]) AS t$$,
    $$VALUES ('a', '*'), ('x', '*'), ('x.a', 'x.*'), ('x.y.a', 'x.y.*'), ('x.y.z', 'x.y.z'), ('x.y.zz', 'x.y.*')$$, 'the exact topic decides, else the longest prefix');
SELECT is(llmq_internal.worker_config() #> '{destinations,3}', '{"topic": "x.y.z", "kind": "notify", "url": "c", "credential": null, "headers": null, "sender": null, "timeout": 10000000,
    "max_attempts": 10, "backoff_base": 5000000, "backoff_cap": 3600000000, "max_in_flight": 1, "enabled": true}', 'workers know them all, spans in microseconds');
SELECT is(jsonb_array_length(llmq_internal.worker_config() -> 'destinations'), 4, 'also those that are switched off');
DELETE FROM llmq.destination;
INSERT INTO llmq.destination (topic, kind, url) VALUES ('defaults', 'notify', 'c');
SELECT is(to_jsonb(llmq_internal.default_destination()) - '{topic,kind,url}'::text[], (SELECT to_jsonb(d) - '{topic,kind,url}'::text[] FROM llmq.destination AS d), 'what holds for pulled messages are the column defaults');

INSERT INTO llmq.destination (topic, kind, url, sender) VALUES ('mail.*', 'email', 'smtp://127.0.0.1', 'a@example.org');
SELECT throws_ok(format('SELECT llmq.enqueue_outbox(%L, %L, %L)', 'mail.x', payload, 'mail'), 'PT400', NULL, 'no mail: ' || payload)
FROM unnest(ARRAY['1', '{"text": "x"}', '{"to": [], "text": "x"}', '{"to": "", "text": "x"}', '{"to": "a\nb", "text": "x"}', '{"to": ["a", "b\r"], "text": "x"}', '{"to": ["a", 1], "text": "x"}',
    '{"to": "a", "cc": "b\nc", "text": "x"}', '{"to": "a", "subject": "b\nc", "text": "x"}', '{"to": "a", "text": 1}', '{"to": "a"}']) AS payload;
SELECT throws_ok(format('SELECT llmq.enqueue_outbox(%L, %L, %L)', 'mail.x', jsonb_build_object('to', (SELECT jsonb_agg('a' || n) FROM generate_series(1, 101) AS n), 'text', 'x'), 'mail'),
    'PT400', '"to" and "cc" must not name more than 100 recipients', 'no mail: one to too many');
SELECT throws_ok($$SELECT llmq.submit('x', 'mail', outbox => '[{"topic": "mail.x", "payload": {"to": "a\nb"}}]')$$, 'PT400', NULL, 'submit refuses it, too');
SELECT throws_ok($$SELECT llmq.submit('x', 'mail', outbox => '[{"topic": "mail.x"}]')$$, 'PT400', NULL, 'also one to nobody');
SELECT lives_ok($$SELECT llmq.submit('x', 'mail', outbox => '[{"topic": "mail.x", "payload": {"to": "a@example.org"}}]')$$, 'a job''s mail needs no text: there will be an answer');
SELECT lives_ok($$SELECT llmq.enqueue_outbox('other', '{"to": "a\nb"}', 'other')$$, 'a topic that is no mail takes anything');

SELECT is_empty($$SELECT * FROM llmq.check() WHERE invariant NOT LIKE 'a result comes%'$$, 'nothing is broken');
SELECT * FROM finish();
ROLLBACK;
