# Torture::Client - a client: one session, one thing after another, until it is killed or told to stop.

package Torture::Client;

use strict;
use warnings;

use POSIX ();
use Time::HiRes qw(sleep);

use LlmqTest::Cluster;
use Torture::Chance;
use Torture::Job;
use Torture::Ledger;
use Torture::Wire;

# So many keys are shared by all clients; so many are the client's own work (llmq.idempotency_begin).
use constant SHARED_KEYS => 4000;
use constant ONCE_KEYS => 500;

# Seconds between two things that a client does, on average.
use constant THINK => 0.05;

# What a client may meet while other sessions, and whoever kills, do their worst: the server goes away
# or is not there yet, locks and keys are held, the queue is full, a statement is cancelled, another was first.
my %expected = map { $_ => 1 } qw(57P01 57P02 57P03 57014 55P03 40001 40P01 PT409 PT429);

my @actions = (submit => 40, submit_shared => 20, submit_many => 4, submit_child => 5, repeat => 10, contradict => 5,
	cancel => 4, look => 6, wait => 1, once => 8);

sub new
{
	my ($class, %options) = @_;
	my $name = "c$options{slot}.$options{generation}";
	return bless { %options, name => $name, chance => Torture::Chance->new($options{seed}, $name), count => 0,
		mine => [], ledger => Torture::Ledger->new("$options{dir}/c$options{slot}.ledger") }, $class;
}

# Does things until signal TERM, or until its parent is gone.
sub run
{
	my ($self) = @_;
	my $parent = getppid;
	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	until ($stop || getppid != $parent)
	{
		sleep $self->{chance}->wait(THINK);
		my $action = $self->{chance}->weighted(@actions);
		$self->$action if $self->is_connected;
	}
	return;
}

sub is_connected
{
	my ($self) = @_;
	delete $self->{wire} if $self->{wire} && $self->{wire}->is_lost;
	$self->{wire} //= Torture::Wire->connect($self->{socket_dir}, 'app', 'client');
	return $self->{wire};
}

# Runs a statement; undef when it failed or the connection was lost, which are in the order of things.
sub sql
{
	my ($self, $sql, @tolerated) = @_;
	my $reply = $self->{wire}->query($sql) // return;
	my $state = $reply->{sqlstate};
	return $reply if $state eq '00000' || grep { $_ eq $state } @tolerated;
	$self->wrong("$state $reply->{message}: $sql") unless $expected{$state};
	return;
}

sub wrong { my ($self, $what) = @_; $self->{ledger}->write(wrong => "$self->{name}: $what"); return }

sub next_name { my ($self) = @_; return "$self->{name}." . ++$self->{count} }

# Commits what the session's transaction has done; true if the server said that it is so.
sub commit
{
	my ($self, $transaction, @keys) = @_;
	$self->{ledger}->write(intent => $transaction, $_) for @keys;
	my $reply = $self->{wire}->query('COMMIT') // return 0;
	my $committed = ($reply->{tag} // '') eq 'COMMIT';
	$self->{ledger}->write($committed ? 'committed' : 'aborted', $transaction);
	return $committed;
}

sub rollback { my ($self) = @_; $self->{wire}->query('ROLLBACK'); return }

# Submits jobs in one transaction, which now and then is rolled back, or partly.
sub transact
{
	my ($self, @jobs) = @_;
	my $chance = $self->{chance};
	my $transaction = $self->next_name;
	my @keys;
	$self->sql('BEGIN') // return;
	for my $job (@jobs)
	{
		my $undo = $chance->is(0.05);
		$self->sql('SAVEPOINT s') // return if $undo;
		$self->sql($_) // return $self->rollback for Torture::Job::submit_sql(%{$job});
		$self->sql('ROLLBACK TO s') // return if $undo;
		push @keys, $job->{idempotency_key} unless $undo;
	}
	return $self->rollback if $chance->is(0.05);
	if ($self->commit($transaction, @keys))
	{
		my %kept = map { $_ => 1 } @keys;
		push @{ $self->{mine} }, grep { $kept{ $_->{idempotency_key} } } @jobs;
	}
	return;
}

sub new_job { my ($self) = @_; return { Torture::Job::arguments($self->{seed}, $self->next_name) } }

sub submit { my ($self) = @_; return $self->transact(map { $self->new_job } 0 .. $self->{chance}->below(3)) }

sub submit_shared
{
	my ($self) = @_;
	my $key = 'shared.' . $self->{chance}->below(SHARED_KEYS);
	return $self->transact({ Torture::Job::arguments($self->{seed}, $key) });
}

sub submit_child
{
	my ($self) = @_;
	my $parent = $self->any_of_mine // return;
	return $self->transact({ %{ $self->new_job }, parent => $parent->{idempotency_key} });
}

sub submit_many
{
	my ($self) = @_;
	my @jobs = map { $self->new_job } 1 .. 2 + $self->{chance}->below(10);
	my $transaction = $self->next_name;
	my @keys = map { $_->{idempotency_key} } @jobs;
	$self->sql('BEGIN') // return;
	$self->sql('SELECT count(*) FROM llmq.submit_many(' . LlmqTest::Cluster::literal(\@jobs) . ')') // return $self->rollback;
	$self->sql('INSERT INTO public.mirror (key) VALUES ' . join(', ', map { "('$_')" } @keys)) // return $self->rollback;
	push @{ $self->{mine} }, @jobs if $self->commit($transaction, @keys);
	return;
}

sub any_of_mine { my ($self) = @_; return $self->{chance}->one_of(@{ $self->{mine} }) }

# A key that was committed gives its job again, and no other.
sub repeat
{
	my ($self) = @_;
	my $job = $self->any_of_mine // return;
	my ($sql) = Torture::Job::submit_sql(%{$job});
	my $reply = $self->sql($sql) // return;
	$self->wrong("$job->{idempotency_key} was committed and is new") if $reply->{rows}[0][2] ne 't';
	return;
}

# Another request under that key is refused.
sub contradict
{
	my ($self) = @_;
	my $job = $self->any_of_mine // return;
	my ($sql) = Torture::Job::submit_sql(%{$job}, prompt => 'Something else.');
	my $reply = $self->sql($sql, 'PT422') // return;
	$self->wrong("$job->{idempotency_key} was taken with another request") if $reply->{sqlstate} ne 'PT422';
	return;
}

sub cancel
{
	my ($self) = @_;
	my $job = $self->any_of_mine // return;
	my $key = $job->{idempotency_key};
	$self->{ledger}->write(cancel => $key);
	my $reply = $self->sql('SELECT llmq.cancel(' . Torture::Job::job_id($key) . ')') // return;
	$self->{ledger}->write(cancelled => $key) if $reply->{rows}[0][0] eq 't';
	return;
}

sub look
{
	my ($self) = @_;
	my $job = $self->any_of_mine // return;
	my $key = $job->{idempotency_key};
	my $reply = $self->sql('SELECT state FROM llmq.job_status WHERE job_id = ' . Torture::Job::job_id($key)) // return;
	$self->wrong("$key was committed and is not seen in any state") unless defined(($reply->{rows}[0] // [])->[0]);
	return;
}

sub wait
{
	my ($self) = @_;
	my $job = $self->any_of_mine // return;
	$self->sql('CALL llmq.wait(' . Torture::Job::job_id($job->{idempotency_key}) . ", '1 s')");
	return;
}

# Work of the client's own under a key that all clients share: done once, whoever comes.
sub once
{
	my ($self) = @_;
	my $key = 'once.' . $self->{chance}->below(ONCE_KEYS);
	my $reply = $self->sql("SELECT outcome, token FROM llmq.idempotency_begin('torture', '$key', 'same', '2 s')") // return;
	my ($outcome, $token) = @{ $reply->{rows}[0] };
	if ($outcome eq 'replayed')
	{
		$self->{ledger}->write(once => $key);
		return;
	}
	$self->sql('BEGIN') // return;
	$self->sql("INSERT INTO public.once (key) VALUES ('$key')") // return $self->rollback;
	$reply = $self->sql("SELECT llmq.idempotency_finish('torture', '$key', '$token', 200, '{}')") // return $self->rollback;
	return $self->rollback if $reply->{rows}[0][0] ne 't';
	$reply = $self->{wire}->query('COMMIT') // return;
	$self->{ledger}->write(once => $key) if ($reply->{tag} // '') eq 'COMMIT';
	return;
}

1;
