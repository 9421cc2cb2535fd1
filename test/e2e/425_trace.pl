# The submitter's trace goes on to the provider, a span for each attempt, and is on record.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $trace = '4bf92f3577b34da6a3ce929d0e0e4736';
my $parent = "00-$trace-00f067aa0ba902b7-01";

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->insert('queue', name => 'quick', backoff_base => '10 ms', redelivery_base => '10 ms', max_attempts => 2);
$pg->wait_for_worker;

# Runs a job to its end, and returns the traceparents that the provider was sent.
sub sent
{
	my ($name, $metadata, %more) = @_;
	$pg->final_state($pg->submit(prompt => "Hello. [job:$name]", idempotency_key => $name, queue => 'quick', metadata => $metadata, %more));
	return map { $_->{headers}{traceparent} } $provider->calls($name);
}

$provider->script({ match => '[job:thrice]', responses => [ { status => 503 }, { status => 503 }, {} ] });
my @sent = sent('thrice', { traceparent => $parent, ticket => 7 });
is(scalar(@sent), 3, 'three calls in two deliveries');
is(scalar(grep { ($_ // '') =~ /^00-$trace-(?!0{16})[0-9a-f]{16}-01\z/ } @sent), 3, 'each carries the trace and its flags');
my %span = map { $_ => 1 } @sent, $parent;
is(scalar(keys %span), 4, 'as a span of its own');
is_deeply([ map { $_->{traceparent} } $pg->rows(q{SELECT traceparent FROM llmq.attempt ORDER BY delivery, attempt}) ], \@sent,
	'and llmq.attempt has what was sent');

# A client that asks again does so in another trace.
my $again = $pg->row('SELECT replayed FROM ' . LlmqTest::Cluster::submit_call(prompt => 'Hello. [job:thrice]', idempotency_key => 'thrice', queue => 'quick',
	metadata => { traceparent => $parent =~ s/4bf9/4bfa/r, ticket => 7 }));
is($again->{replayed}, 1, 'the same request in another trace is the same');
is($pg->query(q{SELECT llmq.submit('Hello. [job:thrice]', 'thrice', 'quick', metadata => '{"ticket": 8}')})->{sqlstate}, 'PT422',
	'other metadata is another request');

is_deeply([ sent('none', { ticket => 7 }) ], [undef], 'without a trace no header is sent');
is(( sent('later', { traceparent => "01-$trace-00f067aa0ba902b7-03-more" }))[0] =~ s/-[0-9a-f]{16}-/-/r, "00-$trace-03", 'one of a later version is understood');
my %malformed = ('of zeros' => '00-' . '0' x 32 . '-00f067aa0ba902b7-01', 'without a span' => "00-$trace-" . '0' x 16 . '-01', 'of version ff' => "ff$parent" =~ s/ff00/ff/r,
	'in capitals' => uc $parent, 'with more behind it' => "$parent-more", 'with a line of its own' => "$parent\r\nX-Evil: 1", 'that is no text' => { a => 1 });
is_deeply([ sent(tr/ /-/r, { traceparent => $malformed{$_} }) ], [undef], "a trace $_ is left out, and the job runs") for sort keys %malformed;
$pg->insert('endpoint', name => 'own', api => 'openai_chat', url => $provider->url, headers => { Traceparent => 'mine' });
$pg->insert('queue', name => 'own', endpoints => '{own}');
is_deeply([ sent('own', { traceparent => $parent }, queue => 'own', model => 'm') ], ['mine'], "a header of the endpoint's own goes before");

finish();
