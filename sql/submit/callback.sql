-- What on_complete may be: one function, known by its schema and name, that takes the
-- answer as jsonb and that the submitter may execute.  It is looked up at submit, so that
-- mistakes are refused at once, and again by the settler before it is called.  No
-- search_path is set here, as in sql/submit/checks.sql.

-- How a job names the function that follows it: the same in this database after a dump
-- and restore.
CREATE OR REPLACE FUNCTION llmq_internal.callback_name(callback regproc, caller name) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    f record;
    problem text;
    hint text;
BEGIN
    SELECT p.oid, p.proname, p.prokind, p.pronargs, p.proargtypes[0] AS argument, n.oid AS schema_oid, n.nspname
    INTO f FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE p.oid = callback::oid;
    IF NOT FOUND THEN
        PERFORM llmq_internal.fail('PT400', 'on_complete is not a function that exists', format('It is %s.', callback),
            'Name a function that takes one argument of type jsonb.');
    ELSIF f.prokind <> 'f' THEN
        problem := 'on_complete must be a function, not a procedure or an aggregate';
        hint := 'The settler commits what it writes, with the answer.';
    ELSIF f.pronargs <> 1 OR f.argument <> 'jsonb'::regtype THEN
        problem := 'on_complete must take one argument of type jsonb';
        hint := format('CREATE FUNCTION %I.%I(answer jsonb) RETURNS void ... would do.', f.nspname, f.proname);
    ELSIF pg_is_other_temp_schema(f.schema_oid) OR f.schema_oid = pg_my_temp_schema() THEN
        problem := 'on_complete must not be a temporary function';
        hint := 'It is called by another session: create it in a schema that lasts.';
    ELSIF NOT has_schema_privilege(caller, f.schema_oid, 'USAGE') THEN
        problem := format('role "%s" may not use schema "%s" of on_complete', caller, f.nspname);
        hint := format('GRANT USAGE ON SCHEMA %I TO %I.', f.nspname, caller);
    ELSIF NOT has_function_privilege(caller, f.oid, 'EXECUTE') THEN
        problem := format('role "%s" may not execute on_complete', caller);
        hint := format('GRANT EXECUTE ON FUNCTION %I.%I(jsonb) TO %I.', f.nspname, f.proname, caller);
    ELSE
        RETURN format('%I.%I(jsonb)', f.nspname, f.proname);
    END IF;
    PERFORM llmq_internal.fail('PT400', problem, format('It is %s.', f.oid::regprocedure), hint);
END
$$;

-- The function that a text names.  Which one a bare name would be depends on search_path,
-- which is llmq's own by now: so the schema must be there.
CREATE OR REPLACE FUNCTION llmq_internal.find_callback(name text) RETURNS regproc
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    parts constant text[] := parse_ident(regexp_replace(name, '[[:space:]]*[(][[:space:]]*jsonb[[:space:]]*[)][[:space:]]*$', ''));
    found oid[];
BEGIN
    IF cardinality(parts) <> 2 THEN
        PERFORM llmq_internal.fail('PT400', 'on_complete must be a function''s name with its schema', format('It is %s.', name),
            'For example: "public.my_function", or "public.my_function(jsonb)".');
    END IF;
    found := ARRAY(
        SELECT p.oid FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = parts[1] AND p.proname = parts[2]
            AND (name !~ '[)][[:space:]]*$' OR p.pronargs = 1 AND p.proargtypes[0] = 'jsonb'::regtype));
    IF cardinality(found) = 0 THEN
        PERFORM llmq_internal.fail('PT400', format('there is no function %s for on_complete', name), NULL,
            'Name a function that takes one argument of type jsonb.');
    ELSIF cardinality(found) > 1 THEN
        PERFORM llmq_internal.fail('PT400', format('more than one function is named %s', name), NULL,
            'Say which one: "public.my_function(jsonb)".');
    END IF;
    RETURN found[1];
END
$$;
