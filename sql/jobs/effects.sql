-- What a job's end does in the database: attempts, outbox messages, death.
-- All of it happens in the transaction that ends the job.

-- Writes the outbox messages that jobs asked for in case of `occasion`
-- ('succeeded' or 'dead').  A key that exists adds nothing and fails nothing.
-- From the second death on every key, explicit or not, names the death.
CREATE OR REPLACE FUNCTION llmq_internal.emit_messages(ended llmq.placement[], occasion text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    topics text[];
BEGIN
    WITH entry AS (
        SELECT j.job_id, j.tenant, e.value AS entry,
            coalesce(e.value ->> 'dedupe_key',
                format('%s:%s:%s', e.value ->> 'topic', j.job_id, e.ordinality)) ||
            CASE
                WHEN occasion = 'dead' AND (p.deaths > 1 OR NOT e.value ? 'dedupe_key')
                THEN format(':death %s', p.deaths)
                ELSE ''
            END AS dedupe_key
        FROM unnest(ended) AS p
        JOIN llmq.job AS j ON j.job_id = p.job_id,
        jsonb_array_elements(j.outbox) WITH ORDINALITY AS e
        WHERE coalesce(e.value ->> 'on', 'succeeded') = occasion
    ), added AS (
        INSERT INTO llmq.message (tenant, topic, dedupe_key, payload, job_id)
        SELECT entry.tenant, entry.entry ->> 'topic', entry.dedupe_key, entry.entry -> 'payload',
            entry.job_id
        FROM entry
        ON CONFLICT (tenant, dedupe_key) DO NOTHING
        RETURNING id, topic
    ), placed AS (
        INSERT INTO llmq.message_pending (id, topic) SELECT id, topic FROM added
        RETURNING topic
    )
    SELECT array_agg(p.topic) INTO topics FROM placed AS p;
    IF topics IS NOT NULL THEN
        PERFORM llmq_internal.wake_for(topics);
    END IF;
END
$$;

-- Ends jobs as dead.  They must have left every other place already.
CREATE OR REPLACE FUNCTION llmq_internal.bury(
    jobs llmq.placement[], error_class text, error_message text, text text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM llmq_internal.release_dependents(llmq_internal.bury_alone(jobs, error_class, error_message, text));
END
$$;

-- The same, but for the jobs that come after them: the caller looks at those.
CREATE OR REPLACE FUNCTION llmq_internal.bury_alone(
    jobs llmq.placement[], error_class text, error_message text, text text DEFAULT NULL)
RETURNS llmq.placement[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    buried llmq.placement[];
BEGIN
    WITH dead AS (
        INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths,
            error_class, error_message, text)
        SELECT p.job_id, p.queue, p.tenant, p.priority, p.deliveries, p.counted, p.deaths + 1,
            bury_alone.error_class, bury_alone.error_message, bury_alone.text
        FROM unnest(jobs) AS p
        RETURNING dead_job.*
    )
    SELECT array_agg(ROW(d.job_id, d.queue, d.tenant, d.priority, d.deliveries, d.counted,
        d.deaths)::llmq.placement)
    INTO buried FROM dead AS d;
    PERFORM llmq_internal.emit_messages(buried, 'dead');
    PERFORM llmq_internal.notify_done(buried);
    RETURN buried;
END
$$;

-- Whether there is room for a notification.  With a full queue of them a transaction fails at
-- its commit, and what it settles with it.
CREATE OR REPLACE FUNCTION llmq_internal.may_notify() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_may_notify_1';

-- Tells those who listen that jobs are final, where their queue asks for it and there is room.
CREATE OR REPLACE FUNCTION llmq_internal.notify_done(ended llmq.placement[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('llmq_done', p.job_id::text)
    FROM unnest(ended) AS p JOIN llmq.queue AS q ON q.name = p.queue
    WHERE q.notify_done AND llmq_internal.may_notify();
END
$$;

-- Puts a job that is in no place back: dead when its deliveries are used up or
-- it would be too old, ready when delay is 0, else deferred.
CREATE OR REPLACE FUNCTION llmq_internal.redeliver(
    p llmq.placement, is_counted boolean, delay interval, error_class text, error_message text)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due constant timestamptz := clock_timestamp() + delay;
    allowed int;
    last_start timestamptz;
    reason constant text := concat_ws(': ', error_class, error_message);
BEGIN
    SELECT least(q.max_deliveries, (j.policy -> 'max_deliveries')::int),
        llmq_internal.last_start(j.expires_at, j.submitted_at, q.max_age)
    INTO allowed, last_start
    FROM llmq.job AS j LEFT JOIN llmq.queue_policy AS q ON q.name = j.queue
    WHERE j.job_id = p.job_id;

    p.counted := p.counted + is_counted::int;
    IF p.counted >= allowed THEN
        PERFORM llmq_internal.bury(ARRAY[p], 'max_deliveries'::text,
            format('%s deliveries failed; the last one: %s', p.counted, reason), NULL::text);
        RETURN 'dead';
    ELSIF due > last_start THEN
        PERFORM llmq_internal.bury(ARRAY[p], 'expired'::text,
            format('no delivery may start after %s; the last one: %s', last_start, reason), NULL::text);
        RETURN 'dead';
    ELSIF delay <= '0' THEN
        INSERT INTO llmq.ready (job_id, queue, tenant, priority, deliveries, counted, deaths)
        SELECT (p).*;
        RETURN 'ready';
    END IF;
    INSERT INTO llmq.deferred (job_id, queue, tenant, priority, deliveries, counted, deaths,
        due_at, error_class, error_message)
    SELECT (p).*, due, redeliver.error_class, redeliver.error_message;
    RETURN 'deferred';
END
$$;
