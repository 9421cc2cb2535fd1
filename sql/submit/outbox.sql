-- What llmq.submit refuses of the outbox messages that a job asks for.  As in sql/submit/checks.sql
-- the search_path is pinned by its callers.

CREATE OR REPLACE FUNCTION llmq_internal.check_dedupe_key(dedupe_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF dedupe_key ~ ':death [0-9]+$' THEN
        PERFORM llmq_internal.fail('PT400', 'dedupe_key must not end in ":death n"', format('It is "%s".', dedupe_key),
            'The messages of later deaths of a job have such keys.');
    ELSIF octet_length(dedupe_key) > 1600 THEN -- with a tenant it must fit into an index
        PERFORM llmq_internal.fail('PT400', 'dedupe_key must have at most 1600 bytes',
            format('It has %s.', octet_length(dedupe_key)),
            'Hash longer keys: encode(sha256(convert_to(key, ''UTF8'')), ''hex'').');
    END IF;
END
$$;

-- A message must fit into one claim, with room for what becomes of it in memory.
CREATE OR REPLACE FUNCTION llmq_internal.check_payload(topic text, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    most constant int := 16 * 1024 * 1024; -- bytes of JSON
    size constant int := octet_length(payload::text);
BEGIN
    IF size > most THEN
        PERFORM llmq_internal.fail('54000', 'the payload of an outbox message must have at most 16 MiB',
            format('That of topic "%s" has %s bytes.', topic, size),
            'Store what is large elsewhere, and send where it is.');
    END IF;
END
$$;

-- The outbox entries of a job: shape, lengths, keys that differ.
CREATE OR REPLACE FUNCTION llmq_internal.check_outbox(outbox jsonb, job_id uuid) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    entry jsonb;
    unknown text;
BEGIN
    IF jsonb_typeof(outbox) <> 'array' THEN
        PERFORM llmq_internal.fail('PT400', 'outbox must be a JSON array', NULL,
            'For example: [{"topic": "email.summary", "payload": {"to": "someone@example.org"}}].');
    END IF;
    FOR entry IN SELECT value FROM jsonb_array_elements(outbox) LOOP
        IF jsonb_typeof(entry) <> 'object' OR jsonb_typeof(entry -> 'topic') IS DISTINCT FROM 'string' THEN
            PERFORM llmq_internal.fail('PT400', 'each outbox entry must be an object with a topic', entry::text,
                'For example: {"topic": "email.summary", "payload": {}}.');
        END IF;
        SELECT key INTO unknown FROM jsonb_object_keys(entry) AS key
        WHERE key NOT IN ('topic', 'payload', 'dedupe_key', 'on');
        IF FOUND THEN
            PERFORM llmq_internal.fail('PT400', format('an outbox entry cannot have "%s"', unknown), NULL,
                'It may have topic, payload, dedupe_key and on.');
        END IF;
        PERFORM llmq_internal.check_length('topic', entry ->> 'topic', 128);
        IF entry ? 'dedupe_key' AND jsonb_typeof(entry -> 'dedupe_key') <> 'string' THEN
            PERFORM llmq_internal.fail('PT400', 'dedupe_key must be a string', entry::text, 'Leave it out for the default.');
        END IF;
        PERFORM llmq_internal.check_length('dedupe_key', entry ->> 'dedupe_key', 512);
        PERFORM llmq_internal.check_dedupe_key(entry ->> 'dedupe_key'), llmq_internal.check_mail(entry ->> 'topic', entry -> 'payload', true),
            llmq_internal.check_payload(entry ->> 'topic', entry -> 'payload');
        IF coalesce(entry ->> 'on', 'succeeded') NOT IN ('succeeded', 'dead') THEN
            PERFORM llmq_internal.fail('PT400', '"on" of an outbox entry must be succeeded or dead',
                format('It is %s.', entry -> 'on'), 'Leave it out for succeeded.');
        END IF;
    END LOOP;
    IF (SELECT count(*) <> count(DISTINCT coalesce(e.value ->> 'dedupe_key',
            format('%s:%s:%s', e.value ->> 'topic', job_id, e.ordinality)))
        FROM jsonb_array_elements(outbox) WITH ORDINALITY AS e) THEN
        PERFORM llmq_internal.fail('PT400', 'two outbox entries have the same dedupe_key', NULL,
            'Give each entry its own key, or none.');
    END IF;
END
$$;
