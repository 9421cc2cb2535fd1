-- Budgets: what a tenant may spend in a period, and what it has spent.
--
-- Each settling appends what its calls cost to llmq.spending; a worker folds that into one
-- row a tenant, once a second at most.  What running jobs may still cost is reserved in
-- their leases: so no counter is updated by a claim or a settling, and what a lost worker
-- had reserved is free when its leases are.  Functions of submit run under its search_path.

-- The budget of a tenant: its own, or the one that holds for each without one.
CREATE OR REPLACE FUNCTION llmq_internal.budget_of(of_tenant text) RETURNS llmq.budget
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    b llmq.budget;
BEGIN
    SELECT * INTO b FROM llmq.budget AS k WHERE k.tenant = of_tenant;
    IF NOT FOUND THEN
        SELECT * INTO b FROM llmq.budget AS k WHERE k.tenant = '*';
    END IF;
    RETURN b;
END
$$;

-- When the period began that a time belongs to: periods count from 2000-01-01 UTC.
CREATE OR REPLACE FUNCTION llmq_internal.period_start(period interval, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
    SELECT CASE WHEN m.months > 0 AND m.rest = '0' THEN
        '2000-01-01 00:00+00'::timestamptz + make_interval(months =>
            floor(((extract(year FROM at) - 2000) * 12 + extract(month FROM at) - 1) / m.months)::int * m.months)
    ELSE date_bin(make_interval(secs => extract(epoch FROM period)::float8), at, '2000-01-01 00:00+00') END
    FROM (SELECT (extract(year FROM period) * 12 + extract(month FROM period))::int) AS y (months),
    LATERAL (SELECT y.months, period - make_interval(months => y.months) AS rest) AS m
$$;

-- When the period turns that a time belongs to: months are those of the calendar, but with a rest
-- of days or hours they are seconds, as period_start takes them.
CREATE OR REPLACE FUNCTION llmq_internal.period_end(period interval, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
    SELECT llmq_internal.period_start(period, at) + CASE WHEN period = date_trunc('month', period) THEN period
        ELSE make_interval(secs => extract(epoch FROM period)::float8) END
$$;

-- What a tenant has spent in the period that is under way, and what its running jobs have
-- reserved.
CREATE OR REPLACE FUNCTION llmq_internal.spent(b llmq.budget, of_tenant text)
RETURNS TABLE (cost numeric, tokens bigint, reserved_cost numeric, reserved_tokens bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    began constant timestamptz := llmq_internal.period_start(b.period, clock_timestamp());
BEGIN
    RETURN QUERY
        SELECT coalesce(sum(s.cost), 0), coalesce(sum(s.tokens), 0)::bigint, l.cost, l.tokens
        FROM (SELECT coalesce(sum(k.reserved_cost), 0) AS cost, coalesce(sum(k.reserved_tokens), 0)::bigint AS tokens
            FROM llmq.lease AS k WHERE k.tenant = of_tenant AND k.reserved_tokens IS NOT NULL) AS l
        LEFT JOIN (
            SELECT p.cost, p.tokens FROM llmq.budget_spent AS p
            WHERE p.tenant = of_tenant AND p.period_start = began
            UNION ALL
            SELECT p.cost, p.tokens FROM llmq.spending AS p
            WHERE p.tenant = of_tenant AND p.at >= began) AS s ON true
        GROUP BY l.cost, l.tokens;
END
$$;

-- Refuses a new job of a tenant whose hard budget is spent; a key that is known gets its
-- answer even so.
CREATE OR REPLACE FUNCTION llmq_internal.check_budget(job llmq.job) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    b constant llmq.budget := llmq_internal.budget_of(job.tenant);
    used record;
BEGIN
    IF b.hard IS NOT TRUE OR EXISTS (SELECT FROM llmq.job AS k WHERE k.job_id = job.job_id) THEN
        RETURN;
    END IF;
    SELECT * INTO used FROM llmq_internal.spent(b, job.tenant);
    IF used.cost >= b.max_cost OR used.tokens >= b.max_tokens THEN
        PERFORM llmq_internal.fail('PT402', format('the budget of tenant "%s" is spent', job.tenant),
            format('Since %s it has spent %s for %s tokens; it may spend %s.', llmq_internal.period_start(b.period, clock_timestamp()),
                used.cost, used.tokens, concat_ws(' and ', b.max_cost, b.max_tokens || ' tokens')),
            format('The period turns at %s; until then its row of llmq.budget can be raised.',
                llmq_internal.period_end(b.period, clock_timestamp())));
    END IF;
END
$$;

-- How many tokens a job is taken for before it runs, as the worker reckons (bgworker/limits/estimate.c).
CREATE OR REPLACE FUNCTION llmq_internal.estimate_tokens(j llmq.job, OUT input bigint, OUT output bigint)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    input := (coalesce(octet_length(j.prompt), 0) + coalesce(octet_length(j.system), 0)
        + coalesce(octet_length(j.messages::text), 0) + coalesce(octet_length(j.params::text), 0)) / 4;
    output := coalesce((
        SELECT min((p.value #>> '{}')::numeric)::bigint
        FROM jsonb_each(CASE WHEN jsonb_typeof(j.params) = 'object' THEN j.params END) AS p
        WHERE p.key IN ('max_tokens', 'max_completion_tokens', 'max_output_tokens', 'num_predict', 'maxOutputTokens')
            AND jsonb_typeof(p.value) = 'number' AND (p.value #>> '{}')::numeric BETWEEN 1 AND 1000000), 256);
END
$$;

-- What a job may cost where its queue sends it first.
CREATE OR REPLACE FUNCTION llmq_internal.estimate_cost(of_queue text, input bigint, output bigint) RETURNS numeric
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT llmq_internal.cost(e, input, output, 0::bigint)
        FROM llmq.queue_policy AS q JOIN llmq.endpoint AS e
            ON e.enabled AND (q.endpoints IS NULL OR e.name = ANY (q.endpoints))
        WHERE q.name = of_queue
        ORDER BY array_position(q.endpoints, e.name), e.name LIMIT 1);
END
$$;

-- Which of the jobs that were picked their tenants can pay for, and what is reserved for
-- each (NULL: it has no budget).  The others are put off: until the period turns, or, while it
-- is only reserved what would be too much, for a second.  One job that would exceed what is left
-- runs if no other of its tenant does.
CREATE OR REPLACE FUNCTION llmq_internal.reserve(
    INOUT picked llmq.placement[], OUT costs numeric[], OUT tokens bigint[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    pick record;
    b llmq.budget;
    used record;
    of_tenant text;
    admitted llmq.placement[] := '{}';
    put_off int := 0;
    cost numeric;
BEGIN
    FOR pick IN
        SELECT p::llmq.placement AS place, p.tenant, p.queue, e.input, e.output
        FROM unnest(picked) AS p JOIN llmq.job AS j ON j.job_id = p.job_id, llmq_internal.estimate_tokens(j) AS e
        ORDER BY p.tenant, p.priority DESC, j.submitted_at
    LOOP
        IF of_tenant IS DISTINCT FROM pick.tenant THEN
            of_tenant := pick.tenant;
            b := llmq_internal.budget_of(of_tenant);
            SELECT * INTO used FROM llmq_internal.spent(b, of_tenant) WHERE b.tenant IS NOT NULL;
        END IF;
        IF b.tenant IS NULL THEN
            admitted := admitted || pick.place;
            costs := costs || NULL::numeric;
            tokens := tokens || NULL::bigint;
            CONTINUE;
        END IF;
        cost := CASE WHEN b.max_cost IS NOT NULL THEN
            coalesce(llmq_internal.estimate_cost(pick.queue, pick.input, pick.output), 0) ELSE 0 END;
        IF used.cost < coalesce(b.max_cost, 'infinity') AND (used.tokens < b.max_tokens) IS NOT FALSE
            AND (used.reserved_tokens = 0
                OR (used.cost + used.reserved_cost + cost <= coalesce(b.max_cost, 'infinity')
                    AND (used.tokens + used.reserved_tokens + pick.input + pick.output <= b.max_tokens) IS NOT FALSE))
        THEN
            admitted := admitted || pick.place;
            costs := costs || cost;
            tokens := tokens || pick.input + pick.output;
            used.reserved_cost := used.reserved_cost + cost;
            used.reserved_tokens := used.reserved_tokens + pick.input + pick.output;
            CONTINUE;
        END IF;
        put_off := put_off + 1;
        PERFORM llmq_internal.put_off(pick.place, b,
            used.cost < coalesce(b.max_cost, 'infinity') AND (used.tokens < b.max_tokens) IS NOT FALSE, put_off);
    END LOOP;
    picked := admitted;
END
$$;

-- Puts a job off that its tenant cannot pay for; ordinal keeps the order of those put off together.
CREATE OR REPLACE FUNCTION llmq_internal.put_off(p llmq.placement, b llmq.budget, soon boolean, ordinal int) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    turns constant timestamptz := llmq_internal.period_end(b.period, clock_timestamp());
BEGIN
    INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths, due_at,
        error_class, error_message)
    SELECT (p).*, CASE WHEN soon THEN least(turns, clock_timestamp() + interval '1 s') ELSE turns END
        + ordinal * interval '1 microsecond',
        'budget', format('the budget of tenant "%s" is %s', p.tenant, CASE WHEN soon THEN 'reserved' ELSE 'spent' END);
END
$$;

-- Folds what was spent into a row a tenant and period; those of periods that are over go.
CREATE OR REPLACE FUNCTION llmq_internal.fold_spending() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.spending AS s WHERE s.at < clock_timestamp() - interval '1 s') THEN
        RETURN;
    END IF;
    WITH oldest AS MATERIALIZED (
        SELECT s.id FROM llmq.spending AS s ORDER BY s.id LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.spending AS s USING oldest AS o WHERE s.id = o.id RETURNING s.*
    )
    INSERT INTO llmq.budget_spent AS p (tenant, period_start, cost, tokens)
    SELECT g.tenant, llmq_internal.period_start((llmq_internal.budget_of(g.tenant)).period, g.at), sum(g.cost), sum(g.tokens)
    FROM gone AS g WHERE (llmq_internal.budget_of(g.tenant)).tenant IS NOT NULL
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (tenant, period_start) DO UPDATE SET cost = p.cost + EXCLUDED.cost, tokens = p.tokens + EXCLUDED.tokens;
    DELETE FROM llmq.budget_spent AS p
    WHERE EXISTS (SELECT FROM llmq.budget_spent AS k WHERE k.tenant = p.tenant AND k.period_start > p.period_start);
END
$$;

-- A budget that is changed is looked at anew by the jobs that wait for it.
CREATE OR REPLACE FUNCTION llmq_internal.budget_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.deferred AS d SET due_at = clock_timestamp() WHERE d.error_class = 'budget';
    PERFORM llmq_internal.wake_worker();
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER budget_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llmq.budget
    FOR EACH STATEMENT EXECUTE FUNCTION llmq_internal.budget_changed();
