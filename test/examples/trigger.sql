-- Every article is summarised, whoever writes it: a trigger submits, and the answer comes back into the row.

CREATE TABLE article (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, summary text);

CREATE FUNCTION keep_article_summary(answer jsonb) RETURNS void LANGUAGE sql AS $$
    UPDATE article SET summary = answer ->> 'text' WHERE id = (answer #>> '{metadata, article}')::bigint
$$;

CREATE FUNCTION summarise_article() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM llmq.submit(
        prompt          => 'Summarise this article:' || E'\n\n' || NEW.body,
        idempotency_key => llmq.derive_key('summary of article', NEW.id::text, NEW.body),
        metadata        => jsonb_build_object('article', NEW.id),
        on_complete     => 'keep_article_summary');
    RETURN NULL;
END
$$;

CREATE TRIGGER summarise AFTER INSERT OR UPDATE OF body ON article
    FOR EACH ROW EXECUTE FUNCTION summarise_article();
