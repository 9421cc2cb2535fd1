-- llmq: durable, idempotent calls to language models.
-- Loaded by CREATE EXTENSION; the parts of this script are kept in sql/.

\echo Use "CREATE EXTENSION llmq" to load this file. \quit

-- Names of this script are looked up in no schema that others could have written to.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- Whoever may create things in schema llmq could have them called with the rights of the workers.  So
-- one that is there already, as in a restore, must be empty, and nobody's but a superuser's.
DO $$
DECLARE
    schema record;
    others text;
    things text;
BEGIN
    SELECT n.oid, n.nspowner, n.nspacl, r.rolname, r.rolsuper INTO STRICT schema
    FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
    WHERE n.nspname = 'llmq';
    IF NOT schema.rolsuper AND schema.rolname <> current_user THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = 'schema "llmq" is there already and belongs to another role',
            DETAIL = format('Its owner is "%s", who is no superuser and could replace what llmq''s workers call.', schema.rolname),
            HINT = 'Run DROP SCHEMA llmq, or ALTER SCHEMA llmq OWNER TO CURRENT_USER if it is empty, before CREATE EXTENSION.';
    END IF;

    SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, ', ') INTO others
    FROM aclexplode(schema.nspacl) AS a
    WHERE a.privilege_type = 'CREATE' AND a.grantee <> schema.nspowner;
    IF others IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = 'other roles than its owner may create objects in schema "llmq"',
            DETAIL = format('CREATE is granted to %s.', others),
            HINT = format('Run REVOKE CREATE ON SCHEMA llmq FROM %s before CREATE EXTENSION.', others);
    END IF;

    -- Whatever lies in a schema, of whatever kind, depends on it; and so does this extension.
    SELECT string_agg(t.name, ', ') INTO things
    FROM (
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS name
        FROM pg_depend AS d
        WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = schema.oid
            AND NOT EXISTS (
                SELECT FROM pg_extension AS e
                WHERE d.classid = 'pg_extension'::regclass AND d.objid = e.oid AND e.extname = 'llmq')
        ORDER BY 1 LIMIT 5) AS t;
    IF things IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'schema "llmq" is not empty',
            DETAIL = format('There is: %s.', things),
            HINT = 'Move its objects to another schema, or drop them, before CREATE EXTENSION.';
    END IF;
END
$$;

DO $$
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('llmq needs a database in encoding UTF8, this one is %s',
                current_setting('server_encoding')),
            DETAIL = 'Providers speak UTF-8, and an answer that was paid for must always fit.',
            HINT = 'Create a database with ENCODING ''UTF8'' TEMPLATE template0 and use llmq there.';
    END IF;
END
$$;

COMMENT ON SCHEMA llmq IS 'durable, idempotent calls to language models';

-- What is not for users has a schema of its own, so that \df llmq.* is the manual.
DO $$
BEGIN
    IF to_regnamespace('llmq_internal') IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_schema',
            MESSAGE = 'schema "llmq_internal" exists already',
            DETAIL = 'llmq keeps the functions there that are not for users, and shares that schema with nobody.',
            HINT = 'Run ALTER SCHEMA llmq_internal RENAME TO another name, or drop it, before CREATE EXTENSION llmq.';
    END IF;
END
$$;
CREATE SCHEMA llmq_internal;
COMMENT ON SCHEMA llmq_internal IS 'functions that llmq calls itself: none is for users, and each may change with any version';
