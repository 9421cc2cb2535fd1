# The bench of limits, which test/bench/run starts: full load against a provider that enforces its
# quota on its own clock.  Only what the provider has counted itself matters.

use strict;
use warnings;

use Bench;
use LlmqTest;
use Time::HiRes qw(sleep);

my $SECONDS = $ENV{LOAD_SECONDS} || 300;
my $REQUESTS = 600;
my $TOKENS = 60_000;
my %quota = (requests => [ requests_per_minute => $REQUESTS ], tokens => [ tokens_per_minute => $TOKENS ]);

for my $kind (qw(requests tokens))
{
	for my $workers (1, 3)
	{
		for my $clock (qw(sliding fixed bucket))
		{
			load($kind, $workers, $clock) if is_wanted($kind) || is_wanted($clock);
		}
	}
}
LlmqTest::leave(1);
exit Bench::exit_code();

sub load
{
	my ($kind, $workers, $clock) = @_;
	heading("$SECONDS s of full load, $workers worker" . ($workers > 1 ? 's' : '') . ", $kind per minute, counted by a $clock minute");
	my $provider = start_provider();
	my $pg = bench_cluster('llmq.workers' => $workers);
	$pg->endpoint('main', $provider, @{ $quota{$kind} });
	wait_for(sub { $pg->workers == $workers }, 30, 'the workers');
	$provider->quota(@{ $quota{$kind} }, clock => $clock);
	my $jobs = 100 + int($SECONDS / 60 * ($kind eq 'requests' ? $REQUESTS : $TOKENS / 40));
	$pg->sql("SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object('prompt', 'Say this: ' || repeat('word ', n % 20),
		'idempotency_key', 'job ' || n)) FROM generate_series(1, $jobs) AS n))");
	wait_for(sub { $provider->state->{quota}{admitted} > 0 }, 30, 'the first call');
	sleep $SECONDS;
	my $state = $provider->state->{quota};
	my $made = $state->{admitted} + $state->{refused};
	my $used = $kind eq 'requests' ? $state->{admitted} / $REQUESTS : $state->{tokens} / $TOKENS;
	figure('calls', $made);
	figure('refused', sprintf('%.2f %%', 100 * $state->{refused} / $made), 'under 1 %');
	figure('of the quota used', sprintf('%.1f %%', 100 * $used * 60 / $SECONDS), 'at least 95 %');
	figure('draws a second', sprintf('%.1f', draws($pg) / $SECONDS), "at most $workers");
	$pg->stop('immediate');
	$provider->stop;
	return;
}

# Each draw is an update of the one row.
sub draws
{
	my ($pg) = @_;
	sleep 1;	# statistics of sessions that are busy come once a second
	return $pg->sql("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'llmq.endpoint_limit'::regclass");
}
