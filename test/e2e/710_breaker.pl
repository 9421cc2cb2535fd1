# Endpoints that fail: breakers, and the other endpoints of a queue's chain.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '1s' });
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

sub submit
{
	my ($queue, $name, %more) = @_;
	return $pg->submit(prompt => "Go. [job:$name]", idempotency_key => $name, queue => $queue, %more);
}

sub breaker { my ($endpoint) = @_; return $pg->sql("SELECT breaker FROM llmq.endpoint_status WHERE endpoint = '$endpoint'") }

# Waits for the end of a job, and returns the endpoints that were called for it and what they said.
sub hops
{
	my ($id) = @_;
	$pg->final_state($id);
	return $pg->sql("SELECT string_agg(format('%s:%s', endpoint, coalesce(error_class, outcome)), ' ' ORDER BY delivery, attempt)
		FROM llmq.attempt WHERE job_id = '$id'");
}

# -- a breaker -------------------------------------------------------------------------

$pg->endpoint('shaky', $provider, breaker_failures => 3, breaker_cooldown => '1 h');
$pg->insert('queue', name => 'shaky', endpoints => '{shaky}', backoff_base => '0.01 s', backoff_cap => '1 s');
$provider->script({ match => '[job:own', responses => [ { status => 400 } ] });
is($pg->final_state(submit('shaky', "own-$_"))->{state}, 'dead', 'a job that the provider cannot take is dead') for 1 .. 4;
is(breaker('shaky'), 'closed', 'errors of jobs open no breaker');

$provider->script({ match => '[job:bad', responses => [ { status => 503 } ] });
my $bad = submit('shaky', 'bad');
wait_for(sub { breaker('shaky') eq 'open' }, 20, 'the breaker opens');
is(scalar($provider->calls('bad')), 3, 'a breaker opens after breaker_failures in a row');
is($pg->sql(q{SELECT last_error FROM llmq.endpoint_status WHERE endpoint = 'shaky'}), 'overloaded', 'what it opened for is there to be read');
my $waiting = submit('shaky', 'waiting');
ok(wait_for(sub { $pg->sql("SELECT wait_reason = 'breaker' AND wait_until > now() + interval '50 min' FROM llmq.job_status WHERE job_id = '$waiting'") eq 't' },
	10, 'the reason'), 'who waits for a breaker says so, and until when');
is($pg->sql("SELECT deliveries FROM llmq.job_status WHERE job_id = '$waiting'"), 0, 'and is not delivered meanwhile');
ok(wait_for(sub { $pg->sql("SELECT state || ' ' || wait_reason FROM llmq.job_status WHERE job_id = '$bad'") eq 'scheduled breaker' }, 10, 'it is given back'),
	'the job that was in hand waits, too');
$provider->script({ match => '[job:bad', responses => [ {} ] });
is($pg->sql(q{SELECT llmq.reset_breaker('shaky')}), 't', 'llmq.reset_breaker closes it by hand');
is($pg->final_state($waiting)->{state}, 'succeeded', 'then calls are made again');
is($pg->sql(q{SELECT llmq.reset_breaker('shaky')}), 'f', 'a closed one cannot be closed');

# -- a probe ------------------------------------------------------------------------------

$pg->endpoint('probed', $provider, max_in_flight => 1, breaker_failures => 2, breaker_cooldown => '0.5 s');
$pg->insert('queue', name => 'probed', endpoints => '{probed}', backoff_base => '0.01 s', backoff_cap => '0.1 s', redelivery_base => '0.1 s');
$provider->script({ match => '[job:down', responses => [ { status => 500 }, { status => 500 }, { hold => 'probe', status => 500 }, { hold => 'second' } ] });
my @down = map { submit('probed', "down", idempotency_key => "down-$_") } 1 .. 5;
my @calls = $provider->wait_for_calls('down', 3);
is(breaker('probed'), 'half_open', 'after the cooldown one call tries the endpoint out');
is(scalar(@calls), 3, 'and one only');
$provider->release('probe');
$provider->wait_for_calls('down', 4);
is(scalar($provider->calls('down')), 4, 'when it fails there is another after the next cooldown, again one');
$provider->release('second');
is($pg->final_state($_)->{state}, 'succeeded', 'when it works, all are called') for @down;
is($pg->final_state($bad)->{state}, 'succeeded', 'also the job that had been in hand when another opened');
is(breaker('probed'), 'closed', 'and the breaker is closed');

# -- the chain ------------------------------------------------------------------------------

$pg->endpoint('first', $provider, model => 'first-model');
$pg->endpoint('second', $provider, model => 'second-model');
$pg->insert('queue', name => 'chain', endpoints => '{first,second}', max_attempts => 2, backoff_base => '0.01 s');
$provider->script({ match => 'first-model', responses => [ { status => 500 } ] });
my $id = submit('chain', 'spent');
is(hops($id), 'first:server_error first:server_error second:success', 'when the attempts on one endpoint are spent, the next is called');
is($pg->sql("SELECT endpoint || ' ' || model FROM llmq.result WHERE job_id = '$id'"), 'second second-model', 'the result names the one that answered');
is($pg->sql("SELECT deliveries FROM llmq.result WHERE job_id = '$id'"), 1, 'all in one delivery');

$provider->script({ match => 'second-model', responses => [ { status => 500 } ] });
$id = submit('chain', 'all-spent', policy => { max_deliveries => 1 });
is(hops($id), 'first:server_error first:server_error second:server_error second:server_error', 'when those on all are spent the delivery is over');
$provider->reset;

$provider->script({ match => 'first-model', responses => [ { status => 429, headers => [ [ 'Retry-After', '40' ] ] } ] });
is(hops(submit('chain', 'wish')), 'first:rate_limited second:success', 'a wish that is too long to be waited for leads to the next');
is(hops(submit('chain', 'paused')), 'second:success', 'and while the endpoint is left alone it is passed over');
$provider->reset;

my $long = { status => 400, body => '{"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}' };
$pg->endpoint('small', $provider, model => 'small-model');
$pg->insert('queue', name => 'strict', endpoints => '{small,second}');
$pg->insert('queue', name => 'lenient', endpoints => '{small,second}', fallback_on => '{context_length}');
$provider->script({ match => 'small-model', responses => [$long] });
is(hops(submit('strict', 'strict')), 'small:context_length', 'a permanent error is final');
is(hops(submit('lenient', 'lenient')), 'small:context_length second:success', 'but for classes in fallback_on');
$provider->reset;

$pg->endpoint('broken', $provider, model => 'broken-model', breaker_failures => 1, breaker_cooldown => '1 h');
$pg->insert('queue', name => 'detour', endpoints => '{broken,second}', backoff_base => '0.01 s');
$provider->script({ match => 'broken-model', responses => [ { status => 500 } ] });
is(hops(submit('detour', 'opens')), 'broken:server_error second:success', 'a breaker that opens sends the job on');
is(hops(submit('detour', 'open')), 'second:success', 'an open one is passed over');

$pg->endpoint('scarce', $provider, requests_per_minute => 1);
$pg->insert('queue', name => 'hurried', endpoints => '{scarce,second}', deadline => '20 s');
$pg->insert('queue', name => 'patient', endpoints => '{scarce,second}', deadline => '10 min');
is(hops(submit('hurried', 'within')), 'scarce:success', 'what a quota allows goes to the first endpoint');
is(hops(submit('hurried', 'beyond')), 'second:success', 'a job that cannot wait for the quota goes on');
$id = submit('patient', 'waits');
wait_for(sub { $pg->sql("SELECT wait_reason FROM llmq.job_status WHERE job_id = '$id'") eq 'limiter' }, 10, 'it waits');
is(scalar($provider->calls('waits')), 0, 'one that can waits');
$pg->sql("SELECT llmq.cancel('$id')");

# -- tenants take turns ----------------------------------------------------------------------

$pg->insert('role_tenant', role => 'postgres', tenant => $_) for 'many', 'few';
$pg->endpoint('single', $provider, max_in_flight => 1);
$pg->insert('queue', name => 'turns', endpoints => '{single}');
$provider->script({ match => '[job:many-1]', responses => [ { hold => 'many' } ] });
$pg->sql(q{SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object('prompt', 'Go. [job:many-' || n || ']',
	'idempotency_key', 'many-' || n, 'queue', 'turns', 'tenant', 'many') ORDER BY n) FROM generate_series(1, 10000) AS n))});
$provider->wait_for_calls('many-1', 1);
submit('turns', 'few', tenant => 'few');
# The worker has seen the late job when it has looked at everything behind it.
$pg->final_state($pg->submit(prompt => 'Go. [job:look-2]', idempotency_key => 'look-2', queue => 'chain'));
$provider->release('many');
$provider->wait_for_calls('few', 1);
my @order = map { $_->{job} } grep { $_->{job} =~ /^(?:many-|few)/ } $provider->calls;
my ($place) = grep { $order[$_] eq 'few' } 0 .. $#order;
cmp_ok($place, '<=', 2, "the first job of a tenant is not held up by another's ten thousand");
$pg->sql(q{SELECT count(llmq.cancel(job_id)) FROM llmq.job_status WHERE queue = 'turns' AND state IN ('ready', 'running')});
finish();
