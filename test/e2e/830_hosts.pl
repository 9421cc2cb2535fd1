# Three llmq-workers on three hosts, and between them and the database all that a network does: one is
# killed, one is stopped for longer than the ttl, one is cut off for longer than the ttl, connections
# are reset, packets get lost, the database is far away.  Nothing is lost, nothing is settled twice,
# no call is made that no attempt tells of.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

if (my $reason = LlmqTest::Host::enter_network())
{
	plan(skip_all => $reason);
}

use constant JOBS => 5000;
use constant MAX_IN_FLIGHT => 12;

# So that the work lasts longer than the faults; what is left then is done quickly.
use constant CALL_MS => 1000;

my $provider = start_provider(host => LlmqTest::Host::ADDRESS);
$provider->script({ responses => [ { delay_ms => CALL_MS } ] });
my $pg = new_cluster(preload => 1, conf => { 'llmq.workers' => 0, listen_addresses => LlmqTest::Host::ADDRESS });
allow_hosts($pg);
$pg->start;
$pg->create_database('app', extension => 1, provider => $provider);
$pg->sql(q{CREATE ROLE remote LOGIN; SELECT llmq.grant_worker('remote')});
$pg->sql(q{UPDATE llmq.queue SET call_timeout = '8 s', deadline = '60 s', max_deliveries = 20});

# Between worker c and the database is a proxy.
my $delay = test_dir() . '/delay';
my $proxy = LlmqTest::Process->start(test_dir() . '/proxy.log', '/usr/bin/python3', "$FindBin::Bin/../fake/delay.py",
	LlmqTest::Host::ADDRESS, 6432, LlmqTest::Host::ADDRESS, 5432, $delay);
my %host = map { $_ => start_host() } qw(a b c);
my %program = map { $_ => program($_) } qw(a b c);
is(join(' ', @{ $pg->wait_for_programs(3) }), 'a b c', 'three hosts reach the database');
my $began = now();

$pg->sql('SELECT count(*) FROM llmq.submit_many((
	SELECT jsonb_agg(jsonb_build_object(\'prompt\', \'Go. [job:\' || n || \']\', \'idempotency_key\', n::text,
		\'outbox\', \'[{"topic": "mail", "payload": {}}]\'::jsonb))
	FROM generate_series(1, ' . JOBS . ') AS n))');
go_on(50);

# -- killed ---------------------------------------------------------------------------

my @killed = with_jobs('a', sub { $program{a}->signal('STOP') }, sub { $program{a}->signal('CONT') });
$program{a}->kill9;
$program{a} = program('a');
works_again('a', 'a program that was killed and started again', @killed);

# -- stopped ----------------------------------------------------------------------------

my @stopped = with_jobs('b', sub { $program{b}->signal('STOP') }, sub { $program{b}->signal('CONT') });
wait_for(sub { !leases('b') }, 60, 'the leases of b are taken');
pass('what a stopped program has in hand is taken from it');
$program{b}->signal('CONT');
works_again('b', 'a program that was stopped for longer than the ttl', @stopped);

# -- cut off ------------------------------------------------------------------------------

my @cut = with_jobs('c', sub { $host{c}->cut }, sub { $host{c}->heal });
wait_for(sub { !leases('c') }, 60, 'the leases of c are taken');
pass('what a host has in hand that is cut off is taken from it');
wait_for(sub { $program{c}->log_text =~ /connection to the database is lost/ }, 60, 'c notices');
pass('which notices that the database is away');
$host{c}->heal;
works_again('c', 'a program whose host was cut off for longer than the ttl', @cut);

# -- reset ----------------------------------------------------------------------------------

$host{a}->refuse(5432);
wait_for(sub { $program{a}->log_text =~ /is lost.*cannot be reached/s }, 60, 'a cannot reach the database');
my @reset = leases('a');
go_on(50);
$host{a}->heal;
works_again('a', 'a program whose connections were reset', @reset);

# -- lost packets ----------------------------------------------------------------------------

$host{b}->lose(15);
works_again('b', 'a program that loses one packet in seven');
go_on(150);
$host{b}->heal;

# -- far away ----------------------------------------------------------------------------------

write_file($delay, 150);
works_again('c', 'a program that is 300 ms away from its database');
go_on(150);
$provider->script({ responses => [ {} ] });
note(sprintf 'the faults took %.0f s', now() - $began);
cmp_ok($pg->sql('SELECT count(*) FROM llmq.result'), '<', JOBS, 'all of that while there was work');

# -- what came of it -------------------------------------------------------------------------

wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.result') == JOBS }, 120, 'all jobs are settled');
note(sprintf 'all jobs took %.0f s', now() - $began);
is($pg->sql('SELECT string_agg(DISTINCT state, \' \'), count(*) FROM llmq.job_status'), 'succeeded|' . JOBS, 'every job has its answer');
is($pg->sql('SELECT count(*), count(DISTINCT job_id) FROM llmq.outbox'), JOBS . '|' . JOBS, 'and one message');
is($pg->sql('SELECT count(*) FROM llmq.attempt WHERE attempt = 0 AND job_id IN (' . list(@stopped) . ')'), 0,
	'what the stopped program had in hand, its late answers, is recorded as what it was');
ok(wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.lease') == 0 }, 60, 'no lease is left'), 'no lease is left');
judge_calls();
for my $name (sort keys %program)
{
	is($program{$name}->terminate, 0, "$name ends well");
}
$proxy->end('TERM');
finish();

# Lets the hosts in.
sub allow_hosts
{
	my ($cluster) = @_;
	open(my $file, '>>', $cluster->data_dir . '/pg_hba.conf') or die "pg_hba.conf: $!\n";
	print {$file} 'host all all ', LlmqTest::Host::HOSTS, " trust\n";
	close $file;
	return;
}

sub write_file
{
	my ($path, $text) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} $text;
	close $file;
	return;
}

sub program
{
	my ($name) = @_;
	my $port = $name eq 'c' ? 6432 : 5432;
	return start_program($pg, name => $name, wrap => $host{$name}->wrap, args => [ '--max-in-flight', MAX_IN_FLIGHT, '--poll-interval', 1 ],
		conninfo => 'host=' . LlmqTest::Host::ADDRESS . " port=$port dbname=app user=remote");
}

# Waits until so many more jobs are done.
sub go_on
{
	my ($count) = @_;
	my $goal = $pg->sql('SELECT count(*) FROM llmq.result') + $count;
	wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.result') >= $goal }, 60, "$count more jobs are done");
	return;
}

# The jobs that a program has in hand.
sub leases
{
	my ($name) = @_;
	return map { $_->{job_id} } $pg->rows("SELECT job_id FROM llmq.lease AS l JOIN llmq.worker_session AS w ON w.id = l.worker_id WHERE w.name = '$name'");
}

# Disturbs a program while it has jobs in hand, and returns which; between two it has none for a moment.
sub with_jobs
{
	my ($name, $disturb, $undo) = @_;
	my @jobs;
	wait_for(sub {
		$disturb->();
		@jobs = leases($name) or $undo->();
		return scalar(@jobs);
	}, 30, "$name has jobs in hand");
	return @jobs;
}

# Tests that a program has other work than the jobs that it had in hand when it was disturbed.
sub works_again
{
	my ($name, $what, @jobs) = @_;
	my %old = map { $_ => 1 } @jobs;
	ok(wait_for(sub { grep { !$old{$_} } leases($name) }, 60, "$name has work"), "$what works again");
	note(sprintf '%.0f s, %d jobs', now() - $began, $pg->sql('SELECT count(*) FROM llmq.result'));
	return;
}

sub list { return join ', ', map { "'$_'" } @_ }

# No call is made that no attempt tells of, and none again but what a fault explains.
sub judge_calls
{
	my %calls;
	$calls{ $_->{job} }++ for $provider->calls;
	my %attempts = map { $_->{key} => $_->{count} } $pg->rows('SELECT j.idempotency_key AS key, count(*) FROM llmq.attempt JOIN llmq.job AS j USING (job_id) GROUP BY 1');
	my @untold = grep { $calls{$_} > ($attempts{$_} // 0) } keys %calls;
	is(scalar(@untold), 0, 'no job was called more often than its attempts say') or diag("@untold");
	is(scalar(keys %calls), JOBS, 'each was called');
	my %again;
	$again{ $_->{why} } = $_->{count} for $pg->rows(q{SELECT coalesce(error_class, outcome) || ' ' || billing AS why, count(*) FROM llmq.attempt GROUP BY 1});
	note("attempts: $_: $again{$_}") for sort keys %again;
	my $calls = $provider->calls;
	cmp_ok($calls - JOBS, '<=', 6 * MAX_IN_FLIGHT, 'and six faults repeat no more calls than were in the hands of six programs');
	return;
}
