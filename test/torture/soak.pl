# A steady load with faults at the provider for some minutes, with retention on: memory of the worker and
# of a submitting session, sizes of tables and indexes, and commit times must not grow.  Slopes are printed;
# the exit code is 1 if memory or sizes grow, or if work is lost.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use JSON::PP ();
use List::Util qw(sum max);
use LlmqTest;
use Time::HiRes qw(sleep);
use Torture::Chance;
use Torture::Job;
use Torture::Wire;

use constant TRANSACTIONS_A_SECOND => 25;
use constant JOBS_A_TRANSACTION => 8;
use constant RETENTION => '20 s';
use constant SAMPLE_EVERY => 5;		# seconds

# The second half of the run may exceed the first by this factor and amount before it counts as growth.
use constant GROWTH => 1.25;
my %slack = ('memory of the worker, kB' => 4096, 'memory of the submitting session, kB' => 2048, 'size of tables and indexes, kB' => 8192);

$| = 1;
# A receiver that refuses each message once; one that hangs could not keep up with the load for ever.
my $tries_again = { name => 'hook-audit', path => '/hook/audit', responses => [ { status => 503 }, {} ] };

my $minutes = $ENV{MINUTES} || 20;
my $seed = $ENV{SEED};
my $chance = Torture::Chance->new($seed, 'soak');
my $provider = start_provider(args => [ '--script', write_rules() ]);
my $pg = start_cluster(preload => 1, conf => { fsync => 'on', max_wal_size => '4GB', shared_buffers => '128MB', autovacuum_naptime => '5 s' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->insert('queue', name => 'torture', call_timeout => '2 s', deadline => '8 s', min_attempt => '0.1 s', backoff_base => '20 ms',
	backoff_cap => '200 ms', max_deliveries => 1000, redelivery_base => '20 ms', redelivery_cap => '500 ms', retention => RETENTION);
$pg->sql("UPDATE llmq.queue SET retention = '@{[ RETENTION ]}' WHERE name = 'default'");		# that of messages
$pg->insert('destination', topic => $_, kind => 'webhook', url => $provider->url("/hook/$_"), timeout => '1 s', max_in_flight => 20,
	backoff_base => '20 ms', backoff_cap => '200 ms') for Torture::Job::topics();
$pg->sql(q{CREATE ROLE client LOGIN; SELECT llmq.grant_submit('client');
	CREATE FUNCTION public.note_effect(job jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'});
my $worker = $pg->wait_for_worker;
my $client = Torture::Wire->connect($pg->socket_dir, 'app', 'client');
my $session = $client->query('SELECT pg_backend_pid()')->{rows}[0][0];

my (@samples, @commits);
my $count = 0;
my $begin = now();
my $next_sample = $begin + SAMPLE_EVERY;
while (now() < $begin + 60 * $minutes)
{
	my $early = $begin + $count / TRANSACTIONS_A_SECOND - now();
	sleep $early if $early > 0;
	submit();
	disturb() if $chance->is(0.001);
	if (now() >= $next_sample)
	{
		push @samples, sample();
		$next_sample = now() + SAMPLE_EVERY;
	}
}
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_place WHERE place NOT IN ('result', 'dead_job', 'cancelled_job')}) eq '0' }, 120, 'all jobs are final');
my $broken = $pg->sql('SELECT count(*) FROM llmq.check()');
my $failed = report() || $broken;
print "seed $seed: $broken broken invariants, ", $failed ? 'NOT flat' : 'flat', "\n";
LlmqTest::leave(1);
exit($failed ? 1 : 0);

sub write_rules
{
	my $path = test_dir() . '/rules';
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} JSON::PP->new->utf8->encode([ $tries_again, Torture::Job::rules() ]);
	close $file;
	return $path;
}

# One transaction with some jobs; its COMMIT is measured.
sub submit
{
	$count++;
	my @jobs = map { { Torture::Job::arguments($seed, "soak.$count.$_") } } 1 .. JOBS_A_TRANSACTION;
	my @statements = map { (Torture::Job::submit_sql(%{$_}))[0] } @jobs;
	for my $sql ('BEGIN', @statements)
	{
		my $reply = $client->query($sql) // die "the submitting session is lost\n";
		$reply->{sqlstate} eq '00000' or die "$reply->{message}: $sql\n";
	}
	my $began = now();
	($client->query('COMMIT') // {})->{tag} eq 'COMMIT' or die "a commit has failed\n";
	push @commits, now() - $began;
	return;
}

# Faults that leave the worker alive: its memory is what is measured.
sub disturb
{
	return kill 'INT', $worker if $chance->is(0.7);
	$provider->kill9;
	$provider->start;
	return;
}

sub memory
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/status") or die "process $pid is gone\n";
	return join('', <$file>) =~ /RssAnon:\s+(\d+) kB/ ? $1 : die "no RssAnon\n";
}

sub sample
{
	$pg->sql('SELECT llmq.prune()');	# the worker does so too, but begins after some minutes
	my @recent = splice @commits;
	return {
		at => (now() - $begin) / 60,
		'memory of the worker, kB' => memory($worker),
		'memory of the submitting session, kB' => memory($session),
		'size of tables and indexes, kB' => $pg->sql(q{SELECT sum(pg_total_relation_size(oid)) / 1024 FROM pg_class WHERE relnamespace = 'llmq'::regnamespace AND relkind = 'r'}),
		'commit, mean ms' => 1000 * sum(@recent) / @recent,
		'jobs kept' => $pg->sql('SELECT count(*) FROM llmq.job'),
		'messages kept' => $pg->sql('SELECT count(*) FROM llmq.message') };
}

sub mean { return sum(@_) / @_ }

# The slope of values over time, by least squares.
sub slope
{
	my ($what, @of) = @_;
	my ($x, $y) = (mean(map { $_->{at} } @of), mean(map { $_->{$what} } @of));
	my $spread = sum(map { ($_->{at} - $x)**2 } @of) || 1;
	return sum(map { ($_->{at} - $x) * ($_->{$what} - $y) } @of) / $spread;
}

# Prints each figure's halves and slope, the first minute left out; true if something grows that must not.
sub report
{
	my @of = grep { $_->{at} > 1 || $minutes <= 2 } @samples;
	my @first = @of[ 0 .. $#of / 2 ];
	my @second = @of[ $#of / 2 + 1 .. $#of ];
	my $grows = 0;
	printf "%d jobs in %.1f minutes, %.0f a second\n%-40s %12s %12s %14s\n", JOBS_A_TRANSACTION * $count, $minutes,
	  JOBS_A_TRANSACTION * $count / 60 / $minutes, '', 'first half', 'second half', 'slope a minute';
	for my $what (grep { $_ ne 'at' } sort keys %{ $of[0] })
	{
		my ($before, $after) = map { mean(map { $_->{$what} } @{$_}) } \(@first, @second);
		my $bad = exists $slack{$what} && $after > $before * GROWTH + $slack{$what};
		printf "%-40s %12.1f %12.1f %14.1f%s\n", $what, $before, $after, slope($what, @of), $bad ? '   GROWS' : '';
		$grows ||= $bad;
	}
	return $grows;
}
