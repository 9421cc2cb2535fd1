-- An API by PostgREST: POST /rpc/summarise with {"body": "..."} and the header Idempotency-Key.
-- A new job is 202, and llmq's errors are the HTTP status that their SQLSTATE names: PT422 is 422.

CREATE SCHEMA api;

CREATE FUNCTION api.summarise(body text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    submission llmq.submission;
BEGIN
    submission := llmq.submit(
        prompt          => 'Summarise this:' || E'\n\n' || body,
        idempotency_key => current_setting('request.headers')::json ->> 'idempotency-key');
    PERFORM set_config('response.status', '202', true);
    RETURN json_build_object('job_id', submission.job_id, 'status', submission.state);
END
$$;

CREATE ROLE api_user NOLOGIN;
GRANT USAGE ON SCHEMA api TO api_user;
SELECT llmq.grant_submit('api_user');
