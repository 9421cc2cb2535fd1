-- A worker claims jobs.
--
-- Plans are pinned: statistics of a fresh or emptied table would flip a claim
-- to a sequential scan, and a cached plan would keep it.

-- Claims the ready jobs with these seqs, as far as nobody else has them: moves
-- them under leases of this worker and returns what the calls need.  A row with
-- a seq alone names a job that was not to be had now, because somebody has locked it,
-- its queue is paused, those before it are so large, or its row is not there: it may be later.
-- Jobs too old to be delivered die here.
-- Long: what it called it would pay for in every claim.
CREATE OR REPLACE FUNCTION llmq.worker_claim(own bigint, seqs bigint[])
RETURNS TABLE (seq bigint, job_id uuid, delivery int, counted int, queue text, prompt text,
    system text, messages jsonb, params jsonb, model text, policy jsonb, idempotency_keys jsonb,
    traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    most constant bigint := 32 * 1024 * 1024; -- bytes of prompts in one claim, but for the last job
    standard constant llmq.queue := llmq.default_queue();
    picked llmq.placement[];
    expired llmq.placement[];
    costs numeric[];
    tokens bigint[];
    taken int;
    alive int;
    keyed constant text[] := ARRAY(
        SELECT name FROM llmq.endpoint WHERE enabled AND idempotency_header IS NOT NULL);
BEGIN
    PERFORM llmq_internal.check_session(own);
    WITH free AS MATERIALIZED (
        -- One by one as they are asked for, which is their turn: the planner cannot begin with the table.
        SELECT l.* FROM unnest(seqs) AS s (seq) CROSS JOIN LATERAL (
            SELECT r.seq, r.job_id, r.queue, r.tenant, r.priority, r.deliveries, r.counted, r.deaths
            FROM llmq.ready AS r LEFT JOIN llmq.queue AS q ON q.name = r.queue
            WHERE r.seq = s.seq AND q.paused IS NOT TRUE
            FOR UPDATE OF r SKIP LOCKED) AS l
    ), target AS MATERIALIZED (
        -- Sizes as they are stored, which can be told without reading: of JSON the compressed one.
        SELECT t.* FROM (
            SELECT f.*, j.job_id IS NOT NULL AS is_there, sum(coalesce(octet_length(j.prompt), 0) + coalesce(octet_length(j.system), 0)
                + coalesce(pg_column_size(j.messages), 0) + coalesce(pg_column_size(j.params), 0))
                OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM free AS f LEFT JOIN llmq.job AS j ON j.job_id = f.job_id) AS t
        WHERE coalesce(t.before, 0) < most AND t.is_there
    ), gone AS (
        DELETE FROM llmq.ready AS r USING target AS t WHERE r.seq = t.seq
    )
    SELECT array_agg(ROW(t.job_id, t.queue, t.tenant, t.priority, t.deliveries, t.counted,
        t.deaths)::llmq.placement), count(*)
    INTO picked, taken FROM target AS t;

    IF taken > 0 AND EXISTS (SELECT FROM llmq.budget) THEN
        SELECT r.picked, r.costs, r.tokens, cardinality(r.picked)
        INTO picked, costs, tokens, taken FROM llmq_internal.reserve(picked) AS r;
    END IF;

    IF taken > 0 THEN
        PERFORM llmq_internal.note_claim(own);
    END IF;

    RETURN QUERY
        WITH claimed AS MATERIALIZED (
            SELECT p.*, j.prompt, j.system, j.messages, j.params, j.model, j.policy,
                llmq_internal.traceparent(j.metadata) AS traceparent,
                coalesce((j.policy ->> 'deadline')::interval, q.deadline, standard.deadline) AS deadline
            FROM unnest(picked) WITH ORDINALITY AS p
            JOIN llmq.job AS j ON j.job_id = p.job_id
            LEFT JOIN llmq.queue AS q ON q.name = p.queue
            WHERE coalesce(llmq_internal.last_start(j.expires_at, j.submitted_at,
                coalesce(q.max_age, standard.max_age)) >= clock_timestamp(), true)
        ), leased AS (
            INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted,
                deaths, claimed_at, deadline, reserved_cost, reserved_tokens)
            SELECT c.job_id, own, c.queue, c.tenant, c.priority, c.deliveries + 1, c.counted,
                c.deaths, clock_timestamp(), clock_timestamp() + c.deadline, costs[c.ordinality],
                tokens[c.ordinality]
            FROM claimed AS c
        )
        SELECT NULL::bigint, c.job_id, c.deliveries + 1, c.counted, c.queue, c.prompt, c.system,
            c.messages, c.params, c.model, llmq_internal.worker_policy(c.policy),
            CASE WHEN keyed <> '{}' THEN llmq_internal.idempotency_keys(c.job_id, keyed) END, c.traceparent
        FROM claimed AS c;
    GET DIAGNOSTICS alive = ROW_COUNT;

    IF alive < taken THEN
        expired := ARRAY(SELECT p FROM unnest(picked) AS p
            WHERE NOT EXISTS (SELECT FROM llmq.lease AS l WHERE l.job_id = p.job_id));
        PERFORM llmq_internal.bury(expired, 'expired'::text, 'no delivery may start after expires_at or max_age'::text, NULL::text);
    END IF;

    IF taken < cardinality(seqs) THEN
        RETURN QUERY
            SELECT r.seq, NULL::uuid, NULL::int, NULL::int, NULL::text, NULL::text, NULL::text,
                NULL::jsonb, NULL::jsonb, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text
            FROM unnest(seqs) AS s (seq) JOIN llmq.ready AS r ON r.seq = s.seq;
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.worker_claim IS
    'claims ready jobs by seq for a worker and returns what their calls need';

-- A job's policy as a worker needs it: spans in microseconds.
CREATE OR REPLACE FUNCTION llmq_internal.worker_policy(policy jsonb) RETURNS jsonb
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(key, CASE
        WHEN key IN ('call_timeout', 'deadline', 'min_attempt', 'backoff_base', 'backoff_cap',
            'redelivery_base', 'redelivery_cap')
        THEN to_jsonb(llmq_internal.microseconds((value #>> '{}')::interval))
        WHEN key = 'max_attempts' THEN to_jsonb(value::int) -- may be written 2.0
        ELSE value END)
    FROM jsonb_each(policy)
$$;

-- The keys that endpoints with an idempotency_header get for a job: the same in
-- every attempt and delivery on one endpoint.  NULL where no endpoint wants one.
CREATE OR REPLACE FUNCTION llmq_internal.idempotency_keys(of_job uuid, endpoints text[]) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(name, llmq.uuid5(of_job, name)) FROM unnest(endpoints) AS name
$$;

-- The trace that a job's metadata names, as version 00 of W3C Trace Context writes it; NULL
-- where there is none, or none that is well formed: its trace ends there, and nothing else.
CREATE OR REPLACE FUNCTION llmq_internal.traceparent(metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN metadata ->> 'traceparent'
        ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-|$)'
        AND (metadata ->> 'traceparent' !~ '^00' OR length(metadata ->> 'traceparent') = 55)
    THEN '00' || substr(metadata ->> 'traceparent', 3, 53) END
$$;
