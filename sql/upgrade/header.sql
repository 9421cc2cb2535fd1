-- ALTER EXTENSION llmq UPDATE.  A script for each older release is made of this header, the
-- deltas of the state that the release lacks (sql/upgrade/<version>.sql), all the code,
-- which replaces what is there, and the footer.
--
-- Everything runs in one transaction, while jobs are submitted and run.

\echo Use "ALTER EXTENSION llmq UPDATE" to load this file. \quit

-- Names of this script are looked up in no schema that others could have written to.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- For the lock on the schema that this takes.  Calls of llmq.submit and the like share one
-- (llmq_delegate_hold_off_update in extension/delegate.c): those that have begun are waited for, and
-- those that come find the functions that the update leaves behind.
COMMENT ON SCHEMA llmq IS 'durable, idempotent calls to language models';

-- Workers say hello again before they claim anything more, and hear whether they speak the
-- protocol of this version.  They keep their leases meanwhile, and settle what they have.
UPDATE llmq.worker_session SET state = 'outdated' WHERE state = 'running';
DELETE FROM llmq.worker_session WHERE state = 'quarantined';

-- Which roles were given what, by the function that each kind must have: the footer gives it
-- to them again, since a function that is dropped and made anew has lost its privileges.
SELECT pg_catalog.set_config('llmq_upgrade.roles', coalesce(
    pg_catalog.jsonb_object_agg(kind, roles), '{}')::pg_catalog.text, true)
FROM (
    SELECT CASE p.proname WHEN 'submit' THEN 'submit' WHEN 'redrive' THEN 'admin' ELSE 'worker' END AS kind,
        pg_catalog.jsonb_agg(a.grantee) AS roles
    FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
    WHERE p.pronamespace = 'llmq'::pg_catalog.regnamespace
        AND p.proname IN ('submit', 'redrive', 'worker_claim')
        AND a.grantee NOT IN (0, p.proowner)
    GROUP BY 1
) AS given;
