-- What a worker does with the queue: poll, claim, settle.
--
-- Plans are pinned: statistics of a fresh or emptied table would flip a claim
-- to a sequential scan, and a cached plan would keep it.

-- Looks for work, and writes nothing when there is none.
--
-- The worker keeps the ids of ready jobs in memory.  It asks for what stands
-- behind `after`: the highest seq it has seen, or an earlier one, to find what
-- transactions that committed late have left there (LlmqPosition in
-- bgworker/engine_private.h says how far back it must go).
--
-- One row is the control row: seq and job_id NULL, and `control` an object with
-- next_xid, oldest_xid, more (the limit cut the list) and unresolved (a blocked job
-- could not be looked at yet).  With config_hash NULL that is all.  Else the poll also takes over the leases of lost workers, makes
-- ready what is due, and control holds due_in (microseconds until the next
-- deferred job is due, or null), state, config_hash, and config if its hash is
-- another.  Rows with a job_id and a delivery are recalled leases.
CREATE OR REPLACE FUNCTION llmq.worker_poll(
    own bigint, after bigint, max_rows int, config_hash text)
RETURNS TABLE (seq bigint, queue text, tenant text, priority int, control jsonb,
    job_id uuid, delivery int)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    found_rows bigint;
    promoted int := 0;
    facts jsonb := '{}';
    oldest_xid bigint;
    unresolved boolean := false;
BEGIN
    IF config_hash IS NOT NULL THEN
        IF EXISTS (SELECT FROM llmq.lost_sessions(own)) THEN
            PERFORM llmq.takeover(own);
        END IF;
        promoted := llmq.promote_deferred(max_rows);
        facts := llmq.worker_facts(own, config_hash);
    END IF;

    IF EXISTS (SELECT FROM llmq.recall AS c WHERE c.worker_id = own) THEN
        RETURN QUERY
            DELETE FROM llmq.recall AS c WHERE c.worker_id = own
            RETURNING NULL::bigint, NULL::text, NULL::text, NULL::int, NULL::jsonb, c.job_id, c.delivery;
    END IF;

    IF EXISTS (SELECT FROM llmq.blocked AS b WHERE b.fresh) THEN
        unresolved := llmq.resolve_fresh(max_rows);
    END IF;

    -- Before the rows are read: the snapshot that reads them is no older than this.
    oldest_xid := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

    RETURN QUERY
        SELECT r.seq, r.queue, r.tenant, r.priority::int, NULL::jsonb, NULL::uuid, NULL::int
        FROM llmq.ready AS r
        WHERE r.seq > after
        ORDER BY r.seq LIMIT max_rows;
    GET DIAGNOSTICS found_rows = ROW_COUNT;

    RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::int,
        facts || jsonb_build_object(
            'next_xid', llmq.next_xid(),
            'oldest_xid', oldest_xid,
            'unresolved', unresolved,
            'more', found_rows >= max_rows OR promoted >= max_rows),
        NULL::uuid, NULL::int;
END
$$;
COMMENT ON FUNCTION llmq.worker_poll IS
    'looks for ready jobs, due ones, recalled leases and changed configuration; the protocol stands in sql/worker_queue.sql';

-- What a worker wants to know now and then: see worker_poll.
CREATE OR REPLACE FUNCTION llmq.worker_facts(own bigint, config_hash text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    config constant jsonb := llmq.worker_config();
    hash constant text := md5(config::text);
BEGIN
    RETURN jsonb_build_object(
        'due_in', (SELECT greatest(llmq.microseconds(min(due_at) - clock_timestamp()),
            CASE WHEN min(due_at) IS NOT NULL THEN 0 END) FROM llmq.deferred),
        'state', (SELECT state FROM llmq.worker_session WHERE id = own),
        'config_hash', hash,
        'config', CASE WHEN hash <> config_hash THEN config END);
END
$$;

-- Makes ready what is due.  Returns the number of jobs moved.
CREATE OR REPLACE FUNCTION llmq.promote_deferred(max_rows int) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    moved int;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.job_id FROM llmq.deferred AS d
        WHERE d.due_at <= clock_timestamp()
        ORDER BY d.due_at LIMIT max_rows
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.deferred AS d USING due WHERE d.job_id = due.job_id RETURNING d.*
    )
    INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
    SELECT job_id, queue, tenant, priority, deliveries, counted, deaths FROM gone;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END
$$;

-- Claims the ready jobs with these seqs, as far as nobody else has them: moves
-- them under leases of this worker and returns what the calls need.  A row with
-- a seq alone names a job that was not to be had now, because somebody has locked it
-- or its queue is paused: it may be later.
-- Jobs too old to be delivered die here.
CREATE OR REPLACE FUNCTION llmq.worker_claim(own bigint, seqs bigint[])
RETURNS TABLE (seq bigint, job_id uuid, delivery int, counted int, queue text, prompt text,
    system text, messages jsonb, params jsonb, model text, policy jsonb, idempotency_keys jsonb)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    standard constant llmq.queue := llmq.default_queue();
    picked llmq.placement[];
    expired llmq.placement[];
    taken int;
    alive int;
    keyed constant text[] := ARRAY(
        SELECT name FROM llmq.endpoint WHERE enabled AND idempotency_header IS NOT NULL);
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = own) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the session of worker %s has ended', own),
            HINT = 'It was taken for lost; it must say hello again.';
    END IF;
    WITH target AS MATERIALIZED (
        SELECT r.seq FROM unnest(seqs) AS s (seq) JOIN llmq.ready AS r ON r.seq = s.seq
        LEFT JOIN llmq.queue AS q ON q.name = r.queue
        WHERE q.paused IS NOT TRUE
        FOR UPDATE OF r SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.ready AS r USING target AS t WHERE r.seq = t.seq RETURNING r.*
    )
    SELECT array_agg(ROW(g.job_id, g.queue, g.tenant, g.priority, g.deliveries, g.counted,
        g.deaths)::llmq.placement), count(*)
    INTO picked, taken FROM gone AS g;

    IF taken > 0 THEN
        UPDATE llmq.worker_session AS w
        SET heartbeat = clock_timestamp(), in_flight = greatest(w.in_flight, 1)
        WHERE w.id = own
            AND (w.in_flight = 0 OR w.heartbeat < clock_timestamp() - llmq.lease_ttl() / 3);
    END IF;

    RETURN QUERY
        WITH claimed AS MATERIALIZED (
            SELECT p.*, j.prompt, j.system, j.messages, j.params, j.model, j.policy,
                coalesce((j.policy ->> 'deadline')::interval, q.deadline, standard.deadline) AS deadline
            FROM unnest(picked) AS p
            JOIN llmq.job AS j ON j.job_id = p.job_id
            LEFT JOIN llmq.queue AS q ON q.name = p.queue
            WHERE coalesce(llmq.last_start(j.expires_at, j.submitted_at,
                coalesce(q.max_age, standard.max_age)) >= clock_timestamp(), true)
        ), leased AS (
            INSERT INTO llmq.lease (job_id, worker_id, queue, tenant, priority, deliveries, counted,
                deaths, claimed_at, deadline)
            SELECT c.job_id, own, c.queue, c.tenant, c.priority, c.deliveries + 1, c.counted,
                c.deaths, clock_timestamp(), clock_timestamp() + c.deadline
            FROM claimed AS c
        )
        SELECT NULL::bigint, c.job_id, c.deliveries + 1, c.counted, c.queue, c.prompt, c.system,
            c.messages, c.params, c.model, llmq.worker_policy(c.policy),
            CASE WHEN keyed <> '{}' THEN llmq.idempotency_keys(c.job_id, keyed) END
        FROM claimed AS c;
    GET DIAGNOSTICS alive = ROW_COUNT;

    IF alive < taken THEN
        expired := ARRAY(SELECT p FROM unnest(picked) AS p
            WHERE NOT EXISTS (SELECT FROM llmq.lease AS l WHERE l.job_id = p.job_id));
        PERFORM llmq.bury(expired, 'expired', 'no delivery may start after expires_at or max_age');
    END IF;

    IF taken < cardinality(seqs) THEN
        RETURN QUERY
            SELECT r.seq, NULL::uuid, NULL::int, NULL::int, NULL::text, NULL::text, NULL::text,
                NULL::jsonb, NULL::jsonb, NULL::text, NULL::jsonb, NULL::jsonb
            FROM unnest(seqs) AS s (seq) JOIN llmq.ready AS r ON r.seq = s.seq;
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.worker_claim IS
    'claims ready jobs by seq for a worker and returns what their calls need';

-- A job's policy as a worker needs it: spans in microseconds.
CREATE OR REPLACE FUNCTION llmq.worker_policy(policy jsonb) RETURNS jsonb
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(key, CASE
        WHEN key IN ('call_timeout', 'deadline', 'min_attempt', 'backoff_base', 'backoff_cap',
            'redelivery_base', 'redelivery_cap')
        THEN to_jsonb(llmq.microseconds((value #>> '{}')::interval))
        WHEN key = 'max_attempts' THEN to_jsonb(value::int) -- may be written 2.0
        ELSE value END)
    FROM jsonb_each(policy)
$$;

-- The keys that endpoints with an idempotency_header get for a job: the same in
-- every attempt and delivery on one endpoint.  NULL where no endpoint wants one.
CREATE OR REPLACE FUNCTION llmq.idempotency_keys(of_job uuid, endpoints text[]) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(name, llmq.uuid5(of_job, name)) FROM unnest(endpoints) AS name
$$;
