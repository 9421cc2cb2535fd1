-- Budgets: periods, what is refused, what is put off, what is counted.  A session plays worker.

BEGIN;
SELECT no_plan();

-- -- periods, over years -------------------------------------------------------------------------

SELECT is(llmq_internal.period_start('1 month', '2026-02-28 23:59:59.9+00'), '2026-02-01 00:00+00'::timestamptz, 'a month begins with its first day');
SELECT is(llmq_internal.period_end('1 month', '2024-02-29 12:00+00'), '2024-03-01 00:00+00'::timestamptz, 'and ends with its last, in leap years too');
SELECT is(llmq_internal.period_start('1 day', '2026-07-01 01:00+02'), '2026-06-30 00:00+00'::timestamptz, 'days are those of UTC');
SELECT is(llmq_internal.period_start('3 months', '2026-12-31 00:00+00'), '2026-10-01 00:00+00'::timestamptz, 'quarters begin in January, April, July and October');
SELECT is(llmq_internal.period_start('1 year', '2026-12-31 00:00+00'), '2026-01-01 00:00+00'::timestamptz, 'years with January');
SELECT is(llmq_internal.period_start('10 s', '2026-01-01 00:00:19.99+00'), '2026-01-01 00:00:10+00'::timestamptz, 'short ones count from 2000-01-01');
SELECT is_empty($$
    SELECT t, p FROM generate_series('1999-12-30 07:11+00'::timestamptz, '2027-01-01', '61 hours 13 min') AS t,
        unnest('{1 month, 1 day, 7 days, 90 min, 5 months, 1 year, 1 mon 1 day, 2 years 617 hours}'::interval[]) AS p,
        LATERAL (SELECT llmq_internal.period_start(p, t) AS start, llmq_internal.period_end(p, t) AS turn OFFSET 0) AS x     -- computed once
    WHERE t < x.start OR t >= x.turn OR llmq_internal.period_start(p, x.turn) <> x.turn
$$, 'every time is in its period, and periods lie one behind the other without a gap');

-- -- a hard budget ---------------------------------------------------------------------------------

DELETE FROM llmq.endpoint;
INSERT INTO llmq.endpoint (name, api, url, model, input_price, cached_price, output_price)
VALUES ('main', 'openai_chat', 'http://127.0.0.1:9/v1', 'm', 10, 1, 100);
INSERT INTO llmq.role_tenant SELECT current_user, t FROM unnest('{hard,soft,free}'::text[]) AS t;
INSERT INTO llmq.budget (tenant, period, max_cost, max_tokens, hard)
VALUES ('hard', '1 year', 1, NULL, true), ('soft', '1 year', NULL, 771, false);
SELECT llmq_internal.write_home();
SELECT worker_id AS own FROM llmq.worker_hello(3, 'budget', 'program', pg_backend_pid(), NULL) \gset

-- What a worker makes of the ready jobs of a tenant; each call uses so many tokens.
CREATE FUNCTION pg_temp.run(own bigint, of_tenant text, input bigint, output bigint, cached bigint DEFAULT 0, how text DEFAULT 'billed')
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    claimed jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(jsonb_build_object('job_id', c.job_id, 'delivery', c.delivery, 'outcome', 'succeeded', 'text', 'x',
        'endpoint', 'main', 'response', '{}', 'input_tokens', input, 'output_tokens', output, 'cached_tokens', cached,
        'attempts', jsonb_build_array(jsonb_build_object('attempt', 1, 'endpoint', 'main', 'model', 'm', 'started_at', 1700000000000000, 'duration', 1,
            'outcome', 'success', 'billing', how, 'input_tokens', input, 'output_tokens', output, 'cached_tokens', cached)))), '[]')
    INTO claimed
    FROM llmq.worker_claim(own, ARRAY(SELECT r.seq FROM llmq.ready AS r WHERE r.tenant = of_tenant ORDER BY r.seq)) AS c
    WHERE c.job_id IS NOT NULL;
    PERFORM llmq.worker_settle(own, claimed);
    RETURN jsonb_array_length(claimed);
END
$$;
CREATE FUNCTION pg_temp.submit(of_tenant text, key text) RETURNS uuid LANGUAGE sql
AS $$ SELECT job_id FROM llmq.submit('Hello', key, tenant => of_tenant) $$;

SELECT lives_ok($$SELECT pg_temp.submit('hard', 'h1')$$, 'a tenant with money submits');
SELECT is(pg_temp.run(:own, 'hard', 50000, 4000, 20000), 1::bigint, 'its job runs');
SELECT is((SELECT cost FROM llmq.result JOIN llmq.job USING (job_id) WHERE tenant = 'hard'), 0.72,
    'what was cached costs the price of that, the rest its own: 30,000 of input, 20,000 cached, 4,000 of output');
SELECT is((SELECT format('%s %s', cost, tokens) FROM llmq.budget_status WHERE tenant = 'hard'), '0.72 54000', 'llmq.budget_status has what was spent');
SELECT lives_ok($$SELECT pg_temp.submit('hard', 'h2')$$, 'what is left can be spent');
SELECT is(pg_temp.run(:own, 'hard', 50000, 4000), 1::bigint, 'down to the last job');
SELECT throws_ok($$SELECT pg_temp.submit('hard', 'h3')$$, 'PT402', 'the budget of tenant "hard" is spent', 'then submit refuses');
SELECT is((SELECT replayed FROM llmq.submit('Hello', 'h1', tenant => 'hard')), true, 'but for a key that it knows');
SELECT is((llmq.http_submit('hard', 'POST', '/x', 'a-key-that-is-long-enough', '{"prompt": "x"}')).status, 402, 'http_submit says 402');
SELECT lives_ok($$SELECT pg_temp.submit('free', 'f1')$$, 'a tenant without a budget goes on');

-- What has been spent is 1.62, for 108,000 tokens.
UPDATE llmq.budget SET max_cost = 1.62 WHERE tenant = 'hard';
SELECT throws_ok($$SELECT pg_temp.submit('hard', 'h3')$$, 'PT402', NULL, 'a budget of just what was spent is spent');
UPDATE llmq.budget SET max_cost = NULL, max_tokens = 108000 WHERE tenant = 'hard';
SELECT throws_ok($$SELECT pg_temp.submit('hard', 'h3')$$, 'PT402', NULL, 'so is one of just as many tokens');
UPDATE llmq.budget SET max_tokens = 108001 WHERE tenant = 'hard';
SELECT lives_ok($$SELECT pg_temp.submit('hard', 'h3')$$, 'a budget that is raised by a token is in force at once');
UPDATE llmq.budget SET max_tokens = 108000 WHERE tenant = 'hard';
SELECT is(pg_temp.run(:own, 'hard', 1, 1), 0::bigint, 'a job that was taken before its budget was spent is not claimed');
UPDATE llmq.budget SET max_cost = 1.62, max_tokens = NULL WHERE tenant = 'hard';
SELECT llmq_internal.promote_deferred(100);
SELECT is(pg_temp.run(:own, 'hard', 1, 1), 0::bigint, 'be it spent in tokens or in money');
UPDATE llmq.budget SET max_cost = 100 WHERE tenant = 'hard';
SELECT llmq_internal.promote_deferred(100);

-- -- a soft one, with reservations -------------------------------------------------------------------

-- A job is taken for 257 tokens: three of them just fit.
SELECT pg_temp.submit('soft', 's' || n) FROM generate_series(1, 6) AS n;
SELECT is((SELECT count(*) FROM llmq.worker_claim(:own, ARRAY(SELECT seq FROM llmq.ready WHERE tenant = 'soft' ORDER BY seq)) WHERE job_id IS NOT NULL),
    3::bigint, 'no more is claimed than the budget may have to pay for');
SELECT is((SELECT format('%s %s', tokens, reserved_tokens) FROM llmq.budget_status WHERE tenant = 'soft'), '0 771', 'it is reserved');
SELECT is((SELECT string_agg(format('%s %s %s %s', idempotency_key, s.state, s.wait_reason, s.deliveries), ', ' ORDER BY s.wait_until)
    FROM llmq.job_status AS s JOIN llmq.job USING (job_id) WHERE s.tenant = 'soft' AND s.state = 'scheduled'),
    's4 scheduled budget 0, s5 scheduled budget 0, s6 scheduled budget 0', 'the others wait, in order, and say why, without a delivery');
SELECT cmp_ok((SELECT max(wait_until) FROM llmq.job_status WHERE tenant = 'soft' AND state = 'scheduled'), '<', clock_timestamp() + interval '2 s',
    'while it is only reserved they look again soon');
SELECT llmq.worker_goodbye(:own);
SELECT is((SELECT reserved_tokens FROM llmq.budget_status WHERE tenant = 'soft'), 0::bigint, 'what a worker gives back is reserved no more');
SELECT worker_id AS own FROM llmq.worker_hello(3, 'budget', 'program', pg_backend_pid(), NULL) \gset
SELECT is(pg_temp.run(:own, 'soft', 300, 100), 3::bigint, 'they run again');
SELECT is((SELECT tokens FROM llmq.budget_status WHERE tenant = 'soft'), 1200::bigint, 'and what they used is spent');
UPDATE llmq.budget SET hard = false;
SELECT lives_ok($$SELECT pg_temp.submit('soft', 's7')$$, 'a soft budget refuses nothing');
SELECT is(pg_temp.run(:own, 'soft', 1, 1), 0::bigint, 'but nothing is claimed');
SELECT is((SELECT wait_until::date FROM llmq.job_status JOIN llmq.job USING (job_id) WHERE idempotency_key = 's7'),
    (date_trunc('year', now() AT TIME ZONE 'UTC') + interval '1 year')::date, 'until the period turns');
SELECT is((SELECT error_class FROM llmq.job_status JOIN llmq.job USING (job_id) WHERE idempotency_key = 's7'), NULL, 'that is no error');
SELECT pg_temp.submit('soft', 's' || n) FROM generate_series(8, 9) AS n;
SELECT is(pg_temp.run(:own, 'soft', 1, 1), 0::bigint, 'of those that come after it none is claimed either');
SELECT is((SELECT count(DISTINCT due_at) || ' ' || string_agg(idempotency_key, ' ' ORDER BY due_at)
    FROM llmq.deferred JOIN llmq.job USING (job_id) WHERE idempotency_key IN ('s8', 's9')), '2 s8 s9', 'the turn of the period will find them in order');
UPDATE llmq.budget SET max_tokens = 100000 WHERE tenant = 'soft';
SELECT llmq_internal.promote_deferred(100);
SELECT is(pg_temp.run(:own, 'soft', 1, 1), 6::bigint, 'a budget that is raised lets those go that wait');
SELECT tokens FROM llmq.budget_status WHERE tenant = 'soft' \gset
SELECT pg_temp.submit('soft', 'unknown');
SELECT pg_temp.run(:own, 'soft', 1000, 1000, 0, 'unknown');
SELECT is((SELECT tokens FROM llmq.budget_status WHERE tenant = 'soft'), :tokens::bigint, 'a call of which nobody knows whether it was billed spends nothing');
SELECT is((SELECT llmq_internal.cost(e, 10, 5, 1000) FROM llmq.endpoint AS e WHERE name = 'main'), 0.00051, 'no more is cached than was sent');

-- -- folding --------------------------------------------------------------------------------------------

UPDATE llmq.spending SET at = at - interval '2 s';
CREATE TEMP TABLE before AS SELECT tenant, cost, tokens FROM llmq.budget_status;
SELECT llmq_internal.fold_spending();
SELECT is_empty('SELECT FROM llmq.spending', 'what was spent is folded');
SELECT results_eq('SELECT tenant, cost, tokens FROM llmq.budget_status ORDER BY tenant', 'SELECT * FROM before ORDER BY tenant',
    'into one row a tenant, and is the same');
INSERT INTO llmq.spending (tenant, at, cost, tokens) SELECT tenant, now() - interval '2 s', 0.5, 10 FROM unnest('{hard,soft}'::text[]) AS tenant;
SELECT llmq_internal.fold_spending();
SELECT results_eq('SELECT tenant, cost, tokens FROM llmq.budget_status ORDER BY tenant', 'SELECT tenant, cost + 0.5, tokens + 10 FROM before ORDER BY tenant',
    'what is spent later comes on top');
UPDATE llmq.budget SET period = '1 hour' WHERE tenant = 'soft';
INSERT INTO llmq.budget_spent (tenant, period_start, cost, tokens) VALUES ('soft', now() - interval '1 day', 1, 1);
INSERT INTO llmq.spending (tenant, at, cost, tokens) VALUES ('soft', clock_timestamp() - interval '2 s', 0, 3);
SELECT llmq_internal.fold_spending();
SELECT is((SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM llmq.budget_spent), 'hard soft', 'a period that is over goes, another tenant''s stays');

-- A budget for everybody counts each for itself.
INSERT INTO llmq.budget (tenant, period, max_tokens) VALUES ('*', '1 year', 10);
SELECT is(pg_temp.run(:own, 'free', 100, 0), 1::bigint, 'a budget for each tenant lets one spend it');
SELECT pg_temp.submit('free', 'f2');
SELECT is(pg_temp.run(:own, 'free', 100, 0), 0::bigint, 'and no more');

-- -- usage --------------------------------------------------------------------------------------------------

DELETE FROM llmq.budget;
DELETE FROM llmq.spending;
SELECT pg_temp.submit('hard', 'u1');

SELECT pg_temp.run(:own, 'hard', 7, 7, 0, 'unknown');
SELECT is((SELECT format('%s %s %s %s %s %s', day, endpoint, calls, input_tokens, cost, maybe_billed) FROM llmq.usage WHERE tenant = 'hard'),
    '2023-11-14 main 4 100014 1.62 2', 'llmq.usage sums by tenant, endpoint, model and day; what is perhaps billed is counted by itself');
SELECT is_empty('SELECT FROM llmq.spending', 'where nobody has a budget nothing is written down for one');

SELECT * FROM finish();
ROLLBACK;
