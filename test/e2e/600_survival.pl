# What a worker lives through: the extension made anew under it, a statement that is cancelled.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);

# -- the extension is made anew -------------------------------------------------

$pg->create_database('anew', extension => 1, provider => $provider);
my $worker = $pg->wait_for_worker;
# Far enough, and long enough ago, that nothing new is expected where seqs begin.
for my $number (1 .. 5)
{
	$pg->final_state($pg->submit(prompt => "Before. [job:before-$number]", idempotency_key => "before-$number"));
}
$pg->sql('SET lock_timeout = 0; BEGIN; DROP EXTENSION llmq CASCADE; CREATE EXTENSION llmq; COMMIT');
$pg->endpoint(main => $provider);
for my $number (1 .. 2)
{
	my $job = $pg->submit(prompt => "After. [job:after-$number]", idempotency_key => "after-$number");
	is($pg->final_state($job)->{state}, 'succeeded', "job $number of an extension that was dropped and created in one transaction succeeds");
}

# -- a cancelled statement ------------------------------------------------------

$pg->create_database('cancelled', extension => 1, provider => $provider);
$worker = $pg->wait_for_worker;
$provider->script({ match => '[job:held]', responses => [ { hold => 'held' }, {} ] });
my $job = $pg->submit(prompt => 'Go on. [job:held]', idempotency_key => 'held');
$provider->wait_for_calls('held', 1);
# While a worker waits for the network there is nothing to cancel.  The last one meets an operation.
for (1 .. 20)
{
	is($pg->sql("SELECT pg_cancel_backend($worker)"), 't', 'a worker can be told to cancel') if $_ == 1;
	kill 'INT', $worker;
	$pg->submit(prompt => "Another. [job:another-$_]", idempotency_key => "another-$_");
}
$provider->release('held');
is($pg->final_state($job)->{state}, 'succeeded', 'a call under way outlives it');
is(scalar(my @calls = $provider->calls('held')), 1, 'and is not made again');
is(($pg->workers)[0], $worker, 'the worker is the same');
ok(wait_for(sub { !$pg->sql("SELECT count(*) FROM llmq.job_status WHERE state <> 'succeeded'") }, 20, 'all have succeeded'), 'and goes on working');

# Its look for the extension is no exception, when it must wait too long for the catalog.
$provider->script({ match => '[job:locked]', responses => [ { hold => 'locked' }, {} ] });
$job = $pg->submit(prompt => 'Stay. [job:locked]', idempotency_key => 'locked');
$provider->wait_for_calls('locked', 1);
$pg->sql('BEGIN; LOCK TABLE pg_extension IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.5); COMMIT');
$provider->release('locked');
is($pg->final_state($job)->{state}, 'succeeded', 'a call outlives a catalog that is locked for a while');
is(scalar(@calls = $provider->calls('locked')), 1, 'and is not made again');
is(($pg->workers)[0], $worker, 'by the same worker');

finish();
