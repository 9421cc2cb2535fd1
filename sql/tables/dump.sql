-- What pg_dump must carry: everything but the sessions of workers, which are
-- not there after a restore, and whose leases return at once.

DO $$
DECLARE
    relation pg_catalog.regclass;
BEGIN
    -- One statement each: all of them update the same row of pg_extension.
    FOREACH relation IN ARRAY '{
        llmq.endpoint, llmq.queue, llmq.destination, llmq.budget, llmq.role_tenant,
        llmq.job, llmq.ready, llmq.deferred, llmq.blocked, llmq.dependency, llmq.lease, llmq.answer, llmq.result, llmq.attempt,
        llmq.dead_job, llmq.cancelled_job, llmq.idempotency,
        llmq.spending, llmq.budget_spent, llmq.spending_id_seq,
        llmq.message, llmq.message_pending, llmq.message_deferred, llmq.message_lease, llmq.message_done,
        llmq.home, llmq.ready_seq_seq, llmq.message_id_seq, llmq.worker_session_id_seq
    }'::pg_catalog.regclass[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(relation, '');
    END LOOP;
END
$$;
