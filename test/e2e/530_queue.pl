# The queue under way: cancel, pause, priorities, times, parents and children, several workers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

sub calls { return scalar(my @calls = $provider->calls(@_)) }
sub state { return $pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$_[0]'") }

# Submits a job whose first call is not answered before it is released, and waits for that call.
sub submit_held
{
	my ($name, %more) = @_;
	$provider->script({ match => "[job:$name]", responses => [ { hold => $name }, {} ] });
	my $job = $pg->submit(prompt => "Hold on. [job:$name]", idempotency_key => $name, %more);
	$provider->wait_for_calls($name, 1);
	return $job;
}

# -- cancel -------------------------------------------------------------------

my $job = submit_held('cancelled', outbox => [ { topic => 'mail', payload => {} } ]);
is($pg->sql("SELECT llmq.cancel('$job')"), 't', 'a running job can be cancelled');
wait_for(sub { ($provider->calls('cancelled'))[0]{how} }, 10, 'the call has ended');
is(($provider->calls('cancelled'))[0]{how}, 'client_closed', 'its network call ends');
is(state($job), 'cancelled', 'it is cancelled');
is($pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'") . $pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'"),
	'00', 'and nothing is settled');
wait_for(sub { $pg->sql("SELECT attempt FROM llmq.attempt WHERE job_id = '$job'") eq '1' }, 10, 'the worker has recorded the call');
is($pg->sql("SELECT error_class || ' ' || billing FROM llmq.attempt WHERE job_id = '$job'"), 'interrupted unknown',
	'the call that was cut off is on record');
$provider->release('cancelled');

# -- pause, priority ----------------------------------------------------------

$pg->endpoint(narrow => $provider);
$pg->insert('queue', name => 'narrow', endpoints => '{narrow}', max_in_flight => 1, paused => 't');
my %of = map { my $p = $_; ($p => $pg->submit(prompt => "Go. [job:prio-$p]", idempotency_key => "prio-$p", queue => 'narrow', priority => $p)) } 0, 9, 4;
is($pg->sql("SELECT string_agg(DISTINCT state || ' ' || wait_reason, ', ') FROM llmq.job_status WHERE queue = 'narrow'"), 'ready paused',
	'jobs of a paused queue wait, and say why');
$pg->sql("UPDATE llmq.queue SET paused = false WHERE name = 'narrow'");
is($pg->final_state($of{$_})->{state}, 'succeeded', "after the pause the job of priority $_ runs") for 9, 4, 0;
my %start = map { $_ => ($provider->calls("prio-$_"))[0]{start} } 0, 4, 9;
ok($start{9} < $start{4} && $start{4} < $start{0}, 'one at a time, higher priority first');
is($pg->sql("SELECT max(deliveries) FROM llmq.job_status WHERE queue = 'narrow'"), 1, 'and waiting has cost no delivery');

# -- what jobs wait for -------------------------------------------------------

$pg->endpoint(locked => $provider, credential => 'locked');
$pg->insert('queue', name => 'locked', endpoints => '{locked}');
$job = $pg->submit(prompt => 'Wait. [job:locked]', idempotency_key => 'locked', queue => 'locked');
wait_for(sub { $pg->sql("SELECT state || ' ' || wait_reason FROM llmq.job_status WHERE job_id = '$job'") eq 'ready no_secret' }, 10, 'a reason');
pass('a job whose endpoint lacks its secret waits, and says so');
is(calls('locked'), 0, 'without a call');
$pg->secret(locked => 'sk-test-0123456789');
is($pg->final_state($job)->{state}, 'succeeded', 'it runs when the secret is there');
is($pg->sql("SELECT deliveries FROM llmq.job_status WHERE job_id = '$job'"), 1, 'and waiting has cost no delivery');

$pg->insert('queue', name => 'small', endpoints => '{narrow}', max_ready => 3, paused => 't');
$pg->submit(prompt => "Fill. [job:fill-$_]", idempotency_key => "fill-$_", queue => 'small') for 1 .. 3;
wait_for(sub { $pg->sql("SELECT ready FROM llmq.queue_depth WHERE queue = 'small'") eq '3' }, 10, 'the worker has published the depth');
is($pg->query("SELECT llmq.submit('More.', 'fill-4', queue => 'small')")->{sqlstate}, 'PT429', 'a full queue takes no more');
is($pg->query("SELECT llmq.submit('Fill. [job:fill-1]', 'fill-1', queue => 'small')")->{sqlstate}, '00000', 'but answers for what it has');
$pg->sql("UPDATE llmq.queue SET paused = false WHERE name = 'small'");
wait_for(sub { $pg->query("SELECT llmq.submit('More.', 'fill-4', queue => 'small')")->{sqlstate} eq '00000' }, 10, 'there is room again');
pass('when it has drained it does');

# -- times --------------------------------------------------------------------

$job = $pg->sql("SELECT job_id FROM llmq.submit('Later. [job:later]', 'later', run_at => clock_timestamp() + interval '1.5 s')");
is(state($job), 'scheduled', 'a job with run_at is scheduled');
is($pg->final_state($job)->{state}, 'succeeded', 'and runs');
is($pg->sql("SELECT started_at >= run_at FROM llmq.job_status WHERE job_id = '$job'"), 't', 'not before its time');
$pg->sql("UPDATE llmq.queue SET paused = true WHERE name = 'narrow'");
$job = $pg->sql("SELECT job_id FROM llmq.submit('Too late. [job:expired]', 'expired', queue => 'narrow', expires_at => clock_timestamp() + interval '1 s')");
wait_for(sub { $pg->sql("SELECT clock_timestamp() > expires_at FROM llmq.job WHERE job_id = '$job'") eq 't' }, 10, 'it has expired');
$pg->sql("UPDATE llmq.queue SET paused = false WHERE name = 'narrow'");
my $status = $pg->final_state($job);
is("$status->{state} $status->{error_class}", 'dead expired', 'no delivery starts after expires_at');
is(calls('expired'), 0, 'and no call is made');

# -- parents and children, both ways round ------------------------------------------

my $parent = submit_held('parent-1');
my $session = $pg->session;
$session->query('BEGIN');
my $child = $session->query("SELECT job_id FROM llmq.submit('Child. [job:child-1]', 'child-1', after => ARRAY['$parent']::uuid[])")->{out};
$provider->release('parent-1');
is($pg->final_state($parent)->{state}, 'succeeded', q(a parent settles while its child's transaction is open));
$session->query('COMMIT');
is($pg->final_state($child)->{state}, 'succeeded', 'the child runs after its own commit');

$parent = submit_held('parent-2');
$child = $pg->submit(prompt => 'Child. [job:child-2]', idempotency_key => 'child-2', after => "{$parent}");
is(state($child), 'blocked', 'a child whose parent runs is blocked');
is(calls('child-2'), 0, 'and not called');
$provider->release('parent-2');
is($pg->final_state($child)->{state}, 'succeeded', 'it runs when the parent has settled');
cmp_ok(($provider->calls('child-2'))[0]{start}, '>', ($provider->calls('parent-2'))[0]{end}, 'and not before');

# -- several workers ---------------------------------------------------------------

$pg->sql("ALTER SYSTEM SET llmq.workers = 4");
$pg->sql('SELECT pg_reload_conf()');
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.worker') eq '4' }, 30, 'there are four workers');
my $many = 20000;
$pg->sql("SELECT count(*) FROM (SELECT llmq.submit('Many. [job:many-' || i || ']', 'many-' || i) FROM generate_series(1, $many) AS i) AS s");
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'many-%'") eq "$many" }, 120, 'all have succeeded');
my %called;
$called{$_->{job}}++ for grep { $_->{job} =~ /\Amany-/ } $provider->calls;
is(scalar(keys %called), $many, 'four workers call every job');
is(scalar(grep { $_ > 1 } values %called), 0, 'and none twice');

# Limits hold for all workers together: the provider counts the calls that are open at once.
my $limited = start_provider();
$pg->endpoint(limited => $limited, max_in_flight => 6);
$pg->insert('queue', name => 'by-endpoint', endpoints => '{limited}');
$pg->insert('queue', name => 'by-queue', endpoints => '{limited}', max_in_flight => 3);
for my $queue ('by-endpoint', 'by-queue')
{
	$limited->reset;
	$limited->script({ match => 'Slow', responses => [ { delay_ms => 100 } ] });
	$pg->sql("SELECT count(*) FROM (SELECT llmq.submit('Slow.', '$queue-' || i, queue => '$queue') FROM generate_series(1, 60) AS i) AS s");
	wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result WHERE queue = '$queue'") eq '60' }, 60, "$queue is done");
	is($limited->state->{max_concurrent}, $queue eq 'by-queue' ? 3 : 6, "four workers keep the limit $queue together, and use it");
}

finish();
