# Torture::Troop - processes that are ours to kill, clients and others, and that are replaced when
# they are gone.  Each is told by a slot, and by a generation that grows with each of its lives.
#
# A member is {slot, start}: start->(generation) does what it does in a child, and never returns.

package Torture::Troop;

use strict;
use warnings;

use POSIX ();
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

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
		$self->kill_one;
		$self->reap($_) for @{ $self->{members} };
	}
	Torture::end_actors(map { $_->{pid} } @{ $self->{members} });
	return;
}

# Kills a member that runs, and starts it anew.
sub kill_one
{
	my ($self) = @_;
	my $member = $self->{chance}->one_of(@{ $self->{members} });
	$self->reap($member);
	my $pid = $member->{pid};
	kill 'KILL', $pid;
	waitpid $pid, 0;
	$self->{kills}->write(what => $member->{what}, pid => $pid, signal => 'KILL', end => "wait status $?");
	$self->launch($member);
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
