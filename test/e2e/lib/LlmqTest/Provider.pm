# LlmqTest::Provider - starts, scripts and reads test/fake/provider.py.

package LlmqTest::Provider;

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Spec;
use HTTP::Tiny;
use JSON::PP ();

use LlmqTest::Process;

my $program = File::Spec->rel2abs(dirname(__FILE__) . '/../../../fake/provider.py');

sub new
{
	my ($class, $dir, %options) = @_;
	mkdir $dir or die "$dir: $!\n";
	return bless { dir => $dir, lines => [], offset => 0, %options }, $class;
}

# Starts it; one that was killed comes back on its port, with the same log.
sub start
{
	my ($self) = @_;
	my $port_file = "$self->{dir}/port";
	unlink $port_file;
	my @args = @{ $self->{args} // [] };
	push @args, '--port', $self->{port} if $self->{port};
	push @args, '--host', $self->{host} if $self->{host};
	if (defined $self->{token})
	{
		open(my $file, '>', "$self->{dir}/token") or die "$self->{dir}/token: $!\n";
		print {$file} $self->{token};
		close $file;
		push @args, '--token-file', "$self->{dir}/token";
	}
	$self->{process} = LlmqTest::Process->start("$self->{dir}/output", '/usr/bin/python3', $program,
		'--port-file', $port_file, '--log', "$self->{dir}/log", @args);
	LlmqTest::wait_for(sub {
		$self->{process}->is_running or die "the provider did not start\n" . $self->last_words;
		-s $port_file;
	}, 60, 'the provider has written its port');
	open(my $file, '<', $port_file) or die "$port_file: $!\n";
	chomp($self->{port} = <$file>);
	return;
}

sub port { return $_[0]{port} }
sub log_path { return "$_[0]{dir}/log" }
sub pid  { return $_[0]{process}->pid }

# Returns the base URL of a provider whose API lives under $path.
sub url { return 'http://' . ($_[0]{host} // '127.0.0.1') . ":$_[0]{port}" . ($_[1] // '/v1') }

# Puts rules in front of those that are there; see test/fake/script.py.
sub script { my ($self, @rules) = @_; return $self->control('script', \@rules) }

# Lets the answers that are held under $name go.
sub release { my ($self, $name) = @_; return $self->control('release', { hold => $name }) }

# Has the provider enforce a quota on its own clock; see test/fake/quota.py.
sub quota { my ($self, %quota) = @_; return $self->control('quota', \%quota) }

sub reset { return $_[0]->control('reset', {}) }
sub state { return $_[0]->control('state') }

sub control
{
	my ($self, $command, $content) = @_;
	my $url = $self->url("/_control/$command");
	my $http = HTTP::Tiny->new(timeout => 20);
	my $reply = defined $content ? $http->post($url, { content => JSON::PP->new->utf8->encode($content) }) : $http->get($url);
	die "$command: $reply->{status} $reply->{content}" unless $reply->{success};
	return JSON::PP->new->utf8->decode($reply->{content});
}

# Returns the lines of the log so far, in order, as hashes.  Whatever a client has seen is among
# them: that is what asking for the state ensures.
sub lines
{
	my ($self) = @_;
	$self->state if $self->{process}->is_running;
	open(my $file, '<', "$self->{dir}/log") or die "$self->{dir}/log: $!\n";
	seek $file, $self->{offset}, 0;
	while (my $line = <$file>)
	{
		last unless $line =~ /\n\z/;
		$self->{offset} += length $line;
		push @{ $self->{lines} }, JSON::PP->new->utf8->decode($line);
	}
	return @{ $self->{lines} };
}

# Returns the calls of one job, or all: the request's line, with `end` and `how` of its answer once
# that is known.  Times are seconds: `start` when the request had been read, `end`.
sub calls
{
	my ($self, $job) = @_;
	my (@calls, %by_seq);
	for my $line ($self->lines)
	{
		if ($line->{event} eq 'request')
		{
			my $call = { %{$line}, start => LlmqTest::seconds($line->{t}) };
			$by_seq{ $line->{seq} } = $call;
			push @calls, $call if !defined $job || $call->{job} eq $job;
		}
		elsif (my $call = $by_seq{ $line->{seq} })
		{
			@{$call}{qw(end how status)} = (LlmqTest::seconds($line->{t}), @{$line}{qw(how status)});
		}
	}
	return @calls;
}

# Waits until $count calls of the job have been read completely, and returns them.
sub wait_for_calls
{
	my ($self, $job, $count, $limit) = @_;
	LlmqTest::wait_for(sub { $self->calls($job) >= $count }, $limit // 20, "$count calls of $job");
	return $self->calls($job);
}

# Kills it, and returns its wait status.
sub kill9 { my ($self) = @_; return $self->{process}->end('KILL') }

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
