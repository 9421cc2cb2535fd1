-- Jobs that come after others.
--
-- A parent that succeeds releases its children in the transaction that settles
-- it, and a child is looked at once more after its own commit (`fresh`): of a
-- parent that settles while the child's transaction is open, one of the two looks
-- sees both.  A child's row in llmq.blocked is locked before its parents are
-- counted, so that the last of several parents that settle at once counts all.

-- Puts new jobs that come after others into llmq.blocked, and checks that the
-- others are there and the submitter's to wait for.
CREATE OR REPLACE FUNCTION llmq_internal.place_dependents(jobs llmq.job[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    missing record;
BEGIN
    SELECT j.submitted_by, p.parent INTO missing
    FROM unnest(jobs) AS j, unnest(j.after) AS p (parent)
    WHERE p.parent = j.job_id OR NOT EXISTS (
        SELECT FROM llmq.job AS k
        WHERE k.job_id = p.parent
            AND pg_has_role(j.submitted_by, llmq_internal.submitter_role(k.submitted_by), 'MEMBER'))
    LIMIT 1;
    IF FOUND THEN
        PERFORM llmq_internal.fail('PT404', format('there is no job %s to come after', missing.parent),
            format('None that "%s", or a role it is a member of, has submitted.', missing.submitted_by),
            'Submit the parents first, in the same transaction at the latest.');
    END IF;
    INSERT INTO llmq.dependency (parent, child)
    SELECT DISTINCT p.parent, j.job_id FROM unnest(jobs) AS j, unnest(j.after) AS p (parent);
    INSERT INTO llmq.blocked (job_id, queue, tenant, priority)
    SELECT j.job_id, j.queue, j.tenant, j.priority FROM unnest(jobs) AS j WHERE j.after IS NOT NULL;
END
$$;

-- Whether a blocked job still waits for this one; or may again, for this one's success, when
-- what it died of is redriven.
CREATE OR REPLACE FUNCTION llmq_internal.is_awaited(parent_job uuid) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM llmq.dependency AS d JOIN llmq.blocked AS b ON b.job_id = d.child
        WHERE d.parent = parent_job)
    OR EXISTS (
        SELECT FROM llmq.dependency AS d JOIN llmq.dead_job AS k ON k.job_id = d.child
        JOIN llmq.result AS r ON r.job_id = d.parent
        WHERE d.parent = parent_job AND k.error_class = 'dependency_failed')
$$;

-- Moves a blocked job on, if its parents are final: to ready or deferred when all
-- have succeeded, to its death when one has not.  The caller holds its row, and
-- looks at those that come after a child that died, which is returned.
CREATE OR REPLACE FUNCTION llmq_internal.unblock(child_job uuid) RETURNS llmq.placement[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    j llmq.job;
    failed uuid;
    place llmq.placement;
BEGIN
    SELECT * INTO j FROM llmq.job AS k WHERE k.job_id = child_job;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Arrays of ids, not joins: these use the indexes whatever the statistics say.
    failed := (
        SELECT d.job_id FROM llmq.dead_job AS d WHERE d.job_id = ANY (j.after)
        UNION ALL
        SELECT c.job_id FROM llmq.cancelled_job AS c WHERE c.job_id = ANY (j.after)
        UNION ALL
        SELECT p FROM unnest(j.after) AS p
        WHERE p <> ALL (ARRAY(SELECT k.job_id FROM llmq.job AS k WHERE k.job_id = ANY (j.after)))
        LIMIT 1);
    IF failed IS NULL AND EXISTS (
        SELECT FROM unnest(j.after) AS p
        WHERE p <> ALL (ARRAY(SELECT r.job_id FROM llmq.result AS r WHERE r.job_id = ANY (j.after))))
    THEN
        UPDATE llmq.blocked SET fresh = false WHERE job_id = child_job AND fresh;
        RETURN NULL;
    END IF;
    DELETE FROM llmq.blocked WHERE job_id = child_job
    RETURNING job_id, queue, tenant, priority, deliveries, counted, deaths INTO place;
    PERFORM llmq_internal.wake_worker();
    IF failed IS NOT NULL THEN
        RETURN llmq_internal.bury_alone(ARRAY[place], 'dependency_failed'::text,
            format('job %s, which it comes after, did not succeed', failed), NULL::text);
    ELSIF j.run_at > clock_timestamp() THEN
        INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths, due_at)
        SELECT (place).*, j.run_at;
    ELSE
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        SELECT (place).*;
    END IF;
    RETURN NULL;
END
$$;

-- Jobs are final: looks at the children that wait for them, and at theirs if they die of
-- it.  A loop: chains can be longer than the stack is deep.  What is beyond `most` is left
-- to the worker's next look.
CREATE OR REPLACE FUNCTION llmq_internal.release_dependents(parents llmq.placement[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    most constant int := 1000;
    seen int := 0;
    wave llmq.placement[] := parents;
    died llmq.placement[];
    child_job uuid;
BEGIN
    WHILE wave <> '{}' LOOP
        died := '{}';
        FOR child_job IN
            SELECT DISTINCT d.child
            FROM llmq.dependency AS d
            WHERE d.parent = ANY (ARRAY(SELECT p.job_id FROM unnest(wave) AS p))
            ORDER BY d.child
        LOOP
            PERFORM FROM llmq.blocked WHERE job_id = child_job FOR UPDATE;
            IF FOUND AND seen < most THEN
                seen := seen + 1;
                died := died || llmq_internal.unblock(child_job);
            ELSIF FOUND THEN
                UPDATE llmq.blocked SET fresh = true WHERE job_id = child_job;
                PERFORM llmq_internal.wake_worker();
            END IF;
        END LOOP;
        wave := died;
    END LOOP;
END
$$;

-- A job was redriven: children that died of its death wait for it again, and theirs.
CREATE OR REPLACE FUNCTION llmq_internal.revive_dependents(parent_job uuid) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wave uuid[] := ARRAY[parent_job];
    revived uuid[];
    child_job uuid;
BEGIN
    WHILE wave <> '{}' LOOP
        revived := '{}';
        FOR child_job IN
            SELECT DISTINCT d.child
            FROM llmq.dependency AS d JOIN llmq.dead_job AS k ON k.job_id = d.child
            WHERE d.parent = ANY (wave) AND k.error_class = 'dependency_failed'
            ORDER BY d.child
        LOOP
            IF llmq_internal.redrive_alone(child_job) THEN
                revived := revived || child_job;
            END IF;
        END LOOP;
        wave := revived;
    END LOOP;
END
$$;

-- Looks at blocked jobs for the first time after their commit.  A parent whose row is
-- locked is about to move: then the child is left for the next look.  Returns
-- whether any was left.
CREATE OR REPLACE FUNCTION llmq_internal.resolve_fresh(max_rows int) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    child_job uuid;
    died llmq.placement[];
    any_left boolean := false;
BEGIN
    FOR child_job IN
        SELECT b.job_id FROM llmq.blocked AS b
        WHERE b.fresh AND llmq_internal.has_job(b.job_id)
        ORDER BY b.job_id LIMIT max_rows FOR UPDATE SKIP LOCKED
    LOOP
        IF llmq_internal.parents_move(child_job) THEN
            any_left := true;
        ELSE
            died := died || llmq_internal.unblock(child_job);
        END IF;
    END LOOP;
    PERFORM llmq_internal.release_dependents(died);
    RETURN any_left;
END
$$;

-- Whether a transaction is just now taking a parent of a job from its place.  If not,
-- those that come later will wait for this transaction, and see the child.
CREATE OR REPLACE FUNCTION llmq_internal.parents_move(child_job uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parents uuid[] := (SELECT j.after FROM llmq.job AS j WHERE j.job_id = child_job);
    free uuid[];
BEGIN
    free := ARRAY(SELECT l.job_id FROM llmq.lease AS l WHERE l.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT r.job_id FROM llmq.ready AS r WHERE r.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT d.job_id FROM llmq.deferred AS d WHERE d.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT b.job_id FROM llmq.blocked AS b WHERE b.job_id = ANY (parents) FOR UPDATE SKIP LOCKED)
        || ARRAY(SELECT n.job_id FROM llmq.answer AS n WHERE n.job_id = ANY (parents) AND NOT n.dead FOR UPDATE SKIP LOCKED);
    RETURN EXISTS (
        SELECT FROM llmq.job_place AS q
        WHERE q.job_id = ANY (parents) AND q.job_id <> ALL (free)
            AND q.place IN ('lease', 'ready', 'deferred', 'blocked', 'answer'));
END
$$;
