# What a provider wishes: a delay is never shortened, costs no delivery that counts and no slot; 429,
# 529 and an exhausted limit keep all jobs from an endpoint without an attempt.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use List::Util qw(min max);
use LlmqTest;
use POSIX qw(strftime);
use Test::More;

my $provider = start_provider();

# With a poll as rare as this, what begins in time does so because the worker knew when.
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '60s' });
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

# An endpoint and a queue of the same name; $responses are for the job of that name, others get the default.
sub prepare
{
	my ($name, $responses, %queue) = @_;
	$pg->endpoint($name => $provider, url => $provider->url("/$name/v1"), %{ delete $queue{endpoint} // {} });
	$pg->insert('queue', name => $name, endpoints => "{$name}", redelivery_base => '0', redelivery_cap => '0', %queue);
	$provider->script({ path => "/$name/", match => "[job:$name]", responses => $responses });
	return;
}

sub submit { my ($name, $queue) = @_; return $pg->submit(prompt => "Go. [job:$name]", idempotency_key => $name, queue => $queue // $name) }

sub wish { my ($status, $seconds) = @_; return { status => $status, headers => [ [ 'Retry-After', "$seconds" ] ] } }

# The calls at one endpoint, of all jobs.
sub calls_at { my ($name) = @_; return grep { $_->{path} =~ m{^/\Q$name\E/} } $provider->calls }

sub is_waiting
{
	my ($job, $sentence) = @_;
	wait_for(sub { $pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'") eq 'scheduled' }, 20, 'the job is deferred');
	my $status = $pg->row("SELECT s.*, d.counted FROM llmq.job_status AS s JOIN llmq.deferred AS d USING (job_id) WHERE s.job_id = '$job'");
	is($status->{counted}, 0, $sentence);
	return $status;
}

# Tests that each call but the first came no sooner than $seconds after the one before: when that was
# answered the provider notes a moment after the worker may have read it.
sub is_obeyed
{
	my ($name, $seconds, @calls) = @_;
	my $sooner = grep { $calls[$_]{start} - $calls[ $_ - 1 ]{start} < $seconds } 1 .. $#calls;
	is($sooner, 0, "$name: no call came sooner than the provider wished");
	return;
}

# -- above backoff_cap ---------------------------------------------------------

# One slot in the queue: while the first job waits, the second must be able to run.
prepare('long', [ wish(503, 3), (wish(503, 1)) x 3, {} ], backoff_cap => '0.2 s', max_deliveries => 2, max_in_flight => 1, max_attempts => 10);
my $job = submit('long');
$provider->wait_for_calls('long', 1);
my $status = is_waiting($job, 'long: a delivery that ends with a wish does not count');
is($status->{wait_reason}, 'overloaded', 'long: the job says what it waits for');
ok($status->{wait_until}, 'long: and until when');
my $second = submit('second', 'long');
is($pg->final_state($second)->{state}, 'succeeded', 'long: its slot is free meanwhile');
$status = $pg->final_state($job);
is($status->{state}, 'succeeded', 'long: four such deliveries do not kill a job that may have two');
my @calls = $provider->calls('long');
is(scalar(@calls), 5, 'long: five calls');
is($status->{deliveries}, 5, 'long: in a delivery each');
is_obeyed('long', 3, @calls[ 0, 1 ]);
is_obeyed('long', 1, @calls);
my ($other) = $provider->calls('second');
cmp_ok($other->{start}, '<', $calls[1]{start}, 'long: the other job was called while it waited');
is($pg->sql("SELECT string_agg(extract(epoch FROM retry_after)::int::text, ' ' ORDER BY delivery) FROM llmq.attempt WHERE job_id = '$job'"),
	'3 1 1 1', 'long: the wishes are recorded');

# -- beyond the deadline --------------------------------------------------------

prepare('late', [ wish(500, 2), {} ], backoff_cap => '1 min', deadline => '1.5 s', min_attempt => '0.1 s', max_deliveries => 1);
$job = submit('late');
$provider->wait_for_calls('late', 1);
is_waiting($job, 'late: a wish beyond the deadline does not count either');
is($pg->final_state($job)->{state}, 'succeeded', 'late: and the job is delivered again');
is_obeyed('late', 2, $provider->calls('late'));

# -- in place ----------------------------------------------------------------------

prepare('short', [ wish(503, 1), { status => 503, headers => [ [ 'retry-after-ms', '300' ] ] }, {} ], max_deliveries => 1);
$status = $pg->final_state($job = submit('short'));
is("$status->{state} $status->{deliveries}", 'succeeded 1', 'short: a wish that can be waited for is waited for in place');
@calls = $provider->calls('short');
is_obeyed('short', 1, @calls[ 0, 1 ]);
is_obeyed('short', 0.3, @calls[ 1, 2 ]);

# -- a date, and too far away -------------------------------------------------------

my @date = (strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime(1767225600)), strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime(1767225602)));
prepare('date', [ { status => 503, headers => [ [ Date => $date[0] ], [ 'Retry-After' => $date[1] ] ] }, {} ], backoff_cap => '1 s', max_deliveries => 1);
$pg->final_state(submit('date'));
is_obeyed('date', 2, @calls = $provider->calls('date'));
is(scalar(@calls), 2, 'date: a date counts from the provider\'s own clock');

prepare('days', [ wish(503, 3 * 86400) ], max_deliveries => 1);
$job = submit('days');
$provider->wait_for_calls('days', 1);
is_waiting($job, 'days: a wish of three days does not count');
my $hours = $pg->sql("SELECT extract(epoch FROM wait_until - now()) / 3600 FROM llmq.job_status WHERE job_id = '$job'");
ok($hours > 23.9 && $hours <= 24, 'days: a day is the most that is waited for') or diag("$hours hours");

# -- max_age ends it all -----------------------------------------------------------------

prepare('old', [ wish(503, 1) ], backoff_cap => '0.1 s', max_age => '2.5 s', max_deliveries => 1);
$status = $pg->final_state($job = submit('old'));
is("$status->{state} $status->{error_class}", 'dead expired', 'old: a job that is put off for ever dies of its age');
cmp_ok(scalar(@calls = $provider->calls('old')), '>=', 2, 'old: after several deliveries');
cmp_ok(scalar(@calls), '<=', 3, 'old: and none after its time');
is_obeyed('old', 1, @calls);

# -- 429 and 529 pause the endpoint ---------------------------------------------------

# For each: a job that waits for its second attempt in place, one that provokes the pause, then many
# more at this endpoint and some at another; the pause ends, and all of them run.
for my $number (429, 529)
{
	my ($name, $free) = ("paused$number", "free$number");
	prepare($name, [ wish($number, 4), {} ], max_deliveries => 1);
	prepare($free, [ {} ]);
	$provider->script({ path => "/$name/", match => "[job:waits$number]", responses => [ wish(503, 3), {} ] });
	my $waits = submit("waits$number", $name);
	$provider->wait_for_calls("waits$number", 1);
	my $refused = submit($name);
	$provider->wait_for_calls($name, 1);
	wait_for(sub { ($provider->calls($name))[0]{end} }, 10, 'the refusal is out');
	wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.lease WHERE job_id = '$refused'") eq '1' }, 10, 'the refused job waits in place');
	my @more = map { submit("more$number-$_", $name) } 1 .. 10;
	my @others = map { submit("other$number-$_", $free) } 1 .. 10;
	is_deeply([ map { $pg->final_state($_)->{state} } @others ], [ ('succeeded') x 10 ], "$number: jobs of another endpoint run meanwhile");
	is($pg->sql("SELECT count(*) FROM llmq.job_status WHERE state = 'ready' AND attempts = 0 AND deliveries = 0 AND queue = '$name'"), 10,
		"$number: the endpoint's other jobs wait without a delivery");
	is_deeply([ map { $pg->final_state($_)->{state} } $refused, $waits, @more ], [ ('succeeded') x 12 ], "$number: when it is over they run");

	my ($first, $refusal, @after) = sort { $a->{start} <=> $b->{start} } calls_at($name);
	is($refusal->{job}, $name, "$number: the second call was refused");
	is(scalar(@after), 12, "$number: each job was called once more");
	cmp_ok(min(map { $_->{start} } @after), '>=', $refusal->{start} + 4, "$number: nobody was called before the provider wished, the job that waited in place neither");
	cmp_ok(max(map { $_->{start} } calls_at($free)), '<', min(map { $_->{start} } @after), "$number: calls of the other endpoint were made meanwhile");
	is($pg->sql("SELECT count(*) FROM llmq.attempt AS a JOIN llmq.job AS j USING (job_id) WHERE j.queue = '$name'"), 14, "$number: waiting was no attempt");
}

# -- nothing remaining ---------------------------------------------------------------

for my $kind (qw(requests tokens))
{
	my $name = "spent-$kind";
	prepare($name, [ { headers => [ [ "x-ratelimit-remaining-$kind", '0' ], [ "x-ratelimit-reset-$kind", '2s' ] ] } ]);
	prepare("free-$kind", [ {} ]);
	is($pg->final_state(submit($name))->{state}, 'succeeded', "$kind: an answer is taken though nothing remains");
	my @more = map { submit("more-$kind-$_", $name) } 1 .. 5;
	is($pg->final_state(submit("free-$kind"))->{state}, 'succeeded', "$kind: another endpoint goes on");
	is_deeply([ map { $pg->final_state($_)->{state} } @more ], [ ('succeeded') x 5 ], "$kind: the jobs run when there is something again");
	my ($last, @after) = calls_at($name);
	is(scalar(@after), 5, "$kind: each of them with one call");
	cmp_ok(min(map { $_->{start} } @after), '>=', $last->{start} + 2, "$kind: and none before that");
	cmp_ok(max(map { $_->{start} } calls_at("free-$kind")), '<', min(map { $_->{start} } @after), "$kind: the other endpoint was called meanwhile");
}

# A refusal's own wish comes first: the reset may be when the limit is whole again.
prepare('resets', [ { status => 429, headers => [ [ 'Retry-After', '1' ], [ 'x-ratelimit-remaining-tokens', '0' ], [ 'x-ratelimit-reset-tokens', '6m0s' ] ] }, {} ]);
is($pg->final_state(submit('resets'))->{state}, 'succeeded', 'resets: a refusal that names its delay pauses the endpoint for no longer');
is_obeyed('resets', 1, $provider->calls('resets'));

# -- a chain goes on with the next ---------------------------------------------------

prepare('chain', [ wish(429, 60) ], max_deliveries => 1);
$pg->endpoint(spare => $provider, url => $provider->url('/spare/v1'));
$pg->sql(q(UPDATE llmq.queue SET endpoints = '{chain,spare}' WHERE name = 'chain'));
$provider->script({ path => '/spare/', responses => [ {} ] });
is($pg->final_state(submit('trigger', 'chain'))->{state}, 'succeeded', 'chain: its first endpoint answers');
$job = submit('chain');
wait_for(sub { (grep { $_->{job} eq 'chain' && $_->{end} } calls_at('chain')) }, 10, 'it is refused');
is($pg->final_state($second = submit('next', 'chain'))->{endpoint}, 'spare', 'chain: while the first endpoint is paused, the second is called');

finish();
