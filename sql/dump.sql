-- What pg_dump must carry: everything but the sessions of workers, which are
-- not there after a restore, and whose leases return at once.

SELECT pg_catalog.pg_extension_config_dump(relation, '')
FROM unnest('{
    llmq.endpoint, llmq.queue, llmq.destination, llmq.budget, llmq.role_tenant,
    llmq.job, llmq.ready, llmq.deferred, llmq.lease, llmq.result, llmq.attempt,
    llmq.dead_job, llmq.cancelled_job,
    llmq.message, llmq.message_pending, llmq.message_done,
    llmq.home, llmq.ready_seq_seq, llmq.message_id_seq, llmq.worker_session_id_seq
}'::text[]) AS relation;
