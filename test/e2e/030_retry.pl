# Attempts, deliveries and death, counted and timed at the provider.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();

# With a poll as rare as this, a delivery that begins in time does so because the worker knew when.
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '60s' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

# A queue and an endpoint of its own for each part: a pause that one provider asked for is not the others' concern.
sub submit
{
	my ($name, $responses, %more) = @_;
	$pg->endpoint($name => $provider);
	$pg->insert('queue', name => $name, endpoints => "{$name}");
	$provider->script({ match => "[job:$name]", responses => $responses });
	return $pg->submit(prompt => "Go on. [job:$name]", idempotency_key => $name, queue => $name, %more);
}

sub calls { return scalar(my @calls = $provider->calls(@_)) }

my %soon = (backoff_base => '10 ms', backoff_cap => '20 ms', redelivery_base => '20 ms', redelivery_cap => '40 ms');

# -- a limit ------------------------------------------------------------------

my $job = submit('limited', [ { status => 429, headers => [ [ 'Retry-After', '1' ] ] }, {} ]);
is($pg->final_state($job)->{state}, 'succeeded', 'a job that met a rate limit succeeds');
my @calls = $provider->calls('limited');
is(scalar(@calls), 2, 'with the second call');
cmp_ok($calls[1]{start} - $calls[0]{start}, '>=', 1, 'which came no sooner than the provider wished');

# -- what a retry mends -------------------------------------------------------

$job = submit('bumpy', [ { status => undef, end => 'reset' }, { status => 500 }, { body => '<html>' }, {} ], policy => \%soon);
is($pg->final_state($job)->{state}, 'succeeded', 'a reset, a 500 and nonsense are retried');
is(calls('bumpy'), 4, 'one call for each');
is($pg->sql("SELECT string_agg(coalesce(error_class, outcome), ' ' ORDER BY delivery, attempt) FROM llmq.attempt WHERE job_id = '$job'"),
	'interrupted server_error invalid_response success', 'each attempt is recorded with its class');

# -- what it does not ---------------------------------------------------------

$job = submit('bad', [ { status => 400 } ], policy => \%soon,
	outbox => [ { topic => 'sad', payload => {}, on => 'dead' }, { topic => 'glad', payload => {} } ]);
my $status = $pg->final_state($job);
is("$status->{state} $status->{error_class}", 'dead bad_request', 'a request that the provider refuses is dead at once');
is(calls('bad'), 1, 'after one call');
is($pg->sql("SELECT string_agg(topic, ' ') FROM llmq.outbox WHERE job_id = '$job'"), 'sad', 'with the message for that case and no other');
is($pg->sql("SELECT count(*) FROM llmq.dead_letter WHERE job_id = '$job'"), 1, 'and a dead letter');
is($pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'"), 0, 'but no result');

$job = submit('broken', [ { status => 500 } ], policy => { %soon, max_attempts => 2, max_deliveries => 3 });
$status = $pg->final_state($job);
is("$status->{state} $status->{error_class}", 'dead max_deliveries', 'a provider that is always broken kills the job in the end');
$pg->final_state(submit('after', [ {} ]));
is(calls('broken'), 6, 'after exactly max_deliveries times max_attempts calls');
is($status->{deliveries}, 3, 'in that many deliveries');

# -- a provider that hangs ----------------------------------------------------

# Several, for the delays are random.
my @names = map { "hang$_" } 1 .. 8;
my %hasty = (call_timeout => '0.2 s', min_attempt => '0.1 s', backoff_base => '0.05 s', deadline => '0.5 s');
my %job = map { $_ => submit($_, [ { status => undef, end => 'hang' } ], policy => { %hasty, max_deliveries => 1 }) } @names;
for my $name (@names)
{
	is($pg->final_state($job{$name})->{state}, 'dead', "$name: a job whose provider hangs is dead when its delivery is over");
	@calls = $provider->calls($name);
	cmp_ok(scalar(@calls), '>=', 2, 'after at least two calls');
	cmp_ok(scalar(@calls), '<=', 3, 'and at most three');
	is(scalar(grep { $_->{how} ne 'client_closed' } @calls), 0, 'all of which the worker gave up');
	cmp_ok($calls[-1]{end} - $calls[0]{start}, '<', 0.6, 'in under 0.6 s');
}

$job = submit('wakes', [ ({ status => undef, end => 'hang' }) x 3, {} ],
	policy => { %soon, %hasty, call_timeout => '0.3 s', max_attempts => 1, max_deliveries => 5 });
is($pg->final_state($job)->{state}, 'succeeded', 'a new delivery has a fresh budget');
is(calls('wakes'), 4, 'and is made until the provider answers');

finish();
