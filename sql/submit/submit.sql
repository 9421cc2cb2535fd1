-- Submitting: what a job must be, and llmq.submit.  Functions whose names end in _as pin
-- the search_path; the others run under it.

-- Finds the policy of a queue that jobs may be submitted to.
CREATE OR REPLACE FUNCTION llmq_internal.find_queue(queue text) RETURNS llmq.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    q llmq.queue;
BEGIN
    IF find_queue.queue IS NULL THEN
        PERFORM llmq_internal.fail('PT400', 'queue must not be NULL', NULL,
            'Leave it out for the queue "default".');
    END IF;
    SELECT * INTO q FROM llmq.queue AS k WHERE k.name = find_queue.queue;
    IF NOT FOUND THEN
        IF find_queue.queue <> 'default' THEN
            PERFORM llmq_internal.fail('PT404', format('there is no queue "%s"', find_queue.queue), NULL,
                format('INSERT INTO llmq.queue (name) VALUES (%L) makes it.', find_queue.queue));
        END IF;
        q := llmq.default_queue();
    END IF;
    RETURN q;
END
$$;

-- The fingerprint of a request: what must be the same under the same key.  What it is made
-- of never changes; extension/fingerprint.c says how.
CREATE OR REPLACE FUNCTION llmq_internal.fingerprint(
    queue text, prompt text, system text, messages jsonb, model text, params jsonb, metadata jsonb,
    outbox jsonb, on_complete text, after uuid[], run_id text, step text, policy jsonb)
RETURNS bytea
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_fingerprint_1';

-- The tenant and the queue of a job: both must be there, and open to the caller.  Only
-- jobs of which that is not plain come here.  A queue with max_ready is full when a
-- worker has last seen that many jobs ready; a key that is known gets its answer even so.
CREATE OR REPLACE FUNCTION llmq_internal.check_place(job llmq.job) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    room int;
    depth bigint;
BEGIN
    IF job.tenant <> job.submitted_by THEN
        PERFORM llmq_internal.check_tenant(job.submitted_by, job.tenant);
    END IF;
    IF EXISTS (SELECT FROM llmq.budget AS b WHERE b.hard) THEN
        PERFORM llmq_internal.check_budget(job);
    END IF;
    SELECT q.max_ready INTO room FROM llmq.queue AS q WHERE q.name = job.queue;
    IF NOT FOUND AND job.queue IS DISTINCT FROM 'default' THEN
        PERFORM llmq_internal.find_queue(job.queue);
    ELSIF room IS NOT NULL THEN
        SELECT d.ready INTO depth FROM llmq.queue_depth AS d WHERE d.queue = job.queue;
        IF depth >= room AND NOT EXISTS (SELECT FROM llmq.job AS k WHERE k.job_id = job.job_id) THEN
            PERFORM llmq_internal.fail('PT429', format('queue "%s" is full', job.queue),
                format('%s jobs are ready, it takes %s.', depth, room),
                'Submit again when some have run; Retry-After: 1 is a good start.');
        END IF;
    END IF;
END
$$;

-- Refuses a job that is not in order, in itself.  Asks before it calls: most jobs have
-- little to check, and a bulk submit comes here ten thousand times a second.
CREATE OR REPLACE FUNCTION llmq_internal.check_job(job llmq.job) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    IF job.messages IS NOT NULL OR job.params IS NOT NULL OR coalesce(job.prompt, '') = '' THEN
        PERFORM llmq_internal.check_prompt(job.prompt, job.messages, job.params);
    END IF;
    IF job.params IS NOT NULL THEN
        PERFORM llmq_internal.check_params(job.params);
    END IF;
    IF job.policy IS NOT NULL THEN
        PERFORM llmq_internal.check_policy(job.policy, llmq_internal.find_queue(job.queue));
    END IF;
    IF job.outbox IS NOT NULL THEN
        PERFORM llmq_internal.check_outbox(job.outbox, job.job_id);
    END IF;
    IF coalesce(job.model, job.run_id, job.step) IS NOT NULL THEN
        PERFORM llmq_internal.check_length('model', job.model, 255), llmq_internal.check_length('run_id', job.run_id, 255),
            llmq_internal.check_length('step', job.step, 255);
    END IF;
    IF job.after IS NOT NULL AND (cardinality(job.after) NOT BETWEEN 1 AND 1000
        OR array_ndims(job.after) > 1 OR array_position(job.after, NULL) IS NOT NULL) THEN
        PERFORM llmq_internal.fail('PT400', 'after must name 1 to 1000 jobs',
            format('It is %s.', left(job.after::text, 200)), 'Leave it out for a job that waits for none.');
    END IF;
END
$$;

-- A job as it was asked for becomes one that can be enqueued: it is in order, and
-- knows its id and its fingerprint.
CREATE OR REPLACE FUNCTION llmq_internal.prepare_job(job llmq.job, caller name, scope text) RETURNS llmq.job
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    -- Asks before it calls: a call with PERFORM costs as much as all this.
    IF (length(job.idempotency_key) BETWEEN 1 AND 255 AND job.idempotency_key !~ '[[:cntrl:]]') IS NOT TRUE THEN
        PERFORM llmq_internal.check_key(job.idempotency_key);
    END IF;
    IF job.priority IS DISTINCT FROM 0 OR job.run_at IS NOT NULL OR job.expires_at IS NOT NULL THEN
        PERFORM llmq_internal.check_schedule(job.run_at, job.expires_at, job.priority::int);
    END IF;
    job.scope := scope;
    job.submitted_by := caller;
    job.submitted_at := clock_timestamp();
    IF job.tenant IS NULL THEN
        job.tenant := caller;
    END IF;
    job.job_id := llmq.job_id(job.tenant, scope, job.idempotency_key);
    IF job.tenant <> caller OR EXISTS (SELECT FROM llmq.budget AS b WHERE b.hard)
        OR coalesce((SELECT q.max_ready IS NOT NULL FROM llmq.queue AS q WHERE q.name = job.queue),
            job.queue IS DISTINCT FROM 'default') THEN
        PERFORM llmq_internal.check_place(job);
    END IF;
    IF coalesce(job.prompt, '') = '' OR num_nonnulls(job.messages, job.params, job.policy, job.outbox, job.model,
        job.run_id, job.step, job.after) > 0 THEN
        PERFORM llmq_internal.check_job(job);
    END IF;
    job.fingerprint := llmq_internal.fingerprint(job.queue, job.prompt, job.system, job.messages, job.model,
        job.params, job.metadata, job.outbox, job.on_complete, job.after, job.run_id, job.step, job.policy);
    RETURN job;
END
$$;

-- Submits for `caller`, as llmq's owner; llmq.submit is the way here.
CREATE OR REPLACE FUNCTION llmq_internal.submit_as(
    caller name, prompt text, idempotency_key text, queue text, tenant text, system text,
    messages jsonb, model text, params jsonb, metadata jsonb, outbox jsonb, on_complete regproc,
    run_at timestamptz, priority int, expires_at timestamptz, after uuid[], run_id text, step text,
    policy jsonb)
RETURNS llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A row at once: each expression costs a microsecond of every transaction.
    RETURN llmq_internal.enqueue(llmq_internal.prepare_job(ROW(
        NULL, tenant, 'submit', idempotency_key, NULL, queue,
        CASE WHEN priority NOT BETWEEN 0 AND 9 THEN -1 ELSE priority END,
        prompt, system, messages, model, params, metadata, outbox,
        CASE WHEN on_complete IS NOT NULL THEN llmq_internal.callback_name(on_complete, caller) END,
        run_at, expires_at, after, run_id, step, policy, NULL, NULL)::llmq.job, caller, 'submit'));
END
$$;

CREATE OR REPLACE FUNCTION llmq.submit(
    prompt text DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    queue text DEFAULT 'default',
    tenant text DEFAULT NULL,
    system text DEFAULT NULL,
    messages jsonb DEFAULT NULL,
    model text DEFAULT NULL,
    params jsonb DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    outbox jsonb DEFAULT NULL,
    on_complete regproc DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    priority int DEFAULT 0,
    expires_at timestamptz DEFAULT NULL,
    after uuid[] DEFAULT NULL,
    run_id text DEFAULT NULL,
    step text DEFAULT NULL,
    policy jsonb DEFAULT NULL)
RETURNS llmq.submission
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq.submit IS
    'submits one request to a model in the caller''s transaction; the same key and request give the same job, PT422 for another request, PT409 while another transaction holds the key';
