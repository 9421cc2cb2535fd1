-- The outbox: whose messages are whose, where they go, and how they are looked at.

-- -- destinations ---------------------------------------------------------------------------

-- The column defaults of llmq.destination as a row: what holds for messages that are pulled.
CREATE OR REPLACE FUNCTION llmq_internal.default_destination() RETURNS llmq.destination
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_populate_record(NULL::llmq.destination, '{
        "timeout": "10 s", "max_attempts": 10, "backoff_base": "5 s", "backoff_cap": "1 h",
        "enabled": true, "max_in_flight": 1}')
$$;

-- Whether a destination, named by a topic or by a prefix and *, takes messages of a topic.
CREATE OR REPLACE FUNCTION llmq_internal.takes(pattern text, topic text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT pattern OPERATOR(pg_catalog.=) topic
        OR (pg_catalog.right(pattern, 1) OPERATOR(pg_catalog.=) '*'
            AND pg_catalog.starts_with(topic, pg_catalog.left(pattern, -1)))
$$;

-- Where messages of a topic go: the exact topic decides, else the longest prefix.  As wake_for
-- it reads a small table as a whole, whatever its callers forbid.
CREATE OR REPLACE FUNCTION llmq_internal.destination_of(of_topic text) RETURNS llmq.destination
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on
AS $$
DECLARE
    found llmq.destination;
BEGIN
    SELECT * INTO found FROM llmq.destination AS d
    WHERE llmq_internal.takes(d.topic, of_topic)
    ORDER BY d.topic = of_topic DESC, length(d.topic) DESC LIMIT 1;
    RETURN found;
END
$$;

-- Has a worker look at commit, if it is to send messages of these topics.
CREATE OR REPLACE FUNCTION llmq_internal.wake_for(topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM llmq.destination AS d, unnest(topics) AS t
        WHERE d.enabled AND llmq_internal.takes(d.topic, t))
    THEN
        PERFORM llmq_internal.wake_at_commit();
    END IF;
END
$$;

-- -- who sees what --------------------------------------------------------------------------

-- The tenants that a role may name: itself, and those of llmq.role_tenant; NULL: all.
CREATE OR REPLACE FUNCTION llmq_internal.tenants_of(caller name) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = caller) THEN
        RETURN NULL;
    END IF;
    RETURN caller::text || ARRAY(
        SELECT t.tenant FROM llmq.role_tenant AS t
        WHERE pg_has_role(caller, to_regrole(quote_ident(t.role)), 'MEMBER'));
END
$$;

-- The tenants whose messages a role sees: those that it may name; an administrator's, who
-- may redrive any message, all.
CREATE OR REPLACE FUNCTION llmq_internal.visible_tenants_as(caller name) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF has_function_privilege(caller, 'llmq.redrive_outbox(text)', 'EXECUTE') THEN
        RETURN NULL;
    END IF;
    RETURN llmq_internal.tenants_of(caller);
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.visible_tenants() RETURNS text[]
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'llmq_as_owner_1';
COMMENT ON FUNCTION llmq_internal.visible_tenants() IS
    'the tenants whose outbox messages the caller sees; NULL: all; what llmq.outbox asks';

CREATE OR REPLACE VIEW llmq.outbox WITH (security_barrier) AS
    SELECT m.id, m.tenant, m.topic, m.dedupe_key, m.payload, m.job_id, m.created_at,
        coalesce(p.attempts, w.attempts, l.attempts, d.attempts, 0) AS attempts,
        coalesce(w.next_attempt_at, l.expires_at, CASE WHEN p.id IS NOT NULL THEN m.created_at END)
            AS next_attempt_at,
        d.sent_at, coalesce(p.last_error, w.last_error, l.last_error, d.last_error) AS last_error,
        d.dead_at
    FROM llmq.message AS m
    LEFT JOIN llmq.message_pending AS p ON p.id = m.id
    LEFT JOIN llmq.message_deferred AS w ON w.id = m.id
    LEFT JOIN llmq.message_lease AS l ON l.id = m.id
    LEFT JOIN llmq.message_done AS d ON d.id = m.id
    WHERE (SELECT llmq_internal.visible_tenants()) IS NULL
        OR m.tenant = ANY ((SELECT llmq_internal.visible_tenants())::text[]);
COMMENT ON VIEW llmq.outbox IS
    'messages of the tenants that the caller may name, for administrators all, and how far they got';
COMMENT ON COLUMN llmq.outbox.next_attempt_at IS
    'since when it can be sent or pulled, or from when on; while it is pulled, when its lease ends; NULL: being sent, sent, or dead';

CREATE OR REPLACE VIEW llmq.outbox_event WITH (security_barrier) AS
    SELECT llmq.uuid5(llmq.namespace(), jsonb_build_array(m.tenant, 'message', m.dedupe_key)::text) AS id,
        m.topic AS aggregatetype, coalesce(m.job_id::text, m.dedupe_key) AS aggregateid,
        m.topic AS type, m.payload
    FROM llmq.message AS m
    WHERE (SELECT llmq_internal.visible_tenants()) IS NULL
        OR m.tenant = ANY ((SELECT llmq_internal.visible_tenants())::text[]);
COMMENT ON VIEW llmq.outbox_event IS
    'the messages of llmq.outbox in the columns that an outbox event router expects, Debezium''s say';
