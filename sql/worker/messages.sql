-- A worker's side of the outbox: looking for messages, claiming and settling them.
--
-- Like ready jobs, pending messages are not searched from the start of an index: under an
-- old snapshot each look would visit all that were sent since.  The worker keeps the highest
-- id that it has looked at (the tip) and, for each topic, up to where it has claimed; what was
-- committed late behind that is found by a sweep now and then, topic by topic, a page at a time.
--
-- The messages of one topic are claimed under a lock of the transaction, so that two workers keep
-- their order (llmq_internal.try_lock_topic).

CREATE OR REPLACE FUNCTION llmq_internal.epoch_microseconds(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM moment) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 $$;

-- Takes the lock of a topic until the transaction ends; false if another has it.
CREATE OR REPLACE FUNCTION llmq_internal.try_lock_topic(messages regclass, topic text) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_try_lock_topic_1';

-- What a poll says of messages, NULL if nothing: an object with tip (the highest id seen),
-- topics (an object: topic to the lowest id of it among those seen) and more (the limit cut
-- the look).  With after -1 it begins a sweep: nothing is looked at, and the tip is the highest id
-- that there is.  `returned` are topics of messages that came back, whatever their ids.
-- A sweep has page: an array of topics behind topics_after, in order, each an array of the topic
-- and its lowest id; and page_full (there may be more).
CREATE OR REPLACE FUNCTION llmq_internal.look_for_messages(after bigint, topics_after text, returned jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    most constant int := 1000; -- messages seen by one look
    most_topics constant int := 500; -- in one page of a sweep
    tip bigint;
    topics jsonb;
    seen bigint := 0;
    page jsonb;
BEGIN
    IF after < 0 THEN
        -- The tip first: what is committed meanwhile is behind it.
        tip := (SELECT p.id FROM llmq.message_pending AS p WHERE p.id > 0 ORDER BY p.id DESC LIMIT 1);
    ELSE
        SELECT max(t.highest), jsonb_object_agg(t.topic, t.lowest), sum(t.messages)
        INTO tip, topics, seen
        FROM (
            SELECT s.topic, min(s.id) AS lowest, max(s.id) AS highest, count(*) AS messages
            FROM (
                SELECT p.id, p.topic FROM llmq.message_pending AS p
                WHERE p.id > after ORDER BY p.id LIMIT most) AS s
            GROUP BY s.topic) AS t;
    END IF;
    IF topics_after IS NOT NULL THEN
        page := llmq_internal.pending_topics(topics_after, most_topics);
    END IF;
    topics := llmq_internal.merge_topics(topics, returned);
    IF topics IS NULL AND page IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('tip', greatest(tip, after, 0), 'topics', coalesce(topics, '{}'),
        'more', coalesce(seen >= most, false), 'page', page, 'page_full', jsonb_array_length(page) >= most_topics);
END
$$;

-- Topics that have pending messages, each with its lowest id, in order: one probe of the index
-- for each.
CREATE OR REPLACE FUNCTION llmq_internal.pending_topics(topics_after text, most int) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_sort = off
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE t (topic, id, number) AS (
            (SELECT p.topic, p.id, 1 FROM llmq.message_pending AS p
            WHERE p.topic > topics_after ORDER BY p.topic, p.id LIMIT 1)
            UNION ALL
            SELECT n.topic, n.id, t.number + 1
            FROM t CROSS JOIN LATERAL (
                SELECT p.topic, p.id FROM llmq.message_pending AS p
                WHERE p.topic > t.topic ORDER BY p.topic, p.id LIMIT 1) AS n
            WHERE t.number < most
        )
        -- A recursion that has one row at a time gives them in order.
        SELECT jsonb_agg(jsonb_build_array(t.topic, t.id)) FROM t);
END
$$;

-- Claims messages: moves them under leases of this worker, and returns what sending them
-- needs.  `wanted` is an array of objects: topic, kind (of its destination), after (claim
-- only messages with higher ids), max (how many), exclusive (not while another worker has
-- messages of the topic), url (notify: the channel), doubtful (an earlier claim failed: the
-- first message fails alone if it cannot be read).  Messages of kind notify are sent here
-- and now, and come back with body NULL; what became of those that failed, retry or dead, is in
-- remaining.  A row with a topic alone says that there may be more which are not to be had now.
-- claimed_at is for settling, which nothing but this very claim must be taken for: the worker's id
-- and the message's may come again.  traceparent is whose trace a webhook belongs to.
CREATE OR REPLACE FUNCTION llmq.worker_claim_messages(own bigint, wanted jsonb)
RETURNS TABLE (topic text, id bigint, attempts int, dedupe_key text, created_at bigint, body text,
    remaining text, claimed_at bigint, traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    room bigint := 16 * 1024 * 1024; -- bytes of bodies in one claim, but for the last message
    w record;
BEGIN
    PERFORM llmq_internal.check_session(own);
    FOR w IN
        SELECT * FROM jsonb_to_recordset(wanted)
            AS e (topic text, kind text, after bigint, max int, exclusive boolean, url text, doubtful boolean)
    LOOP
        topic := w.topic;
        id := NULL;
        IF room <= 0 OR NOT llmq_internal.lock_topic(own, w.topic, w.exclusive) THEN
            RETURN NEXT;
        ELSIF w.kind = 'notify' THEN
            RETURN QUERY
                SELECT w.topic, n.*, NULL::bigint, NULL::text FROM llmq_internal.notify_topic(w.topic, w.after, w.max, w.url) AS n;
        ELSE
            IF w.doubtful THEN
                PERFORM llmq_internal.fail_unreadable(w.topic, w.kind, w.after);
            END IF;
            FOR id, attempts, dedupe_key, created_at, body, remaining, claimed_at, traceparent IN
                SELECT * FROM llmq_internal.claim_topic(own, w.topic, w.kind, w.after, w.max, room)
            LOOP
                room := room - coalesce(octet_length(body), 0);
                RETURN NEXT;
            END LOOP;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION llmq.worker_claim_messages IS
    'claims outbox messages for a worker and returns what sending them needs; the protocol stands in sql/worker/messages.sql';

-- Whether a worker may claim messages of a topic now.
CREATE OR REPLACE FUNCTION llmq_internal.lock_topic(own bigint, of_topic text, exclusive boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
BEGIN
    IF NOT llmq_internal.try_lock_topic('llmq.message_pending'::regclass, of_topic) THEN
        RETURN false;
    ELSIF exclusive AND EXISTS (SELECT FROM llmq.worker_session AS w WHERE w.id <> own) THEN
        RETURN NOT EXISTS (
            SELECT FROM llmq.message_lease AS l WHERE l.topic = of_topic AND l.worker_id <> own);
    END IF;
    RETURN true;
END
$$;

-- The pending messages of a topic behind `after`, in order and locked.  Comparing rows leaves
-- the planner no index but that of (topic, id).
CREATE OR REPLACE FUNCTION llmq_internal.pick_messages(of_topic text, after bigint, max_messages int)
RETURNS TABLE (id bigint, attempts int, remaining jsonb, message llmq.message)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT p.id, p.attempts, p.remaining, m
        FROM llmq.message_pending AS p JOIN llmq.message AS m ON m.id = p.id
        WHERE (p.topic, p.id) > (of_topic, after) AND (p.topic, p.id) <= (of_topic, 9223372036854775807)
        ORDER BY p.topic, p.id LIMIT max_messages
        FOR UPDATE OF p SKIP LOCKED;
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.message_body(m llmq.message, kind text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT CASE kind WHEN 'email' THEN llmq_internal.mail_body(m) ELSE llmq_internal.webhook_body(m) END $$;

-- Fails the first message of a topic behind `after` if it cannot be read, because its row is
-- broken say: that is an attempt like any other, and the topic goes on.  What ends by itself, a
-- lock or a want of memory, is no fault of the message's.
CREATE OR REPLACE FUNCTION llmq_internal.fail_unreadable(of_topic text, kind text, after bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT * FROM llmq_internal.pick_messages(of_topic, after, 1) LOOP
        BEGIN
            PERFORM octet_length(llmq_internal.message_body(p.message, kind));
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ '^(40|53|55|57|58)' THEN
                RAISE;
            END IF;
            DELETE FROM llmq.message_pending AS q WHERE q.id = p.id;
            PERFORM llmq_internal.fail_unsent(p.id, of_topic, p.attempts, 'the message cannot be read: ' || SQLERRM);
        END;
    END LOOP;
END
$$;

-- Claims messages of one topic.  An empty row says that there was no room for more.
CREATE OR REPLACE FUNCTION llmq_internal.claim_topic(
    own bigint, of_topic text, kind text, after bigint, max_messages int, room bigint)
RETURNS TABLE (id bigint, attempts int, dedupe_key text, created_at bigint, body text, remaining text,
    claimed_at bigint, traceparent text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now constant timestamptz := clock_timestamp();
    p record;
    ids bigint[] := '{}';
BEGIN
    claimed_at := llmq_internal.epoch_microseconds(now);
    FOR p IN SELECT * FROM llmq_internal.pick_messages(of_topic, after, max_messages) LOOP
        IF room <= 0 THEN
            RETURN QUERY SELECT NULL::bigint, NULL::int, NULL::text, NULL::bigint, NULL::text, NULL::text,
                NULL::bigint, NULL::text;
            EXIT;
        END IF;
        id := p.id;
        attempts := p.attempts;
        dedupe_key := (p.message).dedupe_key;
        created_at := llmq_internal.epoch_microseconds((p.message).created_at);
        body := llmq_internal.message_body(p.message, kind);
        remaining := p.remaining::text;
        traceparent := llmq_internal.message_trace(p.message);
        RETURN NEXT;
        room := room - octet_length(body);
        ids := ids || id;
    END LOOP;
    WITH gone AS (
        DELETE FROM llmq.message_pending AS q WHERE q.id = ANY (ids) RETURNING q.*
    )
    INSERT INTO llmq.message_lease (id, topic, worker_id, attempts, last_error, remaining, claimed_at)
    SELECT g.id, g.topic, own, g.attempts, g.last_error, g.remaining, now FROM gone AS g;
    IF ids <> '{}' THEN
        PERFORM llmq_internal.note_claim(own);
    END IF;
END
$$;
