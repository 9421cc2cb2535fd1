# LlmqTest::Program - an llmq-worker of the stage, a child of the test.

package LlmqTest::Program;

use strict;
use warnings;

use LlmqTest::Cluster;
use LlmqTest::Process;

# Options: name, log (its file), conninfo, args (a list), wrap (words before the command line).
sub new
{
	my ($class, %options) = @_;
	my $self = bless { log => $options{log}, name => $options{name} }, $class;
	$self->{process} = LlmqTest::Process->start($options{log}, @{ $options{wrap} // [] },
		command(@{ $options{args} // [] }, $options{conninfo} // ()));
	return $self;
}

# Returns the command line of an llmq-worker with these arguments.
sub command { my (@args) = @_; return (($ENV{LLMQ_STAGE} // '') . LlmqTest::Cluster::config('bindir') . '/llmq-worker', @args) }

sub name       { return $_[0]{name} }
sub pid        { return $_[0]{process}->pid }
sub is_running { return $_[0]{process}->is_running }

sub signal { my ($self, $signal) = @_; kill $signal, $self->pid; return }

# Waits until it ends, and returns its exit code; -1 if a signal ended it.
sub exit_code
{
	my ($self, $limit) = @_;
	LlmqTest::wait_for(sub { !$self->is_running }, $limit // 30, 'llmq-worker ends');
	my $status = $self->{process}{status};
	return $status & 127 ? -1 : $status >> 8;
}

# Tells it to end, and returns its exit code.
sub terminate { my ($self, $limit) = @_; $self->signal('TERM'); return $self->exit_code($limit) }

sub kill9 { my ($self) = @_; $self->{process}->end('KILL'); return }

sub log_text
{
	my ($self) = @_;
	open(my $file, '<', $self->{log}) or return '';
	local $/;
	return <$file> // '';
}

sub last_words { my ($self) = @_; return "the log of $self->{log}:\n" . $self->log_text }

sub stop { my ($self) = @_; $self->{process}->end('KILL', 10); return }

1;
