# What a crash may cost the outbox: the worker is killed, the postmaster is killed, or the server is
# shut down at once, at every step of the relay; the receiver counts.  Never lost; sent again, with
# the same id, only when it was sent and not yet marked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

LlmqTest::Receiver::is_there() or plan skip_all => 'the receivers need npm packages (test/setup-npm)';

my $receiver = start_receiver('webhook.cjs');
my $pg = start_cluster(preload => 1, debug => 1);
$pg->create_database('app', extension => 1);
$pg->insert('destination', topic => '*', kind => 'webhook', url => $receiver->url('/all'));
$pg->wait_for_worker;

my %kill = (
	'worker killed' => sub { my ($worker) = @_; $pg->kill_backend($worker); return },
	'postmaster killed' => sub { $pg->kill9; $pg->start; return },
	'immediate shutdown' => sub { $pg->stop('immediate'); $pg->start; return });

# point: where the worker stands; times: how often the message arrives.
my @cases = (
	{ what => 'before the claim', point => 'relay-claim-begun', times => 1 },
	{ what => 'claim uncommitted', point => 'relay-claim-uncommitted', times => 1 },
	{ what => 'claim committed', point => 'relay-claim-committed', times => 1 },
	{ what => 'sent, not marked', point => 'relay-settle-begun', times => 2 },
	{ what => 'sent, mark uncommitted', point => 'relay-settle-uncommitted', times => 2 },
	{ what => 'sent and marked', point => 'relay-settle-committed', times => 1 });

my $number = 0;
for my $case (@cases)
{
	for my $how (sort keys %kill)
	{
		my $topic = 'topic' . ++$number;
		$pg->arm($case->{point});
		my $id = $pg->sql("SELECT llmq.enqueue_outbox('$topic', '{}', '$topic')");
		my $worker = $pg->wait_for_point($case->{point});
		$pg->flush;
		$kill{$how}->($worker);
		$pg->leave_point($case->{point});
		wait_for(sub { $pg->sql("SELECT sent_at IS NOT NULL FROM llmq.outbox WHERE id = $id") eq 't' }, 60, 'the message is sent');
		my @ids = map { $_->{headers}{'webhook-id'} } $receiver->received;
		is(scalar(grep { $_ == $id } @ids), $case->{times}, "$case->{what}, $how: received $case->{times} times");
	}
}

# -- many at once -----------------------------------------------------------------

$pg->sql(q{SELECT count(llmq.enqueue_outbox('many', to_jsonb(n), 'many ' || n)) FROM generate_series(1, 400) AS n});
my $so_far = () = $receiver->received;
wait_for(sub { (my @all = $receiver->received) > $so_far + 100 }, 60, 'a quarter of them has come');
$pg->kill_backend($pg->wait_for_worker);
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.outbox WHERE topic = 'many' AND sent_at IS NOT NULL}) == 400 }, 90, 'all are sent');
my %times;
$times{ $_->{headers}{'webhook-id'} }++ for grep { $_->{body} =~ /"many"/ } $receiver->received;
is(scalar(keys %times), 400, 'a kill in the midst of many loses none');

finish();
