# Workers in the server and programs share one queue, while programs are killed, stopped for longer
# than the ttl, cut off and told to end: nothing is lost, nothing is settled twice, and a rolling
# restart repeats no call.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

local $ENV{HOST} = 'server';	# the programs are started here, beside a worker in the server
my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 1, 'llmq.max_in_flight' => 20, 'llmq.poll_interval' => '1s' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

sub submit_many
{
	my ($name, $count) = @_;
	$pg->sql("SELECT count(*) FROM llmq.submit_many((
		SELECT jsonb_agg(jsonb_build_object('prompt', 'Mixed. [job:$name-' || n || ']', 'idempotency_key', '$name-' || n,
			'metadata', jsonb_build_object('part', '$name'), 'outbox', '[{\"topic\": \"mail\", \"payload\": {}}]'::jsonb))
		FROM generate_series(1, $count) AS n))");
	return;
}

sub count_settled { my ($name) = @_; return $pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE '$name-%'") }

sub program { my ($name) = @_; return start_program($pg, name => $name, args => [ '--max-in-flight', 20 ]) }

# -- killed, stopped, cut off -------------------------------------------------------

my $jobs = 5000;
my %program = map { $_ => program($_) } qw(a b c);
$pg->wait_for_programs(3);
is($pg->sql(q{SELECT string_agg(kind, ' ' ORDER BY kind) FROM llmq.worker}), 'program program program server', 'three programs work beside the server');
$provider->script({ match => '[job:mixed-', responses => [ { delay_ms => 100 } ] });	# each has some in hand when it is met
submit_many('mixed', $jobs);
wait_for(sub { count_settled('mixed') > $jobs / 20 }, 60, 'they have begun');
$program{a}->kill9;
$program{b}->signal('STOP');
$pg->sql(q{SELECT pg_terminate_backend(pid) FROM llmq.worker WHERE name = 'c'});
$program{d} = program('d');
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.attempt WHERE attempt = 0') > 0 }, 60, 'the leases of the stopped program are taken');
$program{b}->signal('CONT');
wait_for(sub { count_settled('mixed') == $jobs }, 150, 'all jobs are settled');
pass("$jobs jobs are settled, each once");
is($pg->sql(q{SELECT count(*) FROM llmq.outbox}), $jobs, 'with one message each');
ok(wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.lease') eq '0' }, 30, 'no lease is left'), 'no lease is left');
my %by_job;
$by_job{ $_->{job} }++ for $provider->calls;
my @repeated = grep { $by_job{$_} > 1 } keys %by_job;
cmp_ok(scalar(@repeated), '<=', 2 * 2 * 20, 'and only what the killed and the stopped one had in hand was called again');
note(scalar(@repeated) . ' calls were made again');

# -- rolling restart ------------------------------------------------------------------

submit_many('rolling', 600);
wait_for(sub { count_settled('rolling') > 20 }, 60, 'they have begun');
for my $name (qw(b c d))
{
	is($program{$name}->terminate(60), 0, "$name drains and ends");
	$program{$name} = program($name);
}
wait_for(sub { count_settled('rolling') == 600 }, 120, 'all jobs of the rolling restart are settled');
%by_job = ();
$by_job{ $_->{job} }++ for grep { $_->{job} =~ /^rolling/ } $provider->calls;
is(scalar(grep { $_ > 1 } values %by_job), 0, 'a rolling restart of three programs repeats no call');

finish();
