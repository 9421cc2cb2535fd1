-- What was used, and what it cost: by tenant, endpoint, model and day, and against budgets.

-- What llmq.budget_status shows; those who look need no right on what it is made of.
CREATE OR REPLACE FUNCTION llmq.budget_lines()
RETURNS TABLE (tenant text, period interval, period_start timestamptz, period_end timestamptz,
    max_cost numeric, max_tokens bigint, hard boolean, cost numeric, tokens bigint,
    reserved_cost numeric, reserved_tokens bigint)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.tenant, b.period, llmq_internal.period_start(b.period, clock_timestamp()),
        llmq_internal.period_end(b.period, clock_timestamp()), b.max_cost, b.max_tokens, b.hard,
        s.cost, s.tokens, s.reserved_cost, s.reserved_tokens
    FROM (
        SELECT k.tenant FROM llmq.budget AS k WHERE k.tenant <> '*'
        UNION SELECT k.tenant FROM llmq.budget_spent AS k
        UNION SELECT k.tenant FROM llmq.spending AS k) AS t
    CROSS JOIN LATERAL llmq_internal.budget_of(t.tenant) AS b
    CROSS JOIN LATERAL llmq_internal.spent(b, t.tenant) AS s
    WHERE b.tenant IS NOT NULL
$$;
COMMENT ON FUNCTION llmq.budget_lines() IS 'what llmq.budget_status shows';

CREATE OR REPLACE VIEW llmq.budget_status AS SELECT * FROM llmq.budget_lines();
COMMENT ON VIEW llmq.budget_status IS
    'one row a tenant with a budget that has spent something, or has a row of its own: what it has spent and reserved in the period under way';

-- Calls that brought no answer are of the model that they were for.
CREATE OR REPLACE VIEW llmq.usage WITH (security_barrier) AS
    SELECT j.tenant, a.endpoint, coalesce(a.model, j.model, e.model) AS model, (a.started_at AT TIME ZONE 'UTC')::date AS day,
        count(*) FILTER (WHERE a.attempt > 0) AS calls,
        sum(a.input_tokens) AS input_tokens, sum(a.output_tokens) AS output_tokens,
        sum(a.cached_tokens) AS cached_tokens, sum(a.cost) AS cost,
        count(*) FILTER (WHERE a.billing = 'unknown') AS maybe_billed
    FROM llmq.attempt AS a JOIN llmq.job AS j ON j.job_id = a.job_id
    LEFT JOIN llmq.endpoint AS e ON e.name = a.endpoint
    WHERE llmq_internal.may_see(j.submitted_by) OR pg_has_role('pg_monitor', 'MEMBER')
    GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW llmq.usage IS
    'calls, tokens and cost by tenant, endpoint, model and day (UTC), as far back as retention keeps jobs; maybe_billed counts calls of which nobody knows whether they were billed';
