# A worker with nothing to do: no transaction id, no WAL, one statement a poll.  And what must not
# grow, or be waited for: commits after many submits, a wake-up that is lost.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

use constant POLL => 2;
use constant IDLE => 12;

my $provider = start_provider();

# With these settings nobody but llmq would write WAL.
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => POLL . 's', wal_level => 'minimal', max_wal_senders => 0,
	autovacuum => 'off', checkpoint_timeout => '1h', max_prepared_transactions => 2 });
$pg->create_database('app', extension => 1, provider => $provider);
my $worker = $pg->wait_for_worker;

# -- idle -----------------------------------------------------------------------

$pg->sql("SELECT count(llmq.submit('Go. [job:before-' || n || ']', 'before-' || n)) FROM generate_series(1, 50) AS n");
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.result') == 50 }, 30, 'some work is done');
wait_for(sub { $pg->sql('SELECT in_flight FROM llmq.worker_session') == 0 }, 20, 'the worker has said that it has no leases');
$pg->disconnect('app');

# Returns what the server has used so far, without being seen in the database that is looked at.
sub usage
{
	my $row = $pg->row(q{SELECT pg_current_wal_insert_lsn() AS lsn, pg_snapshot_xmax(pg_current_snapshot()) AS xid,
		(SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'app') AS transactions}, 'postgres');
	open(my $file, '<', "/proc/$worker/stat") or die "/proc/$worker/stat: $!\n";
	my @stat = split ' ', <$file> =~ s/.*\) //sr;
	return { %{$row}, at => now(), cpu => ($stat[11] + $stat[12]) / 100 };
}

# The first polls may still tidy up pages.
my $last = usage();
wait_for(sub {
	my $now = usage();
	return 0 if $now->{transactions} < $last->{transactions} + 2;
	my $quiet = $now->{lsn} eq $last->{lsn};
	$last = $now;
	return $quiet;
}, 30, 'the worker is idle');

my $before = usage();
wait_for(sub { now() > $before->{at} + IDLE }, IDLE + 10, 'time has passed');
my $after = usage();
my $polls = $after->{transactions} - $before->{transactions};
my $time = $after->{at} - $before->{at};
note(sprintf 'idle for %.1f s: %d transactions, %.2f s of CPU', $time, $polls, $after->{cpu} - $before->{cpu});
is($after->{xid}, $before->{xid}, 'an idle worker uses no transaction id');
is($after->{lsn}, $before->{lsn}, 'and writes no WAL');
cmp_ok($polls, '>=', $time / POLL - 2, 'it looks for work once a poll_interval');
cmp_ok($polls, '<=', $time / POLL + 2, 'and no more often: a statement would be a transaction');
cmp_ok($after->{cpu} - $before->{cpu}, '<', 1, 'it uses next to no CPU time');

# -- statistics -----------------------------------------------------------------

my $stat = wait_for(sub {
	my $row = $pg->row(q{SELECT n_tup_ins, n_tup_del, n_dead_tup FROM pg_stat_all_tables WHERE relid = 'llmq.ready'::regclass});
	$row->{n_tup_del} >= 50 ? $row : 0;
}, 20, 'the worker reports what it did');
is("$stat->{n_tup_ins} $stat->{n_tup_del} $stat->{n_dead_tup}", '50 50 50', 'what a worker does is reported, so that autovacuum knows of dead rows');

# -- a wake-up that is lost -----------------------------------------------------

# COMMIT PREPARED wakes nobody.
$pg->sql("BEGIN; SELECT llmq.submit('Go. [job:prepared]', 'prepared'); PREPARE TRANSACTION 'p'");
my $committed = now();
$pg->sql("COMMIT PREPARED 'p'");
my ($call) = $provider->wait_for_calls('prepared', 1);
note(sprintf 'without a wake-up a job is called after %.2f s, with a poll each %d s', $call->{start} - $committed, POLL);
cmp_ok($call->{start} - $committed, '<', POLL + 5, 'a job whose commit woke nobody waits for the next poll');

# -- a wake-up that meets a lock --------------------------------------------------

$pg->set('llmq.poll_interval' => '1h');
$pg->reload;
$pg->final_state($pg->submit(prompt => 'Go. [job:settled]', idempotency_key => 'settled'));
for my $table (qw(recall lease ready))
{
	my $locker = $pg->session;
	my $submitter = $pg->session;
	$submitter->query('BEGIN');
	$submitter->query("SELECT llmq.submit('Go. [job:$table]', '$table')");
	if ($table eq 'ready')
	{
		# The submit itself has a lock on this one: the locker gets it at the commit, before the worker does.
		$locker->send("BEGIN; LOCK TABLE llmq.$table IN ACCESS EXCLUSIVE MODE");
		wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'}) }, 20, 'the locker waits');
		$submitter->query('COMMIT');
		$locker->result;
	}
	else
	{
		$locker->query("BEGIN; LOCK TABLE llmq.$table IN ACCESS EXCLUSIVE MODE");
		$submitter->query('COMMIT');
	}
	wait_for(sub { $pg->sql("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $worker") eq 't' }, 20, 'the worker meets the lock');
	wait_for(sub { $pg->sql("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $worker") ne 't' }, 20, 'the worker gives up');
	my $unlocked = now();
	$locker->query('COMMIT');
	($call) = $provider->wait_for_calls($table, 1, 20);
	note(sprintf 'a lock on llmq.%s: called %.2f s after it was gone', $table, $call->{start} - $unlocked);
	cmp_ok($call->{start} - $unlocked, '<', 4, "a wake-up that met a lock on llmq.$table is not lost, though the next poll is an hour away");
	$_->disconnect for $locker, $submitter;
}
is($pg->wait_for_worker, $worker, 'the worker is the same all the time');

# -- many submits in one session ---------------------------------------------------

# Nothing of this queue is called.
$pg->insert('queue', name => 'none', endpoints => '{}');
my $session = $pg->session;
$session->query('CREATE TEMP TABLE lap (part text, took double precision)');

# A worker that was woken is deaf for 2 ms (DEAF_US): commits share a look.
$pg->set(track_functions => 'pl', 'llmq.poll_interval' => '1s');
$pg->reload;
my $submits = 1000;

# How often the worker has looked; what it counts is known when it has been idle since the last job was done.
sub looks
{
	my ($key) = @_;
	my $done = $pg->sql("SELECT n_tup_del FROM pg_stat_all_tables WHERE relid = 'llmq.ready'::regclass");
	$pg->final_state($pg->submit(prompt => "Go. [job:$key]", idempotency_key => $key));
	wait_for(sub { $pg->sql("SELECT n_tup_del FROM pg_stat_all_tables WHERE relid = 'llmq.ready'::regclass") > $done }, 20, 'the worker reports');
	return $pg->sql("SELECT calls FROM pg_stat_user_functions WHERE funcname = 'worker_poll'");
}

my $looks = looks('before-stream');
my $stream_began = now();
$session->query("DO \$\$ BEGIN
	FOR n IN 1 .. $submits LOOP
		PERFORM llmq.submit('Wait.', 'stream-' || n, queue => 'none');
		COMMIT;
	END LOOP;
	END \$\$", 120);
my $took = now() - $stream_began;
$looks = looks('after-stream') - $looks;
note(sprintf '%d commits in %.2f s, %d looks', $submits, $took, $looks);
cmp_ok($looks, '>', 0, 'a stream of commits makes the worker look');
cmp_ok($looks, '<=', $took / 0.002 + 50, 'every 2 ms at most');

# Notes how long the commits of 300 transactions take that submit one job each.
sub measure_commits
{
	my ($part) = @_;
	my $result = $session->query(qq{DO \$\$
		DECLARE began timestamptz;
		BEGIN
			FOR n IN 1 .. 300 LOOP
				PERFORM llmq.submit('Wait.', '$part-' || n, queue => 'none');
				began := clock_timestamp();
				COMMIT;
				INSERT INTO lap VALUES ('$part', extract(epoch FROM clock_timestamp() - began));
				COMMIT;
			END LOOP;
		END \$\$}, 120);
	is($result->{sqlstate}, '00000', "$part: 300 jobs are submitted, one a transaction");
	return $session->query("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took) FROM lap WHERE part = '$part'")->{out};
}

measure_commits('warm');
my $early = measure_commits('early');
my $began = now();
for my $part (1 .. 20)
{
	my $result = $session->query("SELECT count(llmq.submit('Wait.', 'many-$part-' || n, queue => 'none')) FROM generate_series(1, 5000) AS n", 120);
	die $result->{err} if $result->{out} ne '5000';
}
note(sprintf '100,000 submits in %.0f s', now() - $began);
my $late = measure_commits('late');
note(sprintf 'median commit: %.3f ms early, %.3f ms after 100,000 submits', $early * 1000, $late * 1000);
cmp_ok($late, '<', $early * 5 + 0.001, 'commits take no longer after 100,000 submits in a session');
$session->disconnect;

finish();
