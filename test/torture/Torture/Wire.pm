# Torture::Wire - a session with the server, without a process between: the simple query protocol
# (PostgreSQL, "Frontend/Backend Protocol", version 3.0) over the Unix socket, with trust.
#
# What matters here is what a client can know: query() returns undef when the connection ended before
# the server had said how the statement went.

package Torture::Wire;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant PROTOCOL => 196608;	# 3.0
use constant LIMIT => 90;			# no statement here takes that long unless something hangs

# Connects, or returns undef: the server may be away.
sub connect
{
	my ($class, $socket_dir, $db, $user) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => "$socket_dir/.s.PGSQL.5432") or return;
	my $self = bless { socket => $socket, buffer => '' }, $class;
	my $words = join("\0", user => $user // 'postgres', database => $db, application_name => 'torture') . "\0\0";
	$self->write(pack('NN', 8 + length $words, PROTOCOL) . $words);
	my $reply = $self->read_reply or return;
	return $reply->{sqlstate} eq '00000' ? $self : undef;
}

# Runs a statement, or several.  Returns {rows, sqlstate, message, tag}, or undef when the connection is lost.
sub query
{
	my ($self, $sql) = @_;
	return unless $self->{socket};
	$self->write('Q' . pack('N', 5 + length $sql) . "$sql\0");
	return $self->read_reply;
}

sub is_lost { return !$_[0]{socket} }

sub disconnect
{
	my ($self) = @_;
	$self->write('X' . pack('N', 4)) if $self->{socket};
	return $self->lose;
}

sub lose { my ($self) = @_; delete $self->{socket}; return }

sub write
{
	my ($self, $data) = @_;
	while (length $data)
	{
		my $sent = syswrite $self->{socket}, $data;
		next if !defined $sent && $!{EINTR};
		return unless $sent;		# the read that follows notices
		substr($data, 0, $sent, '');
	}
	return;
}

# Reads messages up to ReadyForQuery.
sub read_reply
{
	my ($self) = @_;
	my %reply = (rows => [], sqlstate => '00000', message => '');
	my $stop = clock_gettime(CLOCK_MONOTONIC) + LIMIT;
	while (my ($type, $body) = $self->read_message($stop))
	{
		if    ($type eq 'Z') { return \%reply }
		elsif ($type eq 'C') { $reply{tag} = unpack 'Z*', $body }
		elsif ($type eq 'D') { push @{ $reply{rows} }, row($body) }
		elsif ($type eq 'E') { @reply{qw(sqlstate message)} = error($body) }
	}
	return;
}

sub row
{
	my ($body) = @_;
	my @row;
	my $at = 2;
	for (1 .. unpack 'n', $body)
	{
		my $length = unpack 'l>', substr $body, $at, 4;
		push @row, $length < 0 ? undef : substr $body, $at + 4, $length;
		$at += 4 + ($length < 0 ? 0 : $length);
	}
	return \@row;
}

sub error
{
	my ($body) = @_;
	my %field = map { substr($_, 0, 1) => substr($_, 1) } grep { length } split /\0/, $body;
	return @field{qw(C M)};
}

sub read_message
{
	my ($self, $stop) = @_;
	$self->fill(5, $stop) or return;
	my ($type, $length) = unpack 'aN', $self->{buffer};
	$self->fill(1 + $length, $stop) or return;
	my $body = substr $self->{buffer}, 5, $length - 4;
	substr $self->{buffer}, 0, 1 + $length, '';
	return ($type, $body);
}

# Reads until $size bytes are in the buffer.  A server that says nothing for LIMIT hangs: that is a
# fault, and no lost connection.
sub fill
{
	my ($self, $size, $stop) = @_;
	my $select = IO::Select->new($self->{socket} // return 0);
	while (length $self->{buffer} < $size)
	{
		my $left = $stop - clock_gettime(CLOCK_MONOTONIC);
		die 'the server has said nothing for ' . LIMIT . " s\n" if $left <= 0;
		next unless $select->can_read($left);
		my $got = sysread $self->{socket}, $self->{buffer}, 65536, length $self->{buffer};
		next if !defined $got && $!{EINTR};
		return $self->lose // 0 unless $got;
	}
	return 1;
}

1;
