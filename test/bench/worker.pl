# The bench of the worker, which test/bench/run starts: how soon a job is called, how many at once,
# how many a second.  The provider is nginx; the clock is that of the commits and of nginx's log, one
# and the same.

use strict;
use warnings;

use Bench;
use List::Util qw(max min sum);
use LlmqTest;
use Nginx;
use Peers;
use Time::HiRes qw(sleep time);

my $TRICKLE = $ENV{TRICKLE} || 200;
my $WIDE = 2000;
my $MANY = $ENV{JOBS} || 10_000;
my $CHUNK = 1000;		# jobs in one submit_many
my $OUTBOX = '[{"topic": "answers", "payload": {"for": "the bench"}}]';

my %goal = (trickle => 'under 20 ms', wide => 'under 2 s', mixed => 'under 22 s', many => 'at least 2500, better 5000');

my $nginx = Nginx->start;

trickle() if is_wanted('trickle');
wide() if is_wanted('wide');
mixed() if is_wanted('mixed');
many('submit_many', \&submit_many) if is_wanted('submit_many');
many('4 pgbench clients', \&submit_by_pgbench) if is_wanted('pgbench');
peers() if is_wanted('peers');
$nginx->stop;
LlmqTest::leave(1);
exit Bench::exit_code();

# Jobs come one by one, to a worker that has nothing to do.
sub trickle
{
	heading("Submit to first call, $TRICKLE jobs one by one");
	my $pg = bench_cluster();
	endpoint($pg, main => 0);
	warm_up($pg);
	my (@waits, @calls);
	for my $n (1 .. $TRICKLE)
	{
		sleep 0.02 + rand 0.03;		# not in step with anything of the worker's
		my $job = $pg->sql("SELECT job_id FROM llmq.submit(idempotency_key => 'trickle $n', prompt => 'trickle')");
		my $commit = $pg->sql("SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM llmq.job WHERE job_id = '$job'");
		$pg->sql("CALL llmq.wait('$job', '20 s')");
		my @times = $nginx->take_times;
		@times == 1 or wrong(@times . " calls of one job");
		push @waits, 1000 * ($times[0] - $commit) if @times;
	}
	figure('p50', sprintf('%.1f ms', percentile(50, @waits)));
	figure('p95', sprintf('%.1f ms', percentile(95, @waits)), $goal{trickle});
	figure('longest', sprintf('%.1f ms', max @waits));
	record(latency => map { sprintf '%.2f', $_ } @waits);
	$pg->stop('fast');
	return;
}

# All calls at once.
sub wide
{
	heading("$WIDE calls of 1 s, $WIDE slots");
	my $pg = bench_cluster('llmq.max_in_flight' => $WIDE);
	endpoint($pg, main => 1);
	record(wide => sprintf '%.2f', measure($pg, $WIDE, $goal{wide}, sub { submit_many($pg, $WIDE, '{}', $WIDE) }));
	$pg->stop('fast');
	return;
}

# A slow call takes a slot, and nobody else's time.
sub mixed
{
	heading("$WIDE calls, every tenth of 10 s and the others of 1 s, 200 slots");
	my $pg = bench_cluster('llmq.max_in_flight' => 200);
	endpoint($pg, quick => 1);
	endpoint($pg, slow => 10);
	$pg->insert('queue', name => 'quick', endpoints => '{quick}');
	$pg->insert('queue', name => 'slow', endpoints => '{slow}');
	my $seconds = measure($pg, $WIDE, $goal{mixed}, sub {
		$pg->sql("SELECT count(*) FROM llmq.submit_many((
			SELECT jsonb_agg(jsonb_build_object('idempotency_key', 'job ' || n, 'prompt', 'mixed', 'queue', CASE WHEN n % 10 = 0 THEN 'slow' ELSE 'quick' END))
			FROM generate_series(1, $WIDE) AS n))");
	});
	record(mixed => sprintf '%.2f', $seconds);
	line(sprintf 'the slots full all the time would take %.0f s', $WIDE * (0.9 * 1 + 0.1 * 10) / 200);
	$pg->stop('fast');
	return;
}

# As many as can be, each with a row in the outbox.
sub many
{
	my ($name, $submit) = @_;
	heading("$MANY jobs with an outbox row, submitted by $name, 0 ms provider");
	my $pg = bench_cluster();
	endpoint($pg, main => 0);
	warm_up($pg);
	my ($bytes, $wal) = (table_bytes($pg), $pg->sql('SELECT pg_current_wal_insert_lsn()'));
	my $seconds = measure($pg, $MANY, undef, sub { $submit->($pg, $MANY, qq({"outbox": $OUTBOX}), $CHUNK) });
	record('size.disk', sprintf '%.0f', (table_bytes($pg) - $bytes) / $MANY);
	record('size.wal', sprintf '%.0f', $pg->sql("SELECT pg_current_wal_insert_lsn() - '$wal'") / $MANY);
	figure('from first submit to all stored, jobs/s', sprintf('%.0f', $MANY / $seconds), $goal{many});
	record("calls.llmq.$name" =~ tr/ /_/r, sprintf '%.0f', $MANY / $seconds);
	my $messages = $pg->sql('SELECT count(*) FROM llmq.message');
	$messages == $MANY or wrong("$messages outbox messages");
	$pg->stop('fast');
	return;
}

# The same beside others, who are not given as many jobs: they would take minutes.
sub peers
{
	my %run = (graphile => [ 'graphile-worker', $MANY / 2, \&Peers::graphile ],
		by_hand_1 => [ 'by hand, 1 process', $MANY / 10, sub { Peers::by_hand(@_, 1) } ],
		by_hand_4 => [ 'by hand, 4 processes', $MANY / 5, sub { Peers::by_hand(@_, 4) } ]);
	heading('The same work done by others, jobs/s');
	for my $peer (sort keys %run)
	{
		my ($name, $count, $work) = @{ $run{$peer} };
		if (my $why = Peers::lacks($peer =~ s/_\d$//r))
		{
			line("skipped: $name ($why)");
			next;
		}
		my $pg = bench_cluster('llmq.enabled' => 'off');
		Peers::prepare($pg);
		my $rate = $work->($pg, $nginx->url(0), $count);
		figure($name, sprintf '%.0f', $rate);
		record("calls.$peer" => sprintf '%.0f', $rate);
		$pg->stop('fast');
	}
	return;
}

# On disk, of all of llmq, dead rows included.
sub table_bytes
{
	my ($pg) = @_;
	return $pg->sql("SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'llmq'::regnamespace AND relkind = 'r'");
}

# -- what the parts share ------------------------------------------------------

sub endpoint
{
	my ($pg, $name, $after) = @_;
	$pg->insert('endpoint', name => $name, api => 'openai_chat', url => $nginx->url($after), model => 'stand-in',
		breaker_failures => 1_000_000);
	return;
}

# The worker has its configuration, its plans and a connection; the log of calls is empty.
sub warm_up
{
	my ($pg) = @_;
	for my $n (1 .. 5)
	{
		my $job = $pg->submit(idempotency_key => "warm-up $n", prompt => 'warm-up');
		$pg->sql("CALL llmq.wait('$job', '20 s')");
	}
	$nginx->take_times;
	return;
}

# Submits with $submit, waits until all is stored, and prints the times; returns the seconds.
sub measure
{
	my ($pg, $count, $goal, $submit) = @_;
	my ($worker) = $pg->workers;
	my %cpu = map { $_ => cpu_seconds($_) } $worker, $nginx->pid;
	my $before = $pg->sql('SELECT count(*) FROM llmq.result');
	$nginx->take_times;
	my $start = time;
	$submit->();
	my $submitted = time - $start;
	# Looking is not free: the end is taken from the commits, not from the look.
	wait_for(sub { sleep 0.1; $pg->sql('SELECT count(*) FROM llmq.result') >= $before + $count }, 300, 'all is stored');
	my %used = map { $_ => cpu_seconds($_) - $cpu{$_} } keys %cpu;
	record('size.cpu', sprintf '%.0f', $used{$worker} / $count * 1e6) if $count == $MANY;
	my $seconds = $pg->sql('SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin))) FROM llmq.result') - $start;
	my @calls = $nginx->take_times;
	@calls == $count or wrong(@calls . " calls of $count jobs");
	my $lost = $count - ($pg->sql('SELECT count(*) FROM llmq.result') - $before);
	$lost and wrong("$lost answers are lost");
	figure('from first submit to all stored', sprintf('%.2f s', $seconds), $goal);
	figure('until all was submitted; until the first, the last call',
		sprintf('%.2f; %.2f, %.2f s', $submitted, min(@calls) - $start, max(@calls) - $start));
	figure('CPU time of the worker, of the provider, for a job',
		sprintf('%.0f, %.0f us', map { $used{$_} / $count * 1e6 } $worker, $nginx->pid));
	return $seconds;
}

sub submit_many
{
	my ($pg, $count, $more, $chunk) = @_;
	for (my $from = 1; $from <= $count; $from += $chunk)
	{
		$pg->sql("SELECT count(*) FROM llmq.submit_many((
			SELECT jsonb_agg(jsonb_build_object('idempotency_key', 'job ' || n, 'prompt', 'a job') || '$more')
			FROM generate_series($from, $from + $chunk - 1) AS n))");
	}
	return;
}

sub submit_by_pgbench
{
	my ($pg, $count) = @_;
	my $script = LlmqTest::test_dir() . '/submit.sql';
	open(my $file, '>', $script) or die "$script: $!\n";
	print {$file} "SELECT job_id FROM llmq.submit(idempotency_key => gen_random_uuid()::text, prompt => 'a job', outbox => '$OUTBOX');\n";
	close $file;
	LlmqTest::Cluster::run(LlmqTest::Cluster::program('pgbench'), '-n', '-M', 'prepared', '-c', 4, '-j', 2, '-t', $count / 4, '-f', $script,
		'-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres', 'bench');
	return;
}
