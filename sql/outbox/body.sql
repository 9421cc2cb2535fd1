-- What a message says when it is sent.  None of these sets a search_path: they are called by
-- functions that pin it.

-- The time as ISO 8601 has it, in UTC.
CREATE OR REPLACE FUNCTION llmq_internal.timestamp_text(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- What a message says of its job, as that is now; NULL if retention has deleted it.
CREATE OR REPLACE FUNCTION llmq_internal.message_job(of_job uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job jsonb;
BEGIN
    SELECT jsonb_build_object('id', r.job_id, 'state', 'succeeded', 'text', r.text, 'model', r.model,
        'finish_reason', r.finish_reason, 'usage', jsonb_build_object('input_tokens', r.input_tokens,
            'output_tokens', r.output_tokens, 'cached_tokens', r.cached_tokens))
    INTO job FROM llmq.result AS r WHERE r.job_id = of_job;
    IF job IS NULL THEN
        SELECT jsonb_build_object('id', d.job_id, 'state', 'dead', 'text', d.text, 'model', NULL,
            'finish_reason', NULL, 'usage', NULL, 'error_class', d.error_class,
            'error_message', d.error_message)
        INTO job FROM llmq.dead_job AS d WHERE d.job_id = of_job;
    END IF;
    IF job IS NULL AND EXISTS (SELECT FROM llmq.job AS j WHERE j.job_id = of_job) THEN
        -- It was dead, and has been redriven since.
        job := jsonb_build_object('id', of_job, 'state', llmq_internal.state(of_job), 'text', NULL, 'model', NULL,
            'finish_reason', NULL, 'usage', NULL);
    END IF;
    RETURN job;
END
$$;

-- Whose trace a message belongs to: its payload's, or its job's; NULL: nobody's.
CREATE OR REPLACE FUNCTION llmq_internal.message_trace(m llmq.message) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT coalesce(llmq_internal.traceparent(m.payload),
        (SELECT llmq_internal.traceparent(j.metadata) FROM llmq.job AS j WHERE j.job_id = m.job_id))
$$;

-- The body of a webhook (Standard Webhooks 1.0.0: type, timestamp, data).
CREATE OR REPLACE FUNCTION llmq_internal.webhook_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    data jsonb := CASE jsonb_typeof(m.payload)
        WHEN 'object' THEN m.payload
        ELSE CASE WHEN m.payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', m.payload) END END;
    job jsonb;
BEGIN
    IF m.job_id IS NOT NULL THEN
        job := llmq_internal.message_job(m.job_id);
    END IF;
    IF job IS NOT NULL THEN
        data := data || jsonb_build_object('job', job);
    END IF;
    RETURN jsonb_build_object('type', m.topic, 'timestamp', llmq_internal.timestamp_text(m.created_at),
        'data', data)::text;
END
$$;

-- The payload of a notification: the webhook's body, or where PostgreSQL takes none that
-- long (8,000 bytes and more), where to find it.
CREATE OR REPLACE FUNCTION llmq_internal.notify_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    body constant text := llmq_internal.webhook_body(m);
BEGIN
    IF octet_length(body) < 8000 THEN
        RETURN body;
    END IF;
    RETURN jsonb_build_object('type', m.topic, 'timestamp', llmq_internal.timestamp_text(m.created_at),
        'id', m.id)::text;
END
$$;

-- The addresses of a mail payload's "to" or "cc", a text or an array, as an array; NULL if
-- they are something else.
CREATE OR REPLACE FUNCTION llmq_internal.mail_addresses(value jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE coalesce(jsonb_typeof(value), 'null')
        WHEN 'null' THEN '[]'
        WHEN 'string' THEN jsonb_build_array(value)
        WHEN 'array' THEN CASE
            WHEN NOT jsonb_path_exists(value, 'strict $[*] ? (@.type() <> "string")') THEN value END END
$$;

-- Why a payload cannot be sent as an e-mail, in a few words; NULL if it can.
CREATE OR REPLACE FUNCTION llmq_internal.mail_fault(payload jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    most constant int := 100; -- recipients of one mail, as RFC 5321 has every server take
    addresses jsonb;
    field text;
    count int := 0;
BEGIN
    IF jsonb_typeof(payload) IS DISTINCT FROM 'object' THEN
        RETURN 'the payload of an e-mail must be an object';
    END IF;
    FOREACH field IN ARRAY '{to,cc}'::text[] LOOP
        addresses := llmq_internal.mail_addresses(payload -> field);
        IF addresses IS NULL THEN
            RETURN format('"%s" must be a text or an array of texts', field);
        ELSIF EXISTS (SELECT FROM jsonb_array_elements_text(addresses) AS a WHERE a ~ '[[:cntrl:]]') THEN
            RETURN format('"%s" must not hold line breaks or other control characters', field);
        ELSIF EXISTS (SELECT FROM jsonb_array_elements_text(addresses) AS a WHERE btrim(a) = '') THEN
            RETURN format('"%s" must not hold empty addresses', field);
        ELSIF field = 'to' AND addresses = '[]' THEN
            RETURN '"to" must name a recipient';
        END IF;
        count := count + jsonb_array_length(addresses);
    END LOOP;
    IF count > most THEN
        RETURN format('"to" and "cc" must not name more than %s recipients', most);
    ELSIF coalesce(jsonb_typeof(payload -> 'subject'), 'null') NOT IN ('string', 'null') THEN
        RETURN '"subject" must be a text';
    ELSIF payload ->> 'subject' ~ E'[\r\n]' THEN
        RETURN '"subject" must not hold line breaks';
    ELSIF coalesce(jsonb_typeof(payload -> 'text'), 'null') NOT IN ('string', 'null') THEN
        RETURN '"text" must be a text';
    END IF;
    RETURN NULL;
END
$$;

-- Refuses a payload that could not be sent, if messages of its topic go out as e-mail.
-- One that no job's answer completes must have its text.
CREATE OR REPLACE FUNCTION llmq_internal.check_mail(topic text, payload jsonb, is_of_job boolean) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    fault text;
BEGIN
    IF EXISTS (SELECT FROM llmq.destination AS d WHERE d.kind = 'email')
        AND (llmq_internal.destination_of(check_mail.topic)).kind = 'email' THEN
        fault := llmq_internal.mail_fault(payload);
        IF fault IS NULL AND NOT is_of_job AND payload ->> 'text' IS NULL THEN
            fault := 'the payload of an e-mail that is no job''s must have a "text"';
        END IF;
        IF fault IS NOT NULL THEN
            PERFORM llmq_internal.fail('PT400', fault, format('Messages of the topic "%s" are sent as e-mail.', topic),
                'For example: {"to": "someone@example.org", "subject": "Your summary"}.');
        END IF;
    END IF;
END
$$;

-- The text of an e-mail: its own, else the answer; of a dead job, why it is dead.
CREATE OR REPLACE FUNCTION llmq_internal.mail_text(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    job jsonb;
BEGIN
    IF m.payload ->> 'text' IS NOT NULL OR m.job_id IS NULL THEN
        RETURN m.payload ->> 'text';
    END IF;
    job := llmq_internal.message_job(m.job_id);
    RETURN coalesce(job ->> 'text', CASE WHEN job ->> 'state' = 'dead' THEN
        concat_ws(': ', format('Job %s is dead', m.job_id), job ->> 'error_class', job ->> 'error_message') END);
END
$$;

-- An e-mail: an object with to, cc, subject and text, or with error: why it cannot be one.
CREATE OR REPLACE FUNCTION llmq_internal.mail_body(m llmq.message) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    fault text := llmq_internal.mail_fault(m.payload);
    content text;
BEGIN
    IF fault IS NULL THEN
        content := llmq_internal.mail_text(m);
        fault := CASE WHEN content IS NULL THEN 'there is no "text", and no answer to take it from' END;
    END IF;
    IF fault IS NOT NULL THEN
        RETURN jsonb_build_object('error', fault)::text;
    END IF;
    RETURN jsonb_build_object('to', llmq_internal.mail_addresses(m.payload -> 'to'),
        'cc', llmq_internal.mail_addresses(m.payload -> 'cc'),
        'subject', coalesce(m.payload ->> 'subject', ''), 'text', content)::text;
END
$$;
