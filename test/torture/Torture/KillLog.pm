# Torture::KillLog - one line for every process that was killed, and how its end was seen.
#
#     TIME seed=N what="..." pid=N signal=NAME end="wait status 9"
#
# Children of ours have a wait status; of the server's children the postmaster's log tells it.

package Torture::KillLog;

use strict;
use warnings;

use Fcntl;
use Time::HiRes ();

sub new
{
	my ($class, $path, $seed) = @_;
	sysopen my $file, $path, O_WRONLY | O_APPEND | O_CREAT, 0644 or die "$path: $!\n";
	return bless { file => $file, path => $path, seed => $seed }, $class;
}

sub write
{
	my ($self, %kill) = @_;
	syswrite $self->{file}, sprintf qq{%.3f seed=%s what="%s" pid=%d signal=%s end="%s"\n},
	  Time::HiRes::time(), $self->{seed}, @kill{qw(what pid signal end)};
	return;
}

# Counts the lines of each kind.
sub counts
{
	my ($self) = @_;
	my %count;
	open(my $file, '<', $self->{path}) or die "$self->{path}: $!\n";
	while (my $line = <$file>)
	{
		$count{"$1, SIG$2"}++ if $line =~ /what="([^"]*)" pid=\d+ signal=(\w+)/;
	}
	return \%count;
}

1;
