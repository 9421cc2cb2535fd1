-- Policies: what holds for a queue, and for one job of it.

-- The column defaults of llmq.queue as a row, for the queue 'default' without one.
CREATE OR REPLACE FUNCTION llmq.default_queue() RETURNS llmq.queue
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_populate_record(NULL::llmq.queue, '{
        "name": "default", "paused": false,
        "call_timeout": "20 s", "deadline": "60 s", "max_attempts": 4, "min_attempt": "1 s",
        "backoff_base": "0.5 s", "backoff_cap": "8 s",
        "max_deliveries": 5, "redelivery_base": "5 s", "redelivery_cap": "10 min",
        "max_age": "7 days", "retention": "30 days",
        "accept_truncated": false, "require_json": false, "notify_done": false}')
$$;
COMMENT ON FUNCTION llmq.default_queue() IS
    'the policy of the queue "default" while it has no row: the column defaults of llmq.queue';

-- Every queue there is, the rowless default included.
CREATE OR REPLACE VIEW llmq.queue_policy AS
    SELECT * FROM llmq.queue
    UNION ALL
    SELECT d.* FROM llmq.default_queue() AS d
    WHERE NOT EXISTS (SELECT FROM llmq.queue WHERE name = 'default');
COMMENT ON VIEW llmq.queue_policy IS 'llmq.queue with a row for the queue "default" in any case';

-- A class that there is not would be a fallback that never comes.
CREATE OR REPLACE FUNCTION llmq_internal.check_fallback() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unknown constant text[] := ARRAY(
        SELECT c FROM unnest(NEW.fallback_on) AS c WHERE (c = ANY (llmq_internal.error_classes())) IS NOT TRUE);
BEGIN
    IF unknown <> '{}' THEN
        PERFORM llmq_internal.fail('check_violation', format('fallback_on of queue "%s" names what is no class of errors', NEW.name),
            format('It names %s.', array_to_string(ARRAY(SELECT coalesce('"' || u || '"', 'NULL') FROM unnest(unknown) AS u), ', ')),
            format('The classes are %s.', array_to_string(llmq_internal.error_classes(), ', ')));
    END IF;
    RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER check_fallback BEFORE INSERT OR UPDATE OF fallback_on ON llmq.queue
    FOR EACH ROW WHEN (NEW.fallback_on IS NOT NULL) EXECUTE FUNCTION llmq_internal.check_fallback();

-- An interval in microseconds, as the worker counts.  It pins no search_path, so that it
-- is inlined.
CREATE OR REPLACE FUNCTION llmq_internal.microseconds(span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT (extract(epoch FROM span) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8
$$;

-- All that a worker must know of the configuration, in one value.
CREATE OR REPLACE FUNCTION llmq_internal.worker_config() RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN jsonb_build_object(
        'queues', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'name', q.name, 'endpoints', q.endpoints, 'paused', q.paused,
                'max_in_flight', q.max_in_flight, 'max_ready', q.max_ready,
                'call_timeout', llmq_internal.microseconds(q.call_timeout),
                'deadline', llmq_internal.microseconds(q.deadline),
                'max_attempts', q.max_attempts,
                'min_attempt', llmq_internal.microseconds(q.min_attempt),
                'backoff_base', llmq_internal.microseconds(q.backoff_base),
                'backoff_cap', llmq_internal.microseconds(q.backoff_cap),
                'redelivery_base', llmq_internal.microseconds(q.redelivery_base),
                'redelivery_cap', llmq_internal.microseconds(q.redelivery_cap),
                'accept_truncated', q.accept_truncated,
                'require_json', q.require_json,
                'fallback_on', q.fallback_on) ORDER BY q.name), '[]')
            FROM llmq.queue_policy AS q),
        'endpoints', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'name', e.name, 'api', e.api, 'url', e.url, 'model', e.model,
                'credential', e.credential, 'headers', e.headers, 'stream', e.stream,
                'max_in_flight', e.max_in_flight,
                'requests_per_minute', e.requests_per_minute,
                'tokens_per_minute', e.tokens_per_minute,
                'breaker_failures', e.breaker_failures,
                'breaker_cooldown', llmq_internal.microseconds(e.breaker_cooldown),
                'input_price', e.input_price, 'cached_price', e.cached_price, 'output_price', e.output_price,
                'idempotency_header', e.idempotency_header,
                'max_response_bytes', e.max_response_bytes,
                'connect_timeout', llmq_internal.microseconds(e.connect_timeout),
                'first_byte_timeout', llmq_internal.microseconds(e.first_byte_timeout),
                'idle_timeout', llmq_internal.microseconds(e.idle_timeout)) ORDER BY e.name), '[]')
            FROM llmq.endpoint AS e WHERE e.enabled),
        'destinations', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'topic', d.topic, 'kind', d.kind, 'url', d.url, 'credential', d.credential,
                'headers', d.headers, 'sender', d.sender,
                'timeout', llmq_internal.microseconds(d.timeout), 'max_attempts', d.max_attempts,
                'backoff_base', llmq_internal.microseconds(d.backoff_base),
                'backoff_cap', llmq_internal.microseconds(d.backoff_cap),
                'max_in_flight', d.max_in_flight, 'enabled', d.enabled) ORDER BY d.topic), '[]')
            FROM llmq.destination AS d)); -- those that are switched off too: their messages wait
END
$$;
COMMENT ON FUNCTION llmq_internal.worker_config() IS
    'the configuration as a worker needs it; spans in microseconds';

-- The latest time at which a delivery of a job may start.
CREATE OR REPLACE FUNCTION llmq_internal.last_start(
    expires_at timestamptz, submitted_at timestamptz, max_age interval)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT least(expires_at, submitted_at + max_age) $$;
