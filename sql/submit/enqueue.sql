-- Enqueuing jobs that are in order, in the caller's own transaction: their keys first,
-- then their places, or the answer that the key is known.

-- Inserts jobs whose keys are free, in the order of their ids so that two bulk
-- submits cannot deadlock, and returns those ids.  In C for its key wait: another open
-- transaction that holds a key is waited for, at most max(llmq.key_wait, 50 ms), and
-- then reported as PT409; with `bulk` it names the job's index.
CREATE OR REPLACE FUNCTION llmq_internal.insert_jobs(jobs llmq.job[], bulk boolean DEFAULT false) RETURNS uuid[]
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

-- The filter stands above the sort, so it is asked row by row as rows are inserted.
CREATE OR REPLACE FUNCTION llmq_internal.insert_jobs_now(jobs llmq.job[], bulk boolean) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
AS $$
DECLARE
    ids uuid[];
BEGIN
    WITH added AS (
        INSERT INTO llmq.job AS k (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority,
            prompt, system, messages, model, params, metadata, outbox, on_complete, run_at, expires_at,
            after, run_id, step, policy, submitted_by, submitted_at)
        SELECT j.job_id, j.tenant, j.scope, j.idempotency_key, j.fingerprint, j.queue, j.priority,
            j.prompt, j.system, j.messages, j.model, j.params, j.metadata, j.outbox, j.on_complete,
            j.run_at, j.expires_at, j.after, j.run_id, j.step, j.policy, j.submitted_by,
            j.submitted_at
        FROM (SELECT u.* FROM unnest(jobs) WITH ORDINALITY AS u ORDER BY u.job_id, u.ordinality) AS j
        WHERE NOT bulk OR llmq_internal.note_element(j.ordinality - 1)
        ON CONFLICT (job_id) DO NOTHING
        RETURNING k.job_id)
    SELECT coalesce(array_agg(a.job_id), '{}') INTO ids FROM added AS a;
    RETURN ids;
END
$$;

-- The same for one job, in a third of the time; false: its key is not free.
CREATE OR REPLACE FUNCTION llmq_internal.insert_job(job llmq.job) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_key_wait_1';

CREATE OR REPLACE FUNCTION llmq_internal.insert_job_now(job llmq.job) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
AS $$
BEGIN
    INSERT INTO llmq.job SELECT job.* ON CONFLICT (job_id) DO NOTHING;
    RETURN FOUND;
END
$$;

-- True; notes which element of a bulk submit is inserted next.
CREATE OR REPLACE FUNCTION llmq_internal.note_element(index bigint) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_note_element_1';

-- Where a job that is new at `now` first belongs.
CREATE OR REPLACE FUNCTION llmq_internal.first_state(after uuid[], run_at timestamptz, now timestamptz)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN after IS NOT NULL THEN 'blocked' WHEN run_at > now THEN 'scheduled' ELSE 'ready' END
$$;

-- Puts new jobs where they first belong, in their order, and has a worker look.
CREATE OR REPLACE FUNCTION llmq_internal.place_new(jobs llmq.job[], now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    placed bigint;
BEGIN
    INSERT INTO llmq.ready (job_id, queue, tenant, priority)
    SELECT j.job_id, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j
    WHERE llmq_internal.first_state(j.after, j.run_at, place_new.now) = 'ready';
    GET DIAGNOSTICS placed = ROW_COUNT;
    IF placed < cardinality(jobs) THEN
        INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
        SELECT j.job_id, j.run_at, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j
        WHERE llmq_internal.first_state(j.after, j.run_at, place_new.now) = 'scheduled';
        PERFORM llmq_internal.place_dependents(jobs);
    END IF;
    PERFORM llmq_internal.wake_at_commit();
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.wake_at_commit() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_wake_at_commit_1';

-- Refuses jobs whose key was used for another request; with `bulk`, by their index.
CREATE OR REPLACE FUNCTION llmq_internal.check_replays(jobs llmq.job[], bulk boolean) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    asked record;
    label text;
BEGIN
    SELECT j.*, k.fingerprint AS kept INTO asked
    FROM unnest(jobs) WITH ORDINALITY AS j LEFT JOIN llmq.job AS k ON k.job_id = j.job_id
    WHERE k.fingerprint IS DISTINCT FROM j.fingerprint
    ORDER BY j.ordinality LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    label := CASE WHEN bulk THEN format('element %s: ', asked.ordinality - 1) ELSE '' END;
    IF asked.kept IS NULL THEN
        -- Pruned between our insert and our look.
        PERFORM llmq_internal.fail('PT409', label || format('idempotency key "%s" is changing hands', asked.idempotency_key),
            'Its job was just deleted.', 'Retry after a second.');
    END IF;
    PERFORM llmq_internal.fail('PT422',
        label || format('idempotency key "%s" was used with another request', asked.idempotency_key),
        format('Job %s was submitted under it.', asked.job_id),
        'Send the same request again to get its answer, or choose a new key for a new request.');
END
$$;

-- Enqueues one job that is in order, or finds it there.
CREATE OR REPLACE FUNCTION llmq_internal.enqueue(job llmq.job) RETURNS llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    now timestamptz;
    first text;
BEGIN
    PERFORM llmq_internal.note_home();
    IF NOT llmq_internal.insert_job(job) THEN
        PERFORM llmq_internal.check_replays(ARRAY[job], false);
        RETURN ROW(job.job_id, llmq_internal.state(job.job_id), true)::llmq.submission;
    END IF;
    now := clock_timestamp();
    first := llmq_internal.first_state(job.after, job.run_at, now);
    IF first = 'ready' THEN -- what place_new does, in a third of the time
        INSERT INTO llmq.ready (job_id, queue, tenant, priority)
        VALUES (job.job_id, job.queue, job.tenant, job.priority);
        PERFORM llmq_internal.wake_at_commit();
    ELSE
        PERFORM llmq_internal.place_new(ARRAY[job], now);
    END IF;
    RETURN ROW(job.job_id, first, false)::llmq.submission;
END
$$;
