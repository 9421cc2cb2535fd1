-- Messages whose destination is a channel: sent by the claim itself, with NOTIFY.

-- Sends messages of one topic as notifications: that is done with this transaction.  A full
-- queue of notifications would fail it at its commit, so there must be room before.
CREATE OR REPLACE FUNCTION llmq_internal.notify_topic(of_topic text, after bigint, max_messages int, channel text)
RETURNS TABLE (id bigint, attempts int, dedupe_key text, created_at bigint, body text, remaining text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    p record;
    failure text;
BEGIN
    IF NOT llmq_internal.may_notify() THEN
        RETURN NEXT;
        RETURN;
    END IF;
    FOR p IN SELECT * FROM llmq_internal.pick_messages(of_topic, after, max_messages) LOOP
        DELETE FROM llmq.message_pending AS q WHERE q.id = p.id;
        failure := NULL;
        BEGIN
            PERFORM pg_notify(channel, llmq_internal.notify_body(p.message));
        EXCEPTION WHEN OTHERS THEN
            failure := SQLERRM;
        END;
        IF failure IS NULL THEN
            INSERT INTO llmq.message_done (id, attempts, sent_at) VALUES (p.id, p.attempts + 1, clock_timestamp());
        ELSE
            PERFORM llmq_internal.fail_unsent(p.id, of_topic, p.attempts, failure);
        END IF;
        remaining := CASE WHEN failure IS NULL THEN NULL
            WHEN EXISTS (SELECT FROM llmq.message_done AS d WHERE d.id = p.id) THEN 'dead' ELSE 'retry' END;
        id := p.id;
        attempts := p.attempts;
        dedupe_key := (p.message).dedupe_key;
        created_at := llmq_internal.epoch_microseconds((p.message).created_at);
        RETURN NEXT;
    END LOOP;
END
$$;

-- A message that PostgreSQL does not take as a notification, or cannot read, is tried again
-- as its destination says.
CREATE OR REPLACE FUNCTION llmq_internal.fail_unsent(message_id bigint, of_topic text, attempts int, error text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d llmq.destination := llmq_internal.destination_of(of_topic);
    l llmq.message_lease;
BEGIN
    IF d.topic IS NULL THEN
        d := llmq_internal.default_destination();
    END IF;
    l.id := message_id;
    l.topic := of_topic;
    l.attempts := attempts;
    PERFORM llmq_internal.fail_message(l, d.max_attempts,
        llmq_internal.full_jitter(d.backoff_base, d.backoff_cap, attempts), error);
END
$$;
