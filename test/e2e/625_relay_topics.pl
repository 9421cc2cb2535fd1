# The relay before more topics than its memory has places for: each has its turn, in its order, and
# a destination that hangs, with thousands of them, keeps those of others from nothing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP ();
use LlmqTest;
use Test::More;

LlmqTest::Receiver::is_there() or plan skip_all => 'the receivers need npm packages (test/setup-npm)';

my $TOPICS = 5000;
my $STUCK = 2500;
my $SECOND = 1000; # so many have a second message

my $provider = start_provider();
my $receiver = start_receiver('webhook.cjs');
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '30s' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
$receiver->always('/stuck', { hold => JSON::PP::true });
$pg->insert('destination', topic => 'stuck*', kind => 'webhook', url => $receiver->url('/stuck'), timeout => '10 min');
$pg->sql("SELECT count(llmq.enqueue_outbox('stuck' || n, '{}', 'stuck ' || n)) FROM generate_series(1, $STUCK) AS n");
$receiver->wait_for_received(1, '/stuck');
$pg->insert('destination', topic => 'wide*', kind => 'webhook', url => $receiver->url('/wide'));
$pg->sql("SELECT count(llmq.enqueue_outbox('wide' || n, '{}', 'wide ' || n)) FROM generate_series(1, $TOPICS) AS n");
$pg->sql("SELECT count(llmq.enqueue_outbox('wide' || n, '{}', 'wide again ' || n)) FROM generate_series(1, $SECOND) AS n");

my $sent = q{FROM llmq.message_done AS d JOIN llmq.message AS m USING (id) WHERE m.topic LIKE 'wide%' AND d.sent_at IS NOT NULL};
wait_for(sub { $pg->sql("SELECT count(*) $sent") == $TOPICS + $SECOND }, 120, 'all messages are sent');
is($pg->sql("SELECT count(DISTINCT m.topic) $sent"), $TOPICS, 'the messages of 5,000 topics are sent, though as many others hang');

# Thousands of lines: what is wanted of each is found faster than read.
my @ids = map { m{"path":"/wide"} && /"webhook-id":"(\d+)"/ ? $1 : () } $receiver->log_lines;
is(scalar(@ids) . ' ' . scalar(keys %{ { map { $_ => 1 } @ids } }), join(' ', ($TOPICS + $SECOND) x 2), 'each of them once');
my %place = map { $ids[$_] => $_ } 0 .. $#ids;
my @pairs = split ' ', $pg->sql("SELECT string_agg(id, ' ') FROM (SELECT string_agg(m.id::text, ',' ORDER BY m.id) AS id $sent GROUP BY m.topic HAVING count(*) = 2) AS t");
is(scalar(@pairs), $SECOND, 'some topics have a second message');
is((grep { my ($first, $second) = split /,/; $place{$first} > $place{$second} } @pairs)[0], undef, 'which comes after the first');
finish();
