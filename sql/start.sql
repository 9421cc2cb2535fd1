-- The last act of CREATE EXTENSION: its worker starts when the transaction commits.

SELECT llmq.start_worker();
