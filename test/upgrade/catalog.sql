-- All that the catalog knows of schemas llmq and llmq_internal, a line for each fact, without what differs between
-- two databases in any case (OIDs, sizes, statistics).  Owners and roles stand by name.

WITH place AS (
    SELECT n.oid, n.nspname, n.nspacl, n.nspowner FROM pg_namespace AS n WHERE n.nspname IN ('llmq', 'llmq_internal')
), relation AS (
    SELECT c.*, c.oid::regclass::text AS name FROM pg_class AS c
    WHERE c.relnamespace IN (SELECT oid FROM place)
), member AS (
    SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
    FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE e.extname = 'llmq' AND d.deptype = 'e'
    UNION ALL SELECT 'pg_namespace'::regclass, 'llmq'::regnamespace, 'schema llmq'
), acl AS (
    SELECT name, relacl AS acl FROM relation
    UNION ALL SELECT p.oid::regprocedure::text, p.proacl FROM pg_proc AS p WHERE p.pronamespace IN (SELECT oid FROM place)
    UNION ALL SELECT 'type ' || t.oid::regtype, t.typacl FROM pg_type AS t WHERE t.typnamespace IN (SELECT oid FROM place)
    UNION ALL SELECT 'schema ' || n.nspname, n.nspacl FROM place AS n
    UNION ALL SELECT name || '.' || a.attname, a.attacl FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid
    UNION ALL SELECT 'initially ' || pg_describe_object(i.classoid, i.objoid, i.objsubid), i.initprivs
        FROM pg_init_privs AS i JOIN member AS m ON m.classid = i.classoid AND m.objid = i.objoid
)
SELECT 'member: ' || name FROM member
UNION ALL
SELECT format('schema %s: owner %s', nspname, nspowner::regrole) FROM place
UNION ALL
SELECT format('relation %s: kind %s, persistence %s, owner %s, options %s, row security %s %s',
    name, relkind, relpersistence, relowner::regrole, reloptions, relrowsecurity, relforcerowsecurity)
FROM relation
UNION ALL
SELECT format('column %s.%s: number %s, %s, not null %s, identity "%s", generated "%s", collation %s, storage %s, default %s',
    r.name, a.attname, row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attidentity, a.attgenerated, nullif(a.attcollation, 0)::regcollation, a.attstorage,
    pg_get_expr(d.adbin, d.adrelid))
FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = r.oid AND d.adnum = a.attnum
WHERE r.relkind <> 'i'
UNION ALL
SELECT format('constraint %s on %s: %s', c.conname, c.conrelid::regclass, pg_get_constraintdef(c.oid))
FROM pg_constraint AS c WHERE c.connamespace IN (SELECT oid FROM place)
UNION ALL
SELECT format('index %s: %s, valid %s, owner %s', r.name, pg_get_indexdef(r.oid), i.indisvalid, r.relowner::regrole)
FROM relation AS r JOIN pg_index AS i ON i.indexrelid = r.oid
UNION ALL
SELECT format('sequence %s: %s from %s by %s, between %s and %s, cycle %s', s.seqrelid::regclass,
    s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcycle)
FROM pg_sequence AS s JOIN relation AS r ON r.oid = s.seqrelid
UNION ALL
SELECT format('view %s: %s', name, pg_get_viewdef(oid)) FROM relation WHERE relkind = 'v'
UNION ALL
SELECT format('trigger %s: %s, enabled %s', t.tgname, pg_get_triggerdef(t.oid), t.tgenabled)
FROM pg_trigger AS t JOIN relation AS r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL
SELECT format('policy %s on %s: %s for %s to %s using %s check %s', p.polname, p.polrelid::regclass, p.polpermissive,
    p.polcmd, p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
FROM pg_policy AS p JOIN relation AS r ON r.oid = p.polrelid
UNION ALL
SELECT format('routine %s: owner %s: %s', p.oid::regprocedure, p.proowner::regrole, pg_get_functiondef(p.oid))
FROM pg_proc AS p WHERE p.pronamespace IN (SELECT oid FROM place) AND p.prokind IN ('f', 'p')
UNION ALL
SELECT format('type %s: kind %s, owner %s', t.oid::regtype, t.typtype, t.typowner::regrole)
FROM pg_type AS t WHERE t.typnamespace IN (SELECT oid FROM place)
UNION ALL
SELECT format('right on %s: %s has %s from %s', a.name, coalesce(nullif(x.grantee, 0)::regrole::text, 'PUBLIC'),
    string_agg(x.privilege_type || CASE WHEN x.is_grantable THEN ' with grant option' ELSE '' END, ', ' ORDER BY x.privilege_type),
    x.grantor::regrole)
FROM acl AS a, aclexplode(a.acl) AS x GROUP BY a.name, x.grantee, x.grantor
UNION ALL
SELECT format('comment on %s: %s', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description)
FROM pg_description AS d JOIN member AS m ON m.classid = d.classoid AND m.objid = d.objoid
UNION ALL
SELECT format('dump of %s: %s', c.relation::regclass, c.condition)
FROM pg_extension AS e, ROWS FROM (unnest(e.extconfig), unnest(e.extcondition)) AS c (relation, condition)
WHERE e.extname = 'llmq'
UNION ALL
SELECT format('extension %s: version %s, owner %s, relocatable %s, schema %s', extname, extversion, extowner::regrole,
    extrelocatable, extnamespace::regnamespace)
FROM pg_extension WHERE extname = 'llmq'
ORDER BY 1
