# LlmqTest::Process - a child process with its output in a file, ended by its id.

package LlmqTest::Process;

use strict;
use warnings;

use Fcntl;
use POSIX ();
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

# Starts @command with its output appended to $log.  The child gets signal QUIT should this process
# die without having ended it.
sub start
{
	my ($class, $log, @command) = @_;
	my $pid = fork // die "fork: $!\n";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP PIPE ALRM);
		open(STDIN,  '<',  '/dev/null') or POSIX::_exit(126);
		open(STDOUT, '>>', $log)        or POSIX::_exit(126);
		open(STDERR, '>&', \*STDOUT)    or POSIX::_exit(126);
		no warnings 'exec';
		exec('setpriv', '--pdeathsig', 'QUIT', '--', @command);
		POSIX::_exit(127);
	}
	return bless { pid => $pid, log => $log }, $class;
}

sub pid { return $_[0]{pid} }

# Tells whether the process runs, and reaps it if it does not.
sub is_running
{
	my ($self) = @_;
	return 0 unless $self->{pid};
	return 1 if waitpid($self->{pid}, POSIX::WNOHANG) == 0;
	$self->{status} = $?;
	delete $self->{pid};
	return 0;
}

# Sends $signal and waits; after $limit seconds KILL.  Returns the wait status.
sub end
{
	my ($self, $signal, $limit) = @_;
	my $stop = clock_gettime(CLOCK_MONOTONIC) + ($limit // 30);
	kill $signal, $self->{pid} if $self->is_running;
	while ($self->is_running)
	{
		kill 'KILL', $self->{pid} if clock_gettime(CLOCK_MONOTONIC) > $stop;
		sleep 0.01;
	}
	return $self->{status};
}

1;
