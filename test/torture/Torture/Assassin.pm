# Torture::Assassin - faults of the server: its processes killed, stopped for a while, shut down at once; and the
# provider killed.  Runs in the process that started the server, whose children they are.
#
# Victims are found by the titles of the postmaster's children, without asking the server.

package Torture::Assassin;

use strict;
use warnings;

use LlmqTest;
use Time::HiRes qw(sleep);

use constant RESTART_LIMIT => 60;

# A recovery is met by a second death with this probability.
use constant IN_RECOVERY => 0.03;

# Of each fault its weight.  All but the last two restart the server, or all its processes.
my @faults = (worker => 30, 'callback worker' => 8, backend => 20, launcher => 3, auxiliary => 5, autovacuum => 2, postmaster => 10,
	immediate => 10, provider => 6, stopped => 6);

my %titles = (worker => qr/^postgres: llmq worker/, 'callback worker' => qr/^postgres: llmq callback worker/, launcher => qr/^postgres: llmq launcher/,
	backend => qr/^postgres: \S+ (?:app|other) \[local\]/, autovacuum => qr/^postgres: autovacuum worker/,
	auxiliary => qr/^postgres: (?:checkpointer|background writer|walwriter|autovacuum launcher)/);

sub new
{
	my ($class, %options) = @_;
	return bless { %options, restarts => 0 }, $class;
}

# Commits one fault, or none when the victim that was chosen does not exist.
sub strike
{
	my ($self) = @_;
	my $fault = $self->{chance}->weighted(@faults);
	return $self->$fault if $self->can($fault);
	$self->kill_server_process($fault);
	return;
}

# Returns the children of the postmaster as (pid, title) pairs.
sub server_processes
{
	my ($self) = @_;
	my $pid = $self->{pg}->pid;
	open(my $file, '<', "/proc/$pid/task/$pid/children") or return ();
	return map { [ $_, title($_) ] } split ' ', <$file> // '';
}

sub title
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/cmdline") or return '';
	return (<$file> // '') =~ s/\0.*//sr;
}

sub victim
{
	my ($self, $what) = @_;
	my @found = grep { $_->[1] =~ $titles{$what} } $self->server_processes;
	return $self->{chance}->one_of(@found);
}

# Holds a process, so that a kill is sure to be what ends it; false: it has ended by itself.
sub hold
{
	my ($pid) = @_;
	kill 'STOP', $pid or return 0;
	my $state;
	wait_for(sub { ($state = state_of($pid)) =~ /[TZX]/ }, RESTART_LIMIT, "process $pid stops");
	return $state eq 'T';
}

# The state of a process as proc(5) has it: T stopped, Z and X at its end.
sub state_of
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 'X';
	my ($state) = (<$file> // '') =~ /.*\) (\S)/ or return 'X';
	return $state;
}

# Kills a process of the server, and waits until the postmaster has seen it and is ready again.
sub kill_server_process
{
	my ($self, $what) = @_;
	my $victim = $self->victim($what) // return;
	my ($pid, $title) = @{$victim};
	my $pg = $self->{pg};
	my $before = $pg->log_size;
	hold($pid) or return;
	kill 'KILL', $pid;
	my $seen = wait_for(sub { $pg->log_text($before) =~ /\(PID $pid\) (was terminated by signal \d+)[^\n]*/ && $1 },
		RESTART_LIMIT, "the server notices the death of $title");
	$self->record($what, $pid, 'KILL', "the server's log: $seen");
	$self->kill_in_recovery if $self->{chance}->is(IN_RECOVERY);
	$self->await_server($before);
	return;
}

# Notes a kill; those of the server's processes restart it.
sub record
{
	my ($self, $what, $pid, $signal, $end) = @_;
	$self->{restarts}++ if $signal ne 'STOP' && $what ne 'provider';
	$self->{kills}->write(what => $what, pid => $pid, signal => $signal, end => $end);
	return;
}

# Waits until the server takes connections again; starts it if the postmaster has given up.
sub await_server
{
	my ($self, $before) = @_;
	my $pg = $self->{pg};
	wait_for(sub { !$pg->is_running || $pg->log_text($before) =~ /ready to accept connections/ }, RESTART_LIMIT,
		'the server is ready again');
	$pg->start unless $pg->is_running;
	return;
}

# Kills the startup process of a recovery that goes on just now; the postmaster gives up then.
sub kill_in_recovery
{
	my ($self) = @_;
	my $pg = $self->{pg};
	my $before = $pg->log_size;
	my $end = now() + 0.5;
	while (now() < $end && $pg->is_running)
	{
		my ($victim) = grep { $_->[1] =~ /^postgres: startup/ } $self->server_processes;
		next unless $victim;
		kill 'KILL', $victim->[0] or return;
		wait_for(sub { !$pg->is_running || $pg->log_text($before) =~ /ready to accept/ }, RESTART_LIMIT, 'the postmaster gives up');
		my ($seen) = $pg->log_text($before) =~ /startup process \(PID $victim->[0]\) (was terminated by signal \d+)/ or return;
		$self->record('recovery', $victim->[0], 'KILL', "the server's log: $seen");
		return;
	}
	return;
}

sub postmaster
{
	my ($self) = @_;
	my $pid = $self->{pg}->pid;
	my $status = $self->{pg}->kill9;
	$self->record('postmaster', $pid, 'KILL', "wait status $status");
	$self->{pg}->start;
	return;
}

sub immediate
{
	my ($self) = @_;
	my $pid = $self->{pg}->pid;
	my $status = $self->{pg}->stop('immediate');
	$self->record('postmaster', $pid, 'QUIT', "wait status $status");
	$self->{pg}->start;
	return;
}

sub provider
{
	my ($self) = @_;
	my $pid = $self->{provider}->pid;
	my $status = $self->{provider}->kill9;
	$self->record('provider', $pid, 'KILL', "wait status $status");
	sleep $self->{chance}->between(0, 1);
	$self->{provider}->start;
	return;
}

# Stops a worker: mostly for a moment, at times for longer than leases last.
sub stopped
{
	my ($self) = @_;
	my $victim = $self->victim($self->{chance}->is(0.8) ? 'worker' : 'callback worker') // return;
	my $time = $self->{chance}->is(0.85) ? $self->{chance}->between(0.1, 4) : $self->{chance}->between(15, 22);
	kill 'STOP', $victim->[0] or return;
	sleep $time;
	kill 'CONT', $victim->[0];
	$self->record($victim->[1] =~ /callback worker/ ? 'callback worker' : 'worker', $victim->[0], 'STOP', sprintf 'continued after %.1f s', $time);
	return;
}

1;
