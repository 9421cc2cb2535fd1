-- Where jobs belong: the database, and the installation of llmq in it, that they were submitted in.
--
-- A dump is loaded table by table, in an order that nobody promises, while the worker that CREATE
-- EXTENSION has started looks on.  What is not there yet is no news: a ready row whose job is still to
-- come, a deferred one whose place in llmq.ready is taken, a parent whose children are not known.  So
-- workers write nothing but their sessions before llmq.home names this database and this
-- installation.  No dump can bring such a row: it is written by the first submit here, or by somebody who
-- says that all is loaded.  The dump of this very database is no exception, once its
-- extension was dropped: the installation is another one then.

-- Whether jobs and messages are known to have been submitted here.
-- In plpgsql, as all that workers call again and again: what stands in an SQL function is
-- planned anew by each statement that calls it.
CREATE OR REPLACE FUNCTION llmq_internal.is_home() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce((
        SELECT bool_and(coalesce(h.installation = (SELECT i.id FROM llmq.installation AS i), false)
            AND h.system_identifier = llmq_internal.system_identifier()
            AND h.database_oid = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
        FROM llmq.home AS h), false);
END
$$;

-- Whether nothing was submitted here, nor loaded from a dump so far: a worker may be ready for the
-- first submit.
CREATE OR REPLACE FUNCTION llmq_internal.is_unused() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT (EXISTS (SELECT FROM llmq.home)
        OR EXISTS (SELECT FROM llmq.job) OR EXISTS (SELECT FROM llmq.job_place)
        OR EXISTS (SELECT FROM llmq.dependency) OR EXISTS (SELECT FROM llmq.attempt)
        OR EXISTS (SELECT FROM llmq.message) OR EXISTS (SELECT FROM llmq.message_place));
END
$$;

-- Notes, before the first job or message is inserted, where it was submitted.  Where a dump has been
-- loaded, or is being loaded, none is taken before somebody says that it is complete: what
-- is written now can have the key, or the place in the queue, of a row that is still to come, and
-- keep all rows of its table out.  Files that were copied, with CREATE DATABASE TEMPLATE say, share the
-- installation and are complete: what is submitted there waits like the rest.
CREATE OR REPLACE FUNCTION llmq_internal.note_home() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
BEGIN
    IF (SELECT bool_and(coalesce(h.installation = i.id, false)) FROM llmq.home AS h, llmq.installation AS i) THEN
        RETURN;
    ELSIF NOT llmq_internal.is_unused() THEN
        PERFORM llmq_internal.fail('PT503', 'jobs of a dump were loaded into this database, perhaps not all of them yet',
            'What is submitted meanwhile could keep others out.',
            'When the dump is loaded completely, run SELECT llmq.resume_after_restore().');
    END IF;
    PERFORM llmq_internal.write_home();
END
$$;

CREATE OR REPLACE FUNCTION llmq_internal.write_home() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO llmq.home (system_identifier, database_oid, installation)
    SELECT llmq_internal.system_identifier(), d.oid, i.id
    FROM pg_database AS d, llmq.installation AS i WHERE d.datname = current_database();
END
$$;
