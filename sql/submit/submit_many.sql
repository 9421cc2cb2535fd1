-- Submitting in bulk: the same rules, in one call for many jobs.

-- A job from a JSON object with names among `names`, those of llmq.submit.  JSON's
-- null is as good as absent.
CREATE OR REPLACE FUNCTION llmq_internal.job_of_json(source jsonb, names text[]) RETURNS llmq.job
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job llmq.job;
    type text;
BEGIN
    IF jsonb_typeof(source) IS DISTINCT FROM 'object' THEN
        PERFORM llmq_internal.fail('PT400', 'a job must be a JSON object',
            format('It is of type %s.', coalesce(jsonb_typeof(source), 'NULL')),
            'For example: {"prompt": "Hello"}.');
    ELSIF source - names <> '{}' THEN
        PERFORM llmq_internal.fail('PT400', format('a job cannot have "%s"', (
                SELECT key FROM jsonb_object_keys(source - names) AS key LIMIT 1)), NULL,
            format('It may have %s.', array_to_string(names, ', ')));
    END IF;
    -- What populate would turn into a text without asking.
    FOREACH type IN ARRAY '{prompt, system, model, idempotency_key, tenant, queue, run_id, step, on_complete,
        run_at, expires_at}'::text[] LOOP
        IF jsonb_typeof(source -> type) NOT IN ('string', 'null') THEN
            PERFORM llmq_internal.fail('PT400', format('%s must be a string', type),
                format('It is of type %s.', jsonb_typeof(source -> type)), 'Put it in quotation marks.');
        END IF;
    END LOOP;
    job := jsonb_populate_record(NULL::llmq.job, source);
    job.queue := coalesce(job.queue, 'default');
    job.priority := coalesce(job.priority, 0);
    RETURN job;
END
$$;

-- The jobs of an array, all in order; an error names the element, counted from 0.
-- The subtransaction of this block writes nothing, so it takes no transaction id.
CREATE OR REPLACE FUNCTION llmq_internal.prepare_jobs(caller name, jobs jsonb) RETURNS llmq.job[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
DECLARE
    names constant text[] := '{prompt, idempotency_key, queue, tenant, system, messages, model, params,
        metadata, outbox, on_complete, run_at, priority, expires_at, after, run_id, step, policy}';
    index int := 0;
    element jsonb;
    job llmq.job;
    prepared llmq.job[] := '{}';
    any_after boolean := false;
    circle int[];
    problem text;
    detail text;
    hint text;
BEGIN
    FOR element IN SELECT e FROM jsonb_array_elements(jobs) AS e LOOP
        job := llmq_internal.job_of_json(element, names);
        IF job.on_complete IS NOT NULL THEN
            job.on_complete := llmq_internal.callback_name(llmq_internal.find_callback(job.on_complete), caller);
        END IF;
        prepared := array_append(prepared, llmq_internal.prepare_job(job, caller, 'submit'));
        any_after := any_after OR job.after IS NOT NULL;
        index := index + 1;
    END LOOP;
    circle := CASE WHEN any_after THEN llmq_internal.find_circle(prepared) END;
    IF circle IS NOT NULL THEN
        index := circle[1];
        PERFORM llmq_internal.fail('PT400', 'the job would come after itself, and never run',
            format('Each of these elements comes after the next: %s.', array_to_string(circle || index, ', ')),
            'Take one of them out of the "after" of another.');
    END IF;
    RETURN prepared;
EXCEPTION WHEN data_exception OR feature_not_supported OR SQLSTATE 'PT400' OR SQLSTATE 'PT402'
    OR SQLSTATE 'PT403' OR SQLSTATE 'PT404' OR SQLSTATE 'PT429' THEN
    GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    PERFORM llmq_internal.fail(CASE WHEN SQLSTATE LIKE '22%' THEN 'PT400' ELSE SQLSTATE END,
        format('element %s: %s', index, problem), nullif(detail, ''),
        coalesce(nullif(hint, ''), 'Give each argument as llmq.submit takes it.'));
END
$$;

-- Elements, counted from 0, of which each comes after the next and the last after the first; NULL
-- if there are none.  Only jobs of one call can be so: all others come after what is there.
-- Where parents stand before their children there is nothing to walk.  Else it walks from child
-- to parent, by arrays: each job and each edge is looked at once, whatever the graph.
CREATE OR REPLACE FUNCTION llmq_internal.find_circle(jobs llmq.job[]) RETURNS int[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET enable_nestloop = off -- arrays are taken for short
AS $$
DECLARE
    children int[]; -- of each edge, in order; positions count from 1 here
    parents int[];
    unordered boolean;
    edges int[] := array_fill(NULL::int, ARRAY[cardinality(jobs)]); -- of each job: its next
    depths int[] := array_fill(0, ARRAY[cardinality(jobs)]); -- where on the path; 0: not seen, -1: done
    path int[];
    depth int;
    root int;
    job int;
    parent int;
BEGIN
    SELECT array_agg(e.child ORDER BY e.child), array_agg(e.parent ORDER BY e.child), bool_or(e.parent >= e.child)
    INTO children, parents, unordered
    FROM (
        SELECT c.ordinality::int AS child, min(p.ordinality)::int AS parent
        FROM unnest(jobs) WITH ORDINALITY AS c CROSS JOIN unnest(c.after) AS a (job_id)
        JOIN unnest(jobs) WITH ORDINALITY AS p ON p.job_id = a.job_id
        GROUP BY c.ordinality, a.job_id) AS e;
    IF unordered IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    FOR i IN REVERSE cardinality(children) .. 1 LOOP
        edges[children[i]] := i;
    END LOOP;
    FOREACH root IN ARRAY children LOOP
        path[1] := root;
        depth := CASE depths[root] WHEN 0 THEN 1 ELSE 0 END;
        WHILE depth > 0 LOOP
            job := path[depth];
            depths[job] := depth;
            parent := CASE WHEN children[edges[job]] = job THEN parents[edges[job]] END;
            edges[job] := edges[job] + 1;
            IF parent IS NULL THEN
                depths[job] := -1;
                depth := depth - 1;
            ELSIF depths[parent] > 0 THEN
                RETURN ARRAY(SELECT p - 1 FROM unnest(path[depths[parent] : depth]) AS p);
            ELSIF depths[parent] = 0 THEN
                depth := depth + 1;
                path[depth] := parent;
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.submit_many_as(caller name, jobs jsonb) RETURNS SETOF llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked llmq.job[];
    fresh uuid[];
    added llmq.job[];
    now timestamptz;
BEGIN
    IF jsonb_typeof(jobs) IS DISTINCT FROM 'array' THEN
        PERFORM llmq_internal.fail('PT400', 'jobs must be a JSON array of objects',
            format('It is of type %s.', coalesce(jsonb_typeof(jobs), 'NULL')),
            'For example: [{"prompt": "Hello", "idempotency_key": "greeting-1"}].');
    END IF;
    asked := llmq_internal.prepare_jobs(caller, jobs);
    IF asked <> '{}' THEN
        PERFORM llmq_internal.note_home();
    END IF;
    fresh := llmq_internal.insert_jobs(asked, true);
    IF cardinality(fresh) = cardinality(asked) THEN
        added := asked;
    ELSE
        PERFORM llmq_internal.check_replays(asked, true);
        added := llmq_internal.first_of_each(asked, fresh);
    END IF;
    now := clock_timestamp();
    IF cardinality(added) > 0 THEN
        PERFORM llmq_internal.place_new(added, now);
    END IF;
    RETURN QUERY
        SELECT j.job_id,
            CASE WHEN j.is_new THEN llmq_internal.first_state(j.after, j.run_at, now) ELSE llmq_internal.state(j.job_id) END,
            NOT j.is_new
        FROM (
            SELECT u.job_id, u.after, u.run_at, u.ordinality,
                f.job_id IS NOT NULL AND row_number() OVER (PARTITION BY u.job_id ORDER BY u.ordinality) = 1
                    AS is_new
            FROM unnest(asked) WITH ORDINALITY AS u LEFT JOIN unnest(fresh) AS f (job_id) ON f.job_id = u.job_id
        ) AS j
        ORDER BY j.job_id, j.ordinality;
END
$$;

-- The jobs with these ids, in their order; of several with one id the first.
CREATE OR REPLACE FUNCTION llmq_internal.first_of_each(jobs llmq.job[], ids uuid[]) RETURNS llmq.job[]
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(jobs[n.first] ORDER BY n.first), '{}')
        FROM (
            SELECT min(u.ordinality)::int AS first
            FROM unnest(jobs) WITH ORDINALITY AS u JOIN unnest(ids) AS i (job_id) ON i.job_id = u.job_id
            GROUP BY u.job_id) AS n);
END
$$;

CREATE OR REPLACE FUNCTION llmq.submit_many(jobs jsonb) RETURNS SETOF llmq.submission
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.submit_many IS
    'submits an array of objects with the arguments of llmq.submit, all or none; the rows come in the order of job_id. An error names the element of the array, counted from 0';
