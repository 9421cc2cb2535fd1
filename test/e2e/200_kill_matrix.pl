# What a crash may cost: at every step between two durable ones the worker is killed, the postmaster
# is killed, or the server is shut down at once, all from outside; then the provider's log and the
# tables say what came of it.  Nothing waits for durability: what is committed must be so.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg;

my $once = '1.1 success billed';
my $again = '1.0 interrupted unknown, 2.1 success billed';
my %redelivered = (policy => { max_attempts => 1, redelivery_base => '10 ms', redelivery_cap => '20 ms' },
	responses => [ { status => 500 }, {} ]);
my %refused = (responses => [ { status => 400 } ], state => 'dead');

# what: when it is killed.  point: where the worker stands then, or hold: in a call that is not
# answered.  attempts: delivery.attempt, class, billing.
my @cases = (
	{ what => 'before the claim', point => 'claim-begun', calls => 1, attempts => $once },
	{ what => 'claim uncommitted', point => 'claim-uncommitted', calls => 1, attempts => $once },
	{ what => 'claim committed', point => 'claim-committed', calls => 1, attempts => $again },
	{ what => 'during the call', hold => 1, calls => 2, attempts => $again },
	{ what => 'answer in hand', point => 'settle-begun', calls => 2, attempts => $again },
	{ what => 'settle uncommitted', point => 'settle-uncommitted', calls => 2, attempts => $again },
	{ what => 'settle committed', point => 'settle-committed', calls => 1, attempts => $once },
	{ what => 'redelivery uncommitted', point => 'settle-uncommitted', %redelivered, calls => 2,
		attempts => $again },
	{ what => 'redelivery committed', point => 'settle-committed', %redelivered, calls => 2,
		attempts => '1.1 server_error unknown, 2.1 success billed' },
	{ what => 'made ready, uncommitted', point => 'poll-uncommitted', due => 1, calls => 1, attempts => $once },
	{ what => 'made ready, committed', point => 'poll-committed', due => 1, calls => 1, attempts => $once },
	{ what => 'death uncommitted', point => 'settle-uncommitted', %refused, calls => 2,
		attempts => '1.0 interrupted unknown, 2.1 bad_request none' },
	{ what => 'death committed', point => 'settle-committed', %refused, calls => 1, attempts => '1.1 bad_request none' },
	{ what => 'takeover uncommitted', hold => 1, then => 'hello-uncommitted', calls => 2, attempts => $again },
	{ what => 'takeover committed', hold => 1, then => 'hello-committed', calls => 2, attempts => $again },
	{ what => 'last words uncommitted', hold => 1, terminate => 'goodbye-uncommitted', calls => 2,
		attempts => '1.1 interrupted unknown, 2.1 success billed' },
	{ what => 'last words committed', hold => 1, terminate => 'goodbye-committed', calls => 2,
		attempts => '1.1 interrupted unknown, 2.1 success billed' });

# How it is killed; each gets the process id of the worker.
my %kill = (
	'worker killed' => sub { my ($worker) = @_; $pg->kill_backend($worker); return },
	'postmaster killed' => sub { $pg->kill9; $pg->start; return },
	'immediate shutdown' => sub { $pg->stop('immediate'); $pg->start; return });

# Submits the job of a case; one that has to be made ready first is due when it becomes visible.
sub submit
{
	my ($case, $name) = @_;
	my @call = (prompt => "Go. [job:$name]", idempotency_key => $name, policy => $case->{policy},
		outbox => [ { topic => 'mail', payload => {} }, { topic => 'sad', payload => {}, on => 'dead' } ]);
	return $pg->submit(@call) unless $case->{due};
	$pg->sql('BEGIN');
	my $job = $pg->submit(@call, run_at => $pg->sql(q{SELECT clock_timestamp() + interval '300 ms'}));
	wait_for(sub { $pg->sql("SELECT due_at < clock_timestamp() FROM llmq.deferred WHERE job_id = '$job'") eq 't' }, 10, 'it is due');
	$pg->arm($case->{point});
	$pg->sql('COMMIT');
	return $job;
}

sub run_case
{
	my ($case, $how, $name) = @_;
	my $kill = $kill{$how};
	my $what = "$case->{what}, $how";
	my $point = $case->{point};
	my $worker = $pg->wait_for_worker;
	my $responses = $case->{hold} ? [ { hold => $name }, {} ] : $case->{responses};
	$provider->script({ match => "[job:$name]", responses => $responses }) if $responses;
	$pg->arm($point) if $point && !$case->{due};
	my $job = submit($case, $name);
	$point ? $worker = $pg->wait_for_point($point) : $provider->wait_for_calls($name, 1);
	isnt($pg->sql("SELECT backend_xid FROM pg_stat_activity WHERE pid = $worker"), '', "$what: the worker has written")
	  if ($point // '') =~ /-uncommitted/;
	if (my $second = $case->{then} // $case->{terminate})
	{
		$pg->arm($second);
		$case->{then} ? $kill->($worker) : $pg->sql("SELECT pg_terminate_backend($worker)");
		$point = $second;
		$worker = $pg->wait_for_point($point);
	}
	$kill->($worker);
	$pg->leave_point($point) if $point;

	my $state = $case->{state} // 'succeeded';
	my $status = $pg->final_state($job, 40);
	is($status->{state}, $state, "$what: the job is $state");
	is(scalar(my @calls = $provider->calls($name)), $case->{calls}, "$what: the provider saw $case->{calls} calls");
	is($pg->sql("SELECT string_agg(format('%s.%s %s %s', delivery, attempt, coalesce(error_class, outcome), billing), ', ' ORDER BY delivery, attempt)
		FROM llmq.attempt WHERE job_id = '$job'"), $case->{attempts}, "$what: its attempts are recorded");
	is($status->{deliveries}, $case->{attempts} =~ /2\./ ? 2 : 1, "$what: its deliveries are counted");
	is($pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'"), $state eq 'succeeded' ? 1 : 0, "$what: it has the result that it should");
	is($pg->sql("SELECT string_agg(topic, ' ') FROM llmq.outbox WHERE job_id = '$job'"), $state eq 'succeeded' ? 'mail' : 'sad', "$what: and one message");
	is($pg->sql('SELECT count(*) FROM llmq.check()'), 0, "$what: nothing is broken");
	$provider->release($name) if $case->{hold};
	return;
}

for my $how (sort keys %kill)
{
	my $began = now();
	$pg = start_cluster(preload => 1, debug => 1, conf => { autovacuum => 'off' });
	$pg->create_database('app', extension => 1, provider => $provider);
	my $number = 0;
	run_case($_, $how, $how =~ s/ /-/r . '-' . ++$number) for @cases;
	is($pg->sql('SELECT count(*) FROM llmq.recall'), 0, "$how: no word for a dead worker is kept");
	is($pg->sql('SELECT count(*) FROM llmq.worker_session'), 1, "$how: no session of a dead worker is kept");
	note(sprintf '%s: %d cases in %.0f s', $how, $number, now() - $began);
	$pg->check;
	$pg->stop;
}

finish();
