-- Who submits, for whom, and that a caller's search_path changes nothing.
BEGIN;
SELECT no_plan();

CREATE ROLE llmq_test_alice;
CREATE ROLE llmq_test_bob;
CREATE ROLE llmq_test_team;
CREATE ROLE "llmq test ""quoted""";
GRANT llmq_test_team TO llmq_test_alice;
GRANT USAGE ON SCHEMA llmq TO llmq_test_alice, llmq_test_bob, "llmq test ""quoted""";
GRANT EXECUTE ON FUNCTION llmq.submit TO llmq_test_alice, llmq_test_bob, "llmq test ""quoted""";
INSERT INTO llmq.role_tenant VALUES ('llmq_test_team', 'acme'), ('llmq_test_nobody', 'ghost');

CREATE TEMP TABLE seen (who text, code text);
GRANT ALL ON seen TO PUBLIC;
CREATE FUNCTION pg_temp.try(prompt text, key text, tenant text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (llmq.submit(prompt, key, tenant => tenant)).state;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END
$$;

SET ROLE llmq_test_alice;
INSERT INTO seen VALUES
    ('own', pg_temp.try('x', 'a-1')),
    ('own, named', pg_temp.try('x', 'a-2', 'llmq_test_alice')),
    ('the team''s', pg_temp.try('x', 'a-3', 'acme')),
    ('a stranger''s', pg_temp.try('x', 'a-4', 'llmq_test_bob')),
    ('of a role that is gone', pg_temp.try('x', 'a-5', 'ghost')),
    ('current_user after', current_user);
SET ROLE llmq_test_bob;
INSERT INTO seen VALUES ('bob, the team''s', pg_temp.try('x', 'b-1', 'acme'));
SET ROLE "llmq test ""quoted""";
INSERT INTO seen VALUES ('quoted', pg_temp.try('x', 'q-1'));
RESET ROLE;
INSERT INTO seen VALUES ('superuser', pg_temp.try('x', 's-1', 'anyone at all'));

SELECT results_eq('SELECT who, code FROM seen', $$ VALUES
    ('own', 'ready'), ('own, named', 'ready'), ('the team''s', 'ready'), ('a stranger''s', 'PT403'),
    ('of a role that is gone', 'PT403'), ('current_user after', 'llmq_test_alice'),
    ('bob, the team''s', 'PT403'), ('quoted', 'ready'), ('superuser', 'ready') $$,
    'a role submits for itself and the tenants that it or its groups may name');
SELECT results_eq(
    $$ SELECT idempotency_key, submitted_by::text, tenant FROM llmq.job ORDER BY 1 $$,
    $$ VALUES ('a-1', 'llmq_test_alice', 'llmq_test_alice'), ('a-2', 'llmq_test_alice', 'llmq_test_alice'),
        ('a-3', 'llmq_test_alice', 'acme'), ('q-1', 'llmq test "quoted"', 'llmq test "quoted"'),
        ('s-1', current_user::text, 'anyone at all') $$,
    'the role that called is noted, not the session''s');

-- Inside a definer function the rights are its owner's.
CREATE FUNCTION pg_temp.as_alice() RETURNS text LANGUAGE sql SECURITY DEFINER
AS $$ SELECT (llmq.submit('x', 'definer')).state $$;
ALTER FUNCTION pg_temp.as_alice() OWNER TO llmq_test_alice;
SET ROLE llmq_test_bob;
SELECT is(pg_temp.as_alice(), 'ready', 'a definer function of alice may submit');
RESET ROLE;
SELECT is((SELECT submitted_by FROM llmq.job WHERE idempotency_key = 'definer'), 'llmq_test_alice',
    'and alice is who submitted');

SET ROLE llmq_test_bob;
SELECT throws_ok('SELECT * FROM llmq.job', '42501', NULL, 'a submitter cannot read the jobs of others');
SELECT throws_ok($$ SELECT llmq_internal.submit_as('postgres', 'x', 'k', 'default', NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL) $$, '42501', NULL, 'nor say who it is');
RESET ROLE;

-- Everything that a hostile search_path can put in the way.
CREATE SCHEMA trap AUTHORIZATION llmq_test_bob;
GRANT CREATE, USAGE ON SCHEMA trap TO llmq_test_bob;
SET ROLE llmq_test_bob;
CREATE FUNCTION trap.spring(text, text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trapped as %', current_user;
END
$$;
CREATE FUNCTION trap.spring_name(name, name) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.spring);
CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.spring_name);
CREATE FUNCTION trap.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
CREATE FUNCTION trap.length(text) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
CREATE FUNCTION trap.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
CREATE FUNCTION trap.jsonb_build_array(text, text, text) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
CREATE FUNCTION pg_temp.spring() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 'a'::text = 'b'::text;
    RETURN 'nothing happened';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END
$$;
CREATE TEMP TABLE job (a int);
CREATE TEMP TABLE pg_class (a int);
SET LOCAL search_path = trap, pg_temp, pg_catalog, public;
CREATE TEMP TABLE answer AS SELECT pg_temp.spring() AS trap, (llmq.submit('x', 'h-1', params => '{"temperature": 1}',
    policy => '{"deadline": "1 s"}', outbox => '[{"topic": "t"}]')).state;
SET LOCAL search_path = public;
RESET ROLE;
SELECT is((SELECT trap FROM answer), 'trapped as llmq_test_bob', 'the trap works');
SELECT is((SELECT state FROM answer), 'ready', 'submit does not step into it');

SELECT * FROM finish();
ROLLBACK;
