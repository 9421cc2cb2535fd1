# LlmqTest::Session - one psql that stays connected, for one statement after another.
#
# send() starts statements and returns at once, result() waits for them; query() is both.

package LlmqTest::Session;

use strict;
use warnings;

use IO::Select;
use IPC::Open3;
use Symbol 'gensym';
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $mark = "llmq-end-of-result";

sub new
{
	my ($class, @psql) = @_;
	my $err = gensym;
	my $pid = open3(my $in, my $out, $err, @psql, '-X', '-A', '-t', '-q', '-v', 'VERBOSITY=verbose');
	$in->autoflush(1);
	return bless { pid => $pid, in => $in, out => $out, err => $err }, $class;
}

sub send
{
	my ($self, $sql) = @_;
	die "a result is still to be read\n" if $self->{busy};
	$self->{busy} = 1;
	print { $self->{in} } "\\set LAST_ERROR_SQLSTATE 00000\n$sql\n;\n",
	  "\\echo $mark :LAST_ERROR_SQLSTATE\n\\warn $mark\n";
	return;
}

# Waits for what was sent.  Returns {out, err, sqlstate}; sqlstate is 00000 if all went well and
# undef if the connection was lost.
sub result
{
	my ($self, $limit) = @_;
	my $stop = clock_gettime(CLOCK_MONOTONIC) + ($limit // 60);
	my %text = (out => '', err => '');
	my $select = IO::Select->new($self->{out}, $self->{err});
	my $state;
	while ($select->count)
	{
		my $left = $stop - clock_gettime(CLOCK_MONOTONIC);
		die "no result after " . ($limit // 60) . " s\n" if $left <= 0;
		for my $handle ($select->can_read($left))
		{
			my $which = $handle == $self->{out} ? 'out' : 'err';
			my $got = sysread $handle, $text{$which}, 65536, length $text{$which};
			$select->remove($handle) if !$got;
			next unless $text{$which} =~ s/^\Q$mark\E ?(\w*)\n\z//m;
			$state = $1 if $which eq 'out';
			$select->remove($handle);
		}
	}
	$self->{busy} = 0;
	$self->{lost} = 1 unless defined $state;
	chomp $text{out};
	return { %text, sqlstate => $state };
}

sub query
{
	my ($self, $sql, $limit) = @_;
	$self->send($sql);
	return $self->result($limit);
}

sub is_lost { return $_[0]{lost} }

# Ends the session.  What runs in it is cut off.
sub disconnect
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	local $?;
	close $self->{in};
	kill 'TERM', $pid if $self->{busy};
	waitpid $pid, 0;
	return;
}

sub DESTROY { $_[0]->disconnect; return }

1;
