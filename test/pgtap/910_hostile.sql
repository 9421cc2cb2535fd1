-- A hostile search_path: every operator, function and type of pg_catalog that llmq could mean is
-- shadowed, and then every function that a role may call is called, as that role.
BEGIN;
SELECT plan(5);

CREATE ROLE llmq_test_mallory;
SELECT llmq.grant_submit('llmq_test_mallory'), llmq.grant_admin('llmq_test_mallory'), llmq.grant_worker('llmq_test_mallory');
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
CREATE TEMP TABLE kind_of_type AS
    SELECT oid, format_type(oid, NULL) AS name, typname FROM pg_type
    WHERE typnamespace = 'pg_catalog'::regnamespace AND typname IN ('text', 'name', 'int2', 'int4', 'int8', 'bool', 'jsonb', 'json',
        'uuid', 'timestamptz', 'interval', 'numeric', 'float8', 'bytea', 'oid', 'regproc', 'regclass', 'regrole', '_text', '_uuid', '_int4');

-- One trap a signature: whoever steps into it says so.
CREATE FUNCTION pg_temp.set_trap(name text, arguments oidvector, result oid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''trapped in %%'', %L; END $f$',
        name, (SELECT string_agg(format_type(a, NULL), ', ' ORDER BY n) FROM unnest(arguments) WITH ORDINALITY AS u (a, n)),
        format_type(result, NULL), name);
END
$$;

-- Returns how many functions are shadowed.
SELECT count(pg_temp.set_trap(proname, proargtypes, prorettype)) FROM pg_proc
WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0 AND NOT proretset
    AND proargtypes::oid[] <@ ARRAY(SELECT oid FROM kind_of_type) AND prorettype IN (SELECT oid FROM kind_of_type)
\gset functions_
DO $$
DECLARE
    o record;
BEGIN
    FOR o IN
        SELECT oid, oprname, oprleft, oprright, oprresult FROM pg_operator
        WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' AND oprleft IN (SELECT oid FROM kind_of_type)
            AND oprright IN (SELECT oid FROM kind_of_type) AND oprresult IN (SELECT oid FROM kind_of_type)
    LOOP
        PERFORM pg_temp.set_trap('operator ' || o.oid, (o.oprleft || ' ' || o.oprright)::oidvector, o.oprresult);
        EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.%I)', o.oprname,
            format_type(o.oprleft, NULL), format_type(o.oprright, NULL), 'operator ' || o.oid);
    END LOOP;
    FOR o IN SELECT * FROM kind_of_type WHERE typname !~ '^_' LOOP
        EXECUTE format('CREATE DOMAIN trap.%I AS %s CHECK (false)', o.typname, o.name);
    END LOOP;
END
$$;
SELECT cmp_ok(:functions_count, '>', 500, 'functions are shadowed');
SELECT cmp_ok((SELECT count(*) FROM pg_operator WHERE oprnamespace = 'trap'::regnamespace), '>', 200::bigint, 'and operators');

-- What is given for an argument: by its name if that asks for something, else by its type.
CREATE FUNCTION pg_temp.sample(name text, type oid, job text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(
        CASE name
            WHEN 'queue' THEN '''default''' WHEN 'tenant' THEN '''llmq_test_mallory''' WHEN 'after' THEN 'NULL' WHEN 'on_complete' THEN 'NULL'
            WHEN 'messages' THEN 'NULL' WHEN 'outbox' THEN '''[{"topic": "t", "payload": 1}]''' WHEN 'params' THEN '''{"temperature": 1}'''
            WHEN 'policy' THEN '''{"deadline": "1 s"}''' WHEN 'body' THEN '''{"prompt": "x"}''' WHEN 'status' THEN '200'
            WHEN 'jobs' THEN CASE WHEN type = 'jsonb'::regtype THEN '''[{"prompt": "x", "idempotency_key": "one of many"}]''' END
            WHEN 'token' THEN quote_literal(job) WHEN 'kind' THEN '''server''' WHEN 'expires_at' THEN 'NULL' END,
        CASE type::regtype::text
            WHEN 'text' THEN '''a text of some length''' WHEN 'name' THEN '''postgres''' WHEN 'uuid' THEN quote_literal(job)
            WHEN 'jsonb' THEN '''{"a": 1}''' WHEN 'interval' THEN '''1 s''' WHEN 'boolean' THEN 'true' WHEN 'text[]' THEN '''{a,b}'''
            WHEN 'uuid[]' THEN format('''{%s}''', job) WHEN 'timestamp with time zone' THEN '''2030-01-01''' WHEN 'regrole' THEN '''llmq_test_mallory'''
            WHEN 'integer' THEN '1' WHEN 'bigint' THEN '1' WHEN 'smallint' THEN '1' WHEN 'numeric' THEN '1' ELSE 'NULL' END)
        || (SELECT format('::%I.%I', nspname, typname) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = typnamespace WHERE t.oid = type)
$$;
CREATE FUNCTION pg_temp.call_of(function oid, job text) RETURNS text LANGUAGE sql AS $$
    SELECT format('SELECT count(*) FROM %s.%I(%s) AS f', p.pronamespace::regnamespace, p.proname, (
        SELECT string_agg(CASE WHEN p.provariadic <> 0 AND n = p.pronargs THEN 'VARIADIC ' ELSE '' END
            || pg_temp.sample(coalesce(p.proargnames[n], ''), a, job), ', ' ORDER BY n)
        FROM unnest(p.proargtypes) WITH ORDINALITY AS u (a, n)))
    FROM pg_proc AS p WHERE p.oid = function
$$;

-- Calls it and returns 'well', or what it said.
CREATE FUNCTION pg_temp.outcome_of(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE call;
    RETURN 'well';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) SQLERRM;
END
$$;

SET ROLE llmq_test_mallory;
SELECT job_id AS job FROM llmq.submit('First.', 'first') \gset
RESET ROLE;
CREATE TEMP TABLE call AS
    SELECT p.proname AS function, pg_temp.call_of(p.oid, :'job') AS call, NULL::text AS outcome FROM pg_proc AS p
    WHERE p.pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace) AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
        AND has_function_privilege('llmq_test_mallory', p.oid, 'EXECUTE')
    UNION ALL
    SELECT c.relname, format('SELECT count(*) FROM (SELECT * FROM llmq.%I) AS t', c.relname), NULL FROM pg_class AS c
    WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v') AND has_table_privilege('llmq_test_mallory', c.oid, 'SELECT');
GRANT ALL ON call TO llmq_test_mallory;
SET ROLE llmq_test_mallory;
CREATE TEMP TABLE job (a int);
CREATE TEMP TABLE pg_class (a int);
SET LOCAL search_path = trap, pg_temp, pg_catalog;
UPDATE pg_temp.call SET outcome = pg_temp.outcome_of(call);
CREATE TEMP TABLE trial AS SELECT pg_temp.outcome_of('SELECT 1 WHERE ''a''::pg_catalog.text = ''b''::pg_catalog.text') AS operator,
    pg_temp.outcome_of('SELECT length(''a''::pg_catalog.text)') AS function, pg_temp.outcome_of('SELECT ''a''::text') AS type;
SET LOCAL search_path = public, pg_catalog;
RESET ROLE;
SELECT row_eq('SELECT operator ~ ''trapped'', function ~ ''trapped'', type ~ ''check constraint'' FROM trial', ROW(true, true, true), 'the traps work');
SELECT is((SELECT string_agg(format('%s: %s', function, outcome), E'\n' ORDER BY function) FROM call
    WHERE outcome ~ '(trapped|value for domain)'), NULL, 'nothing that a role may call or read steps into one');
SELECT is((SELECT string_agg(f, ', ') FROM unnest('{submit,submit_many,http_submit,idempotency_begin,step_begin,derive_key,cancel,prune,check,
    redrive,redrive_queue,job_status,result,attempt,outbox,dead_letter,worker,run}'::text[]) AS f
    WHERE NOT EXISTS (SELECT FROM call WHERE function = f AND outcome = 'well')), NULL, 'and they do their work');

SELECT * FROM finish();
ROLLBACK;
