# Peers - graphile-worker, and the worker that is written by hand, beside llmq's worker: the same calls to
# the same provider, with a row for the answer and one for the message that follows from it.

package Peers;

use strict;
use warnings;

use Bench;
use LlmqTest;
use LlmqTest::Process;
use Nginx;
use Redis;
use Time::HiRes qw(sleep time);

my $CALLS_AT_ONCE = 50;

# Why a peer cannot take part, or nothing.
sub lacks
{
	my ($peer) = @_;
	return length($ENV{NODE_PATH} // '') ? '' : 'no node, npm or package' if $peer eq 'graphile';
	return 'no redis-server' if !-x '/usr/bin/redis-server';
	return system('/usr/bin/python3', '-c', 'import httpx, psycopg, redis, tenacity') == 0 ? '' : 'no python3-httpx, -redis or -tenacity';
}

sub prepare
{
	my ($pg) = @_;
	$pg->sql('CREATE SCHEMA peer; CREATE TABLE peer.answer (id text PRIMARY KEY, text text NOT NULL);
		CREATE TABLE peer.message (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text, id text)');
	return;
}

# Waits until $count answers are stored, and returns the jobs a second since $start, by the clock of the commits.
sub rate_of
{
	my ($pg, $count, $start) = @_;
	wait_for(sub { sleep 0.1; $pg->sql('SELECT count(*) FROM peer.answer') >= $count }, 600, 'all is stored');
	my $end = $pg->sql('SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin))) FROM peer.answer');
	$pg->sql('SELECT count(*) FROM peer.message') == $count or wrong('messages are missing');
	return $count / ($end - $start);
}

# Jobs a second of graphile-worker, from the first one that is added.
sub graphile
{
	my ($pg, $url, $count) = @_;
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)} = ($pg->socket_dir, 5432, 'postgres', 'bench');
	my @command = ('node', 'test/bench/graphile.cjs');
	my $log = LlmqTest::test_dir() . '/graphile-calls';
	my $schema = LlmqTest::Process->start($log, @command, 'schema');
	wait_for(sub { !$schema->is_running }, 60, 'graphile-worker has its schema');
	my $worker = LlmqTest::Process->start($log, @command, 'work', $CALLS_AT_ONCE, $url);
	wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = '' AND query ~ 'graphile_worker'}) }, 60, 'it is connected');
	my $start = time;
	for (my $from = 1; $from <= $count; $from += 1000)
	{
		$pg->sql("SELECT count(graphile_worker.add_job('call', json_build_object('id', 'job ' || n, 'prompt', 'a job')))
			FROM generate_series($from, $from + 999) AS n");
	}
	my $rate = rate_of($pg, $count, $start);
	$worker->end('TERM', 10);
	return $rate;
}

# Jobs a second of some processes of by_hand.py, from the first one that is added.
sub by_hand
{
	my ($pg, $url, $count, $processes) = @_;
	my $redis = Redis->start('everysec');
	$redis->command('XGROUP', 'CREATE', 'jobs', 'workers', '$', 'MKSTREAM');
	my @workers = map { LlmqTest::Process->start(LlmqTest::test_dir() . '/by-hand', '/usr/bin/python3', 'test/bench/by_hand.py',
		$redis->socket_path, $url, $pg->conninfo, "worker-$_") } 1 .. $processes;
	wait_for(sub {
		$_->is_running or die "by_hand.py does not start: " . Nginx::slurp(LlmqTest::test_dir() . '/by-hand') for @workers;
		@{ $redis->command('XINFO', 'CONSUMERS', 'jobs', 'workers') } >= $processes;
	}, 60, 'they are connected');
	my $start = time;
	$redis->command('XADD', 'jobs', '*', 'id', "job $_", 'prompt', 'a job') for 1 .. $count;
	my $rate = rate_of($pg, $count, $start);
	$_->end('TERM', 10) for @workers;
	$redis->stop;
	return $rate;
}

1;
