-- A worker looks for work.

-- Looks for work, and writes nothing when there is none.
--
-- The worker keeps the ids of ready jobs in memory.  It asks for what stands
-- behind `after`: the highest seq it has seen, or an earlier one, to find what
-- transactions that committed late have left there (the worker's LlmqPosition says
-- how far back it must go).
--
-- One row is the control row: seq and job_id NULL, and `control` an object with
-- next_xid, oldest_xid, more (the limit cut the list) and unresolved (a blocked job
-- could not be looked at yet).  With config_hash NULL that is all.  Else the poll also takes over the leases of lost workers, makes
-- ready what is due, and control holds due_in (microseconds until the next
-- deferred job or message is due, or null), state, config_hash, and config if its hash is
-- another, workers and rank (how many work here, and how many of them said hello
-- before this one: each takes its share of a max_in_flight), and pruned (jobs that retention deleted).  `report`, if not NULL, is what the worker has to say (take_report).  Rows with a job_id and a delivery are recalled leases.
--
-- messages_after, if not NULL, asks for outbox messages with higher ids; topics_after, if not NULL,
-- for a page of the topics that have messages, from behind that one: a sweep begins with -1 and ''.  If
-- there are any, control holds messages (sql/worker/messages.sql says what that is).  A
-- full poll makes pending those that are due, and has them among messages.  sweep in control: true
-- says that messages of any topics came back.
--
-- Away from home (sql/admin/home.sql) it tells the worker its state and its recalls, and touches nothing else.
--
-- Long: what is looked at, in the order in which it must be.
CREATE OR REPLACE FUNCTION llmq.worker_poll(
    own bigint, after bigint, max_rows int, config_hash text, report jsonb, messages_after bigint,
    topics_after text DEFAULT NULL)
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
    pruned bigint := 0;
    returned jsonb;
    home constant boolean := llmq_internal.is_home();
BEGIN
    IF config_hash IS NOT NULL THEN
        IF EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id = own AND w.kind = 'program') THEN
            PERFORM llmq_internal.note_backend(own);
        END IF;
        -- After the clock was set heartbeats say nothing for a while.
        IF home AND report -> 'clock_set' IS NULL AND (EXISTS (SELECT FROM llmq_internal.lost_sessions(own))
            OR (report -> 'prune' IS NOT NULL AND llmq_internal.has_overdue())) THEN
            IF llmq_internal.takeover(own, false) > 0 THEN
                facts := '{"sweep": true}';
            END IF;
        END IF;
        IF report IS NOT NULL THEN
            pruned := llmq_internal.take_report(CASE WHEN home THEN report ELSE report - 'prune' END);
        END IF;
        IF home THEN
            PERFORM llmq_internal.fold_spending();
            promoted := llmq_internal.promote_deferred(max_rows);
            returned := llmq_internal.merge_topics(returned, llmq_internal.promote_messages(max_rows, NULL::text));
        END IF;
        facts := facts || llmq_internal.worker_facts(own, config_hash) || jsonb_build_object('pruned', pruned);
        -- What is due and did not move is locked, by a cancel that is not committed say.
        IF promoted = 0 AND returned IS NULL AND facts -> 'sweep' IS NULL AND facts -> 'due_in' = '0' THEN
            facts := facts || '{"due_in": 50000}';
        END IF;
    END IF;

    IF EXISTS (SELECT FROM llmq.recall AS c WHERE c.worker_id = own) THEN
        RETURN QUERY
            DELETE FROM llmq.recall AS c WHERE c.worker_id = own
            RETURNING NULL::bigint, NULL::text, NULL::text, NULL::int, NULL::jsonb, c.job_id, c.delivery;
    END IF;

    IF home AND EXISTS (SELECT FROM llmq.blocked AS b WHERE b.fresh) THEN
        unresolved := llmq_internal.resolve_fresh(max_rows);
    END IF;

    IF home AND (topics_after IS NOT NULL OR returned IS NOT NULL
        OR EXISTS (SELECT FROM llmq.message_pending AS p WHERE p.id > messages_after)) THEN
        facts := facts || jsonb_strip_nulls(jsonb_build_object('messages',
            llmq_internal.look_for_messages(messages_after, topics_after, returned)));
    END IF;

    -- Before the rows are read: the snapshot that reads them is no older than this.
    oldest_xid := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

    RETURN QUERY
        SELECT r.seq, r.queue, r.tenant, r.priority::int, NULL::jsonb, NULL::uuid, NULL::int
        FROM llmq.ready AS r
        WHERE home AND r.seq > after
        ORDER BY r.seq LIMIT max_rows;
    GET DIAGNOSTICS found_rows = ROW_COUNT;

    RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::int,
        facts || jsonb_build_object(
            'next_xid', llmq_internal.next_xid(),
            'oldest_xid', oldest_xid,
            'unresolved', unresolved,
            'more', found_rows >= max_rows OR promoted >= max_rows),
        NULL::uuid, NULL::int;
END
$$;
COMMENT ON FUNCTION llmq.worker_poll IS
    'looks for ready jobs, due ones, recalled leases and changed configuration; the protocol stands in sql/worker/poll.sql';

-- What a worker has to say: an object with
--   depths      object: queue to number of ready jobs
--   endpoints   object: endpoint to null (no trouble), or to an object with reason and,
--               if it will pass by itself, in (microseconds)
--   prune       true: it is time for a step of retention; leases are looked at, too
-- Returns what llmq_internal.prune_step() does: how much retention has deleted.
CREATE OR REPLACE FUNCTION llmq_internal.take_report(report jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO llmq.queue_depth AS d (queue, ready, published_at)
    SELECT key, value::bigint, clock_timestamp() FROM jsonb_each(report -> 'depths') ORDER BY key
    ON CONFLICT (queue) DO UPDATE SET ready = EXCLUDED.ready, published_at = EXCLUDED.published_at;
    DELETE FROM llmq.endpoint_trouble AS t
    USING jsonb_each(report -> 'endpoints') AS e
    WHERE t.endpoint = e.key AND e.value = 'null';
    INSERT INTO llmq.endpoint_trouble AS t (endpoint, reason, until)
    SELECT key, value ->> 'reason',
        clock_timestamp() + (value ->> 'in')::bigint * interval '1 microsecond'
    FROM jsonb_each(report -> 'endpoints') WHERE value <> 'null' ORDER BY key
    ON CONFLICT (endpoint) DO UPDATE
    SET reason = EXCLUDED.reason, until = EXCLUDED.until, noted_at = clock_timestamp();
    IF report ? 'prune' THEN
        RETURN llmq_internal.prune_step(interval '100 ms');
    END IF;
    RETURN 0;
END
$$;

-- What a worker wants to know now and then: see worker_poll.
CREATE OR REPLACE FUNCTION llmq_internal.worker_facts(own bigint, config_hash text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    config constant jsonb := llmq_internal.worker_config();
    hash constant text := md5(config::text);
    home constant boolean := llmq_internal.is_home();
BEGIN
    RETURN jsonb_build_object(
        'due_in', CASE WHEN home THEN (
            SELECT greatest(llmq_internal.microseconds(next - clock_timestamp()), CASE WHEN next IS NOT NULL THEN 0 END)
            FROM (
                SELECT least((SELECT min(d.due_at) FROM llmq.deferred AS d),
                    (SELECT min(w.next_attempt_at) FROM llmq.message_deferred AS w),
                    (SELECT min(l.expires_at) FROM llmq.message_lease AS l WHERE l.expires_at > '-infinity'))) AS t (next)) END,
        'state', (
            -- Not running: it says hello again, and hears why.
            SELECT CASE WHEN (home OR llmq_internal.is_unused()) AND state <> 'outdated' THEN state ELSE 'quarantined' END
            FROM llmq.worker_session WHERE id = own),
        'workers', (SELECT count(*) FROM llmq_internal.working_sessions()),
        'rank', (SELECT count(*) FROM llmq_internal.working_sessions() AS w WHERE w.id < own),
        'breakers', llmq_internal.breakers(),
        'config_hash', hash,
        'config', CASE WHEN hash <> config_hash THEN config END);
END
$$;

-- Makes ready what is due, and whose job is there.  Returns the number of jobs moved.
CREATE OR REPLACE FUNCTION llmq_internal.promote_deferred(max_rows int) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp(); -- itself, being volatile, would bound no scan
    moved int;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.job_id FROM llmq.deferred AS d
        WHERE d.due_at <= now AND llmq_internal.has_job(d.job_id)
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
