-- A claim of large jobs ends with the one that goes beyond its bytes.
BEGIN;
SELECT plan(5);
SET LOCAL client_min_messages = error;
SELECT llmq.stop_worker();
SELECT worker_id AS worker FROM llmq.worker_hello(3, 'bytes', 'server', pg_backend_pid(), NULL) \gset
CREATE FUNCTION pg_temp.add(key text, bytes int) RETURNS bigint LANGUAGE sql
AS $$ SELECT llmq.submit(repeat('x', bytes), key); SELECT max(seq) FROM llmq.ready $$;
-- What comes back, in order of seq: those that are claimed, and those that are left.
CREATE FUNCTION pg_temp.claim(own bigint, seqs bigint[]) RETURNS text LANGUAGE sql
AS $$
    UPDATE llmq.worker_session SET heartbeat = clock_timestamp();
    SELECT count(job_id) || ' claimed, ' || count(seq) || ' left' FROM llmq.worker_claim(own, seqs)
$$;

SELECT pg_temp.add('a', 20 << 20) AS a, pg_temp.add('b', 20 << 20) AS b, pg_temp.add('c', 1) AS c, pg_temp.add('d', 40 << 20) AS d \gset
SELECT is(pg_temp.claim(:worker, ARRAY[:a, :b, :c, :d]), '2 claimed, 2 left', 'a claim has 32 MiB of prompts and the last job');
SELECT is((SELECT array_agg(seq ORDER BY seq) FROM llmq.ready), ARRAY[:c, :d]::bigint[], 'the others are left as they were, in their order');
ANALYZE llmq.ready; -- with which the planner would begin with the table, not with what is wanted
SELECT is(pg_temp.claim(:worker, ARRAY[:d, :c]), '1 claimed, 1 left', 'a job beyond that is claimed alone');
SELECT is(pg_temp.claim(:worker, ARRAY[:c]), '1 claimed, 0 left', 'what was left can be claimed');
SELECT is((SELECT count(*) FROM llmq.lease), 4::bigint, 'and in the end all are');
SELECT * FROM finish();
ROLLBACK;
