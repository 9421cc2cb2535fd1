-- Retention: deleting final jobs, messages and keys that are old enough.

-- From here on what others' triggers do is done with their rights, and at once (extension/cage.c).
CREATE OR REPLACE FUNCTION llmq_internal.cage_strangers() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_cage_1';

-- Deletes jobs of a queue, with all that belongs to them but messages that are
-- still to be sent: those go some time after they were (prune_messages).
CREATE OR REPLACE FUNCTION llmq_internal.delete_jobs(jobs uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id
    JOIN llmq.job AS j ON j.job_id = id, unnest(j.after) AS p
    WHERE d.parent = p AND d.child = id;
    DELETE FROM llmq.dependency AS d USING unnest(jobs) AS id WHERE d.parent = id;
    DELETE FROM llmq.attempt AS a USING unnest(jobs) AS id WHERE a.job_id = id;
    DELETE FROM llmq.result AS r USING unnest(jobs) AS id WHERE r.job_id = id;
    DELETE FROM llmq.answer AS n USING unnest(jobs) AS id WHERE n.job_id = id;
    DELETE FROM llmq.dead_job AS d USING unnest(jobs) AS id WHERE d.job_id = id;
    DELETE FROM llmq.cancelled_job AS c USING unnest(jobs) AS id WHERE c.job_id = id;
    DELETE FROM llmq.kept_job AS k USING unnest(jobs) AS id WHERE k.job_id = id;
    PERFORM llmq_internal.delete_done(ARRAY(SELECT m.id FROM llmq.message AS m WHERE m.job_id = ANY (jobs)));
    DELETE FROM llmq.job AS j USING unnest(jobs) AS id WHERE j.job_id = id;
END
$$;

-- Whether an error is the server's: what is tried next would fare no better.
CREATE OR REPLACE FUNCTION llmq_internal.is_servers_trouble(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT state ~ '^(25006|53|57|58)' $$;

-- Whether it is somebody's who will be done some time: a deadlock, a lock that was not to be had.
CREATE OR REPLACE FUNCTION llmq_internal.is_contention(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT state ~ '^(40|55)' $$;

-- The same one by one where something of a user's, a foreign key or a trigger, keeps some of them,
-- whatever error it raises.  Returns how many were deleted; NULL if somebody is in the way just now:
-- one by one each would wait for him again.
CREATE OR REPLACE FUNCTION llmq_internal.try_delete_jobs(jobs uuid[]) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    job uuid;
    count int := 0;
BEGIN
    PERFORM llmq_internal.delete_jobs(jobs);
    RETURN cardinality(jobs);
EXCEPTION WHEN OTHERS THEN
    IF llmq_internal.is_servers_trouble(SQLSTATE) THEN
        RAISE;
    ELSIF llmq_internal.is_contention(SQLSTATE) THEN
        RETURN NULL;
    END IF;
    IF cardinality(jobs) = 1 THEN
        INSERT INTO llmq.kept_job AS k (job_id, error) VALUES (jobs[1], SQLERRM)
        ON CONFLICT (job_id) DO UPDATE SET tried_at = EXCLUDED.tried_at, error = EXCLUDED.error;
        RAISE WARNING USING
            MESSAGE = format('job %s is older than its queue''s retention and cannot be deleted', jobs[1]),
            DETAIL = SQLERRM;
        RETURN 0;
    END IF;
    FOREACH job IN ARRAY jobs LOOP
        count := count + llmq_internal.try_delete_jobs(ARRAY[job]);
        EXIT WHEN count IS NULL;
    END LOOP;
    RETURN count;
END
$$;

-- Whether a job could not be deleted at that time or later.
CREATE OR REPLACE FUNCTION llmq_internal.was_kept(job uuid, since timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM llmq.kept_job AS k WHERE k.job_id = job AND k.tried_at >= since);
END
$$;

-- The queues that final jobs belong to, also queues that are not there any more.
CREATE OR REPLACE FUNCTION llmq_internal.final_queues() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE q (name) AS (
        SELECT min(queue) FROM llmq.result
        UNION ALL
        SELECT (SELECT min(r.queue) FROM llmq.result AS r WHERE r.queue > q.name)
        FROM q WHERE q.name IS NOT NULL
    )
    SELECT name FROM q WHERE name IS NOT NULL
    UNION SELECT DISTINCT queue FROM llmq.dead_job
    UNION SELECT DISTINCT queue FROM llmq.cancelled_job
$$;

-- A bite of retention: up to `bite` jobs of each kind of a queue.  Jobs that could not be deleted since
-- kept_since are left alone: each would only warn again, and hold up those behind it.  So is what has no
-- job, which may be still to come.
CREATE OR REPLACE FUNCTION llmq_internal.prune_queue(
    of_queue text, kept_since timestamptz, bite int, OUT tried int, OUT deleted bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.queue := llmq.default_queue();
    cutoff constant timestamptz := clock_timestamp() - coalesce(
        (SELECT q.retention FROM llmq.queue AS q WHERE q.name = of_queue), standard.retention);
    old constant uuid[] := ARRAY(
        SELECT r.job_id FROM llmq.result AS r
        WHERE r.queue = of_queue AND r.created_at < cutoff AND NOT llmq_internal.is_awaited(r.job_id)
            AND NOT llmq_internal.was_kept(r.job_id, kept_since) AND llmq_internal.has_job(r.job_id)
        ORDER BY r.created_at LIMIT bite FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT d.job_id FROM llmq.dead_job AS d
        WHERE d.queue = of_queue AND d.died_at < cutoff AND NOT llmq_internal.is_awaited(d.job_id)
            AND NOT llmq_internal.was_kept(d.job_id, kept_since) AND llmq_internal.has_job(d.job_id)
        ORDER BY d.died_at LIMIT bite FOR UPDATE SKIP LOCKED) || ARRAY(
        SELECT c.job_id FROM llmq.cancelled_job AS c
        WHERE c.queue = of_queue AND c.cancelled_at < cutoff AND NOT llmq_internal.was_kept(c.job_id, kept_since)
            AND llmq_internal.has_job(c.job_id)
        ORDER BY c.cancelled_at LIMIT bite FOR UPDATE SKIP LOCKED);
BEGIN
    tried := cardinality(old);
    deleted := CASE WHEN tried > 0 THEN llmq_internal.try_delete_jobs(old) ELSE 0 END;
END
$$;

-- The same of messages and keys, which belong to no queue.  A time that is the same for all can be
-- looked up in an index: what was sent, or has been dead, for the retention of the queue "default"
-- goes, if its job did not take it along before.  What something of a user's keeps here stays
-- with all of its bite, and the log says why.
CREATE OR REPLACE FUNCTION llmq_internal.prune_others(bite int, OUT tried int, OUT deleted bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    standard constant llmq.queue := llmq.default_queue();
    cutoff constant timestamptz := clock_timestamp() - coalesce(
        (SELECT q.retention FROM llmq.queue AS q WHERE q.name = 'default'), standard.retention);
BEGIN
    deleted := llmq.prune_idempotency(bite);
    BEGIN
        deleted := deleted + llmq_internal.prune_messages(cutoff, bite);
    EXCEPTION WHEN OTHERS THEN
        IF llmq_internal.is_servers_trouble(SQLSTATE) THEN
            RAISE;
        ELSIF NOT llmq_internal.is_contention(SQLSTATE) THEN
            RAISE WARNING 'messages older than the retention of queue "default" cannot be deleted' USING DETAIL = SQLERRM;
        END IF;
    END;
    tried := deleted;
END
$$;

-- One bounded step of retention: up to 1,000 jobs of each kind and queue, and as many messages and
-- keys.  With max_time in smaller bites, as many as it has room for, and only the last may take
-- longer: the worker can do nothing else meanwhile, and what a deletion costs with a user's triggers
-- and foreign keys nobody knows.  Each queue has its turn at random, since time may end before
-- the last one.  Returns how many were deleted, and at least 1 if time was up.
CREATE OR REPLACE FUNCTION llmq_internal.prune_step(max_time interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    most constant int := 1000;
    day constant interval := '1 day'; -- what was kept is tried once a day, or when a user asks
    until constant timestamptz := clock_timestamp() + max_time;
    kept_since constant timestamptz := coalesce(until - day, 'infinity');
    of_queue text;
    remaining int;
    bite int;
    began timestamptz;
    tried int;
    deleted bigint;
    count bigint := 0;
BEGIN
    FOR of_queue IN
        SELECT u.name FROM (SELECT llmq_internal.final_queues() UNION ALL SELECT NULL) AS u (name) ORDER BY random()
    LOOP
        remaining := most;
        bite := CASE WHEN until IS NULL THEN most ELSE 1 END;
        LOOP
            began := clock_timestamp();
            IF of_queue IS NULL THEN
                SELECT o.tried, o.deleted INTO tried, deleted FROM llmq_internal.prune_others(bite) AS o;
            ELSE
                SELECT q.tried, q.deleted INTO tried, deleted
                FROM llmq_internal.prune_queue(of_queue, kept_since, bite) AS q;
            END IF;
            IF deleted IS NULL THEN
                RETURN count;
            END IF;
            count := count + deleted;
            remaining := remaining - bite;
            EXIT WHEN remaining <= 0 OR tried = 0;
            IF clock_timestamp() >= until THEN
                RETURN greatest(count, 1);
            END IF;
            bite := CASE WHEN clock_timestamp() - began < max_time / 10
                THEN least(bite * 2, remaining) ELSE 1 END;
        END LOOP;
    END LOOP;
    RETURN count;
END
$$;

CREATE OR REPLACE FUNCTION llmq.prune() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq_internal.cage_strangers();
    RETURN llmq_internal.prune_step(NULL::interval);
END
$$;
COMMENT ON FUNCTION llmq.prune() IS
    'deletes final jobs older than their queue''s retention with their finished messages, messages finished before the retention of the queue "default", and expired keys and checkpoints, in one bounded step; returns how many, 0 when none are left; the worker does so too';
