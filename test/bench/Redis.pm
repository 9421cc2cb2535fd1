# Redis - Redis Streams as a peer of the queue bench: a server of our own, and a client that speaks
# enough of its protocol.

package Redis;

use strict;
use warnings;

use IO::Socket::UNIX;
use LlmqTest;
use LlmqTest::Process;

my $servers = 0;

# Starts a server that writes its file at each command ('always') or each second ('everysec').
sub start
{
	my ($class, $fsync) = @_;
	my $dir = LlmqTest::test_dir() . '/redis-' . ++$servers;
	mkdir $dir or die "$dir: $!\n";
	my $self = bless { dir => $dir, buffer => '' }, $class;
	$self->{process} = LlmqTest::Process->start("$dir/output", 'redis-server', '--port', 0, '--unixsocket', "$dir/socket",
		'--dir', $dir, '--save', '', '--appendonly', 'yes', '--appendfsync', $fsync);
	$self->{socket} = LlmqTest::wait_for(sub {
		$self->{process}->is_running or die "redis-server did not start\n";
		IO::Socket::UNIX->new(Peer => "$dir/socket");
	}, 20, 'redis takes connections');
	return $self;
}

sub socket_path { return "$_[0]{dir}/socket" }

# Sends a command and returns its answer; lists become array references.
sub command
{
	my ($self, @words) = @_;
	my $text = '*' . @words . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words;
	print { $self->{socket} } $text or die "redis: $!\n";
	$self->{socket}->flush;
	return $self->answer;
}

sub answer
{
	my ($self) = @_;
	my ($type, $rest) = $self->read_line =~ /\A(.)(.*)\z/s;
	die "redis: $rest\n" if $type eq '-';
	return $rest if $type eq '+' || $type eq ':';
	return undef if $rest < 0;
	return [ map { $self->answer } 1 .. $rest ] if $type eq '*';
	$self->fill while length $self->{buffer} < $rest + 2;
	return substr(substr($self->{buffer}, 0, $rest + 2, ''), 0, $rest);
}

sub read_line
{
	my ($self) = @_;
	my $end;
	$self->fill while ($end = index $self->{buffer}, "\r\n") < 0;
	return substr(substr($self->{buffer}, 0, $end + 2, ''), 0, $end);
}

sub fill
{
	my ($self) = @_;
	sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer}) or die "redis has hung up\n";
	return;
}

sub stop { my ($self) = @_; $self->{process}->end('TERM', 10); return }

1;
