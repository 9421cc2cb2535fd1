# Foreign keys of others to tables of llmq: what their triggers do when a row goes is done with their
# rights, never with those of llmq, its workers or whoever asks for it; and what is harmless works.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '200ms' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->sql($_) for 'CREATE ROLE mallory LOGIN; CREATE ROLE eve LOGIN; CREATE ROLE clerk LOGIN; CREATE ROLE remote LOGIN',
	q{SELECT llmq.grant_admin('clerk'), llmq.grant_worker('remote')};
$pg->insert('queue', name => 'old', retention => '1 ms');
$pg->insert('queue', name => 'paused', paused => 'true');

# Runs SQL as a role, in a session of its own, and returns what came of it.
sub as
{
	my ($role, $sql) = @_;
	my $session = $pg->session;
	$session->query("SET SESSION AUTHORIZATION $role");
	my $result = $session->query($sql);
	$session->disconnect;
	return $result;
}

# Makes a role's schema with a table that refers to one of llmq's, and triggers of all kinds that note
# who they are, and take what rights they can.
sub refer
{
	my ($role, $to) = @_;
	$pg->sql("CREATE SCHEMA IF NOT EXISTS $role AUTHORIZATION $role; GRANT USAGE ON SCHEMA llmq TO $role; GRANT REFERENCES ON llmq.$to TO $role");
	my $made = as($role, <<"SQL");
CREATE TABLE IF NOT EXISTS $role.seen (trigger text, who text);
GRANT USAGE ON SCHEMA $role TO PUBLIC;
GRANT INSERT ON $role.seen TO PUBLIC;
CREATE OR REPLACE FUNCTION $role.take() RETURNS trigger LANGUAGE plpgsql AS \$f\$
BEGIN
	INSERT INTO $role.seen VALUES (TG_NAME, current_user);
	SET search_path = $role;
	BEGIN
		ALTER ROLE $role SUPERUSER;
	EXCEPTION WHEN insufficient_privilege THEN NULL;
	END;
	BEGIN
		RESET ROLE;
		INSERT INTO $role.seen VALUES (TG_NAME || ' after RESET ROLE', current_user);
	EXCEPTION WHEN insufficient_privilege THEN NULL;
	END;
	RETURN OLD;
END \$f\$;
CREATE TABLE $role.to_$to (job_id uuid REFERENCES llmq.$to (job_id) ON DELETE CASCADE);
CREATE TRIGGER before BEFORE DELETE ON $role.to_$to FOR EACH ROW EXECUTE FUNCTION $role.take();
CREATE TRIGGER after AFTER DELETE ON $role.to_$to FOR EACH ROW EXECUTE FUNCTION $role.take();
CREATE TRIGGER statement AFTER DELETE ON $role.to_$to FOR EACH STATEMENT EXECUTE FUNCTION $role.take();
CREATE CONSTRAINT TRIGGER deferred AFTER DELETE ON $role.to_$to DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION $role.take();
SQL
	is($made->{sqlstate}, '00000', "$role has a table that refers to llmq.$to") or diag($made->{err});
	return;
}

# What the triggers of a role have noted since the last time.
sub seen
{
	my ($role) = @_;
	my $seen = $pg->sql("SELECT string_agg(trigger || ' ' || who, ', ' ORDER BY trigger) FROM $role.seen");
	$pg->sql("TRUNCATE $role.seen");
	return $seen;
}

sub has_nobody_gained
{
	my ($how) = @_;
	is($pg->sql(q{SELECT count(*) FROM pg_roles WHERE rolname IN ('mallory', 'eve') AND rolsuper}), 0, "$how: nobody has become a superuser");
	return;
}

# A job that retention may delete, and rows of these tables that refer to it.
my $serial = 0;
sub old_job
{
	my (@tables) = @_;
	my $job = $pg->submit(prompt => 'Go.', idempotency_key => 'old ' . ++$serial, queue => 'old', run_at => '2100-01-01');
	$pg->sql("INSERT INTO $_ VALUES ('$job')") for @tables;
	$pg->sql("SELECT llmq.cancel('$job'); UPDATE llmq.cancelled_job SET cancelled_at = now() - interval '1 day' WHERE job_id = '$job'");
	return $job;
}

sub is_there { return $pg->sql("SELECT count(*) FROM llmq.job WHERE job_id = '$_[0]'") }

# -- retention --------------------------------------------------------------------------------------

refer(mallory => 'job');
my $as_mallory = 'after mallory, before mallory, deferred mallory, statement mallory';
for my $role ('clerk', 'postgres')
{
	my $job = old_job('mallory.to_job');
	is(as($role, 'SELECT llmq.prune()')->{out}, 1, "$role has retention delete a job that mallory's table refers to");
	is(is_there($job) . $pg->sql('SELECT count(*) FROM mallory.to_job'), '00', 'it is gone, with the row that refers to it');
	is(seen('mallory'), $as_mallory, 'and each trigger has run once, with the rights of mallory');
	has_nobody_gained("prune by $role");
}

# -- workers ------------------------------------------------------------------------------------------

refer(mallory => 'ready');
for my $worker ('the worker in the server', 'a program')
{
	if ($worker eq 'a program')
	{
		$pg->stop_workers;
		start_program($pg, conninfo => $pg->conninfo('app', 'remote'));
	}
	$pg->sql(q{UPDATE llmq.queue SET paused = true WHERE name = 'paused'});
	my $job = $pg->submit(prompt => 'Go.', idempotency_key => $worker, queue => 'paused');
	$pg->sql("INSERT INTO mallory.to_ready VALUES ('$job')");
	$pg->sql(q{UPDATE llmq.queue SET paused = false WHERE name = 'paused'});
	is($pg->final_state($job)->{state}, 'succeeded', "$worker does a job that mallory's table refers to");
	is(seen('mallory'), $as_mallory, 'and each trigger has run once, with the rights of mallory, none of them at its commit');
	has_nobody_gained($worker);
}
is($pg->final_state($pg->submit(prompt => 'Go.', idempotency_key => 'after', queue => 'paused'))->{state}, 'succeeded', 'others are done after that');

# -- several at once ------------------------------------------------------------------------------------

refer(eve => 'job');
my $job = old_job('mallory.to_job', 'eve.to_job');
is($pg->sql('SELECT llmq.prune()'), 1, 'a job that tables of two roles refer to is deleted');
unlike(seen('mallory'), qr/postgres|eve/, 'the triggers of one have neither the rights of llmq nor of the other');
unlike(seen('eve'), qr/postgres|mallory/, 'nor the other way round');
has_nobody_gained('prune with two');
as(eve => 'DROP TABLE eve.to_job');

# -- what is harmless -----------------------------------------------------------------------------------

as(mallory => 'DROP TABLE mallory.to_job; CREATE TABLE mallory.keeps (job_id uuid REFERENCES llmq.job DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE mallory.forgets (job_id uuid REFERENCES llmq.job ON DELETE SET NULL)');
my $free = old_job();
my $kept = old_job('mallory.keeps');
my $forgotten = old_job('mallory.forgets');
is(as(clerk => 'SELECT llmq.prune()')->{out}, 2, 'retention deletes what no foreign key keeps');
is(join(' ', map { is_there($_) } $free, $kept, $forgotten), '0 1 0', 'and keeps what one does, though it is deferred');
is($pg->sql('SELECT count(*) FROM mallory.forgets WHERE job_id IS NULL'), 1, 'a row that may forget its job stays without it');
my $deferred = as(clerk => "BEGIN; CREATE TEMPORARY TABLE one (x int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO one VALUES (1), (1); DELETE FROM one; SELECT llmq.prune(); COMMIT");
is($deferred->{sqlstate}, '00000', 'in a transaction with constraints of its own that are deferred and met');
$pg->sql('DELETE FROM mallory.keeps');
is($pg->sql('SELECT llmq.prune()'), 1, 'when nothing refers to it any more, it goes');

finish();
