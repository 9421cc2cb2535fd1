-- llmq.check(): each invariant is broken by hand, and exactly that is found.
BEGIN;
SELECT no_plan();
SET LOCAL client_min_messages = error;

-- What a job's end leaves is made by the functions that a worker calls, for one that is this session.
SELECT worker_id AS worker FROM llmq.worker_hello(3, 'check', 'server', pg_backend_pid(), NULL) \gset
CREATE FUNCTION pg_temp.claim(job uuid, worker bigint) RETURNS void LANGUAGE sql AS $$
    SELECT count(*) FROM llmq.worker_claim(worker, ARRAY(SELECT seq FROM llmq.ready WHERE job_id = job))
$$;
CREATE FUNCTION pg_temp.settle(job uuid, worker bigint, outcome text, attempt text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_temp.claim(job, worker);
    SELECT count(*) FROM llmq.worker_settle(worker, jsonb_build_array(jsonb_build_object('job_id', job, 'delivery', 1,
        'outcome', outcome, 'error_class', 'bad_request', 'text', 'Hi', 'attempts', jsonb_build_array(jsonb_build_object(
            'attempt', 1, 'outcome', attempt, 'started_at', 0, 'duration', 0, 'billing', 'none')))))
$$;
SELECT job_id AS ready FROM llmq.submit('x', 'ready') \gset
SELECT job_id AS done FROM llmq.submit('x', 'done', outbox => '[{"topic": "mail", "payload": {}}]') \gset
SELECT job_id AS dead FROM llmq.submit('x', 'dead', outbox => '[{"topic": "sad", "payload": {}, "on": "dead"}]') \gset
SELECT job_id AS running FROM llmq.submit('x', 'running') \gset
SELECT job_id AS later FROM llmq.submit('x', 'later', run_at => now() + interval '1 day') \gset
SELECT job_id AS child FROM llmq.submit('x', 'child', after => ARRAY[:'running'::uuid]) \gset
CREATE FUNCTION llmq_check_callback(jsonb) RETURNS void LANGUAGE sql AS '';
SELECT job_id AS answered FROM llmq.submit('x', 'answered', on_complete => 'llmq_check_callback') \gset
SELECT pg_temp.settle(:'answered', :worker, 'succeeded', 'success') \gset answered_
SELECT pg_temp.settle(:'done', :worker, 'succeeded', 'success'), pg_temp.settle(:'dead', :worker, 'dead', 'permanent'),
    pg_temp.claim(:'running', :worker) \gset ended_
SELECT id AS message FROM llmq.message WHERE job_id = :'done' \gset

-- Breaks something, returns what check() then says, and mends it again.
CREATE TEMP TABLE tried (invariant text);
CREATE FUNCTION pg_temp.found_after(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
    invariants text[];
BEGIN
    BEGIN
        EXECUTE sql;
        SELECT string_agg(concat_ws(' | ', invariant, job_id, detail), E'\n' ORDER BY invariant, detail), array_agg(invariant)
        INTO found, invariants FROM llmq.check();
        RAISE EXCEPTION USING ERRCODE = 'UNDO0';
    EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
    END;
    INSERT INTO tried SELECT unnest(invariants);
    RETURN found;
END
$$;
CREATE FUNCTION pg_temp.finds(sql text, expected text) RETURNS text LANGUAGE sql AS $$
    SELECT is(pg_temp.found_after(sql), expected, 'found: ' || split_part(expected, ' | ', 1) || ': ' || split_part(expected, ' | ', 3))
$$;
SELECT is((SELECT string_agg(place, ' ' ORDER BY place) FROM llmq.job_place), 'answer blocked dead_job deferred lease ready result', 'jobs are in all kinds of places');
SELECT is(pg_temp.found_after('SELECT'), NULL, 'and nothing is broken');

-- -- jobs ------------------------------------------------------------------------------------

SELECT pg_temp.finds(format('DELETE FROM llmq.ready WHERE job_id = %L', :'ready'),
    format('a job is in exactly one place | %s | it is in none', :'ready'));
SELECT pg_temp.finds(format('INSERT INTO llmq.dead_job SELECT job_id, queue, tenant, priority, 1, 1, 1, %L FROM llmq.ready WHERE job_id = %L', 'x', :'ready'),
    format('a job is in exactly one place | %s | it is in dead_job and ready', :'ready'));
SELECT pg_temp.finds(format('INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by) VALUES (%L, %L, 0, %L)', llmq.namespace(), 'default', 'x'),
    format('what is in a place is a job | %s | it is in cancelled_job', llmq.namespace()));
SELECT pg_temp.finds(format('INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, billing) VALUES (%L, 2, 3, now(), %L, %L)', llmq.namespace(), 'retry', 'none'),
    format('an attempt belongs to a job | %s | delivery 2, attempt 3', llmq.namespace()));
SELECT pg_temp.finds(format('UPDATE llmq.attempt SET outcome = %L WHERE job_id = %L', 'retry', :'done'),
    format('a result comes from a successful attempt | %s', :'done'));
SELECT pg_temp.finds(format('UPDATE llmq.job SET idempotency_key = %L WHERE job_id = %L', 'other', :'ready'),
    format('a job''s id follows from its key | %s | other', :'ready'));
SELECT pg_temp.finds(format('UPDATE llmq.job SET queue = %L WHERE job_id IN (%L, %L)', 'nowhere', :'later', :'done'),
    format('a job''s queue exists | %s | nowhere', :'later'));
UPDATE llmq.blocked SET fresh = false;
SELECT pg_temp.finds(format('UPDATE llmq.job SET after = ARRAY[%1$L]::uuid[] WHERE job_id = %2$L;
        INSERT INTO llmq.dependency (parent, child) VALUES (%1$L, %2$L)', :'done', :'child'),
    format('a blocked job waits for a parent that is not final | %s', :'child'));
SELECT pg_temp.finds(format('DELETE FROM llmq.dependency WHERE child = %L', :'child'),
    format('a blocked job is known to its parents | %s | %s', :'child', :'running'));

-- -- leases ----------------------------------------------------------------------------------

SELECT matches(pg_temp.found_after('UPDATE llmq.lease SET worker_id = -1, claimed_at = now() - interval ''1 h'''),
    '^a lease belongs to a worker that lives \| ' || :'running' || ' \| worker -1 holds it since [^\n]*$', 'found: a lease of no worker');
SELECT matches(pg_temp.found_after('UPDATE llmq.lease SET claimed_at = now() - interval ''1 h'';
        UPDATE llmq.worker_session SET heartbeat = now() - interval ''1 h'''),
    '^a lease belongs to a worker that lives \| ' || :'running' || ' \| worker ' || :worker || ' holds it since [^\n]*$', 'found: a lease of a worker that is still');
SELECT is(pg_temp.found_after('UPDATE llmq.lease SET worker_id = -1'), NULL, 'for a moment a lease may be nobody''s');
SELECT matches(pg_temp.found_after('UPDATE llmq.lease SET deadline = now() - interval ''1 h'''),
    '^a delivery ends by its deadline \| ' || :'running' || ' \| it was due at [^\n]*$', 'found: a delivery that does not end');
SELECT pg_temp.finds(format('INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, billing) VALUES (%L, 1, 1, now(), %L, %L)', :'running', 'retry', 'none'),
    format('a lease''s delivery has not been settled | %s | delivery 1', :'running'));

-- -- answers that are kept ---------------------------------------------------------------------

SELECT pg_temp.finds(format('UPDATE llmq.job SET on_complete = NULL WHERE job_id = %L', :'answered'),
    format('an answer that is kept is the success of a job with on_complete | %s | succeeded', :'answered'));
SELECT pg_temp.finds('UPDATE llmq.answer SET entry = jsonb_set(entry, ''{outcome}'', ''"retry"'')',
    format('an answer that is kept is the success of a job with on_complete | %s | retry', :'answered'));
SELECT pg_temp.finds(format('UPDATE llmq.answer SET dead = true, error_message = %L; INSERT INTO llmq.ready (job_id, queue, tenant, priority)
        SELECT job_id, queue, tenant, priority FROM llmq.answer', 'no'),
    format('a dead answer belongs to a dead job | %s | no', :'answered'));
SELECT pg_temp.finds(format('UPDATE llmq.dead_job SET error_class = %L, error_message = %L WHERE job_id = %L', 'callback_failed', 'no', :'dead'),
    format('a job whose callback failed has its answer | %s | no', :'dead'));

-- -- the outbox --------------------------------------------------------------------------------

SELECT pg_temp.finds(format('DELETE FROM llmq.message_pending WHERE id = %s', :message),
    format('a message is in exactly one place | %s | message %s is in none', :'done', :message));
SELECT pg_temp.finds(format('INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (%s, 1, now())', :message),
    format('a message is in exactly one place | %s | message %s is in message_done and message_pending', :'done', :message));
SELECT pg_temp.finds(format('INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at) VALUES (%s, ''mail'', 1, now())', :message),
    format('a message is in exactly one place | %s | message %s is in message_deferred and message_pending', :'done', :message));
SELECT pg_temp.finds('INSERT INTO llmq.message_pending (id, topic) VALUES (-1, ''mail'')', 'what is in a place of the outbox is a message | message -1 is in message_pending');
SELECT pg_temp.finds('INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (-2, 1, now())', 'what is in a place of the outbox is a message | message -2 is in message_done');
SELECT pg_temp.finds(format('UPDATE llmq.message_pending SET topic = ''other'' WHERE id = %s', :message),
    format('a message keeps its topic | %s | message %s is in message_pending as "other"', :'done', :message));
SELECT matches(pg_temp.found_after('WITH gone AS (DELETE FROM llmq.message_pending RETURNING *) INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, claimed_at)
        SELECT id, topic, -1, 0, now() - interval ''1 h'' FROM gone WHERE id = ' || :message || ' ON CONFLICT DO NOTHING'),
    'a message is sent by a worker that lives \| ' || :'done' || ' \| worker -1 has message ' || :message || ' since ', 'found: a message that nobody sends');
SELECT is(pg_temp.found_after(format('DELETE FROM llmq.message_pending WHERE id = %1$s; DELETE FROM llmq.message WHERE id = %1$s;
        UPDATE llmq.result SET created_at = now() - interval ''31 days''', :message)), NULL, 'after the retention a message may be gone before its job');
SELECT pg_temp.finds(format('DELETE FROM llmq.message WHERE id = %1$s; DELETE FROM llmq.message_pending WHERE id = %1$s', :message),
    format('a succeeded job has its outbox messages | %s | mail', :'done'));
SELECT pg_temp.finds(format('UPDATE llmq.message SET job_id = %L WHERE id = %s', :'ready', :message),
    format('a message of a job follows from its end | %s | message %s', :'ready', :message));
SELECT is(pg_temp.found_after(format('UPDATE llmq.message SET job_id = %1$L WHERE id = %2$s; UPDATE llmq.ready SET deaths = 1 WHERE job_id = %1$L', :'ready', :message)),
    NULL, 'a job that was dead once may have a message');
SELECT is(pg_temp.found_after(format('UPDATE llmq.message SET job_id = %1$L, topic = ''sad'' WHERE id = %2$s; UPDATE llmq.message_pending SET topic = ''sad'' WHERE id = %2$s;
    UPDATE llmq.job SET outbox = ''[{"topic": "sad", "on": "dead"}]'' WHERE job_id = %1$L; WITH gone AS (DELETE FROM llmq.ready WHERE job_id = %1$L RETURNING *)
        INSERT INTO llmq.cancelled_job (job_id, queue, deliveries, cancelled_by) SELECT job_id, queue, deliveries, current_user FROM gone', :'ready', :message)),
    NULL, 'so may one that was dead, redriven and cancelled');

-- -- configuration -----------------------------------------------------------------------------

SELECT pg_temp.finds('INSERT INTO llmq.queue (name, endpoints) VALUES (''q'', ''{nowhere}'')', 'a queue''s endpoints exist | queue "q" names "nowhere"');
SELECT pg_temp.finds('INSERT INTO llmq.role_tenant VALUES (''no such role'', ''x'')', 'a role of role_tenant exists | no such role');

-- -- all of them ---------------------------------------------------------------------------------

SELECT set_eq('SELECT DISTINCT invariant FROM tried',
    $$ SELECT replace(m[1], '''''', '''') FROM pg_proc, regexp_matches(prosrc, 'SELECT ''((?:[^'']|'''')+)'', ', 'g') AS m
       WHERE pronamespace = 'llmq_internal'::regnamespace AND proname ~ '^check_(jobs|leases|answers|outbox_messages|configuration)$' $$,
    'each invariant was broken and found');
SELECT is((SELECT prosrc FROM pg_proc WHERE oid = 'llmq.check()'::regprocedure) ~* 'check_(?!jobs|leases|answers|outbox_messages|configuration)', false,
    'there are no others');

SELECT * FROM finish();
ROLLBACK;
