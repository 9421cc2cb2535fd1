-- Limits in front of providers: quotas that workers draw from, and circuit breakers.

-- The arithmetic of a draw, in C.  Returns the grant (slots, from_us, interval_ns, next_us,
-- tokens, tokens_in_us, again_us), whether the worker may probe, and the new state.
CREATE OR REPLACE FUNCTION llmq_internal.limit_draw(state bigint[], ask bigint[]) RETURNS bigint[]
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'llmq_limit_draw_1';

-- A worker draws slices of quotas, and says what its calls tell of endpoints.
--
-- asks is an array of objects:
--   endpoint
--   draw     true: it has calls to make, and wants what there is for the next moment
--   least    tokens that the call needs which comes first
--   charge   tokens used beyond what was drawn; negative: given back
--   event    of the breaker: 0 none, 1 too many failures, 2 asks to probe, 3 the probe worked
--   error    with event 1: what failed last
--
-- One row comes back for each whose endpoint is there.  Spans are microseconds from now:
-- slots calls may start, the first after from_us, interval_ns apart; the first that
-- was not given is after next_us; tokens may be used; else there may be some after
-- tokens_in_us; asking again is of no use before again_us.  breaker is 0 closed, 1 open for
-- another breaker_in, 2 half-open; breaker_turns grows with each change.
--
-- The clock is read under the row's lock: slots of all workers lie one behind the other.
CREATE OR REPLACE FUNCTION llmq.worker_draw(own bigint, asks jsonb)
RETURNS TABLE (endpoint text, slots bigint, from_us bigint, interval_ns bigint, next_us bigint,
    tokens bigint, tokens_in_us bigint, again_us bigint, may_probe boolean, breaker int,
    breaker_in bigint, breaker_turns bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    asked record;
    before bigint[];
    drawn bigint[];
    now_us bigint;
BEGIN
    FOR asked IN
        SELECT a.*, e.requests_per_minute, e.tokens_per_minute, e.breaker_cooldown
        FROM jsonb_to_recordset(asks) AS a (endpoint text, draw boolean, least bigint, charge bigint,
            event int, error text)
        JOIN llmq.endpoint AS e ON e.name = a.endpoint
        ORDER BY a.endpoint
    LOOP
        INSERT INTO llmq.endpoint_limit AS l (endpoint) VALUES (asked.endpoint)
        ON CONFLICT (endpoint) DO NOTHING;
        SELECT l.state INTO before FROM llmq.endpoint_limit AS l
        WHERE l.endpoint = asked.endpoint FOR NO KEY UPDATE;
        now_us := extract(epoch FROM clock_timestamp()) * 1000000;
        drawn := llmq_internal.limit_draw(before, ARRAY[own, coalesce(asked.requests_per_minute, 0),
            coalesce(asked.tokens_per_minute, 0), asked.least, asked.charge, asked.event,
            llmq_internal.microseconds(asked.breaker_cooldown), now_us, asked.draw::int]);
        UPDATE llmq.endpoint_limit AS l
        SET state = drawn[9:], drawn_at = clock_timestamp(),
            last_error = coalesce(asked.error, l.last_error),
            last_error_at = CASE WHEN asked.error IS NULL THEN l.last_error_at ELSE clock_timestamp() END
        WHERE l.endpoint = asked.endpoint;
        -- The others shall know, too: they look at everything when they are woken.
        IF drawn[9] <> coalesce(before[1], 0) THEN
            PERFORM llmq_internal.wake_worker();
        END IF;
        RETURN QUERY SELECT asked.endpoint, drawn[1], drawn[2], drawn[3], drawn[4], drawn[5], drawn[6],
            drawn[7], drawn[8] <> 0, drawn[9]::int, drawn[10] - now_us, drawn[12];
    END LOOP;
END
$$;
COMMENT ON FUNCTION llmq.worker_draw IS
    'draws slices of endpoints'' quotas for a worker, and takes what it says of their breakers; the protocol stands in sql/worker/limits.sql';

-- The breakers that are not closed, as workers are told of them with a poll.
CREATE OR REPLACE FUNCTION llmq_internal.breakers() RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(l.endpoint, jsonb_build_array(l.state[1],
            l.state[2] - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, l.state[4])), '{}')
        FROM llmq.endpoint_limit AS l WHERE l.state[1] <> 0);
END
$$;

CREATE OR REPLACE FUNCTION llmq.reset_breaker(endpoint text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM llmq.endpoint AS e WHERE e.name = reset_breaker.endpoint) THEN
        PERFORM llmq_internal.fail('PT404', format('there is no endpoint "%s"', reset_breaker.endpoint), NULL,
            'SELECT name FROM llmq.endpoint lists them.');
    END IF;
    UPDATE llmq.endpoint_limit AS l
    SET state = ARRAY[0, 0, l.state[3], l.state[4] + 1] || l.state[5:]
    WHERE l.endpoint = reset_breaker.endpoint AND l.state[1] <> 0;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Jobs that were in hand when it opened have been put off until its end.
    UPDATE llmq.deferred AS d SET due_at = clock_timestamp() WHERE d.error_class = 'breaker';
    DELETE FROM llmq.endpoint_trouble AS t WHERE t.endpoint = reset_breaker.endpoint AND t.reason = 'breaker';
    PERFORM llmq_internal.wake_worker();
    RETURN true;
END
$$;
COMMENT ON FUNCTION llmq.reset_breaker(text) IS
    'closes the breaker of an endpoint, which is then called again at once; false if it was not open';

CREATE OR REPLACE VIEW llmq.endpoint_status AS
    SELECT e.name AS endpoint, e.enabled,
        CASE l.state[1] WHEN 1 THEN 'open' WHEN 2 THEN 'half_open' ELSE 'closed' END AS breaker,
        CASE WHEN l.state[1] <> 0 THEN to_timestamp(l.state[3] / 1e6) END AS opened_at,
        CASE WHEN l.state[1] = 1 THEN to_timestamp(l.state[2] / 1e6) END AS probe_at,
        t.reason AS wait_reason, t.until AS wait_until,
        e.requests_per_minute, e.tokens_per_minute, e.max_in_flight, l.drawn_at, l.last_error, l.last_error_at,
        coalesce(c.in_flight, 0) AS in_flight
    FROM llmq.endpoint AS e
    LEFT JOIN llmq.endpoint_limit AS l ON l.endpoint = e.name
    LEFT JOIN llmq.endpoint_trouble AS t
        ON t.endpoint = e.name AND coalesce(t.until, 'infinity') > clock_timestamp()
    LEFT JOIN ( -- as workers count for llmq.metric
        SELECT s.value -> 1 ->> 'endpoint' AS endpoint, sum((s.value ->> 2)::numeric)::bigint AS in_flight
        FROM llmq.worker_metric AS m, jsonb_array_elements(m.families) AS f, jsonb_array_elements(f.value -> 'samples') AS s
        WHERE f.value ->> 'name' = 'llmq_calls_in_flight'
            AND NOT EXISTS (SELECT FROM llmq_internal.lost_sessions(NULL::bigint) AS w WHERE w.id = m.worker_id)
        GROUP BY 1) AS c ON c.endpoint = e.name;
COMMENT ON VIEW llmq.endpoint_status IS
    'one row an endpoint: its breaker, what keeps jobs from it just now, the failure that its breaker opened for, and how many calls it has, as of the workers'' last heartbeats';
