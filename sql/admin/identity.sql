-- Who and where: small functions in C that SQL has no word for.

CREATE OR REPLACE FUNCTION llmq_internal.module_version() RETURNS text
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_module_version_1';
COMMENT ON FUNCTION llmq_internal.module_version() IS
    'the version of the module that this session has loaded; that of the SQL is in pg_extension';

CREATE OR REPLACE FUNCTION llmq_internal.system_identifier() RETURNS bigint
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_system_identifier_1';
COMMENT ON FUNCTION llmq_internal.system_identifier() IS 'the identifier that initdb gave this server';

CREATE OR REPLACE FUNCTION llmq_internal.next_xid() RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_next_xid_1';
COMMENT ON FUNCTION llmq_internal.next_xid() IS
    'the transaction id that the next transaction to write will get; assigns none';

CREATE OR REPLACE FUNCTION llmq_internal.backend_start(pid int) RETURNS timestamptz
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'llmq_backend_start_1';
COMMENT ON FUNCTION llmq_internal.backend_start(int) IS
    'when the backend of this database with that pid began; NULL if there is none';

CREATE OR REPLACE FUNCTION llmq.uuid5(namespace uuid, name text) RETURNS uuid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_uuid5_1';
COMMENT ON FUNCTION llmq.uuid5(uuid, text) IS 'name-based UUID, version 5 (RFC 9562)';

CREATE OR REPLACE FUNCTION llmq_internal.error_classes() RETURNS text[]
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_error_classes_1';
COMMENT ON FUNCTION llmq_internal.error_classes() IS 'the classes of errors that an attempt can end with';

CREATE OR REPLACE FUNCTION llmq.namespace() RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT pg_catalog.uuid '5b1f6c1e-6a0a-5d0c-9d5e-0c6f6c6d7101' $$;
COMMENT ON FUNCTION llmq.namespace() IS 'the namespace of job ids; it never changes';

-- The one rule by which a key becomes a job.  The scope of what came over HTTP is its
-- method and its path, two words of the hash.  No operators: any search_path is in force.
CREATE OR REPLACE FUNCTION llmq.job_id(tenant text, scope text, idempotency_key text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    space constant int := pg_catalog.strpos(scope, ' ');
BEGIN
    IF pg_catalog.int4eq(space, 0) THEN
        RETURN llmq.uuid5(llmq.namespace(),
            pg_catalog.jsonb_build_array(tenant, scope, idempotency_key)::pg_catalog.text);
    END IF;
    RETURN llmq.uuid5(llmq.namespace(), pg_catalog.jsonb_build_array(tenant,
        pg_catalog.substr(scope, 1, pg_catalog.int4mi(space, 1)),
        pg_catalog.substr(scope, pg_catalog.int4pl(space, 1)), idempotency_key)::pg_catalog.text);
END
$$;
COMMENT ON FUNCTION llmq.job_id(text, text, text) IS
    'the id of the job that a tenant''s key makes: scope ''submit'' for llmq.submit and submit_many, ''METHOD /path'' for llmq.http_submit';
