# Torture::Troop - processes that are ours to kill, clients and others, and that are replaced when
# they are gone.  Each is told by a slot, and by a generation that grows with each of its lives.
#
# A member is {what, start}: start->(generation) does what it does in a child, and never returns.
# Programs are stopped at times instead, for longer than leases last now and then, and go on as if nothing had been.

package Torture::Troop;

use strict;
use warnings;

use LlmqTest;
use POSIX ();
use Time::HiRes qw(sleep);

# Of the faults of a program so many are stops.
use constant STOPS => 0.1;

sub new
{
	my ($class, %options) = @_;
	return bless { %options, members => [] }, $class;
}

sub add
{
	my ($self, $what, $start) = @_;
	my $member = { what => $what, start => $start, generation => 0 };
	push @{ $self->{members} }, $member;
	return;
}

sub launch
{
	my ($self, $member) = @_;
	my $generation = $member->{generation}++;
	my $pid = fork // die "fork: $!\n";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP ALRM);
		eval { $member->{start}->($generation); 1 } or print STDERR "$member->{what}: $@";
		POSIX::_exit($@ ? 1 : 0);
	}
	$member->{pid} = $pid;
	delete $member->{resume_at};
	return;
}

# Runs the troop until signal TERM, and kills one of them every 1/rate seconds on average.
sub run
{
	my ($self) = @_;
	my $parent = getppid;
	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	$self->launch($_) for @{ $self->{members} };
	until ($stop || getppid != $parent)
	{
		sleep $self->{chance}->wait(1 / $self->{rate});
		last if $stop;
		$self->strike;
		$self->reap($_) for @{ $self->{members} };
		$self->resume($_) for grep { $_->{resume_at} && now() > $_->{resume_at} } @{ $self->{members} };
	}
	$self->resume($_) for @{ $self->{members} };
	Torture::end_actors(map { $_->{pid} } @{ $self->{members} });
	return;
}

# Kills a member that runs and starts it anew, or stops it for a while.
sub strike
{
	my ($self) = @_;
	my $member = $self->{chance}->one_of(@{ $self->{members} });
	$self->reap($member);
	return $self->stop($member) if $member->{what} eq 'llmq-worker' && $self->{chance}->is(STOPS);
	my $pid = $member->{pid};
	kill 'KILL', $pid;
	waitpid $pid, 0;
	$self->{kills}->write(what => $member->{what}, pid => $pid, signal => 'KILL', end => "wait status $?");
	$self->launch($member);
	return;
}

# Stops a member, mostly for a moment.  A kill may come first.
sub stop
{
	my ($self, $member) = @_;
	return if $member->{resume_at};
	my $chance = $self->{chance};
	my $time = $chance->is(0.85) ? $chance->between(0.1, 4) : $chance->between(15, 22);
	kill 'STOP', $member->{pid};
	$member->{resume_at} = now() + $time;
	$self->{kills}->write(what => $member->{what}, pid => $member->{pid}, signal => 'STOP', end => sprintf 'to go on after %.1f s', $time);
	return;
}

sub resume
{
	my ($self, $member) = @_;
	kill 'CONT', $member->{pid} if delete $member->{resume_at};
	return;
}

# Replaces a member that has ended by itself.  None has a reason to, but a fault of its own.
sub reap
{
	my ($self, $member) = @_;
	return if waitpid($member->{pid}, POSIX::WNOHANG) == 0;
	$self->{ledger}->write(wrong => "$member->{what} has ended by itself, wait status $?");
	$self->launch($member);
	return;
}

1;
