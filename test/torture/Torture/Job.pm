# Torture::Job - the jobs of a run: what is submitted under a key, and how the provider will treat it.
#
# A shared key stands for the same job wherever it is submitted, so that clients can meet in it.

package Torture::Job;

use strict;
use warnings;

use LlmqTest::Cluster;
use Torture::Chance;

# How the provider treats a job of each kind, call by call; the last response is for all that follow.
my %responses = (
	plain    => [ {} ],
	slow     => [ { delay_ms => 150 } ],
	late     => [ { delay_ms => 900 } ],
	failing  => [ { status => 500 }, { status => 503 }, {} ],
	busy     => [ { status => 429, headers => [ [ 'Retry-After', '0.1' ] ] }, {} ],
	reset    => [ { end => 'reset', chunks => ['{"id":'] }, {} ],
	silent   => [ { end => 'hang', status => undef }, {} ],
	short    => [ { end => 'short' }, {} ],
	garbage  => [ { body => '<html>Bad gateway</html>' }, { body => "\x00\x01{" }, {} ],
	dripping => [ { chunks => [ ('{') x 60 ], chunk_delay_ms => 100 }, {} ],
	refused  => [ { status => 400 } ]);

my @kinds = (plain => 30, slow => 35, late => 15, failing => 4, busy => 3, reset => 4, silent => 2, short => 3,
	garbage => 3, dripping => 1, refused => 5);

use constant TOPICS => ('mail', 'audit');

# Where messages of a topic go, and how they are received there, time after time.
my %receives = (
	mail  => [ {} ],
	audit => [ { status => 503 }, { end => 'reset', status => undef }, { end => 'hang', status => undef }, {} ],
	sad   => [ { delay_ms => 400 } ]);

# The rules for the provider (test/fake/script.py), which is the receiver too.
sub rules
{
	return (map { { name => $_, match => "[kind:$_]", responses => $responses{$_} } } sort keys %responses),
	  map { { name => "hook-$_", path => "/hook/$_", responses => $receives{$_} } } sort keys %receives;
}

sub topics { return sort keys %receives }

# Returns the arguments of llmq.submit for a key.
sub arguments
{
	my ($seed, $key) = @_;
	my $chance = Torture::Chance->new($seed, 'job', $key);
	my $kind = $chance->weighted(@kinds);
	my @outbox = map { { topic => $_, payload => { key => $key } } } (TOPICS)[ 0 .. $chance->below(3) - 1 ];
	push @outbox, { topic => 'sad', payload => { key => $key }, on => 'dead' } if $chance->is(0.5);
	my %arguments = (
		idempotency_key => $key, queue => 'torture', prompt => "Go on. [kind:$kind] [job:$key]",
		metadata => { kind => $kind }, priority => $chance->below(10));
	$arguments{outbox} = \@outbox if @outbox;
	$arguments{on_complete} = 'public.note_effect' if $chance->is(0.2);
	return %arguments;
}

# The id of the job of a key, as an expression.
sub job_id { my ($key) = @_; return "llmq.job_id('client', 'submit', '$key')" }

# The call of llmq.submit (parent: the key of a job to come after), and the row of the client's own
# that must be there exactly if the job is.
sub submit_sql
{
	my (%arguments) = @_;
	my $key = LlmqTest::Cluster::literal($arguments{idempotency_key});
	my $parent = delete $arguments{parent};
	my $call = LlmqTest::Cluster::submit_call(%arguments);
	substr $call, -1, 0, ', after => ARRAY[' . job_id($parent) . ']' if defined $parent;
	return "SELECT job_id, state, replayed FROM $call",
	  "INSERT INTO public.mirror (key) VALUES ($key) ON CONFLICT DO NOTHING";
}

1;
