-- What the state of 0.1.0 lacks.  The rule: whatever a part of SQL_STATE gets (a table, a
-- column, an index, a type, a comment, a line in dump.sql), this file adds to what is there,
-- with the same result; a column that is added comes last in both.  Code is replaced without
-- it, but for what CREATE OR REPLACE cannot do: a function whose arguments or result change, a
-- view whose columns are not only added to, and what is gone, are dropped here
-- (DROP FUNCTION llmq.old_name(text), not IF EXISTS).  test/e2e/900_upgrade.pl compares what comes
-- out with a fresh install.

ALTER TABLE llmq.attempt ADD COLUMN traceparent text;
COMMENT ON COLUMN llmq.attempt.traceparent IS 'the header that was sent: the trace of the job''s metadata, with this call as the parent';
DROP FUNCTION llmq.worker_claim(bigint, bigint[]);
DROP FUNCTION llmq.read_attempts(jsonb);
