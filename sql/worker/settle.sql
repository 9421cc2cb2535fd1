-- Settling: everything that one delivery came to, in one transaction.
--
-- entries is an array of objects:
--   job_id, delivery
--   outcome         succeeded, dead, retry
--   counted         retry: whether the delivery counts towards max_deliveries
--   delay           retry: microseconds until the next delivery
--   error_class, error_message   dead and retry
--   text, json, tool_calls, embedding, model, endpoint, finish_reason,
--   input_tokens, output_tokens, cached_tokens, response   the answer (text of a
--                   truncated one too); json, tool_calls and response are JSON
--                   source in a string, or with raw_response a string as it is
--   attempts        array of rows of llmq.attempt, spans in microseconds,
--                   started_at in microseconds since the Unix epoch
--
-- One row comes back for each: settled (done, or kept for the settler), late (another delivery was first
-- or the job is final: only its attempts were recorded), gone (the job is not
-- known any more), busy (not now: somebody has locked the job, or the worker is away from home).
CREATE OR REPLACE FUNCTION llmq.worker_settle(own bigint, entries jsonb)
RETURNS TABLE (job_id uuid, verdict text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    owned llmq.placement[];
    late record;
BEGIN
    IF NOT llmq_internal.is_home() THEN
        RETURN QUERY SELECT (e.value ->> 'job_id')::uuid, 'busy' FROM jsonb_array_elements(entries) AS e;
        RETURN;
    END IF;
    -- No joins: while the statistics are those of a small table they would read all leases.
    WITH entry AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(entries) AS e (job_id uuid, delivery int)
    ), held AS MATERIALIZED (
        SELECT l.job_id FROM llmq.lease AS l
        WHERE l.job_id = ANY (ARRAY(SELECT e.job_id FROM entry AS e)) AND l.worker_id = own
            AND ((l.job_id, l.deliveries) IN (SELECT e.job_id, e.delivery FROM entry AS e)) IS TRUE
        FOR UPDATE OF l SKIP LOCKED
    ), gone AS (
        DELETE FROM llmq.lease AS l WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) RETURNING l.*
    )
    SELECT array_agg(ROW(g.job_id, g.queue, g.tenant, g.priority, g.deliveries, g.counted,
        g.deaths)::llmq.placement)
    INTO owned FROM gone AS g;

    PERFORM llmq_internal.settle_placed(owned, entries);
    RETURN QUERY SELECT p.job_id, 'settled' FROM unnest(owned) AS p;

    IF coalesce(cardinality(owned), 0) < jsonb_array_length(entries) THEN
        FOR late IN
            SELECT (e.value ->> 'job_id')::uuid AS job_id, e.value AS entry, EXISTS (
                SELECT FROM llmq.lease AS l
                WHERE l.job_id = (e.value ->> 'job_id')::uuid AND l.worker_id = own
                    AND l.deliveries = (e.value ->> 'delivery')::int) AS is_locked
            FROM jsonb_array_elements(entries) AS e
            WHERE NOT EXISTS (
                SELECT FROM unnest(owned) AS p WHERE p.job_id = (e.value ->> 'job_id')::uuid)
            ORDER BY 1
        LOOP
            -- Busy: another transaction, a cancel say, has locked the job; to be tried again.
            IF late.is_locked THEN
                RETURN QUERY SELECT late.job_id, 'busy';
            ELSE
                RETURN QUERY SELECT late.job_id, llmq_internal.settle_late(late.job_id, late.entry);
            END IF;
        END LOOP;
    END IF;
END
$$;
COMMENT ON FUNCTION llmq.worker_settle IS
    'settles deliveries: result, attempts, outbox messages and end of lease together; the protocol stands in sql/worker/settle.sql';

-- An answer whose lease is no longer its worker's.  It wins if the job is not
-- final: it is taken from wherever it stands now.  Anything else changes nothing
-- but the record of attempts.
CREATE OR REPLACE FUNCTION llmq_internal.settle_late(late_job uuid, entry jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place llmq.placement;
BEGIN
    PERFORM FROM llmq.job WHERE job_id = late_job FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM llmq.job WHERE job_id = late_job) THEN 'busy' ELSE 'gone' END;
    END IF;
    -- The delivery's own attempts replace the one that was written when its lease was taken.
    IF jsonb_array_length(entry -> 'attempts') > 0 THEN
        DELETE FROM llmq.attempt
        WHERE job_id = late_job AND delivery = (entry ->> 'delivery')::int AND attempt = 0;
    END IF;
    IF entry ->> 'outcome' = 'succeeded' THEN
        place := llmq_internal.take_place(late_job, 'an earlier delivery was answered late, and first');
    END IF;
    IF place.job_id IS NULL THEN
        PERFORM llmq_internal.record_attempts(jsonb_build_array(entry));
        RETURN 'late';
    END IF;
    PERFORM llmq_internal.settle_placed(ARRAY[place], jsonb_build_array(entry));
    RETURN 'settled';
END
$$;

-- Settles entries whose jobs were taken out of their places by the caller.  An answer that
-- an on_complete waits for is kept for the settler instead, who alone may wait for a
-- user's function.
CREATE OR REPLACE FUNCTION llmq_internal.settle_placed(placed llmq.placement[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    called uuid[] := ARRAY(
        SELECT j.job_id FROM llmq.job AS j
        WHERE j.job_id = ANY (ARRAY(SELECT p.job_id FROM unnest(placed) AS p))
            AND j.on_complete IS NOT NULL);
BEGIN
    IF called <> '{}' THEN
        called := llmq_internal.keep_answers(called, placed, entries);
        placed := ARRAY(SELECT p FROM unnest(placed) AS p WHERE p.job_id <> ALL (called));
        entries := (
            SELECT jsonb_agg(e) FROM jsonb_array_elements(entries) AS e
            WHERE (e ->> 'job_id')::uuid <> ALL (called));
    END IF;
    IF placed <> '{}' THEN
        PERFORM llmq_internal.settle_now(placed, entries);
    END IF;
END
$$;

-- The same, here and now.  Its callers forbid hash joins, which could read whole tables;
-- what it joins is as small as the batch, and would be joined each with each.
CREATE OR REPLACE FUNCTION llmq_internal.settle_now(placed llmq.placement[], entries jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = on
AS $$
DECLARE
    done llmq.placement[];
    failed record;
BEGIN
    WITH entry AS MATERIALIZED (
        SELECT e.*, l.queue, l.deliveries, l.deaths
        FROM llmq_internal.read_answers(entries) AS e JOIN unnest(placed) AS l ON l.job_id = e.job_id
    ), answer AS (
        INSERT INTO llmq.result (job_id, text, json, tool_calls, embedding, model, endpoint,
            finish_reason, input_tokens, output_tokens, cached_tokens, cost, response,
            queue, deliveries, deaths)
        SELECT e.job_id, e.text, e.json, e.tool_calls, e.embedding, e.model,
            e.endpoint, e.finish_reason, e.input_tokens, e.output_tokens, e.cached_tokens,
            llmq_internal.cost(p, e.input_tokens, e.output_tokens, e.cached_tokens),
            e.response, e.queue, e.deliveries, e.deaths
        FROM entry AS e LEFT JOIN llmq.endpoint AS p ON p.name = e.endpoint
        RETURNING result.job_id
    )
    SELECT array_agg(p) INTO done
    FROM answer AS a JOIN unnest(placed) AS p ON p.job_id = a.job_id;

    PERFORM llmq_internal.record_attempts(entries);
    IF done IS NOT NULL THEN
        PERFORM llmq_internal.emit_messages(done, 'succeeded');
        PERFORM llmq_internal.notify_done(done);
        PERFORM llmq_internal.release_dependents(done);
    END IF;

    IF coalesce(cardinality(done), 0) < cardinality(placed) THEN
        FOR failed IN
            SELECT p::llmq.placement AS place, e.*
            FROM jsonb_to_recordset(entries) AS e (job_id uuid, outcome text, counted boolean,
                delay bigint, error_class text, error_message text, text text)
            JOIN unnest(placed) AS p ON p.job_id = e.job_id
            WHERE e.outcome <> 'succeeded'
        LOOP
            IF failed.outcome = 'dead' THEN
                PERFORM llmq_internal.bury(ARRAY[failed.place], failed.error_class, failed.error_message,
                    failed.text);
            ELSE
                PERFORM llmq_internal.redeliver(failed.place, failed.counted,
                    failed.delay * interval '1 microsecond', failed.error_class,
                    failed.error_message);
            END IF;
        END LOOP;
    END IF;
END
$$;
