# A provider that nobody here wrote: aimock's OpenAI and Anthropic paths, plain and streamed, with
# chaos.  Its journal proves how often each job was called.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../e2e/lib";
use HTTP::Tiny;
use JSON::PP ();
use LlmqTest;
use LlmqTest::Process;
use Test::More;

use constant JOBS => 200;

my $module = "$FindBin::Bin/../../build/peers/node_modules/\@copilotkit/aimock/dist/cli.js";
-e $module or $ENV{LLMQ_PEERS_REQUIRED} or plan skip_all => 'aimock is not here';

my ($base, $process) = start_aimock();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

my @kinds = map { my $api = $_; map { { api => $api, stream => $_, name => "$api-" . ($_ ? 'streamed' : 'plain') } } 0, 1 }
  qw(openai_chat openai_responses anthropic_messages);
for my $kind (@kinds)
{
	$pg->insert('endpoint', name => $kind->{name}, api => $kind->{api}, url => "$base/v1", model => 'm', stream => $kind->{stream} ? 't' : 'f',
		max_in_flight => 20, breaker_failures => 1_000_000);
	$pg->insert('queue', name => $kind->{name}, endpoints => "{$kind->{name}}", max_attempts => 1000, backoff_base => '10 ms',
		backoff_cap => '2 s', max_deliveries => 1000, call_timeout => '10 s', redelivery_base => '10 ms', redelivery_cap => '50 ms');
}
$pg->sql("SELECT count(llmq.submit(prompt => 'How is the day? [job:$_->{name}-' || n || ']', idempotency_key => '$_->{name}-' || n,
	queue => '$_->{name}', params => '{\"max_tokens\": 50}')) FROM generate_series(1, ${\JOBS}) AS n") for @kinds;
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE state NOT IN ('succeeded', 'dead', 'cancelled')}) == 0 }, 300, 'every job is final');

my %seen;
my %chaos;
for my $entry (journal())
{
	my ($job) = JSON::PP->new->encode($entry->{body}) =~ /\[job:([\w-]+)\]/ or next;
	$seen{$job}++;
	$chaos{ $entry->{response}{chaosAction} // 'none' }++;
}
note('the journal: ' . join(', ', map { "$_ $chaos{$_}" } sort keys %chaos));
note($_->{line}) for $pg->rows(q{SELECT format('%s: %s %s', endpoint, coalesce(error_class, outcome), count(*)) AS line
	FROM llmq.attempt GROUP BY endpoint, coalesce(error_class, outcome) ORDER BY 1});
for my $kind (@kinds)
{
	my $name = $kind->{name};
	is($pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.queue = '$name' AND r.text = 'It is a fine day, is it not?'"), JOBS,
		"$name: every job has the answer");
	my %attempts = map { $_->{idempotency_key} => $_->{attempts} } $pg->rows("SELECT j.idempotency_key, count(*) AS attempts
		FROM llmq.attempt AS a JOIN llmq.job AS j USING (job_id) WHERE j.queue = '$name' GROUP BY 1");
	my @wrong = grep { ($seen{$_} // 0) != $attempts{$_} } sort keys %attempts;
	is(scalar(@wrong), 0, "$name: each was called as often as its attempts say") or diag(map { "$_: called " . ($seen{$_} // 0) . ", attempts $attempts{$_}\n" } @wrong);
	cmp_ok($pg->sql("SELECT count(*) FROM llmq.attempt WHERE endpoint = '$name' AND outcome = 'retry'"), '>', 0, "$name: chaos was met");
}
$process->end('TERM', 10);
finish();

sub start_aimock
{
	my $dir = test_dir() . '/aimock';
	mkdir $dir or die "$dir: $!\n";
	open(my $file, '>', "$dir/all.json") or die "$dir: $!\n";
	print {$file} '{"fixtures":[{"match":{"endpoint":"chat"},"response":{"content":"It is a fine day, is it not?"}}]}';
	close $file;
	my $started = LlmqTest::Process->start("$dir/output", 'node', $module, '-p', 0, '-f', "$dir/all.json", '--journal-max', 0, '--chaos-drop', 0.1,
		'--chaos-malformed', 0.1, '--chaos-disconnect', 0.1, '--chaos-ratelimit', 0.01);
	my $url = wait_for(sub {
		open(my $output, '<', "$dir/output") or return '';
		local $/;
		return (<$output> // '') =~ m{listening on (http://[\d.:]+)} ? $1 : '';
	}, 60, 'aimock listens');
	return ($url, $started);
}

sub journal
{
	my $reply = HTTP::Tiny->new(timeout => 60)->get("$base/__aimock/journal");
	$reply->{success} or die "journal: $reply->{status}\n";
	return @{ JSON::PP->new->utf8->decode($reply->{content}) };
}
