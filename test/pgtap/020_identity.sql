-- The id of a job, and the other small functions in C.
BEGIN;
SELECT no_plan();

-- RFC 9562, appendix A.4.
SELECT is(llmq.uuid5('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'www.example.com'),
    '2ed6657d-e927-568b-95e1-2665a8aea6a2', 'uuid5 gives the value of the RFC');

SELECT is(llmq.namespace(), '5b1f6c1e-6a0a-5d0c-9d5e-0c6f6c6d7101', 'the namespace is the documented one');

-- From Python: uuid.uuid5(namespace, '["acme", "submit", "order-1"]') and so on.
SELECT is(llmq.job_id('acme', 'submit', 'order-1'),
    'de413a7d-c694-50e4-a4e6-776871dc978b', 'a job_id is the UUIDv5 of tenant, scope and key');
SELECT is(llmq.job_id('acme', 'submit', 'größe-✓'),
    '877a2b59-406f-500f-a129-b15fede103a0', 'a key outside ASCII is hashed as UTF-8');
SELECT is(llmq.job_id('a"b', 'submit', 'x'),
    '71f60891-5a39-5021-9374-1c5e055b6a9d', 'a quotation mark is escaped as in JSON');
SELECT isnt(llmq.job_id('a', 'submit', 'x'), llmq.job_id('b', 'submit', 'x'),
    'another tenant makes another job of the same key');
SELECT is((SELECT s.job_id FROM llmq.submit('x', 'order-1', tenant => 'acme') AS s),
    'de413a7d-c694-50e4-a4e6-776871dc978b', 'submit uses it');

SET LOCAL search_path = pg_temp, public;
CREATE FUNCTION pg_temp.jsonb_build_array(VARIADIC "any") RETURNS jsonb
    LANGUAGE internal IMMUTABLE AS 'jsonb_build_array';
SELECT is(llmq.job_id('acme', 'submit', 'order-1'),
    'de413a7d-c694-50e4-a4e6-776871dc978b', 'a job_id does not depend on the search_path');
RESET search_path;

SELECT is(llmq_internal.system_identifier(), (SELECT system_identifier FROM pg_control_system()),
    'system_identifier is that of the cluster');

SELECT cmp_ok(llmq_internal.next_xid(), '>', pg_current_xact_id()::text::bigint,
    'next_xid is beyond the ids given out');

SELECT * FROM finish();
ROLLBACK;
