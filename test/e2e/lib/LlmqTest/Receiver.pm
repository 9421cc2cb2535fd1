# LlmqTest::Receiver - starts and reads the receivers of outbox messages in test/receive.

package LlmqTest::Receiver;

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Spec;
use HTTP::Tiny;
use JSON::PP ();

use LlmqTest::Process;

my $test = File::Spec->rel2abs(dirname(__FILE__) . '/../../..');
my $modules = "$test/../build/node_modules";

# Whether the packages that receivers are made of were fetched (test/setup-npm).
sub is_there { return -d "$modules/standardwebhooks" }

# $program is a file of test/receive, @args go to it.
sub new
{
	my ($class, $dir, $program, @args) = @_;
	mkdir $dir or die "$dir: $!\n";
	return bless { dir => $dir, program => $program, args => \@args, lines => [], offset => 0 }, $class;
}

sub start
{
	my ($self) = @_;
	my $port_file = "$self->{dir}/port";
	local $ENV{NODE_PATH} = $modules;
	unlink $port_file;
	$self->{process} = LlmqTest::Process->start("$self->{dir}/output", 'node', "$test/receive/$self->{program}",
		'--port-file', $port_file, '--log', "$self->{dir}/log", @{ $self->{args} });
	LlmqTest::wait_for(sub {
		$self->{process}->is_running or die "the receiver did not start\n" . $self->last_words;
		-s $port_file;
	}, 30, 'the receiver has written its port');
	open(my $file, '<', $port_file) or die "$port_file: $!\n";
	chomp($self->{port} = <$file>);
	return;
}

sub port { return $_[0]{port} }
sub url { return "http://127.0.0.1:$_[0]{port}" . ($_[1] // '/') }

# Queues answers for a path; see test/receive/webhook.cjs.
sub script
{
	my ($self, $path, @answers) = @_;
	return $self->control({ path => $path, answers => \@answers });
}

# Has a path answer so until it is told otherwise.
sub always
{
	my ($self, $path, $answer) = @_;
	return $self->control({ path => $path, answers => [$answer], stay => JSON::PP::true });
}

sub control
{
	my ($self, $content) = @_;
	my $reply = HTTP::Tiny->new(timeout => 20)
		->post($self->url('/_control/script'), { content => JSON::PP->new->utf8->encode($content) });
	die "script: $reply->{status} $reply->{content}" unless $reply->{success};
	return;
}

# Returns what was received so far, in order, as hashes; of one path, if it is named.
sub received
{
	my ($self, $path) = @_;
	open(my $file, '<', "$self->{dir}/log") or return;
	seek $file, $self->{offset}, 0;
	while (my $line = <$file>)
	{
		last unless $line =~ /\n\z/;
		$self->{offset} += length $line;
		push @{ $self->{lines} }, JSON::PP->new->utf8->decode($line);
	}
	return grep { !defined $path || $_->{path} eq $path } @{ $self->{lines} };
}

# What was received so far as it stands in the receiver's log, a line each.
sub log_lines
{
	my ($self) = @_;
	open(my $file, '<', "$self->{dir}/log") or die "$self->{dir}/log: $!\n";
	return <$file>;
}

# Waits until so many were received, and returns them.
sub wait_for_received
{
	my ($self, $count, $path, $limit) = @_;
	LlmqTest::wait_for(sub { (my @all = $self->received($path)) >= $count }, $limit // 30,
		"$count received" . (defined $path ? " at $path" : ''));
	return $self->received($path);
}

sub last_words
{
	my ($self) = @_;
	open(my $file, '<', "$self->{dir}/output") or return '';
	my @lines = <$file>;
	return join '', @lines > 20 ? @lines[ -20 .. -1 ] : @lines;
}

sub stop
{
	my ($self) = @_;
	$self->{process}->end('TERM', 10) if $self->{process};
	return;
}

1;
