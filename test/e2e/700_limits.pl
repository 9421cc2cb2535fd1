# Limits in front of providers: a quota that all workers share, what waits for it, and what a
# provider's own words do.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use LlmqTest;
use List::Util qw(uniq);
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 3, 'llmq.poll_interval' => '1s' });
$pg->create_database('app', extension => 1, provider => $provider);
wait_for(sub { $pg->workers == 3 }, 20, 'three workers');

# Submits jobs of one queue, named $name-1 and so on.
sub submit
{
	my ($name, $count, $queue) = @_;
	$pg->sql("SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object('prompt', 'Go. [job:$name-' || n || ']',
		'idempotency_key', '$name-' || n, 'queue', '$queue') ORDER BY n) FROM generate_series(1, $count) AS n))");
	return;
}

sub calls_of { my ($name) = @_; return grep { $_->{job} =~ /^$name-/ } $provider->calls }

sub all_succeed
{
	my ($name, $count, $limit) = @_;
	return wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.job_status WHERE state = 'succeeded' AND job_id IN
		(SELECT job_id FROM llmq.job WHERE idempotency_key LIKE '$name-%')") == $count }, $limit // 60, "all of $name");
}

# An endpoint with a queue of its own, both of this name.
sub place
{
	my ($name, %columns) = @_;
	my %queue = %{ delete $columns{queue} // {} };
	$pg->endpoint($name, $provider, %columns);
	$pg->insert('queue', name => $name, endpoints => "{$name}", %queue);
	return;
}

# -- a quota ------------------------------------------------------------------------

my $RATE = 10;
place('shared', requests_per_minute => $RATE * 60);
submit('shared', 60, 'shared');
all_succeed('shared', 60);
my @calls = sort { $a->{start} <=> $b->{start} } calls_of('shared');
is(scalar(@calls), 60, 'each job of a limited endpoint is called once');
# A slot may be used a second late: no more than those of a second can come together.
my @dense = grep { $calls[ $_ + 3 * $RATE ]{start} - $calls[$_]{start} < 1.9 } 0 .. $#calls - 3 * $RATE;
is(scalar(@dense), 0, 'three workers together keep to the quota of one');
# Which of them is quickest is chance: more jobs come until it was not one alone.
my $more = 0;
sub callers { return scalar(uniq map { $_->{connection} } calls_of('shared')) }
while (callers() < 2 && $more < 20)
{
	my $name = 'shared-more' . ++$more;
	submit($name, $RATE, 'shared');
	all_succeed($name, $RATE);
}
cmp_ok(callers(), '>', 1, 'more than one of them called');
is($pg->sql(q{SELECT count(*) FROM llmq.attempt WHERE outcome <> 'success'}), 0, 'and nobody was refused');
is($pg->sql('SELECT max(deliveries) FROM llmq.result'), 1, 'nor delivered twice');

# -- calls under way ---------------------------------------------------------------------

place('held', max_in_flight => 5);
$provider->script({ match => '[job:held-', responses => [ { hold => 'held' } ] });
submit('held', 9, 'held');
wait_for(sub { calls_of('held') == 5 }, 20, 'five calls');
sub in_flight { return $pg->sql(q{SELECT string_agg(in_flight::text, ' ' ORDER BY endpoint) FROM llmq.endpoint_status WHERE endpoint IN ('held', 'main')}) }
ok(wait_for(sub { in_flight() eq '5 0' }, 20, 'heartbeats'), 'llmq.endpoint_status counts the calls of all workers to each endpoint');
$provider->release('held');
all_succeed('held', 9);
ok(wait_for(sub { in_flight() eq '0 0' }, 20, 'heartbeats'), 'and none when they have ended');

# -- a breaker that all workers keep -------------------------------------------------------

$provider->script({ match => '[job:failing-', responses => [ { status => 503 } ] });
place('failing', max_in_flight => 3, breaker_failures => 3, breaker_cooldown => '1 h', queue => { backoff_base => '0.01 s', backoff_cap => '0.02 s' });
submit('failing', 30, 'failing');
ok(wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE queue = 'failing' AND state IN ('ready', 'scheduled') AND wait_reason = 'breaker'}) == 30 },
	30, 'the breaker'), 'a breaker that one worker opens keeps the jobs of all');
cmp_ok(scalar(calls_of('failing')), '<=', 3 * 3, 'no worker has made more calls than breaker_failures');

# -- waiting ---------------------------------------------------------------------------

place('slow', requests_per_minute => 6);
submit('slow', 3, 'slow');
wait_for(sub { calls_of('slow') == 1 }, 20, 'the first call');
$pg->insert('queue', name => 'free', endpoints => '{main}');
submit('free', 5, 'free');
all_succeed('free', 5);
is(scalar(calls_of('slow')), 1, 'jobs of another endpoint pass those that wait for a quota');
ok(wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE queue = 'slow' AND wait_reason = 'limiter' AND wait_until > now()}) == 2 },
	10, 'the reason'), 'who waits for a quota says so, and until when');
is($pg->sql(q{SELECT string_agg(DISTINCT format('%s %s %s', state, deliveries, attempts), ', ') FROM llmq.job_status WHERE wait_reason = 'limiter'}),
	'ready 0 0', 'waiting costs no delivery and no attempt');
is($pg->sql('SELECT sum(in_flight) FROM llmq.worker'), 0, 'and no place in a worker');
is($pg->sql(q{SELECT wait_reason FROM llmq.endpoint_status WHERE endpoint = 'slow'}), 'limiter', 'llmq.endpoint_status says so, too');
wait_for(sub { calls_of('slow') == 2 }, 30, 'the second call');
is_deeply([ map { $_->{job} } calls_of('slow') ], [ 'slow-1', 'slow-2' ], 'the order within the queue holds');
$pg->sql(q{UPDATE llmq.endpoint SET requests_per_minute = NULL WHERE name = 'slow'});
all_succeed('slow', 3, 20);
pass('a limit that is lifted holds nobody back');

# -- tokens -----------------------------------------------------------------------------

# A call counts some 40 tokens for what is sent, and 20 for the answer.
place('tokens', tokens_per_minute => 6000);
submit('tokens', 20, 'tokens');
all_succeed('tokens', 20);
my ($used) = $pg->sql(q{SELECT sum(input_tokens + output_tokens) FROM llmq.result WHERE endpoint = 'tokens'});
@calls = sort { $a->{start} <=> $b->{start} } calls_of('tokens');
my $span = $calls[-1]{start} - $calls[0]{start};
# What a second and a half of the quota pays for goes out at once; estimates begin at 256 for an answer.
cmp_ok($used, '<=', 100 * ($span + 5), 'tokens are used no faster than the quota has it');

# -- what a provider says of what is left ---------------------------------------------------

for my $style ('openai', 'anthropic')
{
	$provider->quota(requests_per_minute => 20, headers => $style);
	place($style, max_in_flight => 3, api => $style eq 'openai' ? 'openai_chat' : 'anthropic_messages');
	submit($style, 25, $style);
	@calls = sort { $a->{start} <=> $b->{start} } $provider->wait_for_calls("$style-6", 1, 60), calls_of($style);
	is($provider->state->{quota}{refused}, 0, "$style: nobody is refused when so little is left");
	cmp_ok(scalar(calls_of($style)), '<', 15, "$style: what is left is spread over the time until there is more");
	$pg->sql("SELECT count(llmq.cancel(job_id)) FROM llmq.job_status WHERE queue = '$style' AND state IN ('ready', 'running', 'scheduled')");
	$provider->reset;
}
finish();
