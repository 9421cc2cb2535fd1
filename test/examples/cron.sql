-- pg_cron submits, llmq does the rest.  The day is in the key: run twice a day, there is one digest a day.

SELECT cron.schedule('daily digest', '0 6 * * *', $$
    SELECT llmq.submit(
        prompt          => 'Write a digest of these articles:' || E'\n\n' || string_agg(body, E'\n\n'),
        idempotency_key => 'digest of ' || current_date)
    FROM article
$$);
