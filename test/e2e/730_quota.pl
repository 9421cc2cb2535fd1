# Sixty seconds of full load against providers that enforce their quotas on clocks of their own: one
# worker and three, in the server and not, requests and tokens.  Only what the providers have counted matters.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use List::Util qw(min);
use LlmqTest;
use Test::More;
use Time::HiRes qw(sleep);

use constant SECONDS => 60;
# A machine that stands still for seconds loses slots that cannot be had back: then it is tried again.
use constant TRIES => 3;

my %quota = (requests => [ requests_per_minute => 600 ], tokens => [ tokens_per_minute => 60_000 ]);
my %limit = (requests => 600, tokens => 60_000);

my @loads;
for my $workers ([ 1 => $ENV{HOST} ], [ 3 => $ENV{HOST} ], [ 1 => 'program' ])
{
	local $ENV{HOST} = $workers->[1] // 'server';
	my $name = "$workers->[0] of kind $ENV{HOST}";
	my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => $workers->[0] });
	$pg->create_database('app', extension => 1);
	wait_for(sub { $pg->workers == $workers->[0] }, 30, 'the workers');
	push @loads, map { { pg => $pg, kind => $_, workers => $name, provider => start_provider() } } qw(requests tokens);
}
for my $load (@loads)
{
	$load->{pg}->endpoint($load->{kind}, $load->{provider}, @{ $quota{ $load->{kind} } });
	$load->{pg}->insert('queue', name => $load->{kind}, endpoints => "{$load->{kind}}");
}

# Runs all loads at once; each notes what its provider let in and refused, and what part of the quota that is.
sub run
{
	my ($try) = @_;
	for my $load (@loads)
	{
		$load->{provider}->quota(@{ $quota{ $load->{kind} } }, clock => 'sliding');
		$load->{pg}->sql("SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object('prompt', 'Say this: ' || repeat('word ', n % 20),
			'idempotency_key', '$load->{kind} $try ' || n, 'queue', '$load->{kind}')) FROM generate_series(1, 2000) AS n))");
	}
	for my $load (@loads)
	{
		wait_for(sub { $load->{provider}->state->{quota}{admitted} > 0 }, 30, 'the first call');
		$load->{began} = now();
	}
	for my $load (@loads)
	{
		my $left = $load->{began} + SECONDS - now();
		sleep $left if $left > 0;
		my $state = $load->{provider}->state->{quota};
		my $minutes = (now() - $load->{began}) / 60;
		my $made = $state->{admitted} + $state->{refused};
		$load->{used} = ($load->{kind} eq 'requests' ? $state->{admitted} : $state->{tokens}) / $limit{ $load->{kind} } / $minutes;
		cmp_ok(100 * $state->{refused}, '<', $made, "$load->{workers}, $load->{kind}: fewer than 1 % are refused ($state->{refused} of $made)");
	}
	$_->{pg}->sql(q{SELECT count(llmq.cancel(job_id)) FROM llmq.ready}) for @loads;
	return min(map { $_->{used} } @loads) >= 0.95;
}

for my $try (1 .. TRIES)
{
	last if run($try);
}
cmp_ok($_->{used}, '>=', 0.95, "$_->{workers}, $_->{kind}: at least 95 % of the quota is used") for @loads;
finish();
