# Taking over from a worker that is stuck: its leases return after the ttl and not before, its late
# answers win or change nothing, and a long call of a live worker is left alone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 2, 'llmq.poll_interval' => '1s' });
$pg->create_database('app', extension => 1, provider => $provider);
wait_for(sub { $pg->workers == 2 }, 20, 'two workers serve the database');
my $ttl = $pg->sql('SELECT extract(epoch FROM llmq.lease_ttl())');

my %job;
my %patient = (call_timeout => '100 s', deadline => '110 s');

# Submits a job whose n-th call is not answered before "$name-n" is released.
sub submit_held
{
	my ($name) = @_;
	$provider->script({ match => "[job:$name]", responses => [ map { { hold => "$name-$_", text => "answer $_" } } 1 .. 3 ] });
	$job{$name} = $pg->submit(prompt => "Hold on. [job:$name]", idempotency_key => $name, policy => \%patient,
		outbox => [ { topic => 'mail', payload => {} } ]);
	$provider->wait_for_calls($name, 1);
	return;
}

sub calls { return scalar(my @calls = $provider->calls(@_)) }

# Returns the process id of the worker that holds a job's lease.
sub holder
{
	my ($name) = @_;
	return $pg->sql("SELECT w.pid FROM llmq.lease AS l JOIN llmq.worker_session AS w ON w.id = l.worker_id WHERE l.job_id = '$job{$name}'");
}

sub attempts
{
	my ($name) = @_;
	return $pg->sql("SELECT string_agg(format('%s.%s %s %s', delivery, attempt, coalesce(error_class, outcome), billing), ', ' ORDER BY delivery, attempt)
		FROM llmq.attempt WHERE job_id = '$job{$name}'");
}

sub has_ended_once
{
	my ($name, $text) = @_;
	my $status = $pg->final_state($job{$name}, 30);
	is("$status->{state} $status->{text}", "succeeded $text", "$name: succeeded, and this is its answer");
	is($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job{$name}'"), 1, "$name: it has one message");
	return;
}

my ($stuck, $other) = $pg->workers;

my %process = map { $_ => $pg->worker_process($_) } $stuck, $other;

# Stops a worker, though not in the middle of a transaction, whose locks would stop the other too.
sub freeze
{
	my ($worker) = @_;
	wait_for(sub {
		kill 'STOP', $process{$worker};
		return 1 if $pg->sql("SELECT xact_start IS NULL FROM pg_stat_activity WHERE pid = $worker") eq 't';
		kill 'CONT', $process{$worker};
		return 0;
	}, 20, 'the worker stands still');
	return;
}

# While one of the two stands still, the other takes what comes.
sub submit_while_stopped
{
	my ($idle, @names) = @_;
	freeze($idle);
	submit_held($_) for @names;
	kill 'CONT', $process{$idle};
	return;
}

submit_while_stopped($other, qw(early silent late));
submit_while_stopped($stuck, qw(long));
is(join(' ', map { holder($_) } qw(early silent late)), "$stuck $stuck $stuck", 'one worker has three calls under way');
is(holder('long'), $other, 'the other has a long one');

my $stopped = now();
freeze($stuck);
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.attempt WHERE attempt = 0') == 3 }, 60, 'its leases are taken');
my $took = now() - $stopped;
note(sprintf 'the leases of the stuck worker were taken after %.1f s', $took);
cmp_ok($took, '>=', $ttl - 6, 'not before its last sign of life, 5 s older at most, is as old as the ttl');
for my $name (qw(early silent late))
{
	$provider->wait_for_calls($name, 2);
	is(holder($name), $other, "$name: the other worker has it now");
	is(attempts($name), '1.0 interrupted unknown', "$name: what the stuck one did is recorded as interrupted, its billing unknown");
	is($pg->sql("SELECT deliveries FROM llmq.job_status WHERE job_id = '$job{$name}'"), 2, "$name: it is delivered for the second time");
}
is(calls('long'), 1, 'the long call of the live worker was not taken over');
is(holder('long'), $other, 'it still has it');

# `late`: the second call is answered first.  `early`: the stuck worker's answer comes while the
# second call is open.  `silent`: the stuck worker has no answer when it finds out.
$provider->release('late-2');
has_ended_once('late', 'answer 2');
$provider->release('late-1');
$provider->release('early-1');
wait_for(sub { 2 == grep { ($provider->calls($_))[0]{how} } qw(late early) }, 10, 'both late answers are written');
kill 'CONT', $process{$stuck};

has_ended_once('early', 'answer 1');
wait_for(sub { ($provider->calls('early'))[1]{how} }, 20, 'the second call of early has ended');
is(($provider->calls('early'))[1]{how}, 'client_closed', 'early: the second call is given up when the first has won');
wait_for(sub { attempts('early') =~ /2\.1/ }, 20, 'the second delivery of early is recorded');
is(attempts('early'), '1.1 success billed, 2.1 interrupted unknown', 'early: both calls are recorded');

wait_for(sub { attempts('late') =~ /1\.1/ }, 20, 'the late answer is recorded');
is(attempts('late'), '1.1 success billed, 2.1 success billed', 'late: an answer that comes too late is recorded with its billing');
has_ended_once('late', 'answer 2');
is($pg->sql("SELECT deliveries FROM llmq.result WHERE job_id = '$job{late}'"), 2, 'late: and changes nothing else');

wait_for(sub { ($provider->calls('silent'))[0]{how} }, 20, 'the first call of silent has ended');
is(($provider->calls('silent'))[0]{how}, 'client_closed', 'silent: the worker that was stuck gives its call up');
wait_for(sub { attempts('silent') =~ /1\.1/ }, 20, 'that is recorded');
is(attempts('silent'), '1.1 interrupted unknown', 'silent: as a call that was cut off');
is(holder('silent'), $other, 'silent: the job stays with its second delivery');
$provider->release('silent-2');
has_ended_once('silent', 'answer 2');
is(calls($_), 2, "$_: the provider saw two calls") for qw(early silent late);

# The worker that was stuck works again.
submit_while_stopped($other, 'after');
$provider->release('after-1');
has_ended_once('after', 'answer 1');
is(calls('after'), 1, 'after: by the worker that was stuck');

my ($long) = $provider->calls('long');
wait_for(sub { now() - $long->{start} > $ttl + 5 + 1 }, 30, 'the long call is older than the ttl');
$provider->release('long-1');
has_ended_once('long', 'answer 1');
is(attempts('long'), '1.1 success billed', 'long: one attempt');
is(calls('long'), 1, 'long: one call, older than the ttl, of one delivery');
is($pg->sql('SELECT count(*) FROM llmq.recall'), 0, 'every recall has been read');

finish();
