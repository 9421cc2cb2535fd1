# The worker: many calls at once, none of which delays another; woken at commit; no transaction
# while it waits for the network; streamed answers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use List::Util qw(max);
use LlmqTest;
use Test::More;

my $provider = start_provider();

# With a poll as rare as this, what runs soon runs because the worker was woken.
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '60s' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

sub submit_numbered
{
	my ($name, $count) = @_;
	$pg->sql("SELECT count(llmq.submit(prompt => 'Say it. [job:$name-' || n || ']', idempotency_key => '$name-' || n,
		metadata => '{\"part\": \"$name\"}')) FROM generate_series(1, $count) AS n");
	return;
}

sub finals
{
	my ($name) = @_;
	return $pg->sql("SELECT count(*) FROM llmq.job_status WHERE state = 'succeeded' AND metadata ->> 'part' = '$name'");
}

sub numbered { my ($name) = @_; return grep { $_->{job} =~ /^$name-/ } $provider->calls }

# -- woken --------------------------------------------------------------------

my $job = $pg->submit(prompt => 'Wake up. [job:wake]', idempotency_key => 'wake');
is($pg->final_state($job, 10)->{state}, 'succeeded', 'a commit wakes an idle worker');
for my $number (1 .. 20)
{
	$pg->final_state($pg->submit(prompt => "And again. [job:wake$number]", idempotency_key => "wake$number"), 10);
}
is(scalar(grep { $_->{job} =~ /^wake/ } $provider->calls), 21, 'every time');

# -- many at once -------------------------------------------------------------

$provider->script({ match => '[job:slow-', responses => [ { hold => 'slow' } ] });
submit_numbered('slow', 100);
wait_for(sub { numbered('slow') >= 100 }, 30, 'all 100 calls have arrived');
is(max(map { $_->{concurrent} } numbered('slow')), 100, '100 slow calls are open at once');
ok(wait_for(sub {
	!$pg->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^llmq'
		AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)")
}, 10, 'no worker is in a transaction'), 'meanwhile the worker is in no transaction');
ok(wait_for(sub {
	!$pg->sql(q{SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE a.backend_type ~ '^llmq' AND l.relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'llmq'::regnamespace)})
}, 10, 'no worker holds a lock'), 'and locks no table, but for the moments of a poll');

# -- none delays another ------------------------------------------------------

submit_numbered('fast', 50);
ok(wait_for(sub { finals('fast') == 50 }, 30, 'the fast jobs are final'), '50 fast jobs are final while 100 slow calls are open');
is(scalar(grep { $_->{how} } numbered('slow')), 0, 'not one of the slow ones had its answer by then');

$provider->script({ match => '[job:tortoise]', responses => [ { delay_ms => 5000 } ] });
my $tortoise = $pg->submit(prompt => 'Slow and steady. [job:tortoise]', idempotency_key => 'tortoise');
$provider->wait_for_calls('tortoise', 1);
submit_numbered('hare', 50);
$provider->release('slow');
is($pg->final_state($tortoise)->{state}, 'succeeded', 'a call of five seconds succeeds');
wait_for(sub { finals('slow') == 100 }, 30, 'the slow jobs are final');
is(scalar(numbered('slow')), 100, 'each slow job was called once');
my ($slowest) = $provider->calls('tortoise');
cmp_ok(max(map { $_->{end} } numbered('hare'), numbered('slow')), '<', $slowest->{end}, 'it delayed none of the calls made meanwhile');
is($pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.result AS t ON t.job_id = '$tortoise'
	WHERE r.created_at > t.created_at AND r.job_id <> t.job_id"), 0, 'and none of their results');

# -- streamed -----------------------------------------------------------------

$pg->endpoint(streaming => $provider, stream => 'true');
$pg->insert('queue', name => 'streamed', endpoints => '{streaming}');
$provider->script({ match => '[job:stream]', responses => [ { text => "One, two, \x{20ac} three.", chunk_delay_ms => 20 } ] });
$job = $pg->submit(prompt => 'Count. [job:stream]', idempotency_key => 'stream', queue => 'streamed');
is($pg->final_state($job)->{text}, "One, two, \x{20ac} three.", 'a streamed answer arrives whole');
my ($call) = $provider->calls('stream');
ok($call->{stream}, 'the provider was asked for a stream');

# The stream ends without saying that it is complete: not an answer.
my $cut = 'data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Half"},"finish_reason":null}]}' . "\n\n";
$provider->script({ match => '[job:cut]', responses => [ { headers => [ [ 'Content-Type', 'text/event-stream' ] ], chunks => [$cut] }, {} ] });
$job = $pg->submit(prompt => 'Whole. [job:cut]', idempotency_key => 'cut', queue => 'streamed', policy => { backoff_base => '10 ms' });
is($pg->final_state($job)->{text}, 'Whole. [job:cut]', 'a stream that was cut is not taken for an answer');
is(scalar(my @cut = $provider->calls('cut')), 2, 'but called again');

finish();
