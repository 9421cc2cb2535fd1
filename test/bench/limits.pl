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
my %QUOTA = (requests => [ requests_per_minute => $REQUESTS ], tokens => [ tokens_per_minute => $TOKENS ],
	wrong => [ tokens_per_minute => $TOKENS ]);
my %WHAT = (requests => 'requests per minute', tokens => 'tokens per minute',
	wrong => 'tokens per minute, estimates twice too high and twice too low, in turns of a minute');
my %WORKERS = (one => 1, three => 3);

# A run is of one kind, so many workers and one clock: PARTS names some of each, or none for all.
for my $kind (wanted(qw(requests tokens wrong)))
{
	for my $workers (wanted(qw(one three)))
	{
		load($kind, $WORKERS{$workers}, $_) for wanted(qw(sliding fixed bucket));
	}
}
LlmqTest::leave(1);
exit Bench::exit_code();

# Those of some words that PARTS names; all of them if it names none.
sub wanted
{
	my @words = @_;
	my @named = grep { is_wanted($_) } @words;
	return @named ? @named : @words;
}

# Submits what keeps the quota used up for all the time.
sub submit_jobs
{
	my ($pg, $kind) = @_;
	my $jobs = 100 + int($SECONDS / 60 * ($kind eq 'requests' ? $REQUESTS : $TOKENS / 40));
	my $job = q{'prompt', 'Say this: ' || repeat('word ', n % 20)};
	if ($kind eq 'wrong')
	{
		# Each uses some 220 tokens, is taken for half or for twice as many, and 270 are made in a minute.
		$jobs = 100 + int($SECONDS / 60 * 300);
		$job = q{'prompt', repeat('word ', 80 + n % 20), 'params', jsonb_build_object('max_tokens', CASE n / 270 % 2 WHEN 0 THEN 330 ELSE 1 END)};
	}
	$pg->sql("SELECT count(*) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object($job,
		'idempotency_key', 'job ' || n) ORDER BY n) FROM generate_series(1, $jobs) AS n))");
	return;
}

sub load
{
	my ($kind, $workers, $clock) = @_;
	heading("$SECONDS s of full load, $workers worker" . ($workers > 1 ? 's' : '') . ", $WHAT{$kind}, counted by a $clock minute");
	my $provider = start_provider();
	my $pg = bench_cluster('llmq.workers' => $workers);
	$pg->endpoint('main', $provider, @{ $QUOTA{$kind} });
	wait_for(sub { $pg->workers == $workers }, 30, 'the workers');
	$provider->quota(@{ $QUOTA{$kind} }, clock => $clock);
	submit_jobs($pg, $kind);
	wait_for(sub { $provider->state->{quota}{admitted} > 0 }, 30, 'the first call');
	sleep $SECONDS;
	my $state = $provider->state->{quota};
	my $made = $state->{admitted} + $state->{refused};
	my $used = $kind eq 'requests' ? $state->{admitted} / $REQUESTS : $state->{tokens} / $TOKENS;
	figure('calls', $made);
	figure('refused', sprintf('%.2f %%', 100 * $state->{refused} / $made), 'under 1 %');
	figure('of the quota used', sprintf('%.1f %%', 100 * $used * 60 / $SECONDS), 'at least 95 %');
	record("limits.$kind.$workers.$clock.used" => sprintf '%.1f', 100 * $used * 60 / $SECONDS);
	record("limits.$kind.$workers.$clock.refused" => sprintf '%.2f', 100 * $state->{refused} / $made);
	figure('draws a second', sprintf('%.1f', draws($pg) / ($SECONDS + 1)), "at most $workers");
	$pg->sql('SELECT count(*) FROM llmq.ready') > 0 or wrong('there was not enough to do');
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
