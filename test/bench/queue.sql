-- Drivers of the queue bench: sessions that submit, and sessions that play worker, at a given rate,
-- and note what each operation took.  All in the server, so that no client is measured.

CREATE SCHEMA bench;

-- Slots are of ten seconds; slot 0 are the first ten.  Rows are only added: under an old snapshot
-- a sum that is updated would itself decay.
CREATE UNLOGGED TABLE bench.sample (system text, slot int, operation text, calls bigint, ms float8);

CREATE UNLOGGED TABLE bench.count (system text PRIMARY KEY, produced bigint DEFAULT 0, consumed bigint DEFAULT 0);

CREATE FUNCTION bench.note(system text, start timestamptz, operation text, began timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    took constant interval := clock_timestamp() - began;
BEGIN
    IF began < start THEN
        RETURN; -- warming up
    END IF;
    INSERT INTO bench.sample
    VALUES (system, floor(extract(epoch FROM began - start) / 10), operation, 1, extract(epoch FROM took) * 1000);
END
$$;

-- Submits ten jobs to a system.
CREATE FUNCTION bench.submit_ten(system text, payload text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    CASE system
        WHEN 'llmq' THEN
            PERFORM llmq.submit_many((
                SELECT jsonb_agg(jsonb_build_object('idempotency_key', gen_random_uuid(), 'prompt', payload))
                FROM generate_series(1, 10)));
        WHEN 'pgq' THEN
            PERFORM pgq.insert_event('bench', 'job', payload) FROM generate_series(1, 10);
        WHEN 'graphile' THEN
            PERFORM graphile_worker.add_job('bench', to_json(payload)) FROM generate_series(1, 10);
    END CASE;
END
$$;

-- Submits `rate` jobs a second until `finish`; catches up when it is late.
CREATE PROCEDURE bench.produce(system text, rate int, finish timestamptz, payload text)
LANGUAGE plpgsql AS $$
DECLARE
    start constant timestamptz := clock_timestamp();
    done bigint := 0;
BEGIN
    WHILE clock_timestamp() < finish LOOP
        IF done < extract(epoch FROM clock_timestamp() - start) * rate THEN
            PERFORM bench.submit_ten(system, payload);
            done := done + 10;
            COMMIT;
            IF system = 'pgq' THEN
                PERFORM pgq.ticker('bench');
                COMMIT;
            END IF;
        ELSE
            PERFORM pg_sleep(0.003);
        END IF;
    END LOOP;
    UPDATE bench.count AS c SET produced = done WHERE c.system = produce.system;
END
$$;

-- What the engine would write of ten answers.
CREATE FUNCTION bench.entries(claimed jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_agg(c || '{"outcome": "succeeded", "text": "All is well.", "model": "stand-in",
        "endpoint": "main", "finish_reason": "stop", "input_tokens": 12, "output_tokens": 4,
        "response": "{\"id\": \"1\", \"choices\": [{\"message\": {\"content\": \"All is well.\"}}]}",
        "attempts": [{"attempt": 1, "endpoint": "main", "started_at": 1700000000000000, "duration": 1000,
            "outcome": "success", "http_status": 200, "model": "stand-in", "billing": "billed"}]}'::jsonb)
    FROM jsonb_array_elements(claimed) AS c
$$;

-- Plays llmq's worker until `finish`, and then until nothing is ready: looks behind the highest seq
-- it has seen, ten times a second from the one it had seen a second ago, as the engine does when
-- transactions end within that time.  If the endpoint has a quota it draws from that once a second.
-- Long: its transactions end within it, as a loop of COMMITs must.
CREATE PROCEDURE bench.consume_llmq(start timestamptz, finish timestamptz, batch int)
LANGUAGE plpgsql AS $$
DECLARE
    own bigint := (SELECT worker_id FROM llmq.worker_hello(3, 'bench', 'program', pg_backend_pid(), NULL));
    hash text := '';
    pending bigint[] := '{}';
    found bigint[];
    tip bigint := 0;
    base bigint := 0;
    next_base bigint := 0;
    base_due timestamptz := clock_timestamp();
    limited constant boolean := EXISTS (SELECT FROM llmq.endpoint WHERE requests_per_minute IS NOT NULL);
    draw_due timestamptz := clock_timestamp();
    sweep_due timestamptz := clock_timestamp();
    began timestamptz;
    claimed jsonb;
    entries jsonb;
    done bigint := 0;
BEGIN
    COMMIT;
    LOOP
        IF clock_timestamp() >= base_due THEN
            base := next_base;
            next_base := tip;
            base_due := clock_timestamp() + interval '1 s';
        END IF;
        IF limited AND clock_timestamp() >= draw_due THEN
            began := clock_timestamp();
            PERFORM llmq.worker_draw(own, '[{"endpoint": "main", "draw": true, "least": 1, "charge": -100, "event": 0}]');
            PERFORM bench.note('llmq', start, 'draw', began);
            COMMIT;
            draw_due := clock_timestamp() + interval '1 s';
        END IF;
        began := clock_timestamp();
        IF began >= sweep_due THEN
            SELECT array_agg(seq ORDER BY seq) FILTER (WHERE seq > tip), coalesce(max(control ->> 'config_hash'), hash)
            INTO found, hash FROM llmq.worker_poll(own, base, 2000, hash, NULL, NULL);
            PERFORM bench.note('llmq', start, 'sweep', began);
            sweep_due := clock_timestamp() + interval '100 ms';
        ELSE
            SELECT array_agg(seq ORDER BY seq) FILTER (WHERE seq IS NOT NULL)
            INTO found FROM llmq.worker_poll(own, tip, 2000, NULL, NULL, NULL);
            PERFORM bench.note('llmq', start, 'poll', began);
        END IF;
        COMMIT;
        pending := pending || coalesce(found, '{}');
        tip := greatest(tip, pending[cardinality(pending)]);
        EXIT WHEN pending = '{}' AND clock_timestamp() >= finish;
        IF pending = '{}' THEN
            PERFORM pg_sleep(0.002);
        END IF;
        WHILE pending <> '{}' LOOP
            began := clock_timestamp();
            SELECT jsonb_agg(jsonb_build_object('job_id', c.job_id, 'delivery', c.delivery))
            INTO claimed FROM llmq.worker_claim(own, pending[1:batch]) AS c;
            PERFORM bench.note('llmq', start, 'claim', began);
            COMMIT;
            pending := pending[batch + 1:];
            -- Always the same work, on no table: it tells a busy machine from a queue that decays.
            began := clock_timestamp();
            entries := bench.entries(claimed);
            PERFORM bench.note('llmq', start, 'yardstick', began);
            began := clock_timestamp();
            PERFORM llmq.worker_settle(own, entries);
            PERFORM bench.note('llmq', start, 'settle', began);
            COMMIT;
            done := done + jsonb_array_length(claimed);
        END LOOP;
    END LOOP;
    PERFORM llmq.worker_goodbye(own);
    UPDATE bench.count SET consumed = consumed + done WHERE system = 'llmq';
END
$$;

-- A consumer of pgq: claim is the next batch with its events, settle is its end.
CREATE PROCEDURE bench.consume_pgq(start timestamptz, finish timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
    events bigint;
    began timestamptz;
    done bigint := 0;
BEGIN
    LOOP
        began := clock_timestamp();
        batch := pgq.next_batch('bench', 'driver');
        IF batch IS NULL THEN
            COMMIT;
            EXIT WHEN clock_timestamp() > finish + interval '2 s';
            PERFORM pg_sleep(0.002);
            CONTINUE;
        END IF;
        events := (SELECT count(*) FROM pgq.get_batch_events(batch));
        PERFORM bench.note('pgq', start, 'claim', began) WHERE events > 0;
        COMMIT;
        began := clock_timestamp();
        PERFORM pgq.finish_batch(batch);
        PERFORM bench.note('pgq', start, 'settle', began) WHERE events > 0;
        COMMIT;
        done := done + events;
    END LOOP;
    UPDATE bench.count SET consumed = done WHERE system = 'pgq';
END
$$;

-- Writes batches of events with a tick behind each, and commits each.
CREATE PROCEDURE bench.fill_pgq(rounds int, batch int, payload text)
LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. rounds LOOP
        PERFORM pgq.insert_event('bench', 'job', payload) FROM generate_series(1, batch);
        COMMIT;
        PERFORM pgq.ticker('bench');
        COMMIT;
    END LOOP;
END
$$;

-- Takes and finishes all batches that are there; returns how many events that were.
CREATE PROCEDURE bench.drain_pgq(INOUT done bigint DEFAULT 0)
LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
BEGIN
    PERFORM pgq.ticker('bench');
    COMMIT;
    LOOP
        batch := pgq.next_batch('bench', 'driver');
        EXIT WHEN batch IS NULL;
        done := done + (SELECT count(*) FROM pgq.get_batch_events(batch));
        COMMIT;
        PERFORM pgq.finish_batch(batch);
        COMMIT;
    END LOOP;
END
$$;

-- Jobs that stand about, written as they would be after submits, claims and deaths.
CREATE PROCEDURE bench.stand_about(amount int, place text, in_queue text)
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT llmq_internal.is_home() THEN
        PERFORM llmq_internal.write_home();
    END IF;
    CREATE TEMPORARY TABLE made ON COMMIT DROP AS
        SELECT gen_random_uuid() AS job_id FROM generate_series(1, amount);
    INSERT INTO llmq.job (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority, prompt,
        submitted_by, submitted_at)
    SELECT job_id, 'postgres', 'submit', job_id, '', in_queue, 0, 'stands about', 'postgres', now() FROM made;
    CASE place
        WHEN 'ready' THEN
            INSERT INTO llmq.ready (job_id, queue, tenant, priority) SELECT job_id, in_queue, 'postgres', 0 FROM made;
        WHEN 'deferred' THEN
            INSERT INTO llmq.deferred (job_id, due_at, queue, tenant, priority)
            SELECT job_id, now() + interval '1 day', in_queue, 'postgres', 0 FROM made;
        WHEN 'dead' THEN
            INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class)
            SELECT job_id, in_queue, 'postgres', 0, 5, 5, 1, 'max_deliveries' FROM made;
    END CASE;
    COMMIT;
END
$$;

-- Claims and settles `rounds` batches of the jobs that are first in the queue; returns the median of each in ms.
CREATE PROCEDURE bench.work(rounds int, batch int, INOUT claim_ms float8 DEFAULT NULL, INOUT settle_ms float8 DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    own bigint := (SELECT worker_id FROM llmq.worker_hello(3, 'bench', 'program', pg_backend_pid(), NULL));
    seqs bigint[];
    began timestamptz;
    claimed jsonb;
    entries jsonb;
    claims interval[] := '{}';
    settles interval[] := '{}';
BEGIN
    COMMIT;
    seqs := ARRAY(SELECT seq FROM llmq.ready WHERE queue = 'default' ORDER BY seq LIMIT rounds * batch);
    FOR n IN 0 .. rounds - 1 LOOP
        began := clock_timestamp();
        SELECT jsonb_agg(jsonb_build_object('job_id', c.job_id, 'delivery', c.delivery))
        INTO claimed FROM llmq.worker_claim(own, seqs[n * batch + 1:(n + 1) * batch]) AS c;
        claims := claims || (clock_timestamp() - began);
        COMMIT;
        entries := bench.entries(claimed);
        began := clock_timestamp();
        PERFORM llmq.worker_settle(own, entries);
        settles := settles || (clock_timestamp() - began);
        COMMIT;
    END LOOP;
    PERFORM llmq.worker_goodbye(own);
    claim_ms := (SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY c)) * 1000 FROM unnest(claims) AS c);
    settle_ms := (SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY s)) * 1000 FROM unnest(settles) AS s);
END
$$;
