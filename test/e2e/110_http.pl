# The Idempotency-Key protocol over real HTTP: test/examples/web.py stands between the client and
# llmq.http_submit.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP;
use LlmqTest;
use LlmqTest::Process;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
$pg->sql(q{CREATE ROLE web LOGIN; GRANT USAGE ON SCHEMA llmq TO web; GRANT EXECUTE ON FUNCTION llmq.http_submit TO web;
	INSERT INTO llmq.role_tenant VALUES ('web', 'acme'), ('web', 'umbrella')});

my $port_file = test_dir() . '/web-port';
my $web = LlmqTest::Process->start(test_dir() . '/web-log', '/usr/bin/python3', "$FindBin::Bin/../examples/web.py",
	'--database', 'host=' . $pg->socket_dir . ' port=5432 dbname=app user=web', '--port-file', $port_file);
wait_for(sub { $web->is_running or die "the web service did not start\n"; -s $port_file }, 20, 'the web service listens');
open(my $file, '<', $port_file) or die "$port_file: $!\n";
chomp(my $port = <$file>);

# Posts a body and returns {status, headers, json}; HTTP::Tiny writes header names in lower case.
sub post
{
	my ($key, $body, %options) = @_;
	my $reply = HTTP::Tiny->new(timeout => 20)->post("http://127.0.0.1:$port" . ($options{path} // '/v1/summaries'), {
		content => ref $body ? encode_json($body) : $body,
		headers => { 'Content-Type' => 'application/json', 'X-Tenant-Id' => $options{tenant} // 'acme',
			(defined $key ? ('Idempotency-Key' => $key) : ()) } });
	return { %{$reply}, json => decode_json($reply->{content}) };
}

# Tests that an answer is the problem document of a status.
sub is_problem
{
	my ($reply, $status, $name) = @_;
	is("$reply->{status} $reply->{headers}{'content-type'} $reply->{json}{status}",
		"$status application/problem+json $status", "$name: $status with a problem document");
	ok($reply->{json}{title} && $reply->{json}{type} && $reply->{json}{detail}, "$name: it has type, title and detail");
	return;
}

my %body = (prompt => 'Summarise this. And that. [job:http]', metadata => { ticket => 7 });

# -- 202, and the same again ------------------------------------------------------------------

my $first = post('"order-1234567890-abc"', \%body);
is($first->{status}, 202, 'a new request is accepted');
is($first->{headers}{'content-type'}, 'application/json', 'with JSON');
is($first->{headers}{'idempotent-replayed'}, undef, 'not as a replay');
is($first->{json}{status}, 'queued', 'its job is queued');
my $again = post('"order-1234567890-abc"', '{ "metadata": {"ticket" : 7}, "prompt" : "Summarise this. And that. [job:http]" }');
is("$again->{status} $again->{headers}{'idempotent-replayed'}", '202 true', 'the client that retries gets the same, as a replay');
is_deeply($again->{json}, $first->{json}, 'with the same body');
is(post('order-1234567890-abc', \%body)->{json}{job_id}, $first->{json}{job_id}, 'also when it leaves out the quotation marks');
is($pg->final_state($first->{json}{job_id})->{state}, 'succeeded', 'the job runs');
$again = post('"order-1234567890-abc"', \%body);
is_deeply([ @{$again}{qw(status json)}, $again->{headers}{'idempotent-replayed'} ], [ 202, $first->{json}, 'true' ],
	'and the answer to a retry stays what it was');
is(scalar(my @calls = $provider->calls('http')), 1, 'the provider saw one call');
is($pg->sql(q{SELECT count(*) FROM llmq.message}), 1, 'and there is one message');

isnt(post('"order-1234567890-abc"', \%body, path => '/v1/other')->{json}{job_id}, $first->{json}{job_id}, 'another path is another key');
isnt(post('"order-1234567890-abc"', \%body, tenant => 'umbrella')->{json}{job_id}, $first->{json}{job_id}, 'another tenant too');

# -- what is refused --------------------------------------------------------------------------

is_problem(post('"order-1234567890-abc"', { %body, prompt => 'Another.' }), 422, 'another body under the key');
is_problem(post(undef, \%body), 400, 'no key');
is_problem(post('short', \%body), 400, 'a short key');
is_problem(post('k' x 129, \%body), 400, 'a long key');
is_problem(post('"unfinished-key-0001', \%body), 400, 'half a string');
is_problem(post('key-of-bad-body-0001', 'not json'), 400, 'a body that is not JSON');
is_problem(post('key-of-bad-body-0001', ''), 400, 'an empty body');
is_problem(post('key-of-bad-body-0001', '{"prompt": "\u0000"}'), 400, 'U+0000');
is_problem(post('key-of-bad-body-0001', { %body, priority => 9 }), 400, 'a body that asks for more than it may');
is_problem(post('key-of-bad-body-0001', { prompt => { text => 'x' } }), 400, 'a prompt that is no text');
is_problem(post('key-of-bad-body-0001', \%body, tenant => 'megacorp'), 403, 'a tenant that the service may not name');
is(post('key-of-bad-body-0001', \%body)->{status}, 202, 'a key that was refused is free');

# -- another transaction has the key -------------------------------------------------------------

my $open = q{BEGIN; SELECT status FROM llmq.http_submit('acme', 'POST', '/v1/summaries', 'key-in-progress-1', '{"prompt": "x"}',
	outbox => '[{"topic": "summary.ready"}]')};
my $holder = $pg->session;
is($holder->query($open)->{out}, 202, 'a transaction holds a key');
my $held = post('"key-in-progress-1"', { prompt => 'x' });
is_problem($held, 409, 'a key in progress');
is($held->{headers}{'retry-after'}, 1, 'with Retry-After');
$holder->query('ROLLBACK');
is(post('"key-in-progress-1"', { prompt => 'y' })->{status}, 202, 'rolled back, the key is free for another request');
$holder->query($open =~ s/progress-1/progress-2/r);
is(post('"key-in-progress-2"', { prompt => 'x' })->{status}, 409, 'in progress again');
$holder->query('COMMIT');
my $committed = post('"key-in-progress-2"', { prompt => 'x' });
is("$committed->{status} $committed->{headers}{'idempotent-replayed'}", '202 true', 'committed, it is replayed');

# -- all at once ------------------------------------------------------------------------------------

my $content = encode_json({ prompt => 'All at once. [job:crowd]' });
my @sockets = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "connect: $!\n" } 1 .. 40;
my $request = join "\r\n", 'POST /v1/summaries HTTP/1.1', 'Host: localhost', 'X-Tenant-Id: acme', 'Connection: close',
	'Idempotency-Key: "crowd-1234567890"', 'Content-Length: ' . length $content, '', $content;
syswrite $_, $request for @sockets;
my %count;
for my $socket (@sockets)
{
	my $answer = do { local $/; <$socket> };
	my ($status) = $answer =~ m{^HTTP/1.1 (\d+)};
	$count{ $status . ($answer =~ /^Idempotent-Replayed: true/mi ? ' replayed' : '') }++;
}
note(join ', ', map { "$_: $count{$_}" } sort keys %count);
is($count{202}, 1, 'of 40 clients with one key one is new');
is(join(' ', grep { !/^(?:202|202 replayed|409)\z/ } keys %count), '', 'the others are replays, or conflicts');
my $crowd = post('"crowd-1234567890"', decode_json($content));
is($pg->final_state($crowd->{json}{job_id})->{state}, 'succeeded', 'their job runs');
is(scalar(@calls = $provider->calls('crowd')), 1, 'and the provider saw one call');

$web->end('TERM');
finish();
