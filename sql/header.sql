-- llmq: durable, idempotent calls to language models.
-- Loaded by CREATE EXTENSION; the parts of this script are kept in sql/.

\echo Use "CREATE EXTENSION llmq" to load this file. \quit

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
