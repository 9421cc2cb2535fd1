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
