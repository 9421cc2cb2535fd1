-- The settler's side: answers of jobs with an on_complete.
--
-- The worker leaves them in llmq.answer, with the lease ended.  The settler, a process of
-- each database in the server, runs a transaction for each: settler_settle, then the
-- user's function as the role that submitted (extension/callback.c).  When that fails it
-- is rolled back as a whole, and settler_fail says in another when it is tried again.

-- Keeps the answers among entries of jobs that have an on_complete, and returns the jobs'
-- ids.  They are read here as they will be read then: the worker can mend what
-- PostgreSQL does not take, the settler could not.
CREATE OR REPLACE FUNCTION llmq_internal.keep_answers(called uuid[], placed llmq.placement[], entries jsonb)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept uuid[];
BEGIN
    PERFORM count(a) FROM llmq_internal.read_answers(entries) AS a WHERE a.job_id = ANY (called);
    PERFORM count(a) FROM llmq_internal.read_attempts(entries) AS a WHERE a.job_id = ANY (called);
    WITH added AS (
        INSERT INTO llmq.answer (job_id, queue, tenant, priority, deliveries, counted, deaths, entry, due_at)
        SELECT p.job_id, p.queue, p.tenant, p.priority, p.deliveries, p.counted, p.deaths, e.value,
            clock_timestamp()
        FROM unnest(placed) AS p
        JOIN jsonb_array_elements(entries) AS e ON (e.value ->> 'job_id')::uuid = p.job_id
        WHERE p.job_id = ANY (called) AND e.value ->> 'outcome' = 'succeeded'
        RETURNING job_id)
    SELECT coalesce(array_agg(a.job_id), '{}') INTO kept FROM added AS a;
    IF kept <> '{}' THEN
        PERFORM llmq_internal.wake_settler();
    END IF;
    RETURN kept;
END
$$;

-- Takes an answer away before it is settled; what it cost is recorded.  The caller holds
-- the job row.
CREATE OR REPLACE FUNCTION llmq_internal.take_answer(taken_job uuid) RETURNS llmq.placement
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
BEGIN
    DELETE FROM llmq.answer WHERE job_id = taken_job AND NOT dead RETURNING * INTO n;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM llmq_internal.record_attempts(jsonb_build_array(n.entry));
    RETURN llmq_internal.placement(n);
END
$$;

-- What travels with a job, from its answer.
CREATE OR REPLACE FUNCTION llmq_internal.placement(n llmq.answer) RETURNS llmq.placement
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ROW(n.job_id, n.queue, n.tenant, n.priority, n.deliveries, n.counted, n.deaths)::llmq.placement
$$;

-- Puts the answer of a dead job, if it has one, before the settler again.
CREATE OR REPLACE FUNCTION llmq_internal.revive_answer(d llmq.dead_job) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE llmq.answer
    SET dead = false, failures = 0, due_at = clock_timestamp(), error_message = NULL, deaths = d.deaths
    WHERE job_id = d.job_id AND dead;
    IF FOUND THEN
        PERFORM llmq_internal.wake_settler();
        RETURN true;
    END IF;
    RETURN false;
END
$$;

-- The answers that are due, the longest first, and one row with job_id NULL and due_in:
-- microseconds until the next one is due, NULL if there is none, 0 if the limit cut the
-- list.  In a database that is a copy of another none is, until somebody says so.
CREATE OR REPLACE FUNCTION llmq_internal.settler_look(max_rows int)
RETURNS TABLE (job_id uuid, due_in bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    found_rows bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.answer AS n WHERE NOT n.dead) OR NOT llmq_internal.is_home() THEN
        RETURN QUERY SELECT NULL::uuid, NULL::bigint;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT n.job_id, NULL::bigint FROM llmq.answer AS n
        WHERE NOT n.dead AND n.due_at <= now AND llmq_internal.has_job(n.job_id)
        ORDER BY n.due_at LIMIT max_rows;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN QUERY SELECT NULL::uuid, CASE WHEN found_rows < max_rows THEN (
        SELECT llmq_internal.microseconds(min(n.due_at) - now) FROM llmq.answer AS n
        WHERE NOT n.dead AND n.due_at > now) ELSE 0 END;
END
$$;
COMMENT ON FUNCTION llmq_internal.settler_look IS 'finds the answers whose on_complete is to be run, for the settler';

-- Settles an answer, all but its on_complete, and says what that needs.  No row if the
-- answer is gone or in the hands of another (llmq.cancel), or its job is not there.
CREATE OR REPLACE FUNCTION llmq_internal.settler_settle(answered_job uuid)
RETURNS TABLE (role name, function text, argument jsonb, search_path text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
BEGIN
    SELECT * INTO n FROM llmq.answer AS k
    WHERE k.job_id = answered_job AND NOT k.dead AND k.due_at <= clock_timestamp()
        AND llmq_internal.is_home() AND llmq_internal.has_job(answered_job)
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM llmq.answer AS k WHERE k.job_id = answered_job;
    PERFORM llmq_internal.settle_now(ARRAY[llmq_internal.placement(n)], jsonb_build_array(n.entry));
    RETURN QUERY
        SELECT j.submitted_by, j.on_complete,
            jsonb_build_object('job_id', j.job_id, 'state', 'succeeded', 'text', r.text, 'json', r.json,
                'finish_reason', r.finish_reason,
                'usage', jsonb_build_object('input_tokens', r.input_tokens,
                    'output_tokens', r.output_tokens, 'cached_tokens', r.cached_tokens),
                'metadata', j.metadata, 'run_id', j.run_id, 'step', j.step),
            llmq_internal.search_path_of(j.submitted_by)
        FROM llmq.job AS j JOIN llmq.result AS r ON r.job_id = j.job_id
        WHERE j.job_id = answered_job;
END
$$;
COMMENT ON FUNCTION llmq_internal.settler_settle IS
    'settles an answer but for its on_complete, which the settler runs in the same transaction';

-- The search_path that a session of a role would begin with here; NULL: the server's own.
CREATE OR REPLACE FUNCTION llmq_internal.search_path_of(role name) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT substr(c, length('search_path=') + 1)
    FROM pg_db_role_setting AS s, unnest(s.setconfig) AS c
    WHERE starts_with(c, 'search_path=')
        AND s.setrole IN (0, to_regrole(quote_ident(role))::oid)
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC
    LIMIT 1
$$;

-- An answer could not be settled: it is tried again later, or dead when its tries, as many
-- as the job may have deliveries, are used up.  Trouble that passes, before the function
-- was called, is not counted; of what the function does everything is.
CREATE OR REPLACE FUNCTION llmq_internal.settler_fail(failed_job uuid, message text, is_counted boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n llmq.answer;
    base interval;
    cap interval;
    allowed int;
BEGIN
    PERFORM FROM llmq.job WHERE job_id = failed_job FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO n FROM llmq.answer AS k WHERE k.job_id = failed_job AND NOT k.dead FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce((j.policy ->> 'redelivery_base')::interval, q.redelivery_base, s.redelivery_base),
        coalesce((j.policy ->> 'redelivery_cap')::interval, q.redelivery_cap, s.redelivery_cap),
        least((j.policy -> 'max_deliveries')::int, coalesce(q.max_deliveries, s.max_deliveries))
    INTO base, cap, allowed
    FROM llmq.job AS j CROSS JOIN llmq.default_queue() AS s LEFT JOIN llmq.queue AS q ON q.name = n.queue
    WHERE j.job_id = failed_job;
    n.failures := n.failures + is_counted::int;
    UPDATE llmq.answer AS k
    SET failures = n.failures, dead = n.failures >= allowed, error_message = message,
        due_at = clock_timestamp() + random() * least(cap, base * 2 ^ least(n.failures - is_counted::int, 30))
    WHERE k.job_id = failed_job;
    IF n.failures >= allowed THEN
        PERFORM llmq_internal.record_attempts(jsonb_build_array(n.entry));
        PERFORM llmq_internal.bury(ARRAY[llmq_internal.placement(n)], 'callback_failed'::text, format(
            'on_complete failed %s times, the answer is kept; the last time: %s', n.failures, message),
            n.entry ->> 'text');
    END IF;
END
$$;
COMMENT ON FUNCTION llmq_internal.settler_fail IS
    'notes that an answer could not be settled: it is tried again later, or dead with class callback_failed';
