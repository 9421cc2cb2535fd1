# The relay: webhooks as Standard Webhooks has them, received and verified by its own package
# (node_modules/standardwebhooks), in order, again when they failed, and dead when it is hopeless.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP qw(decode_json);
use LlmqTest;
use Test::More;

LlmqTest::Receiver::is_there() or plan skip_all => 'the receivers need npm packages (test/setup-npm)';

my @secrets = map { 'whsec_' . $_ } 'C2FVsBQIhrscChlQIMV+b5sSYspob7oD', 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
my $provider = start_provider();
my $receiver = start_receiver('webhook.cjs', map { ('--secret', $_) } @secrets);
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '30s', 'llmq.workers' => 2 });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
$pg->secret(hook => "$secrets[0]\n$secrets[1]\n");
$pg->secret(old => $secrets[0]);

# A destination of that name whose messages go to a path of that name.
sub destination
{
	my ($topic, %columns) = @_;
	$pg->insert('destination', topic => $topic, kind => 'webhook', url => $receiver->url("/$topic"), credential => 'hook',
		backoff_base => '20 ms', backoff_cap => '50 ms', %columns);
	return;
}

sub enqueue
{
	my ($topic, $key, $payload) = @_;
	return $pg->sql('SELECT llmq.enqueue_outbox(' . join(', ', map { LlmqTest::Cluster::literal($_) } $topic, $payload // {}, $key) . ')');
}

sub message { my ($id) = @_; return $pg->row("SELECT * FROM llmq.outbox WHERE id = $id") }

# Waits until a message is sent or dead, and returns its row.
sub final
{
	my ($id) = @_;
	wait_for(sub { $pg->sql("SELECT coalesce(sent_at, dead_at) IS NOT NULL FROM llmq.outbox WHERE id = $id") eq 't' }, 60,
		"message $id is sent or dead");
	return message($id);
}

# -- one message ----------------------------------------------------------------

destination('answer');
my $job = $pg->submit(prompt => 'Go. [job:one]', idempotency_key => 'one', outbox => [ { topic => 'answer', payload => { to => 'all' } } ]);
my ($hook) = $receiver->wait_for_received(1);
my $id = $pg->sql("SELECT id FROM llmq.outbox WHERE job_id = '$job'");
my $body = decode_json($hook->{body});
is($body->{type}, 'answer', 'the body names the topic as its type');
is($body->{data}{to}, 'all', 'its data holds the payload');
is("$body->{data}{job}{id} $body->{data}{job}{state}", "$job succeeded", 'and the job that it comes from');
is($body->{data}{job}{text}, $pg->sql("SELECT text FROM llmq.result WHERE job_id = '$job'"), 'with the answer');
is_deeply($hook->{verified}, [ 0, 1 ], 'both secrets of a rotation verify the signature');
is($hook->{headers}{'webhook-id'}, $id, 'webhook-id is the id of the message');
is($hook->{headers}{'idempotency-key'}, "answer:$job:1", 'the dedupe key goes out as Idempotency-Key');
like($hook->{headers}{'content-type'}, qr{^application/json}, 'the body is said to be JSON');
isnt(final($id)->{sent_at}, undef, 'the message is marked as sent');
is(message($id)->{attempts}, 1, 'after one attempt');

is($hook->{headers}{traceparent}, undef, 'without a trace none is named');

my $trace = '4bf92f3577b34da6a3ce929d0e0e4736';
my $parent = "00-$trace-00f067aa0ba902b7-01";
destination('traced');
$pg->submit(prompt => 'Go. [job:traced]', idempotency_key => 'traced', metadata => { traceparent => $parent }, outbox => [ { topic => 'traced' } ]);
$receiver->wait_for_received(1, '/traced');
enqueue('traced', 'traced', { traceparent => $parent });
my @spans = map { $_->{headers}{traceparent} } $receiver->wait_for_received(2, '/traced');
is(scalar(grep { ($_ // '') =~ /^00-$trace-(?!0{16})[0-9a-f]{16}-01\z/ } @spans), 2, 'a webhook carries the trace of its job, or of its payload');
is(scalar(keys %{ { map { $_ => 1 } @spans, $parent } }), 3, 'as a span of its own');

destination('signed-once', credential => 'old');
enqueue('signed-once', 'k1');
is_deeply(($receiver->wait_for_received(1, '/signed-once'))[0]{verified}, [0], 'one secret signs once');
destination('plain', credential => undef, headers => { 'X-Team' => 'blue' });
enqueue('plain', 'k2');
($hook) = $receiver->wait_for_received(1, '/plain');
is($hook->{headers}{'webhook-signature'}, undef, 'without a secret nothing is signed');
is($hook->{headers}{'x-team'}, 'blue', 'the headers of the destination are sent');
destination('bearer', headers => { Authorization => 'Bearer ${credential}' }, credential => 'old');
enqueue('bearer', 'k3');
($hook) = $receiver->wait_for_received(1, '/bearer');
is($hook->{headers}{authorization}, "Bearer $secrets[0]", 'a header may hold the secret');

# -- order ------------------------------------------------------------------------

destination('ordered');
$pg->sql(q{SELECT count(llmq.enqueue_outbox('ordered', to_jsonb(n), 'ordered ' || n)) FROM generate_series(1, 300) AS n});
my @ids = map { $_->{headers}{'webhook-id'} } $receiver->wait_for_received(300, '/ordered');
is_deeply(\@ids, [ sort { $a <=> $b } @ids ], 'the messages of a topic arrive in order of their ids');
is(scalar(keys %{ { map { $_ => 1 } @ids } }), 300, 'each of them once');
is((grep { $_->{in_flight} > 1 } $receiver->received('/ordered'))[0], undef, 'one at a time');
$pg->sql(q{SELECT count(llmq.enqueue_outbox('several.' || n % 20, to_jsonb(n), 'several ' || n)) FROM generate_series(1, 400) AS n});
destination('several.*');
my @several = $receiver->wait_for_received(400, '/several.*');
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.message_done AS d JOIN llmq.message AS m USING (id) WHERE m.topic LIKE 'several.%'}) == 400 }, 30, 'all are marked');
is(scalar(keys %{ { map { $_->{headers}{'webhook-id'} => 1 } @several } }) . ' ' . scalar(() = $receiver->received('/several.*')), '400 400',
	'two workers share the topics of a prefix, and send no message twice');
my %last;
is((grep { my $topic = decode_json($_->{body})->{type}; my $behind = $_->{headers}{'webhook-id'} < ($last{$topic} // 0); $last{$topic} = $_->{headers}{'webhook-id'}; $behind } @several)[0],
	undef, 'each topic in its order');
destination('wide', max_in_flight => 5);
$receiver->control({ path => '/wide', answers => [ ({ status => 200 }) x 6, { hold => JSON::PP::true } ], stay => JSON::PP::true });
$pg->sql(q{SELECT count(llmq.enqueue_outbox('wide', to_jsonb(n), 'wide ' || n)) FROM generate_series(1, 20) AS n});
is(scalar($receiver->wait_for_received(11, '/wide')), 11, 'max_in_flight of a destination lets more of a topic go out at once');

# -- a late commit -------------------------------------------------------------

my $late = $pg->session('app');
$late->query('BEGIN');
my $late_id = $late->query(q{SELECT llmq.enqueue_outbox('answer', '{}', 'late')})->{out};
my $next_id = enqueue('answer', 'not late');
final($next_id);
$late->query('COMMIT');
isnt(final($late_id)->{sent_at}, undef, 'a message that is committed after a later one is sent, too');

# -- failures -----------------------------------------------------------------

destination('flaky');
$receiver->script('/flaky', { status => 500, body => 'out of order' }, { status => 404 }, { drop => JSON::PP::true }, { status => 302, headers => { Location => '/elsewhere' } });
$id = enqueue('flaky', 'flaky');
is(final($id)->{attempts}, 5, '5xx, 4xx, a lost connection and a redirect are tried again');
is_deeply([ map { $_->{headers}{'webhook-id'} } $receiver->received('/flaky') ], [ ($id) x 5 ], 'with the same id');
is(scalar(() = $receiver->received('/elsewhere')), 0, 'no redirect is followed');

destination('hopeless', max_attempts => 3);
$receiver->always('/hopeless', { status => 503, body => 'away' });
$id = enqueue('hopeless', 'hopeless');
isnt(final($id)->{dead_at}, undef, 'after max_attempts a message is dead');
is(message($id)->{attempts}, 3, 'no attempt is made beyond');
like(message($id)->{last_error}, qr/503.*away/s, 'last_error says what the receiver said');
$receiver->script('/hopeless');
is($pg->sql(q{SELECT llmq.redrive_outbox('hopeless')}), 1, 'redrive_outbox takes it up again');
isnt(final($id)->{sent_at}, undef, 'and it is sent when the receiver is back');

destination('gone');
$receiver->script('/gone', { status => 410 });
$id = enqueue('gone', 'gone');
isnt(final($id)->{dead_at}, undef, '410 is dead at once');
is($pg->sql(q{SELECT enabled FROM llmq.destination WHERE topic = 'gone'}), 'f', 'and disables the destination');
my $waiting = enqueue('gone', 'gone 2');
$pg->sql(q{UPDATE llmq.destination SET enabled = true WHERE topic = 'gone'});
isnt(final($waiting)->{sent_at}, undef, 'messages wait for a disabled destination, and go out when it is enabled');

destination('busy');
$receiver->script('/busy', { status => 429, headers => { 'Retry-After' => '2' } });
my $before = now();
$id = enqueue('busy', 'busy');
final($id);
cmp_ok(now() - $before, '>=', 2, 'a Retry-After of 429 is heeded');

destination('hung', timeout => '300 ms', max_attempts => 2);
$receiver->always('/hung', { hold => JSON::PP::true });
$id = enqueue('hung', 'hung');
like(final($id)->{last_error}, qr/no whole answer within 0.3 s/, 'a receiver that hangs is given up after timeout');

for my $number (1 .. 8)
{
	destination("stuck$number.*", timeout => '60 s');
	$receiver->always("/stuck$number.*", { hold => JSON::PP::true });
}
$pg->sql(q{SELECT count(llmq.enqueue_outbox('stuck' || n % 8 + 1 || '.' || n, '{}', 'stuck ' || n)) FROM generate_series(1, 200) AS n});
$receiver->wait_for_received(1, "/stuck$_.*") for 1 .. 8;
isnt(final(enqueue('answer', 'beside'))->{sent_at}, undef, 'destinations that hang, eight with many topics, slow no other');

destination('unkeyed', credential => 'to_come');
$id = enqueue('unkeyed', 'unkeyed');
wait_for(sub { (message($id)->{last_error} // '') =~ /to_come/ }, 30, 'the message says what it waits for');
is(message($id)->{attempts}, 0, 'a missing secret costs no attempt');
$pg->secret(to_come => $secrets[1]);
isnt(final($id)->{sent_at}, undef, 'and the message is sent when the secret is there');

# -- notify -------------------------------------------------------------------------

$pg->insert('destination', topic => 'tell', kind => 'notify', url => 'app_events');
my $listener = $pg->session('app');
$listener->query('LISTEN app_events');
$id = enqueue('tell', 'tell', { a => 1 });
isnt(final($id)->{sent_at}, undef, 'a message to notify is sent');
like($listener->query('SELECT 1')->{out}, qr/"app_events" with payload "\{(?=.*"type": "tell")(?=.*"a": 1)/, 'a listener gets the body of a webhook');
$id = enqueue('tell', 'too much', { a => 'x' x 9000 });
final($id);
like($listener->query('SELECT 1')->{out}, qr/"app_events" with payload "\{(?=.*"id": "?$id\b)(?=.*"type": "tell").{1,200}\}"/,
	'one that NOTIFY cannot carry is announced by its id');

finish();
