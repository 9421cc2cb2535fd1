# The bench of the queue, which test/bench/run starts: whether claims stay flat under an old snapshot
# and a large backlog, and how many jobs a second go in and out, beside other queues.

use strict;
use warnings;

use Bench;
use List::Util qw(max sum);
use LlmqTest;
use LlmqTest::Process;
use Redis;
use Time::HiRes qw(sleep time);

my $RATE = 1000;
my $BATCH = 10;
my $SECONDS = $ENV{LOAD_SECONDS} || 120;
my $WARM_UP = 3;
my $BACKLOG = $ENV{BACKLOG} || 1_000_000;
my $LIMITS = $ENV{LIMITS};
my $SPEED_SECONDS = $ENV{SPEED_SECONDS} || 10;
my $SPEED_JOBS = 20_000;
my $PAYLOAD = 'Summarise this. ' x 12;		# 192 bytes

my $node = length($ENV{NODE_PATH} // '') && $ENV{NODE_PATH};

flat() if is_wanted('flat');
backlog() if is_wanted('backlog');
speed() if is_wanted('speed');
LlmqTest::leave(1);
exit Bench::exit_code();

# A server whose workers do not run: sessions play them, and compile no plans, like a worker's.
sub driven_cluster
{
	my (%conf) = @_;
	my $pg = bench_cluster('llmq.enabled' => 'off', jit => 'off', log_min_messages => 'error', client_min_messages => 'error', %conf);
	$pg->insert('endpoint', name => 'main', api => 'openai_chat', url => 'http://127.0.0.1:9/v1', model => 'stand-in');
	LlmqTest::Cluster::run($pg->psql_command('bench'), '-qX', '-v', 'ON_ERROR_STOP=1', '-f', 'test/bench/queue.sql');
	return $pg;
}

# -- under an old snapshot ------------------------------------------------------

sub flat
{
	my $pg = driven_cluster(shared_preload_libraries => 'llmq,pg_stat_statements');
	$pg->sql('UPDATE llmq.endpoint SET requests_per_minute = 1e9, tokens_per_minute = 1e9') if $LIMITS;
	$pg->sql('ALTER DATABASE bench SET synchronous_commit = off');		# decay is measured here, not the disk
	$pg->disconnect_all;
	$pg->sql('CREATE EXTENSION pg_stat_statements');
	my @systems = ('llmq', $LIMITS ? () : grep { prepare_peer($pg, $_) } 'pgq', 'graphile');
	heading("$RATE jobs/s in and out of each for $SECONDS s, batches of $BATCH, under an old snapshot, asynchronous commits" . ($LIMITS ? ', with limits' : ''));
	line("systems: @systems; ms a call, the mean of ten seconds");
	line('the yardstick is work that touches no table: as it grows, the machine was shared with more');

	my $old = $pg->session;
	$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM llmq.ready');
	my $graphile = (grep { $_ eq 'graphile' } @systems) && graphile_process($pg, 'work');
	my $start = time + $WARM_UP;
	my @sessions = map { drive($pg, $_, $start) } @systems;

	printf "    %8s", 'second';
	printf ' %15s', $_ for columns(@systems);
	print "\n";
	my %before = graphile_times($pg);
	for my $slot (-1 .. $SECONDS / 10 - 1)
	{
		sleep max 0, $start + 10 * ($slot + 1) - time;
		my %now = graphile_times($pg);
		note_graphile($pg, $slot, \%before, \%now) if $slot >= 0 && $graphile;
		%before = %now;
		print_slot($pg, $slot, @systems) if $slot >= 0;
	}
	print_ratios($pg, int($SECONDS / 10) - 1, @systems);
	for my $session (@sessions)
	{
		my $result = $session->result(120);
		$result->{sqlstate} eq '00000' or wrong("a driver failed: $result->{err}");
	}
	$graphile->end('TERM', 10) if $graphile;
	for my $row ($pg->rows("SELECT * FROM bench.count WHERE system <> 'graphile' AND produced <> consumed"))
	{
		wrong("$row->{system}: $row->{produced} jobs went in, $row->{consumed} came out");
	}
	line("went in: $_->{system} $_->{produced}") for $pg->rows('SELECT * FROM bench.count ORDER BY system DESC');
	line("graphile still holds $_") for $graphile ? $pg->sql('SELECT count(*) FROM graphile_worker._private_jobs') : ();
	$old->disconnect;
	$pg->stop('fast');
	return;
}

# Installs a peer into the database; false, with a line that says why, if it is not to be had.
sub prepare_peer
{
	my ($pg, $system) = @_;
	if ($system eq 'pgq')
	{
		$pg->sql("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'") or return skip('pgq', 'no postgresql-15-pgq3');
		$pg->sql("CREATE EXTENSION pgq; SELECT pgq.create_queue('bench'); SELECT pgq.register_consumer('bench', 'driver');
			SELECT pgq.set_queue_config('bench', 'ticker_max_count', '$BATCH'), pgq.set_queue_config('bench', 'ticker_max_lag', '10 ms')");
		return 1;
	}
	$node or return skip('graphile-worker', 'no node, npm or package');
	my $schema = graphile_process($pg, 'schema');
	wait_for(sub { !$schema->is_running }, 60, 'graphile-worker has its schema');
	return $pg->sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'graphile_worker'") || skip('graphile-worker', 'it does not start');
}

sub skip { my ($what, $why) = @_; line("skipped: $what ($why)"); return 0 }

sub graphile_process
{
	my ($pg, $what, $batch) = @_;
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)} = ($pg->socket_dir, 5432, 'postgres', 'bench');
	return LlmqTest::Process->start(LlmqTest::test_dir() . "/graphile-$what", 'node', 'test/bench/graphile.cjs', $what, $batch // $BATCH);
}

# Starts the sessions of a system.
sub drive
{
	my ($pg, $system, $start) = @_;
	$pg->sql("INSERT INTO bench.count (system) VALUES ('$system')");
	my $finish = sprintf 'to_timestamp(%f)', $start + $SECONDS;
	my %consume = (
		llmq => sprintf("bench.consume_llmq(to_timestamp(%f), $finish, $BATCH)", $start),
		pgq => sprintf("bench.consume_pgq(to_timestamp(%f), $finish)", $start));
	my @sessions;
	for my $call ("bench.produce('$system', $RATE, $finish, '$PAYLOAD')", $consume{$system} // ())
	{
		my $session = $pg->session;
		$session->send("CALL $call");
		push @sessions, $session;
	}
	return @sessions;
}

# What its own client's statements have taken so far: operation to calls and milliseconds.
sub graphile_times
{
	my ($pg) = @_;
	return map { $_->{operation} => $_ } $pg->rows(q{
		SELECT CASE WHEN query ILIKE '%skip locked%' THEN 'claim' ELSE 'settle' END AS operation, sum(calls) AS calls,
			sum(total_exec_time) AS ms
		FROM pg_stat_statements
		WHERE query ILIKE '%_private_jobs%' AND (query ILIKE '%skip locked%' OR query ILIKE 'delete from %') GROUP BY 1});
}

sub note_graphile
{
	my ($pg, $slot, $before, $now) = @_;
	for my $operation (keys %{$now})
	{
		my ($calls, $ms) = map { $now->{$operation}{$_} - ($before->{$operation}{$_} // 0) } 'calls', 'ms';
		$pg->sql("INSERT INTO bench.sample VALUES ('graphile', $slot, '$operation', $calls, $ms)");
	}
	return;
}

sub columns { return map { my $system = $_; map { "$system $_" } operations($system) } @_ }
sub operations { return $_[0] eq 'llmq' ? (qw(claim settle poll sweep yardstick), $LIMITS ? 'draw' : ()) : qw(claim settle) }

sub means
{
	my ($pg, $slot) = @_;
	return map { ("$_->{system} $_->{operation}" => $_->{mean}) } $pg->rows(
		"SELECT system, operation, sum(ms) / nullif(sum(calls), 0) AS mean FROM bench.sample WHERE slot = $slot GROUP BY 1, 2");
}

sub print_slot
{
	my ($pg, $slot, @systems) = @_;
	my %mean = means($pg, $slot);
	record("flat.$_" =~ tr/ /./r, sprintf '%.4f', $mean{$_}) for grep { defined $mean{$_} } columns(@systems);
	printf "    %8d", 10 * ($slot + 1);
	printf ' %15s', defined $mean{$_} ? sprintf '%.2f', $mean{$_} : '-' for columns(@systems);
	print "\n";
	return;
}

sub print_ratios
{
	my ($pg, $last, @systems) = @_;
	my %first = means($pg, 0);
	my %end = means($pg, $last);
	for my $column (columns(@systems))
	{
		next unless $first{$column} && $end{$column};
		figure("$column, at the end by at 10 s", sprintf('%.2f', $end{$column} / $first{$column}),
			$column =~ /^llmq (claim|settle)/ ? 'at most 1.3' : undef);
	}
	return;
}

# -- with much that stands about --------------------------------------------------

sub backlog
{
	my $tenth = $BACKLOG / 10;
	heading("Claims of $BATCH with $BACKLOG ready, and $tenth deferred, dead and paused each");
	my $pg = driven_cluster(synchronous_commit => 'off');
	fill($pg, 4000);
	$pg->sql('CALL bench.work(100, 10)');
	my ($claim, $settle) = split /\|/, $pg->sql("CALL bench.work(200, $BATCH)");
	$pg->sql("INSERT INTO llmq.queue (name, paused) VALUES ('halted', true)");
	$pg->sql("CALL bench.stand_about($tenth, 'ready', 'halted')");
	$pg->sql("CALL bench.stand_about($tenth, 'deferred', 'default')");
	$pg->sql("CALL bench.stand_about($tenth, 'dead', 'default')");
	$pg->sql("CALL bench.stand_about($BACKLOG, 'ready', 'default')");
	$pg->sql('CHECKPOINT');
	$pg->sql('CALL bench.work(100, 10)');
	my ($large_claim, $large_settle) = split /\|/, $pg->sql("CALL bench.work(200, $BATCH)");
	figure('claim, otherwise empty queue: median', sprintf('%.2f ms', $claim));
	figure('claim, large backlog: median', sprintf('%.2f ms', $large_claim));
	figure('ratio', sprintf('%.2f', $large_claim / $claim), 'at most 1.3');
	record('backlog.none' => sprintf '%.3f', $claim);
	record('backlog.large' => sprintf '%.3f', $large_claim);
	figure('settle, empty; large; ratio', sprintf('%.2f; %.2f; %.2f', $settle, $large_settle, $large_settle / $settle));
	$pg->stop('fast');
	return;
}

sub fill
{
	my ($pg, $count) = @_;
	$pg->sql("CALL bench.stand_about($count, 'ready', 'default')");
	return;
}

# -- speed ----------------------------------------------------------------------------

sub speed
{
	heading('Speed, each commit on disk');
	my $pg = driven_cluster();
	speed_figure('insert.llmq', 'llmq.submit, 4 pgbench clients, /s',
		pgbench($pg, 4, "SELECT job_id FROM llmq.submit(idempotency_key => gen_random_uuid()::text, prompt => '$PAYLOAD')"), 'at least 3000');
	speed_figure('bulk.llmq', 'llmq.submit_many of 1000, 1 client, rows/s', 1000 * pgbench($pg, 1, "SELECT count(*) FROM llmq.submit_many((
		SELECT jsonb_agg(jsonb_build_object('idempotency_key', gen_random_uuid(), 'prompt', '$PAYLOAD')) FROM generate_series(1, 1000)))"), 'at least 10000');
	fill($pg, $SPEED_JOBS + 100);
	$pg->sql('CALL bench.work(1, 100)');
	speed_figure('consume.llmq', 'worker_claim and worker_settle of 100, 1 session, jobs/s',
		rate($SPEED_JOBS, sub { $pg->sql("CALL bench.work($SPEED_JOBS / 100, 100)") }));
	pgq_speed($pg) if prepare_peer($pg, 'pgq');
	graphile_speed($pg) if prepare_peer($pg, 'graphile');
	$pg->stop('fast');
	for my $fsync ('always', 'everysec')
	{
		if (-x '/usr/bin/redis-server') { redis_speed($fsync) }
		else { skip("Redis Streams, appendfsync $fsync", 'no redis-server') }
	}
	return;
}

sub speed_figure
{
	my ($key, $name, $value, $goal) = @_;
	figure($name, sprintf('%.0f', $value), $goal);
	record($key => sprintf '%.0f', $value);
	return;
}

# How many a second: of $count, by what $work takes.
sub rate
{
	my ($count, $work) = @_;
	my $began = time;
	$work->();
	return $count / (time - $began);
}

# Runs a statement for some seconds, and returns how often a second it was run.
sub pgbench
{
	my ($pg, $clients, $sql) = @_;
	my $script = LlmqTest::test_dir() . '/script.sql';
	open(my $file, '>', $script) or die "$script: $!\n";
	print {$file} $sql =~ s/\s*\n\s*/ /gr, ";\n";
	close $file;
	my $report = LlmqTest::Cluster::run(LlmqTest::Cluster::program('pgbench'), '-n', '-M', 'prepared', '-c', $clients, '-j', 2,
		'-T', $SPEED_SECONDS, '-f', $script, '-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres', 'bench');
	$report =~ /^tps = ([\d.]+)/m or die $report;
	return $1;
}

# PgQ: a consumer that has every batch ready, of about a hundred events, and does nothing with them.
sub pgq_speed
{
	my ($pg) = @_;
	speed_figure('insert.pgq', 'PgQ: insert_event, 4 pgbench clients, /s',
		pgbench($pg, 4, "SELECT pgq.insert_event('bench', 'job', '$PAYLOAD')"));
	$pg->sql("CALL bench.drain_pgq()");
	$pg->sql("CALL bench.fill_pgq($SPEED_JOBS / 100, 100, '$PAYLOAD')");
	my $done = 0;
	speed_figure('consume.pgq', 'PgQ: next_batch to finish_batch of 100, 1 session, jobs/s',
		rate($SPEED_JOBS, sub { $done = $pg->sql('CALL bench.drain_pgq()') }));
	$done >= $SPEED_JOBS or wrong("$done of $SPEED_JOBS events were seen");
	return;
}

# graphile-worker: its own worker, whose tasks do nothing, from the first job that is gone to the last.
sub graphile_speed
{
	my ($pg) = @_;
	speed_figure('insert.graphile', 'graphile-worker: add_job, 4 pgbench clients, /s',
		pgbench($pg, 4, "SELECT graphile_worker.add_job('bench', to_json('$PAYLOAD'::text))"));
	my $jobs = 'graphile_worker._private_jobs';
	$pg->sql("TRUNCATE $jobs");
	$pg->sql("SELECT count(graphile_worker.add_job('bench', to_json('$PAYLOAD'::text))) FROM generate_series(1, 1000)") for 1 .. $SPEED_JOBS / 1000;
	my $worker = graphile_process($pg, 'work', 100);
	my $left = $SPEED_JOBS;
	wait_for(sub { $left = $pg->sql("SELECT count(*) FROM $jobs"); $left < $SPEED_JOBS }, 60, 'graphile-worker begins');
	speed_figure('consume.graphile', 'graphile-worker: its worker, batches of 100, jobs/s',
		rate($left, sub { wait_for(sub { $pg->sql("SELECT count(*) FROM $jobs") == 0 }, 120, 'graphile-worker ends') }));
	$worker->end('TERM', 10);
	return;
}

# Redis Streams with the same bytes: adding one by one from four clients, reading and acknowledging a hundred at once.
sub redis_speed
{
	my ($fsync) = @_;
	my $redis = Redis->start($fsync);
	$redis->command('XGROUP', 'CREATE', 'jobs', 'workers', '$', 'MKSTREAM');
	my $report = LlmqTest::Cluster::run('redis-benchmark', '-s', $redis->socket_path, '-c', 4, '-n', $SPEED_JOBS, '-q',
		'XADD', 'jobs', '*', 'prompt', $PAYLOAD);
	$report =~ /([\d.]+) requests per second/ or die $report;
	speed_figure("insert.redis_$fsync", "Redis Streams, appendfsync $fsync: XADD, 4 clients, /s", $1);
	my $done = 0;
	speed_figure("consume.redis_$fsync", "Redis Streams, appendfsync $fsync: read and ack of 100, jobs/s", rate($SPEED_JOBS, sub {
		while (my $streams = $redis->command('XREADGROUP', 'GROUP', 'workers', 'driver', 'COUNT', 100, 'STREAMS', 'jobs', '>'))
		{
			my @ids = map { $_->[0] } @{ $streams->[0][1] };
			$done += $redis->command('XACK', 'jobs', 'workers', @ids);
		}
	}));
	$done == $SPEED_JOBS or wrong("$done of $SPEED_JOBS entries were acknowledged");
	$redis->stop;
	return;
}
