# Consumers that pull: two sessions at once never hold the same message, and who is late hears it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
my ($one, $two) = map { $pg->session('app') } 1 .. 2;
$pg->sql(q{SELECT count(llmq.enqueue_outbox('work', to_jsonb(n), 'work ' || n)) FROM generate_series(1, 6) AS n});

sub claim { my ($session, $lease) = @_; return split /\n/, $session->query("SELECT id || ' ' || token FROM llmq.outbox_claim('work', 3, '$lease')")->{out} }
sub ids { return join ' ', map { (split)[0] } @_ }
sub ack { my ($session, $claimed) = @_; my ($id, $token) = split ' ', $claimed; return $session->query("SELECT llmq.outbox_ack($id, '$token')")->{out} }

$one->query('BEGIN');
my @first = claim($one, '1 min');
my @second = claim($two, '1 min');
is(ids(@first) . ' ' . ids(@second), '1 2 3 4 5 6', 'two consumers at once claim different messages, in order');
$one->query('COMMIT');
is(scalar(claim($one, '1 min')), 0, 'and nobody gets what they hold');
is(ack($one, $second[0] =~ s/ .*/ 00000000-0000-0000-0000-000000000000/r), 'f', 'a wrong token acknowledges nothing');
is(ack($_->[0], $_->[1]), 't', 'a consumer acknowledges its own') for [ $one, $first[0] ], [ $two, $second[0] ];

$one->query('BEGIN');
$one->query(q{SELECT llmq.enqueue_outbox('work', '{}', 'contended')});
is($two->query(q{SELECT llmq.enqueue_outbox('work', '{}', 'contended')})->{sqlstate}, 'PT409', 'a key that another transaction holds is said to be held');
$one->query('ROLLBACK');

$pg->sql(q{SELECT llmq.enqueue_outbox('work', '{}', 'short')});
my ($short) = claim($one, '200 ms');
my $again;
wait_for(sub { ($again) = claim($two, '1 min'); $again }, 30, 'the lease has ended and the other consumer has the message');
is(ids($again), ids($short), 'a message whose lease has ended goes to another consumer');
is(ack($one, $short), 'f', 'a late acknowledgement is false');
is(ack($two, $again), 't', 'the present one is not');

finish();
