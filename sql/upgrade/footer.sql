-- The last part of an update.

DO $$
DECLARE
    kind text;
    role oid;
BEGIN
    FOR kind, role IN
        SELECT k.key, r.value::oid
        FROM pg_catalog.jsonb_each(current_setting('llmq_upgrade.roles')::jsonb) AS k,
            pg_catalog.jsonb_array_elements_text(k.value) AS r
    LOOP
        EXECUTE format('SELECT llmq.%I($1)', 'grant_' || kind) USING role::regrole;
    END LOOP;

    -- What an extension's script finds granted counts as the extension's own from then on,
    -- and pg_dump would leave it out.  What roles of users have is not llmq's.
    UPDATE pg_catalog.pg_init_privs AS i
    SET initprivs = ARRAY(
        SELECT a FROM unnest(i.initprivs) AS a
        WHERE EXISTS (
            SELECT FROM pg_catalog.aclexplode(ARRAY[a]) AS x
            WHERE x.grantee < 16384 OR x.grantee = x.grantor)) -- 16384: the first oid of a user's
    WHERE (i.classoid, i.objoid) IN (
        SELECT 'pg_catalog.pg_namespace'::regclass::oid, 'llmq'::regnamespace::oid
        UNION ALL
        SELECT d.classid, d.objid FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_extension AS e
            ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = 'llmq' AND d.deptype = 'e');
END
$$;

SELECT llmq_internal.wake_worker(), llmq_internal.wake_settler();
