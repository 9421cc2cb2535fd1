# The bench of several workers, which test/bench/run starts: programs beside each other, and one that
# holds many calls.  The provider is nginx.  The clock is that of the commits.

use strict;
use warnings;

use Bench;
use LlmqTest;
use Nginx;
use Time::HiRes qw(sleep time);

my $SLOTS = 200;
my $WIDE = 10_000;

my $nginx = Nginx->start;

scale() if is_wanted('scale');
wide() if is_wanted('wide');
$nginx->stop;
LlmqTest::leave(1);
exit Bench::exit_code();

# Three workers beside one, with a slow provider and with one that answers at once.
sub scale
{
	for my $after (1, 0)
	{
		heading("Jobs a second of programs with $SLOTS slots each, provider answers after $after s");
		my %rate = map { $_ => run($_, $SLOTS, $after, $after ? 10 * $SLOTS * $_ : 10_000) } 1, 3;
		for my $programs (1, 3)
		{
			figure("of $programs", sprintf('%.0f', $rate{$programs}));
			record("scale.$after.$programs" => sprintf '%.0f', $rate{$programs});
		}
		figure('three by one', sprintf('%.2f', $rate{3} / $rate{1}), $after ? 'at least 2.7' : 'at least 1');
	}
	return;
}

# One worker with many calls in flight.
sub wide
{
	heading("$WIDE calls of 1 s, one program with $WIDE slots");
	run(1, $WIDE, 1, $WIDE, sub {
		my ($seconds, $program) = @_;
		figure('until all are stored', sprintf('%.1f s', $seconds), 'under 8 s');
		record('wide10k.seconds' => sprintf '%.2f', $seconds);
		record('wide10k.memory' => sprintf '%.0f', peak_memory($program->pid));
		figure('most memory of the program', sprintf('%.0f MB', peak_memory($program->pid)), 'under 250 MB');
	});
	return;
}

# Submits $count jobs and lets $programs start on them; returns jobs a second.
sub run
{
	my ($programs, $slots, $after, $count, $report) = @_;
	my $pg = bench_cluster('llmq.enabled' => 'on', 'llmq.workers' => 0);
	$pg->insert('endpoint', name => 'main', api => 'openai_chat', url => $nginx->url($after), model => 'stand-in',
		breaker_failures => 1_000_000);
	my @programs = map { start_program($pg, name => "program-$_", args => [ '--max-in-flight', $slots ]) } 1 .. $programs;
	$pg->wait_for_programs($programs);
	$nginx->take_times;
	my $start = time;
	for (my $from = 1; $from <= $count; $from += 2000)
	{
		$pg->sql("SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object('idempotency_key', 'job ' || n,
			'prompt', 'a job')) FROM generate_series($from, least($from + 1999, $count)) AS n))");
	}
	wait_for(sub { sleep 0.2; $pg->sql('SELECT count(*) FROM llmq.result') >= $count }, 300, 'all is stored');
	my $seconds = $pg->sql('SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin))) FROM llmq.result') - $start;
	my @calls = $nginx->take_times;
	@calls == $count or wrong(@calls . " calls of $count jobs");
	$report->($seconds, @programs) if $report;
	$_->stop for @programs;
	$pg->stop('fast');
	return $count / $seconds;
}

# In MB.
sub peak_memory
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/status") or return 0;
	return join('', <$file>) =~ /^VmHWM:\s+(\d+)/m ? $1 / 1024 : 0;
}
