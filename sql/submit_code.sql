-- Submitting: the key, the job and its place in the queue, in the caller's own
-- transaction.  Only llmq.submit_as pins the search_path: the others run under it.

-- Finds the policy of a queue that jobs may be submitted to.
CREATE OR REPLACE FUNCTION llmq.find_queue(queue text) RETURNS llmq.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    q llmq.queue;
BEGIN
    IF find_queue.queue IS NULL THEN
        PERFORM llmq.fail('PT400', 'queue must not be NULL', NULL,
            'Leave it out for the queue "default".');
    END IF;
    SELECT * INTO q FROM llmq.queue AS k WHERE k.name = find_queue.queue;
    IF NOT FOUND THEN
        IF find_queue.queue <> 'default' THEN
            PERFORM llmq.fail('PT404', format('there is no queue "%s"', find_queue.queue), NULL,
                format('INSERT INTO llmq.queue (name) VALUES (%L) makes it.', find_queue.queue));
        END IF;
        q := llmq.default_queue();
    END IF;
    RETURN q;
END
$$;

-- Notes, with the first submit, which database jobs are submitted in.
CREATE OR REPLACE FUNCTION llmq.note_home() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.home) THEN
        INSERT INTO llmq.home (system_identifier, database_oid)
        SELECT llmq.system_identifier(), oid FROM pg_database WHERE datname = current_database();
    END IF;
END
$$;

-- Inserts jobs whose keys are free and returns their ids.  In C for its key
-- wait: another open transaction that holds a key is waited for, at most
-- max(llmq.key_wait, 50 ms), and then reported as PT409.
CREATE OR REPLACE FUNCTION llmq.insert_jobs(jobs llmq.job[]) RETURNS uuid[]
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_insert_jobs_1';

-- The fingerprint of a request: what must be the same under the same key.
CREATE OR REPLACE FUNCTION llmq.fingerprint(job llmq.job) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(
        job.queue, job.prompt, job.system, job.messages, job.model, job.params, job.metadata,
        job.outbox, job.on_complete, job.after, job.run_id, job.step, job.policy)::text, 'UTF8'))
$$;

-- Refuses a job that is not in order; its key, tenant and schedule have been looked at.
CREATE OR REPLACE FUNCTION llmq.check_job(job llmq.job) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    q constant llmq.queue := llmq.find_queue(job.queue);
BEGIN
    PERFORM llmq.check_prompt(job.prompt, job.messages, job.params);
    IF job.params IS NOT NULL THEN
        PERFORM llmq.check_params(job.params);
    END IF;
    IF job.policy IS NOT NULL THEN
        PERFORM llmq.check_policy(job.policy, q);
    END IF;
    IF job.outbox IS NOT NULL THEN
        PERFORM llmq.check_outbox(job.outbox, job.job_id);
    END IF;
    PERFORM llmq.check_length('model', job.model, 255), llmq.check_length('run_id', job.run_id, 255),
        llmq.check_length('step', job.step, 255);
    IF job.on_complete IS NOT NULL OR job.after IS NOT NULL THEN
        PERFORM llmq.fail('0A000', 'on_complete and after are not supported by this version of llmq', NULL,
            'Submit the next job when llmq.job_status shows this one as final.');
    END IF;
END
$$;

-- Submits for `caller`, as llmq's owner; llmq.submit is the way here.
CREATE OR REPLACE FUNCTION llmq.submit_as(
    caller name, prompt text, idempotency_key text, queue text, tenant text, system text,
    messages jsonb, model text, params jsonb, metadata jsonb, outbox jsonb, on_complete regproc,
    run_at timestamptz, priority int, expires_at timestamptz, after uuid[], run_id text, step text,
    policy jsonb)
RETURNS llmq.submission
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    job llmq.job;
BEGIN
    PERFORM llmq.check_key(idempotency_key);
    PERFORM llmq.check_tenant(caller, tenant);
    PERFORM llmq.check_schedule(run_at, expires_at, priority);
    job.scope := 'submit';
    job.tenant := coalesce(tenant, caller);
    job.idempotency_key := idempotency_key;
    job.job_id := llmq.job_id(job.tenant, job.scope, idempotency_key);
    job.queue := queue;
    job.prompt := prompt;
    job.system := system;
    job.messages := messages;
    job.model := model;
    job.params := params;
    job.metadata := metadata;
    job.outbox := outbox;
    job.on_complete := on_complete;
    job.run_at := run_at;
    job.priority := priority;
    job.expires_at := expires_at;
    job.after := after;
    job.run_id := run_id;
    job.step := step;
    job.policy := policy;
    job.submitted_by := caller;
    job.submitted_at := clock_timestamp();
    PERFORM llmq.check_job(job);
    job.fingerprint := llmq.fingerprint(job);

    IF cardinality(llmq.insert_jobs(ARRAY[job])) = 0 THEN
        RETURN llmq.replay(job);
    END IF;
    PERFORM llmq.note_home();
    RETURN ROW(job.job_id, llmq.place_new(job), false)::llmq.submission;
END
$$;

-- Puts a new job where it first belongs, and says what state that is.
CREATE OR REPLACE FUNCTION llmq.place_new(job llmq.job) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF job.run_at > clock_timestamp() THEN
        INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
        VALUES (job.job_id, job.run_at, job.queue, job.tenant, job.priority);
        RETURN 'scheduled';
    END IF;
    INSERT INTO llmq.ready (job_id, queue, tenant, priority)
    VALUES (job.job_id, job.queue, job.tenant, job.priority);
    RETURN 'ready';
END
$$;

-- The answer to a key that exists: the same request is replayed, another refused.
CREATE OR REPLACE FUNCTION llmq.replay(asked llmq.job) RETURNS llmq.submission
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    kept bytea;
BEGIN
    SELECT fingerprint INTO kept FROM llmq.job WHERE job_id = asked.job_id;
    IF NOT FOUND THEN
        -- Pruned in between, or not visible to this transaction's snapshot.
        PERFORM llmq.fail('40001', 'the idempotency key was taken by a concurrent transaction', NULL,
            'Retry the transaction.');
    ELSIF kept <> asked.fingerprint THEN
        PERFORM llmq.fail('PT422',
            format('idempotency key "%s" was used with another request', asked.idempotency_key),
            format('Job %s was submitted under it.', asked.job_id),
            'Send the same request again to get its answer, or choose a new key for a new request.');
    END IF;
    RETURN ROW(asked.job_id, llmq.state(asked.job_id), true)::llmq.submission;
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
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_submit_1';
COMMENT ON FUNCTION llmq.submit IS
    'submits one request to a model in the caller''s transaction; the same key and request give the same job, PT422 for another request, PT409 while another transaction holds the key';
