# How a worker starts and leaves: with the server or with the extension, by DROP EXTENSION in the
# middle of a call, by a kill.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg;

sub calls { return scalar(my @calls = $provider->calls(@_)) }

# Submits a job whose first call is not answered before it is released, and waits for that call.
sub submit_held
{
	my ($name) = @_;
	$provider->script({ match => "[job:$name]", responses => [ { hold => $name }, {} ] });
	my $job = $pg->submit(prompt => "Hold on. [job:$name]", idempotency_key => $name,
		outbox => [ { topic => 'mail', payload => {} } ]);
	$provider->wait_for_calls($name, 1);
	return $job;
}

# Tests that a job was done once, though it was called $calls times.
sub is_done_once
{
	my ($job, $name, $calls) = @_;
	is($pg->final_state($job, 40)->{state}, 'succeeded', "$name succeeds");
	is(calls($name), $calls, "the provider saw $calls calls of $name");
	is($pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'"), 1, "$name has one result");
	is($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'"), 1, "$name has one outbox message");
	return;
}

# -- DROP EXTENSION -----------------------------------------------------------

for my $preload (0, 1)
{
	my $how = $preload ? 'preloaded' : 'not preloaded';
	$pg = start_cluster(preload => $preload);
	$pg->create_database('app');
	my $created = $pg->query('CREATE EXTENSION llmq');
	is($created->{sqlstate}, '00000', "$how: CREATE EXTENSION works");
	$pg->start_programs if $pg->has_programs;
	like($created->{err}, qr/shared_preload_libraries/, "$how: it says how to have workers after a restart") if !$preload;
	$pg->endpoint(main => $provider);
	is($pg->final_state($pg->submit(prompt => "Hello. [job:hello-$preload]", idempotency_key => 'hello'))->{state},
		'succeeded', "$how: a worker is there when it has been created");

	submit_held("drop-$preload");
	my $dropped = $pg->query('DROP EXTENSION llmq CASCADE');
	is($dropped->{sqlstate}, '00000', "$how: DROP EXTENSION works in the middle of a call");
	if (!$pg->has_programs)
	{
		ok(wait_for(sub { !$pg->workers }, 10, 'the worker has left'), "$how: it stops the worker");
		wait_for(sub { ($provider->calls("drop-$preload"))[0]{how} }, 10, 'the call has ended');
		is(($provider->calls("drop-$preload"))[0]{how}, 'client_closed', "$how: it ends the call");
	}
	$provider->release("drop-$preload");

	is($pg->query('CREATE EXTENSION llmq')->{sqlstate}, '00000', "$how: it can be created again");
	$pg->endpoint(main => $provider);
	is($pg->final_state($pg->submit(prompt => "Back. [job:back-$preload]", idempotency_key => 'back'))->{state},
		'succeeded', "$how: and works again");
	is(calls("drop-$preload"), 1, "$how: the job that was dropped with it is not called again");
	$pg->stop unless $preload;
}

# -- kills --------------------------------------------------------------------

my $done = $pg->submit(prompt => 'Done before. [job:before]', idempotency_key => 'before', outbox => [ { topic => 'mail', payload => {} } ]);
$pg->final_state($done);

my $job = submit_held('killed');
my $worker = $pg->wait_for_worker;
$pg->kill_worker($worker);
isnt($pg->wait_for_worker, $worker, 'after a kill another worker serves the database');
is_done_once($job, 'killed', 2);
is(($provider->calls('killed'))[0]{how}, 'client_closed', 'the first call ended with the worker');
is($pg->sql("SELECT deliveries FROM llmq.job_status WHERE job_id = '$job'"), 2, 'it was delivered twice');
is($pg->sql("SELECT string_agg(attempt || ' ' || coalesce(error_class, outcome) || ' ' || billing, ', ' ORDER BY delivery)
	FROM llmq.attempt WHERE job_id = '$job' AND delivery = 1"), '0 interrupted unknown', 'the lost call is recorded as interrupted, its billing unknown');

# A program goes on with its calls while there is no server, and when it has lost its session.
my $outlived = $pg->has_programs ? 1 : 2;
$job = submit_held('stopped');
$pg->restart('immediate');
$provider->release('stopped') if $pg->has_programs;
is_done_once($job, 'stopped', $outlived);

$job = submit_held('postmaster');
$pg->kill9;
$pg->start;
$provider->release('postmaster') if $pg->has_programs;
is_done_once($job, 'postmaster', $outlived);

$job = submit_held('terminated');
$worker = $pg->wait_for_worker;
is($pg->sql("SELECT pg_terminate_backend($worker)"), 't', 'a worker can be terminated');
$provider->release('terminated') if $pg->has_programs;
is_done_once($job, 'terminated', $outlived);

is_done_once($done, 'before', 1);

finish();
