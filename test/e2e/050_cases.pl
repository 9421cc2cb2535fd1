# Every conformance case of test/cases over real sockets: what one answer of a provider makes of one
# attempt, and what stands in the result.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use IO::Socket::INET;
use JSON::PP;
use LlmqTest;
use Test::More;
use Time::HiRes qw(sleep);

my @cases = map { read_cases($_) } sort glob "$FindBin::Bin/../cases/*.json";
@cases or plan skip_all => 'there are no cases';

my $provider = start_provider();
my @bound;
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

prepare($_) for @cases;
warm_up(grep { $_->{warmup} } @cases);
submit($_) for @cases;
# Those whose provider wishes to hear of them later are not called again, however long it takes to come to all.
wait_for(sub {
	$pg->sql(q{SELECT count(llmq.cancel(job_id)) FROM llmq.job_status WHERE state = 'scheduled'});
	$pg->sql('SELECT count(DISTINCT job_id) FROM llmq.attempt WHERE attempt = 1') >= @cases + grep { $_->{warmup} } @cases;
}, 60, 'every case has its attempt');
is_deeply(verdict($_), expected($_), $_->{id}) || diag($_->{why}) for @cases;

finish();

sub read_cases
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/;
	return @{ JSON::PP->new->utf8->decode(<$file>) };
}

# Gives a case its own path at the provider, its own endpoint and its own queue.
sub prepare
{
	my ($case) = @_;
	my $response = $case->{response};
	my $name = $case->{name} = $case->{id} =~ s/\W+/-/gr;
	my $url = $provider->url("/$name/v1");
	$url =~ s/^http:/https:/ if ($response->{connect} // '') eq 'tls';
	$url =~ s/:\d+/':' . closed_port()/e if ($response->{connect} // '') eq 'refused';
	$provider->script({ path => "/$name/", responses => [
		($case->{warmup} // ()), $response->{connect} ? {} : $response, { status => undef, end => 'hang' } ] });
	$pg->insert('endpoint', name => $name, api => $case->{api}, url => $url, model => 'test', stream => $case->{stream} ? 't' : 'f',
		max_response_bytes => 1048576, breaker_failures => 1_000_000);
	$pg->insert('queue', name => $name, endpoints => "{$name}", call_timeout => ($case->{timeout_ms} // 5000) . ' ms',
		min_attempt => '0', max_attempts => 1, max_deliveries => 1, redelivery_base => '1 day', redelivery_cap => '1 day');
	return;
}

# Returns a port that nobody listens on, and that nobody else gets.
sub closed_port
{
	push @bound, IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Proto => 'tcp') // die "socket: $!\n";
	return $bound[-1]->sockport;
}

# Some cases are about a connection that was used before, a while ago.
sub warm_up
{
	my (@warm) = @_;
	my @jobs = map { $pg->submit(prompt => 'Hello.', queue => $_->{name}, idempotency_key => "warm-$_->{name}") } @warm;
	$pg->final_state($_) for @jobs;
	sleep 0.3 if @warm;
	return;
}

sub submit
{
	my ($case) = @_;
	my $request = $case->{request};
	my %ask = (prompt => 'Hello.');
	if ($request)
	{
		%ask = (params => { input => $request->{inputs},
			defined $request->{dimensions} ? (dimensions => $request->{dimensions}) : () });
	}
	$case->{job} = $pg->submit(%ask, queue => $case->{name}, idempotency_key => $case->{name});
	return;
}

# What came of a case, in the words of its `expect`, and the number of calls at the provider.
sub verdict
{
	my ($case) = @_;
	my $got = $pg->row("SELECT a.outcome, a.error_class, a.finish_reason, a.model, a.input_tokens, a.output_tokens, a.cached_tokens,
			a.billing, CASE WHEN a.outcome = 'retry' THEN ceil(extract(epoch FROM a.retry_after) * 1000) END AS retry_after_ms,
			CASE WHEN a.outcome = 'success' THEN r.text ELSE d.text END AS text, r.embedding
		FROM llmq.attempt AS a LEFT JOIN llmq.result AS r USING (job_id) LEFT JOIN llmq.dead_letter AS d USING (job_id)
		WHERE a.job_id = '$case->{job}' AND a.delivery = 1 AND a.attempt = 1");
	my $vectors = delete $got->{embedding};
	$got->{embeddings} = $vectors && [ map { sprintf '%.5g', $_ } map { ref $_ ? @{$_} : $_ } @{$vectors} ] if exists $case->{expect}{embeddings};
	$got->{calls} = grep { $_->{path} =~ m{^/\Q$case->{name}\E/} } $provider->calls;
	return $got;
}

sub expected
{
	my ($case) = @_;
	my %want = %{ $case->{expect} };
	$want{embeddings} = [ map { sprintf '%.5g', $_ } map { @{$_} } @{ $want{embeddings} } ] if $want{embeddings};
	$want{calls} = ($case->{response}{connect} ? 0 : 1) + ($case->{warmup} ? 1 : 0);
	return \%want;
}
